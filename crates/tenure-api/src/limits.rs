//! The bounds of the wire, which both sides keep. What the machine allows beyond them is the server's own affair.

/// The protocol that this version speaks, in a hello.
pub const PROTOCOL: u32 = 1;

/// Bytes of one encoded message, either way. A peer that sends a longer one is disconnected.
pub const MESSAGE_BYTES_MAX: usize = 4 << 20;
/// Bytes of changes after which a server closes one `Changes` message and begins the next.
pub const CHANGES_BYTES_MAX: usize = 1 << 20;

/// Bytes of a tenant's, namespace's, cache's or stream's name.
pub const NAME_BYTES_MAX: usize = 128;
/// Bytes of a key.
pub const KEY_BYTES_MAX: usize = 4_096;
/// Bytes of a value.
pub const VALUE_BYTES_MAX: usize = 1 << 20;
/// Bytes of a session's label and of a client's name in a hello.
pub const LABEL_BYTES_MAX: usize = 256;
/// Bytes of a session's secret, a nonce, a one-shot id and a cluster id: exactly so many.
pub const IDENTITY_BYTES: usize = 16;

/// Sessions of one keep-alive.
pub const KEEP_ALIVE_SESSIONS_MAX: usize = 1_024;
/// Single acknowledged numbers that one request carries beside its low mark.
pub const ACKNOWLEDGEMENTS_MAX: usize = 1_024;
/// Rows of one page of a listing; a request for 0 or for more gets so many.
pub const PAGE_ROWS_MAX: usize = 1_000;
/// Requests and watches in flight on one multiplexed stream; beyond it a frame is answered `overloaded`.
pub const STREAM_REQUESTS_MAX: usize = 4_096;

/// Guards and operations of one transaction together.
pub const TXN_ITEMS_MAX: usize = 128;
/// Bytes of the keys, values, records and message ids of one transaction.
pub const TXN_BYTES_MAX: usize = 2 << 20;
/// Records of one append.
pub const APPEND_RECORDS_MAX: usize = 1_024;
/// Bytes of the records of one append together; each may have [`VALUE_BYTES_MAX`].
pub const APPEND_BYTES_MAX: usize = 2 << 20;
/// Bytes of a message id.
pub const MESSAGE_ID_BYTES_MAX: usize = 255;
/// For how long a stream remembers message ids if its creation does not say, in milliseconds.
pub const DEDUP_WINDOW_MS_DEFAULT: u64 = 120_000;
/// For how long a stream remembers message ids at most, in milliseconds.
pub const DEDUP_WINDOW_MS_MAX: u64 = 24 * 3_600_000;
/// Bytes of records after which a server closes one message of following and begins the next.
pub const RECORDS_BYTES_MAX: usize = 1 << 20;

/// How far ahead of the home group's time a client sets the `not_after` of a one-shot request, in milliseconds.
pub const ONE_SHOT_AHEAD_MS: u64 = 60_000;
/// How far ahead a server allows it, in milliseconds.
pub const ONE_SHOT_AHEAD_MS_MAX: u64 = 120_000;

/// Bytes of an error's message; a longer one is cut at a character.
pub const ERROR_MESSAGE_BYTES_MAX: usize = 1_024;
/// Bytes of an encoded error in a trailer. HTTP/2 peers refuse long headers, and a trailer is base64, a third longer.
pub const ERROR_TRAILER_BYTES_MAX: usize = 6 << 10;

// A message holds the largest write: a value, its guard's value, a key, and the envelope around them.
const _: () = assert!(2 * VALUE_BYTES_MAX + KEY_BYTES_MAX + (64 << 10) < MESSAGE_BYTES_MAX);
// A message holds the largest transaction and the largest append.
const _: () =
    assert!(TXN_BYTES_MAX + (64 << 10) < MESSAGE_BYTES_MAX && APPEND_BYTES_MAX + (64 << 10) < MESSAGE_BYTES_MAX);
// A page of records may go over its mark by one record and still fits, with the frame of each record.
const _: () = assert!(RECORDS_BYTES_MAX + VALUE_BYTES_MAX + PAGE_ROWS_MAX * 64 < MESSAGE_BYTES_MAX);
// A message of changes may go over its mark by one change and still fits.
const _: () = assert!(CHANGES_BYTES_MAX + VALUE_BYTES_MAX + KEY_BYTES_MAX + (64 << 10) < MESSAGE_BYTES_MAX);
// A trailer holds the largest detail, which is a key, with a whole message.
const _: () = assert!(KEY_BYTES_MAX + ERROR_MESSAGE_BYTES_MAX + 512 <= ERROR_TRAILER_BYTES_MAX);
// Trailer and percent-encoded message stay below 16 KiB, the least that HTTP/2 libraries commonly allow.
const _: () = assert!(ERROR_TRAILER_BYTES_MAX * 4 / 3 + 3 * ERROR_MESSAGE_BYTES_MAX + 1_024 < 16 << 10);
// What a client asks for is within what a server allows, with room for the time in between.
const _: () = assert!(ONE_SHOT_AHEAD_MS * 2 <= ONE_SHOT_AHEAD_MS_MAX);
