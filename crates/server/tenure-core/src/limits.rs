//! Every bound of the machine in one place, with the relations between them asserted when it is compiled.

use crate::time::Span;

/// Bytes of a tenant's, namespace's or cache's name.
pub const NAME_BYTES_MAX: usize = 128;
/// Bytes of a key.
pub const KEY_BYTES_MAX: usize = 4_096;
/// Bytes of a value.
pub const VALUE_BYTES_MAX: usize = 1 << 20;
/// Bytes of a session's label.
pub const LABEL_BYTES_MAX: usize = 256;
/// Bytes of a value that a refusal quotes; of a longer one it gives the length.
pub const REFUSAL_VALUE_BYTES_MAX: usize = 4_096;

/// Commands of one log entry.
pub const ENTRY_COMMANDS_MAX: usize = 1_024;
/// Bytes of one log entry, unless it holds a single larger command.
pub const ENTRY_BYTES_MAX: usize = 1 << 20;
/// Keep-alives of one log entry.
pub const ENTRY_KEEP_ALIVES_MAX: usize = 16_384;

/// The shortest TTL of a key.
pub const KEY_TTL_MIN: Span = Span::from_millis(1);
/// The longest TTL of a key: ten years.
pub const KEY_TTL_MAX: Span = Span::from_secs(10 * 365 * 24 * 3_600);
/// The shortest TTL of a session. It leaves room for six keep-alives of at least 83 ms.
pub const SESSION_TTL_MIN: Span = Span::from_millis(500);
/// The longest TTL of a session.
pub const SESSION_TTL_MAX: Span = Span::from_secs(24 * 3_600);
/// A session without a TTL is only an identity; it ends after so long without a request.
pub const IDENTITY_SESSION_IDLE: Span = Span::from_secs(3_600);
/// How long the results of an ended session go on answering repeats.
pub const SESSION_RESULTS_KEPT: Span = Span::from_secs(15 * 60);

/// Seqs whose results a session keeps.
pub const SESSION_RESULTS_MAX: usize = 1_024;
/// Bytes of results that a session keeps.
pub const SESSION_RESULT_BYTES_MAX: usize = 4 << 20;
/// Ranges of acknowledged seqs above the low mark.
pub const SESSION_ACKNOWLEDGED_RANGES_MAX: usize = 64;
/// Acknowledgements that one request may carry besides its low mark.
pub const REQUEST_ACKNOWLEDGEMENTS_MAX: usize = 1_024;
/// What a session may own.
pub const SESSION_OWNED_MAX: usize = 4_096;
/// Sessions of a group that are open or still answer repeats.
pub const SESSIONS_MAX: usize = 1_000_000;

/// Remembered one-shot requests of a group.
pub const ONE_SHOTS_MAX: usize = 100_000;
/// Bytes of results of remembered one-shot requests of a group.
pub const ONE_SHOT_BYTES_MAX: usize = 64 << 20;
/// How far ahead the `not_after` of a one-shot request may lie.
pub const ONE_SHOT_AHEAD_MAX: Span = Span::from_secs(120);

/// Objects that end in one entry, and rows that are swept in one entry.
pub const ENDED_PER_ENTRY_MAX: usize = 4_096;
/// Namespaces of a cluster.
pub const NAMESPACES_MAX: usize = 10_000;
/// Caches of a namespace.
pub const OBJECTS_PER_NAMESPACE_MAX: usize = 1_024;
/// Keys, sessions or caches of one page of a listing.
pub const PAGE_ROWS_MAX: usize = 1_000;
/// Bytes of one page of a listing.
pub const PAGE_BYTES_MAX: usize = 1 << 20;

/// Revisions of one block.
pub const BLOCK_REVISIONS: u64 = 1 << 28;
/// A group asks for its next block when so many revisions are left.
pub const BLOCK_LOW_REVISIONS: u64 = BLOCK_REVISIONS / 4;
/// Blocks that a group holds and has not begun.
pub const BLOCKS_WAITING_MAX: usize = 4;

// A session is never split over entries, so what it may own must fit one entry.
const _: () = assert!(SESSION_OWNED_MAX <= ENDED_PER_ENTRY_MAX);
// One entry consumes at most a revision for each command and each end, so a block that is low still
// serves very many entries before the next one must have come.
const _: () = assert!(BLOCK_LOW_REVISIONS > 1_000 * (ENTRY_COMMANDS_MAX + ENDED_PER_ENTRY_MAX) as u64);
// A page and a value both fit a wire message of 4 MiB.
const _: () = assert!(PAGE_BYTES_MAX + VALUE_BYTES_MAX + KEY_BYTES_MAX < 4 << 20);
// A remembered result outlives every repeat that a client of ours can still send for it.
const _: () = assert!(SESSION_RESULTS_KEPT.0 > ONE_SHOT_AHEAD_MAX.0);
