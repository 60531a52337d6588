//! Bytes of ZooKeeper's protocol: what is sent, and what comes back.
//!
//! A frame is a length and so many bytes; numbers are big-endian; texts and byte strings have a length before them.

use super::Trouble;

pub(super) const CREATE: i32 = 1;
pub(super) const DELETE: i32 = 2;
pub(super) const PING: i32 = 11;
/// The number of a ping, which no call has.
pub(super) const PING_XID: i32 = -2;
pub(super) const NO_NODE: i32 = -101;
pub(super) const BAD_VERSION: i32 = -103;
pub(super) const NODE_EXISTS: i32 = -110;

/// An answer is longer than this only if it is none.
const FRAME_LENGTH_MAX: usize = 1 << 20;
/// A node's flag: it goes with its session.
const EPHEMERAL: i32 = 1;
/// Every permission.
const ALL: i32 = 31;

/// What a session shows when it comes again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) session: i64,
    pub(super) password: Vec<u8>,
    /// What the server has allowed, in milliseconds.
    pub(super) timeout_ms: i32,
}

/// The body that creates a node, which anybody may do anything with.
pub(super) fn create(path: &str, data: &str, ephemeral: bool) -> Vec<u8> {
    let mut body = Vec::new();
    put_bytes(&mut body, path.as_bytes());
    put_bytes(&mut body, data.as_bytes());
    put(&mut body, 1);
    put(&mut body, ALL);
    put_bytes(&mut body, b"world");
    put_bytes(&mut body, b"anyone");
    put(&mut body, if ephemeral { EPHEMERAL } else { 0 });
    body
}

/// The body that deletes a node if it has this version.
pub(super) fn delete(path: &str, version: i32) -> Vec<u8> {
    let mut body = Vec::new();
    put_bytes(&mut body, path.as_bytes());
    put(&mut body, version);
    body
}

/// Adds a frame with a request.
pub(super) fn put_request(out: &mut Vec<u8>, xid: i32, operation: i32, body: &[u8]) {
    put_length(out, body.len() + 8);
    put(out, xid);
    put(out, operation);
    out.extend_from_slice(body);
}

/// The frame that opens a session, or takes one up again.
pub(super) fn connect(timeout_ms: i32, last_zxid: i64, again: Option<&Identity>) -> Vec<u8> {
    let nobody = [0; 16];
    let (session, password) = again.map_or((0, &nobody[..]), |identity| (identity.session, &identity.password));
    let mut body = Vec::new();
    put(&mut body, 0);
    body.extend(last_zxid.to_be_bytes());
    put(&mut body, timeout_ms);
    body.extend(session.to_be_bytes());
    put_bytes(&mut body, password);
    // Not for reads alone.
    body.push(0);
    let mut frame = Vec::new();
    put_length(&mut frame, body.len());
    frame.extend(body);
    frame
}

/// Reads the answer to `connect`.
pub(super) fn connected(frame: &[u8]) -> Result<Identity, Trouble> {
    let mut rest = frame;
    let _protocol = take(&mut rest)?;
    let timeout_ms = take(&mut rest)?;
    let session = take_long(&mut rest)?;
    let length = usize::try_from(take(&mut rest)?).map_err(|_| Trouble::Garbled)?;
    let password = rest.get(..length).ok_or(Trouble::Garbled)?.to_vec();
    // That is how it says that it does not know the session any more.
    if timeout_ms <= 0 || session == 0 {
        return Err(Trouble::Expired);
    }
    Ok(Identity {
        session,
        password,
        timeout_ms,
    })
}

/// The head of an answer: the number of the request, where the server is, and whether it was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) xid: i32,
    pub(super) zxid: i64,
    pub(super) code: i32,
}

/// Reads the head of an answer.
pub(super) fn answer(frame: &[u8]) -> Result<Answer, Trouble> {
    let mut rest = frame;
    Ok(Answer {
        xid: take(&mut rest)?,
        zxid: take_long(&mut rest)?,
        code: take(&mut rest)?,
    })
}

/// Where the first whole frame of what was read is, and how much to remove with it; `None` if more must be read.
pub(super) fn first_frame(read: &[u8]) -> Result<Option<(&[u8], usize)>, Trouble> {
    let mut rest = read;
    if rest.len() < 4 {
        return Ok(None);
    }
    let length = usize::try_from(take(&mut rest)?).map_err(|_| Trouble::Garbled)?;
    if length > FRAME_LENGTH_MAX {
        return Err(Trouble::Garbled);
    }
    Ok(rest.get(..length).map(|frame| (frame, length + 4)))
}

fn put(out: &mut Vec<u8>, number: i32) {
    out.extend(number.to_be_bytes());
}

fn put_length(out: &mut Vec<u8>, length: usize) {
    put(out, i32::try_from(length).expect("what the measurement sends is short"));
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_length(out, bytes.len());
    out.extend_from_slice(bytes);
}

fn take(rest: &mut &[u8]) -> Result<i32, Trouble> {
    let (number, after) = rest.split_first_chunk().ok_or(Trouble::Garbled)?;
    *rest = after;
    Ok(i32::from_be_bytes(*number))
}

fn take_long(rest: &mut &[u8]) -> Result<i64, Trouble> {
    let (number, after) = rest.split_first_chunk().ok_or(Trouble::Garbled)?;
    *rest = after;
    Ok(i64::from_be_bytes(*number))
}

#[cfg(test)]
mod tests;
