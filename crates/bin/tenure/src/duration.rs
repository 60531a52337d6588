//! Lengths of time as people write and read them: `250ms`, `10s`, `5m`, `24h`.

use std::time::Duration;

/// The units, with their length in milliseconds.
const UNITS: [(&str, u64); 4] = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000)];

/// Reads a whole number with its unit.
///
/// # Errors
/// The rule that the text breaks.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let rule = || "a whole number with its unit, as in 250ms, 10s, 5m or 24h".to_owned();
    let (_, unit_ms) = UNITS.into_iter().find(|(name, _)| *name == unit).ok_or_else(rule)?;
    if number.is_empty() {
        return Err(rule());
    }
    let too_long = || "that is longer than can be counted".to_owned();
    let number: u64 = number.parse().map_err(|_| too_long())?;
    if number == 0 {
        return Err("it must be more than nothing".to_owned());
    }
    number
        .checked_mul(unit_ms)
        .map(Duration::from_millis)
        .ok_or_else(too_long)
}

/// Writes a length of time for people, never longer than it is: milliseconds below a second, else tenths of seconds.
pub(crate) fn display(length: Duration) -> String {
    match length.as_secs() {
        0 => format!("{}ms", length.as_millis()),
        seconds => format!("{seconds}.{}s", length.subsec_millis() / 100),
    }
}

/// Whole milliseconds, rounded down, for JSON: a double holds 280,000 years of them.
pub(crate) fn whole_ms(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
