//! A session of ZooKeeper: it sends calls as they come, matches answers, pings, and moves to the next address when a
//! connection is lost.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, MissedTickBehavior};

use super::wire::{self, Identity};
use super::{CALLS_MAX, Trouble};

/// What the session asks for; the server may give another. Long enough for any leader to be elected.
const SESSION_TIMEOUT_MS: i32 = 30_000;
/// A session pings so many times in its timeout.
const PINGS: u32 = 3;
/// How long a session waits before it tries the next address.
const BETWEEN_ADDRESSES: Duration = Duration::from_millis(10);

/// Calls under way, in the order in which they were sent.
type Waiting = VecDeque<(i32, oneshot::Sender<Result<(), Trouble>>)>;

/// What a worker asks.
pub(super) struct Call {
    pub(super) operation: i32,
    pub(super) body: Vec<u8>,
    /// Whether it was done.
    pub(super) answer: oneshot::Sender<Result<(), Trouble>>,
}

/// Opens a session at the first address that can be reached, and lets it run until `calls` is closed or the session has
/// ended. When the session has ended, calls are dropped without an answer.
pub(super) async fn open(addresses: &[String], timeout: Duration, calls: mpsc::Receiver<Call>) -> Result<(), Trouble> {
    let mut session = Session {
        addresses: addresses.to_vec(),
        current: 0,
        timeout,
        identity: None,
        last_zxid: 0,
        next_xid: 1,
    };
    let until = Instant::now() + timeout;
    let stream = loop {
        match session.attach().await {
            Ok(stream) => break stream,
            Err(trouble) if Instant::now() >= until => return Err(trouble),
            Err(_) => session.move_on().await,
        }
    };
    tokio::spawn(session.run(stream, calls));
    Ok(())
}

struct Session {
    addresses: Vec<String>,
    current: usize,
    /// For connecting.
    timeout: Duration,
    identity: Option<Identity>,
    last_zxid: i64,
    next_xid: i32,
}

/// Why a connection is not used any more.
enum End {
    /// It is lost, or the server is confused.
    Lost,
    /// Nobody asks any more.
    Done,
}

impl Session {
    /// Serves until nobody asks any more or the session has ended.
    async fn run(mut self, mut stream: TcpStream, mut calls: mpsc::Receiver<Call>) {
        loop {
            if let End::Done = self.serve(stream, &mut calls).await {
                return;
            }
            stream = loop {
                self.move_on().await;
                match self.attach().await {
                    Ok(stream) => break stream,
                    Err(Trouble::Expired) => return,
                    Err(_) if calls.is_closed() => return,
                    Err(_) => {}
                }
            };
        }
    }

    async fn move_on(&mut self) {
        self.current = self.current.wrapping_add(1);
        tokio::time::sleep(BETWEEN_ADDRESSES).await;
    }

    /// Connects to the current address as this session, or as a new one if there is none yet.
    async fn attach(&mut self) -> Result<TcpStream, Trouble> {
        let index = self.current % self.addresses.len().max(1);
        let address = self.addresses.get(index).ok_or(Trouble::Lost)?.clone();
        let greeting = wire::connect(SESSION_TIMEOUT_MS, self.last_zxid, self.identity.as_ref());
        let greeting = async {
            let mut stream = TcpStream::connect(address).await.map_err(|_| Trouble::Lost)?;
            stream.set_nodelay(true).map_err(|_| Trouble::Lost)?;
            stream.write_all(&greeting).await.map_err(|_| Trouble::Lost)?;
            let mut read = Vec::new();
            loop {
                // The server says nothing else before it is asked.
                if let Some((frame, _)) = wire::first_frame(&read)? {
                    return Ok((stream, wire::connected(frame)?));
                }
                more(&mut stream, &mut read).await?;
            }
        };
        let greeted = tokio::time::timeout(self.timeout, greeting).await;
        let (stream, identity) = greeted.unwrap_or(Err(Trouble::Late))?;
        self.identity = Some(identity);
        Ok(stream)
    }

    /// Sends and answers over one connection. What is under way when it is lost fails.
    async fn serve(&mut self, mut stream: TcpStream, calls: &mut mpsc::Receiver<Call>) -> End {
        let mut waiting = Waiting::new();
        let end = self.exchange(&mut stream, calls, &mut waiting).await;
        for (_, answer) in waiting {
            // Whoever asked may have given up.
            let _ = answer.send(Err(Trouble::Lost));
        }
        end
    }

    async fn exchange(
        &mut self,
        stream: &mut TcpStream,
        calls: &mut mpsc::Receiver<Call>,
        waiting: &mut Waiting,
    ) -> End {
        let granted_ms = self
            .identity
            .as_ref()
            .map_or(SESSION_TIMEOUT_MS, |known| known.timeout_ms);
        let granted = Duration::from_millis(u64::from(granted_ms.unsigned_abs()).max(1));
        let mut pings = tokio::time::interval(granted / PINGS);
        pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut read, mut to_write, mut batch) = (Vec::new(), Vec::new(), Vec::new());
        loop {
            // Both can be given up half-way: nothing that was received is lost.
            tokio::select! {
                received = calls.recv_many(&mut batch, CALLS_MAX) => {
                    if received == 0 {
                        return End::Done;
                    }
                    for Call { operation, body, answer } in batch.drain(..) {
                        wire::put_request(&mut to_write, self.next_xid, operation, &body);
                        waiting.push_back((self.next_xid, answer));
                        // From 1 on: negative numbers mean something else.
                        self.next_xid = self.next_xid.checked_add(1).unwrap_or(1);
                    }
                }
                _ = pings.tick() => wire::put_request(&mut to_write, wire::PING_XID, wire::PING, &[]),
                got = more(stream, &mut read) => {
                    if got.is_err() || self.answered(&mut read, waiting).is_err() {
                        return End::Lost;
                    }
                }
            }
            if !to_write.is_empty() {
                if stream.write_all(&to_write).await.is_err() {
                    return End::Lost;
                }
                to_write.clear();
            }
        }
    }

    /// Gives every whole answer to who waits for it.
    fn answered(&mut self, read: &mut Vec<u8>, waiting: &mut Waiting) -> Result<(), Trouble> {
        let mut taken = 0;
        while let Some((frame, length)) = wire::first_frame(&read[taken..])? {
            let head = wire::answer(frame)?;
            taken += length;
            if head.xid == wire::PING_XID {
                continue;
            }
            self.last_zxid = self.last_zxid.max(head.zxid);
            match waiting.pop_front() {
                Some((xid, answer)) if xid == head.xid => {
                    let result = if head.code == 0 {
                        Ok(())
                    } else {
                        Err(Trouble::Code(head.code))
                    };
                    // Whoever asked may have given up.
                    let _ = answer.send(result);
                }
                _ => return Err(Trouble::Garbled),
            }
        }
        read.drain(..taken);
        Ok(())
    }
}

/// Reads what is there, at least a byte.
async fn more(stream: &mut TcpStream, read: &mut Vec<u8>) -> Result<(), Trouble> {
    match stream.read_buf(read).await {
        Ok(0) | Err(_) => Err(Trouble::Lost),
        Ok(_) => Ok(()),
    }
}
