//! One follower of a stream, from its beginning to its end. It pulls: it reads a page of records from the state when its
//! caller wants one, and waits only where there are none. So nothing is buffered for it, and a slow one costs nobody
//! anything; what is trimmed behind it ends it.

use std::time::Duration;

use tenure_core::ids::{GroupId, Incarnation, ObjectName};
use tenure_core::limits::PAGE_ROWS_MAX;
use tenure_core::query::{Found, Query, ReadFrom, RecordView};
use tenure_core::refusal::{Failure, Missing};

use super::{Group, Reading, Service, ServiceError, unexpected};
use crate::front::answers::{AnswerShare, PAGE_ANSWER_BYTES, Room};
use crate::notify::WATCHERS_MAX;
use crate::notify::followers::{FollowEnd, Following};

/// Records behind the last append that was told so few of which a follower reads in place: a live one is not to pay for
/// another thread. A page of more is read aside.
const IN_PLACE_RECORDS_MAX: usize = 4;
/// How long a follower that sees its stream gone waits to be told at which revision. It is told in the same moment, so this
/// is only so that a defect cannot hold it for ever.
const END_WAIT_MAX: Duration = Duration::from_secs(1);

/// What to follow.
#[derive(Clone, Debug)]
pub(crate) struct FollowSpec {
    pub(crate) stream: ObjectName,
    pub(crate) from: ReadFrom,
    /// The life of the stream that was followed before.
    pub(crate) incarnation: Option<u64>,
    pub(crate) min_revision: u64,
}

/// What a follower is told.
#[derive(Clone, Debug)]
pub(crate) enum FollowItem {
    Started {
        next: u64,
        incarnation: u64,
    },
    /// Records at consecutive offsets, at most a page.
    Records(Vec<RecordView>),
}

/// Why a follower is told nothing more.
#[derive(Clone, Debug)]
pub(crate) enum FollowStop {
    /// What it was to read next is not kept any more; the first record that is has this offset.
    Compacted { first: u64 },
    /// The stream is gone.
    ObjectDeleted { revision: u64 },
    /// The group has stopped on this node.
    Stopped { why: String },
    /// The service gave no answer.
    Error(ServiceError),
}

impl From<ServiceError> for FollowStop {
    fn from(error: ServiceError) -> FollowStop {
        FollowStop::Error(error)
    }
}

impl From<FollowEnd> for FollowStop {
    fn from(end: FollowEnd) -> FollowStop {
        match end {
            FollowEnd::ObjectDeleted { revision } => FollowStop::ObjectDeleted { revision },
            FollowEnd::Stopped { why } => FollowStop::Stopped { why },
        }
    }
}

/// A follower. Dropping it ends it.
pub(crate) struct Follow {
    service: Service,
    group: Group,
    stream: ObjectName,
    incarnation: Incarnation,
    /// The offset of the next record to tell.
    next: u64,
    following: Following,
    has_started: bool,
    /// Whether the state had no record at `next` when it was last read.
    at_tail: bool,
    /// Whether there were only a few records from `next` on when it was last woken.
    is_near: bool,
    /// Taken for a page before it is read.
    room: Room,
}

impl Service {
    /// Begins to follow a stream. It knows every append that was acknowledged before.
    pub(crate) async fn follow(
        &self,
        group: GroupId,
        spec: FollowSpec,
        deadline: Duration,
        room: Room,
    ) -> Result<Follow, FollowStop> {
        self.wait_for_revision(group, spec.min_revision, deadline).await?;
        let query = Query::Stream(spec.stream.clone());
        let read = self.query(group, &query, Reading::Linearizable, deadline).await?;
        let incarnation = match read.found {
            Found::Stream(view) => view.record.incarnation,
            Found::Failed(ref failure) if is_missing(failure) && spec.incarnation.is_some() => return Err(deleted()),
            other => return Err(unexpected(&other).into()),
        };
        if spec.incarnation.is_some_and(|seen| seen != incarnation.0) {
            return Err(deleted());
        }
        let group = self.group(group)?.clone();
        let following = self
            .hub()
            .follow(group.id, incarnation)
            .map_err(|_| ServiceError::Limit {
                which: "watchers of a node",
                value: WATCHERS_MAX as u64,
            })?;
        // Read again now that appends wake it: whatever came in between is seen, and whatever comes later wakes it.
        let (first, tail) = match applied(&group, &query)? {
            Found::Stream(view) if view.record.incarnation == incarnation => (view.first, view.tail),
            Found::Stream(_) => return Err(deleted()),
            Found::Failed(ref failure) if is_missing(failure) => return Err(deleted()),
            other => return Err(unexpected(&other).into()),
        };
        let next = match spec.from {
            ReadFrom::Earliest => first,
            ReadFrom::Latest => tail,
            ReadFrom::Offset(offset) if offset < first => return Err(FollowStop::Compacted { first }),
            ReadFrom::Offset(offset) => offset,
        };
        Ok(Follow {
            service: self.clone(),
            group,
            stream: spec.stream,
            incarnation,
            next,
            following,
            has_started: false,
            at_tail: next >= tail,
            is_near: false,
            room,
        })
    }
}

