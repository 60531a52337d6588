//! The consensus library's log over the node's segment log. The log knows no terms and no votes; they are
//! bytes to it, made and read here.

use std::fmt::Debug;
use std::io;
use std::ops::{Bound, Range, RangeBounds};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use futures_util::stream::{self, Stream};
use openraft::storage::{IOFlushed, RaftLogStorage};
use openraft::{EntryPayload, LogState, OptionalSend, RaftLogReader};
use tokio::sync::oneshot;

use tenure_core::time::Timestamp;
use tenure_storage::error::LogFailed;
use tenure_storage::log::{Done, GroupLog};
use tenure_storage::state::{GroupState, Stops};

use crate::raft_types::{self, FormError, LogEntry, LogId, TypeConfig, Vote};
use crate::shared::{Shared, Told};

/// Bytes of entries that are read at once to be applied or sent.
const READ_BYTES_MAX: usize = 4 << 20;
/// Entries that are looked at at once to find the last stamp.
const SCAN_ENTRIES: u64 = 64;

/// One group's log. Clones are handles on it.
#[derive(Clone)]
pub(crate) struct LogAdapter {
    log: GroupLog,
    shared: Arc<Shared>,
    /// Nothing is purged that this does not hold durably.
    state: GroupState,
    vote: Arc<Mutex<Option<Vote>>>,
    appended_bytes: Arc<AtomicU64>,
}

impl LogAdapter {
    /// Over a log as it was left.
    ///
    /// # Errors
    /// [`FormError`] if its vote is not one.
    pub(crate) fn open(log: GroupLog, shared: Arc<Shared>, state: GroupState) -> Result<LogAdapter, FormError> {
        let vote = log
            .state()
            .vote
            .map(|bytes| raft_types::decode_vote(&bytes))
            .transpose()?;
        let vote = Arc::new(Mutex::new(vote));
        Ok(LogAdapter {
            log,
            shared,
            state,
            vote,
            appended_bytes: Arc::default(),
        })
    }

    /// Bytes of entries appended since this was last asked.
    pub(crate) fn take_appended_bytes(&self) -> u64 {
        self.appended_bytes.swap(0, Ordering::Relaxed)
    }

    /// The index of the first entry that is there, and the one up to which the log is synced.
    pub(crate) fn first_and_flushed(&self) -> (Option<u64>, Option<u64>) {
        let state = self.log.state();
        (state.first_index, state.flushed_index)
    }

