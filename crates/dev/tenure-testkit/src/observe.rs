//! What can be seen of a node from outside: its metrics, the CPU time and the memory that it uses.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// How long an answer may take.
const LIMIT: Duration = Duration::from_secs(10);
/// The unit of `/proc/PID/stat`, which Linux fixes at this for programs whatever the kernel uses inside.
const TICKS_PER_SECOND: u64 = 100;

/// Everything that a node counts, by name with labels, as it stands in the Prometheus text.
///
/// # Panics
/// If it does not answer.
pub async fn metrics(address: SocketAddr) -> BTreeMap<String, f64> {
    let text = tokio::time::timeout(LIMIT, http_get(address, "/metrics"))
        .await
        .unwrap_or_else(|_| panic!("{address} did not answer in {LIMIT:?}"))
        .unwrap_or_else(|error| panic!("{address} cannot be asked: {error}"));
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    samples
        .filter_map(|line| {
            let (name, value) = line.rsplit_once(' ')?;
            Some((name.to_owned(), value.parse().ok()?))
        })
        .collect()
}

/// One metric; zero if it was never counted.
///
/// # Panics
/// If the node does not answer.
pub async fn metric(address: SocketAddr, name: &str) -> f64 {
    metrics(address).await.get(name).copied().unwrap_or_default()
}

/// Whether a node says that it is ready, and what else it says of itself and of others.
///
/// # Panics
/// If it does not answer.
pub async fn ready(address: SocketAddr) -> String {
    let text = tokio::time::timeout(LIMIT, http_get(address, "/readyz")).await;
    text.unwrap_or_else(|_| panic!("{address} did not answer in {LIMIT:?}"))
        .unwrap_or_else(|error| panic!("{address} cannot be asked: {error}"))
}

/// The CPU time that a process has used, in user and kernel together.
///
/// # Panics
/// If there is no such process.
pub fn cpu_time(pid: u32) -> Duration {
    let path = format!("/proc/{pid}/stat");
    let stat = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path} cannot be read: {error}"));
    // The name of the program, in parentheses, may hold anything; behind it the fields are counted from the third.
    let (_, fields) = stat.rsplit_once(") ").expect("a name in parentheses");
    let fields: Vec<&str> = fields.split(' ').collect();
    let ticks = |number: usize| fields[number - 3].parse::<u64>().expect("a number of ticks");
    Duration::from_millis((ticks(14) + ticks(15)) * 1_000 / TICKS_PER_SECOND)
}

/// The memory of a process that is in use now.
///
/// # Panics
/// If there is no such process.
pub fn resident_bytes(pid: u32) -> u64 {
    let path = format!("/proc/{pid}/status");
    let status = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path} cannot be read: {error}"));
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kibibytes = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    kibibytes.expect("a number of kibibytes") << 10
}

async fn http_get(address: SocketAddr, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let (_, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
    Ok(body.to_owned())
}
