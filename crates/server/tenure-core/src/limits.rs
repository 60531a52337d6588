//! Every bound of the machine in one place, with the relations between them asserted when it is compiled.

use crate::time::Span;

/// Bytes of a tenant's, namespace's, cache's or stream's name.
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

/// Keys that one step of a deletion by prefix removes or ends. An entry in which so many have gone does no further step.
pub const PREFIX_DELETED_MAX: usize = 4_096;
/// Bytes of the keys and values that one step of a deletion by prefix removes, unless there is a single larger one.
pub const PREFIX_DELETED_BYTES_MAX: usize = 4 << 20;

/// Guards and operations of a transaction, both branches together.
pub const TXN_ITEMS_MAX: usize = 128;
/// Bytes of the keys, values and records of a transaction.
pub const TXN_BYTES_MAX: usize = 2 << 20;
/// Bytes of the values that a transaction reads, which are part of its answer.
pub const TXN_READ_BYTES_MAX: usize = 1 << 20;
/// Bytes that the transactions of one entry read and its repeats bring back: their answers are in memory together.
pub const ENTRY_READ_BYTES_MAX: usize = 16 << 20;

/// Records of one append.
pub const APPEND_RECORDS_MAX: usize = 1_024;
/// Bytes of a record.
pub const RECORD_BYTES_MAX: usize = 1 << 20;
/// Bytes of the records of one append.
pub const APPEND_BYTES_MAX: usize = 2 << 20;
/// Bytes of a message id.
pub const MESSAGE_ID_BYTES_MAX: usize = 255;
/// The highest fencing token.
pub const TOKEN_MAX: u64 = i64::MAX as u64;
/// How long a stream knows message ids if its creation does not say.
pub const DEDUP_WINDOW_DEFAULT: Span = Span::from_secs(2 * 60);
/// How long a stream knows message ids at most.
pub const DEDUP_WINDOW_MAX: Span = Span::from_secs(24 * 3_600);
/// Message ids that a stream knows.
pub const STREAM_MESSAGE_IDS_MAX: u64 = 1_000_000;
/// Records that an append removes at once, for each that it adds, where its stream is to hold fewer bytes.
pub const SHORTENED_PER_RECORD: usize = 2;

/// Remembered numbered requests of a group, which memory lists: some for each session.
pub const RESULTS_MAX: usize = 4 * SESSIONS_MAX;
/// Remembered one-shot requests of a group.
pub const ONE_SHOTS_MAX: usize = 100_000;
/// Bytes of results of remembered one-shot requests of a group.
pub const ONE_SHOT_BYTES_MAX: usize = 64 << 20;
/// How far ahead the `not_after` of a one-shot request may lie.
pub const ONE_SHOT_AHEAD_MAX: Span = Span::from_secs(120);

/// Objects that end in one entry at most: those of one session, which is never split.
pub const ENDED_PER_ENTRY_MAX: usize = 4_096;
/// Objects that end and rows that are swept in one entry if no single session takes more. Commands wait behind the ends
/// of the entries before theirs, so this is what keeps a claim quick while very much ends at once.
pub const ENDED_PER_ENTRY_USUAL: usize = 768;
/// Nodes of a cluster. Each has a replica of every group and a stream to every other one.
pub const NODES_MAX: usize = 64;
/// Namespaces of a cluster.
pub const NAMESPACES_MAX: usize = 10_000;
/// Caches and streams of a namespace.
pub const OBJECTS_PER_NAMESPACE_MAX: usize = 1_024;
/// Keys, sessions or caches of one page of a listing.
pub const PAGE_ROWS_MAX: usize = 1_000;
/// Bytes of one page of a listing.
pub const PAGE_BYTES_MAX: usize = 1 << 20;

/// How far behind the tail of its backup a stream goes on after a restore.
pub const RESTORE_STREAM_GAP: u64 = 1 << 32;
/// How far cluster time goes on in a restore, together with everything that has a time: so every one-shot request that
/// the cluster of the backup can have taken is too late in the new one.
pub const RESTORE_TIME_STEP: Span = KEY_TTL_MAX;
/// The highest floor of revisions that a restore takes: there are blocks for every group above it for a long time.
pub const RESTORE_FLOOR_MAX: u64 = i64::MAX as u64 - (BLOCK_REVISIONS << 16);

/// How far the ids of nodes go on when a cluster is recovered: more than the lost nodes can have let in behind the back of
/// the one that is left.
pub const RECOVER_NODES_STEP: u64 = 1_000;

/// Revisions of one block.
pub const BLOCK_REVISIONS: u64 = 1 << 28;
/// A group asks for its next block when so many revisions are left.
pub const BLOCK_LOW_REVISIONS: u64 = BLOCK_REVISIONS / 4;
/// Revisions that one command or one end may need, with those of what has lapsed and ends on its way.
pub const COMMAND_REVISIONS_MAX: u64 = 4_200;
/// Blocks that a group holds and has not begun.
pub const BLOCKS_WAITING_MAX: usize = 4;

// A session is never split over entries, so what it may own must fit one entry.
const _: () = assert!(SESSION_OWNED_MAX <= ENDED_PER_ENTRY_MAX);
const _: () = assert!(ENDED_PER_ENTRY_USUAL <= ENDED_PER_ENTRY_MAX);
// One entry consumes at most a revision for each end, and for each command one and those of what it ends on its way,
// so a block that is low still serves several of the largest entries, and very many usual ones, before the next one
// must have come.
const _: () = assert!(BLOCK_LOW_REVISIONS > 1_000 * (ENTRY_COMMANDS_MAX + ENDED_PER_ENTRY_MAX) as u64);
const _: () = assert!(BLOCK_LOW_REVISIONS > 10 * (ENTRY_COMMANDS_MAX as u64 * COMMAND_REVISIONS_MAX));
// One command consumes one revision of its own, one for the lapsed session that asks, and one for each lapsed key or
// session that it meets. A deletion by prefix meets the most; an item of a transaction meets a key and a new owner.
const _: () = assert!(COMMAND_REVISIONS_MAX > 2 + PREFIX_DELETED_MAX as u64);
const _: () = assert!(COMMAND_REVISIONS_MAX > 2 + 2 * TXN_ITEMS_MAX as u64);
// The largest append, transaction and answer each fit a wire message of 4 MiB.
const _: () = assert!(APPEND_BYTES_MAX <= TXN_BYTES_MAX && TXN_BYTES_MAX < 4 << 20);
const _: () = assert!(ENTRY_READ_BYTES_MAX >= TXN_READ_BYTES_MAX);
const _: () = assert!(TXN_READ_BYTES_MAX >= VALUE_BYTES_MAX && RECORD_BYTES_MAX <= VALUE_BYTES_MAX);
// No cluster lives so long, so what it has taken lies before the time from which a restored one goes on.
const _: () = assert!(RESTORE_TIME_STEP.0 > 1_000 * ONE_SHOT_AHEAD_MAX.0);
// The lost nodes were a majority for as long as it took to lose them, and a cluster has only so many.
const _: () = assert!(RECOVER_NODES_STEP > 10 * NODES_MAX as u64);
// A page and a value both fit a wire message of 4 MiB.
const _: () = assert!(PAGE_BYTES_MAX + VALUE_BYTES_MAX + KEY_BYTES_MAX < 4 << 20);
// A remembered result outlives every repeat that a client of ours can still send for it.
const _: () = assert!(SESSION_RESULTS_KEPT.0 > ONE_SHOT_AHEAD_MAX.0);