    fn vote(&self) -> Option<Vote> {
        *self.vote.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes the stamp of an entry that is being appended.
    fn note_stamp(&self, entry: &LogEntry) {
        let EntryPayload::Normal(data) = &entry.payload else {
            return;
        };
        // Of this term only this node can have stamped it, if its own vote of this term is for itself.
        let own = self.vote().is_some_and(|vote| {
            vote.leader_id.term == entry.log_id.leader_id.term && vote.leader_id.voted_for == self.shared.node.0
        });
        if own {
            self.shared.time.appended_own(entry.log_id.index, data.stamp);
        } else {
            self.shared.time.appended_foreign(entry.log_id.index, data.stamp);
        }
    }

    fn read(&self, range: Range<u64>, bytes_max: usize) -> Result<Vec<LogEntry>, io::Error> {
        if range.is_empty() {
            return Ok(Vec::new());
        }
        let entries = self.log.read(range, bytes_max).map_err(|failed| self.failed(&failed))?;
        entries
            .iter()
            .map(|(index, bytes)| self.decode(*index, bytes))
            .collect()
    }

    fn decode(&self, index: u64, bytes: &Bytes) -> Result<LogEntry, io::Error> {
        raft_types::decode_entry(index, bytes).map_err(|error| self.malformed(format!("entry {index}: {error}")))
    }

    /// Bytes of the log that passed its checksums and are not what this release writes: the group stops.
    fn malformed(&self, why: String) -> io::Error {
        self.shared.stop(&why, Told::Node);
        io::Error::new(io::ErrorKind::InvalidData, why)
    }

    fn failed(&self, failed: &LogFailed) -> io::Error {
        tell(&self.shared, failed)
    }

    /// Calls the log and waits until what was asked is durable.
    async fn durably(&self, call: impl FnOnce(Done)) -> Result<(), io::Error> {
        let (sender, receiver) = oneshot::channel();
        call(Box::new(move |result| {
            let _ = sender.send(result);
        }));
        match receiver.await {
            Ok(result) => result.map_err(|failed| self.failed(&failed)),
            Err(_) => Err(io::Error::other("the log was dropped")),
        }
    }

    /// Whether the state holds durably what the entries up to this one say.
    fn may_purge(&self, upto: u64) -> Result<bool, io::Error> {
        let applied = self.state.applied().map(|mark| mark.index);
        if applied.is_none_or(|applied| applied < upto) {
            // Only a log that was emptied before anything was applied is purged beyond what is applied.
            return Ok(true);
        }
        let durable = self.state.pending().durable;
        if durable.is_some_and(|durable| durable >= upto) {
            return Ok(true);
        }
        let log = self.log.state();
        let flushed = match log.last {
            // The state is ahead of the log, which came by a snapshot: nothing of it hangs on these entries.
            last if last.as_ref().is_none_or(|(last, _)| *last < upto) => upto,
            _ => match log.flushed_index {
                None => return Ok(false),
                Some(flushed) => flushed,
            },
        };
        let durable = self.state.make_durable(flushed).map_err(|error| {
            let told = match error.stops() {
                Stops::Node => Told::NodeMustStop,
                Stops::Group(_) | Stops::Nobody => Told::Node,
            };
            self.shared.stop(&error.to_string(), told);
            io::Error::other(error)
        })?;
        Ok(durable.is_some_and(|durable| durable >= upto))
    }
}

impl RaftLogReader<TypeConfig> for LogAdapter {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: RB,
    ) -> Result<Vec<LogEntry>, io::Error> {
        self.read(to_range(&range), usize::MAX)
    }

    async fn read_vote(&mut self) -> Result<Option<Vote>, io::Error> {
        Ok(self.vote())
    }

    async fn limited_get_log_entries(&mut self, start: u64, end: u64) -> Result<Vec<LogEntry>, io::Error> {
        self.read(start..end, READ_BYTES_MAX)
    }

    async fn entries_stream<RB>(&mut self, range: RB) -> impl Stream<Item = Result<LogEntry, io::Error>> + OptionalSend
    where
        RB: RangeBounds<u64> + Clone + Debug + OptionalSend,
    {
        // A few at a time, because a range may hold far more than memory.
        let chunks = stream::unfold((self.clone(), to_range(&range)), |(adapter, mut left)| async move {
            if left.is_empty() {
                return None;
            }
            let read = adapter.read(left.clone(), READ_BYTES_MAX);
            match &read {
                Ok(entries) => match entries.last() {
                    Some(last) => left.start = last.log_id.index + 1,
                    None => return None,
                },
                Err(_) => left = 0..0,
            }
            let items: Vec<Result<LogEntry, io::Error>> = match read {
                Ok(entries) => entries.into_iter().map(Ok).collect(),
                Err(error) => vec![Err(error)],
            };
            Some((stream::iter(items), (adapter, left)))
        });
        Box::pin(futures_util::StreamExt::flatten(chunks))
    }
}

impl RaftLogStorage<TypeConfig> for LogAdapter {
    type LogReader = LogAdapter;

    async fn get_log_state(&mut self) -> Result<LogState<TypeConfig>, io::Error> {
        let state = self.log.state();
        let last_purged_log_id = match &state.purged {
            None => None,
            Some((index, bytes)) => raft_types::decode_log_id(bytes)
                .map_err(|error| self.malformed(format!("purged up to {index}: {error}")))?,
        };
        let last_log_id = match &state.last {
            None => last_purged_log_id,
            Some((index, bytes)) => {
                let term = raft_types::decode_term(bytes)
                    .map_err(|error| self.malformed(format!("entry {index}: {error}")))?;
                Some(raft_types::log_id(term, *index))
            }
        };
        Ok(LogState {
            last_purged_log_id,
            last_log_id,
        })
    }