impl Follow {
    /// The share of what was told last, which takes so many bytes on the wire.
    pub(crate) fn hand_on(&self, bytes: usize) -> AnswerShare {
        self.room.hand_on_all(bytes)
    }

    /// The next thing to tell. Nothing is lost when the future is dropped before it is ready.
    pub(crate) async fn next(&mut self) -> Result<FollowItem, FollowStop> {
        if !self.has_started {
            self.has_started = true;
            return Ok(FollowItem::Started {
                next: self.next,
                incarnation: self.incarnation.0,
            });
        }
        loop {
            if self.at_tail {
                // What waits for something to happen keeps no room.
                self.room.give_back();
                let tail = self.following.wait_for(self.next).await?;
                self.is_near = (1..=IN_PLACE_RECORDS_MAX as u64).contains(&tail.saturating_sub(self.next));
                self.at_tail = false;
            }
            if let Some(records) = self.page().await? {
                return Ok(FollowItem::Records(records));
            }
        }
    }

    /// The records from the next offset on, or nothing if there are none yet.
    async fn page(&mut self) -> Result<Option<Vec<RecordView>>, FollowStop> {
        let query = Query::Records {
            stream: self.stream.clone(),
            from: ReadFrom::Offset(self.next),
            // There may be more by now; those are the next page.
            limit: if self.is_near {
                IN_PLACE_RECORDS_MAX
            } else {
                PAGE_ROWS_MAX
            },
        };
        let turn = match self.is_near {
            true => None,
            false => self.room.long_read().await,
        };
        self.room.take_patiently(PAGE_ANSWER_BYTES).await;
        let found = match self.is_near {
            true => applied(&self.group, &query)?,
            false => self.service.read_page(&self.group, query).await?,
        };
        drop(turn);
        match found {
            Found::Records {
                records,
                first,
                tail,
                incarnation,
            } if incarnation == self.incarnation => {
                if self.next < first {
                    return Err(FollowStop::Compacted { first });
                }
                let next = records.last().map_or(self.next, |last| last.offset + 1);
                self.at_tail = records.is_empty() || next >= tail;
                self.is_near = false;
                self.next = next;
                Ok((!records.is_empty()).then_some(records))
            }
            Found::Records { .. } => Err(self.gone().await),
            Found::Failed(ref failure) if is_missing(failure) => Err(self.gone().await),
            other => Err(unexpected(&other).into()),
        }
    }

    /// The stream was there when this follower registered and is not there now, so it is told the deletion.
    async fn gone(&mut self) -> FollowStop {
        match tokio::time::timeout(END_WAIT_MAX, self.following.ended()).await {
            Ok(end) => end.into(),
            Err(_) => deleted(),
        }
    }
}

/// Reads a few rows of the applied state. Where nothing more recent is needed, this costs no round.
fn applied(group: &Group, query: &Query) -> Result<Found, ServiceError> {
    let read = group.replica.query(query);
    let (found, ..) = read.map_err(|error| ServiceError::Unavailable { group: group.id, error })?;
    Ok(found)
}

fn is_missing(failure: &Failure) -> bool {
    matches!(
        failure,
        Failure::NotFound {
            what: Missing::Stream(_)
        }
    )
}

fn deleted() -> FollowStop {
    FollowStop::ObjectDeleted { revision: 0 }
}
