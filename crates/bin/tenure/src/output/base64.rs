//! Base64 with padding, for bytes that are no text.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Encodes bytes by the standard alphabet.
pub(crate) fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let byte = |index: usize| u32::from(chunk.get(index).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for digit in 0..4 {
            // One byte makes two digits, two make three.
            if digit > chunk.len() {
                text.push('=');
            } else {
                let index = bits >> (18 - 6 * digit) & 0x3f;
                text.push(char::from(ALPHABET[index as usize]));
            }
        }
    }
    text
}

/// The bytes of such a text; `None` if it is none. There is one text for any bytes.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(4) {
        return None;
    }
    let digits = text.trim_end_matches('=').bytes();
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let (mut bits, mut count) = (0_u32, 0);
    for digit in digits {
        let value = ALPHABET.iter().position(|known| *known == digit)?;
        bits = bits << 6 | u32::try_from(value).ok()?;
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count & 0xff) as u8);
        }
    }
    (encode(&bytes) == text).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::{decode, encode};

    #[test]
    fn the_examples_of_rfc_4648_are_encoded() {
        for (text, encoded) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(encode(text.as_bytes()), encoded);
            assert_eq!(decode(encoded).unwrap(), text.as_bytes());
        }
        assert_eq!(encode(&[0xff, 0xfe, 0xfb]), "//77");
    }

    #[test]
    fn what_is_not_written_as_it_would_be_encoded_is_refused() {
        for text in [
            "Zg",
            "Zg=",
            "Zg===",
            "Zh==",
            "Z===",
            "====",
            "Zm9v Zm9v",
            "Zm-v",
            "Zm9vZg",
        ] {
            assert_eq!(decode(text), None, "{text}");
        }
        assert_eq!(decode("//77").unwrap(), [0xff, 0xfe, 0xfb]);
    }
}