    async fn get_log_reader(&mut self) -> LogAdapter {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> Result<(), io::Error> {
        *self.vote.lock().unwrap_or_else(PoisonError::into_inner) = Some(*vote);
        let bytes = raft_types::encode_vote(vote);
        self.durably(|done| self.log.save_vote(bytes, done)).await
    }

    async fn save_committed(&mut self, committed: Option<LogId>) -> Result<(), io::Error> {
        self.log
            .save_committed(raft_types::encode_log_id(committed))
            .map_err(|failed| self.failed(&failed))
    }

    async fn read_committed(&mut self) -> Result<Option<LogId>, io::Error> {
        match self.log.state().committed {
            None => Ok(None),
            Some(bytes) => {
                raft_types::decode_log_id(&bytes).map_err(|error| self.malformed(format!("what is committed: {error}")))
            }
        }
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<TypeConfig>) -> Result<(), io::Error>
    where
        I: IntoIterator<Item = LogEntry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let mut bytes = 0;
        let encoded: Vec<(u64, Bytes)> = entries
            .into_iter()
            .map(|entry| {
                self.note_stamp(&entry);
                let encoded = raft_types::encode_entry(&entry);
                bytes += encoded.len() as u64;
                (entry.log_id.index, encoded)
            })
            .collect();
        self.appended_bytes.fetch_add(bytes, Ordering::Relaxed);
        let shared = self.shared.clone();
        self.log.append(
            encoded,
            Box::new(move |result| callback.io_completed(result.map_err(|failed| tell(&shared, &failed)))),
        );
        Ok(())
    }

    async fn truncate_after(&mut self, last_log_id: Option<LogId>) -> Result<(), io::Error> {
        let kept = last_log_id.map(|id| id.index);
        self.durably(|done| self.log.truncate_after(kept, done)).await?;
        let last_stamp = last_stamp(&self.log).map_err(|error| self.malformed(error.to_string()))?;
        self.shared.time.cut(last_stamp);
        Ok(())
    }

    async fn purge(&mut self, log_id: LogId) -> Result<(), io::Error> {
        if !self.may_purge(log_id.index)? {
            // Kept for now: nothing asks that a purge be done at once, and the state needs these entries.
            return Ok(());
        }
        let id = raft_types::encode_log_id(Some(log_id));
        self.durably(|done| self.log.purge(log_id.index, id, done)).await
    }
}

/// The last stamped entry of a log: its index and its stamp.
///
/// # Errors
/// What is wrong with the log.
pub(crate) fn last_stamp(log: &GroupLog) -> Result<Option<(u64, Timestamp)>, ScanError> {
    let state = log.state();
    let (Some(first), Some((last, _))) = (state.first_index, state.last) else {
        return Ok(None);
    };
    let mut end = last + 1;
    while end > first {
        let start = end.saturating_sub(SCAN_ENTRIES).max(first);
        let mut found = None;
        // A read may end early for its bytes, so it is gone on with until the part is seen whole.
        let mut next = start;
        while next < end {
            let entries = log.read(next..end, READ_BYTES_MAX)?;
            let Some((last_read, _)) = entries.last() else { break };
            next = last_read + 1;
            for (index, bytes) in &entries {
                if let Some(stamp) = raft_types::decode_stamp(bytes)? {
                    found = Some((*index, stamp));
                }
            }
        }
        if found.is_some() {
            return Ok(found);
        }
        end = start;
    }
    Ok(None)
}

/// A log in which no stamp could be looked for.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum ScanError {
    #[error(transparent)]
    Log(#[from] LogFailed),
    #[error(transparent)]
    Form(#[from] FormError),
}

/// Stops whoever must stop after a failed call on the log.
fn tell(shared: &Shared, failed: &LogFailed) -> io::Error {
    let why = failed.to_string();
    shared.stop(
        &why,
        if failed.stops_the_node() {
            Told::NodeMustStop
        } else {
            Told::Node
        },
    );
    io::Error::other(why)
}

fn to_range(range: &impl RangeBounds<u64>) -> Range<u64> {
    let start = match range.start_bound() {
        Bound::Included(start) => *start,
        Bound::Excluded(start) => start.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(end) => end.saturating_add(1),
        Bound::Excluded(end) => *end,
        Bound::Unbounded => u64::MAX,
    };
    start..end
}
