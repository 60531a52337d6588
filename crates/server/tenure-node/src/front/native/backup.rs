//! The rows of a group on their way into a backup.
//!
//! They are read from an image, so the group goes on meanwhile; what the image shows cannot be freed, so whoever does not
//! take the parts is given up on. One is read ahead of the one that is being sent.

use std::sync::Arc;
use std::time::Duration;

use tenure_api::v1::backup_part::Part;
use tenure_api::v1::{self, WireError};
use tenure_core::ids::GroupId;
use tenure_core::machine::Machine;
use tenure_storage::backup::Chunk;
use tenure_storage::state::{Image, StateError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

use super::error::of_service;
use super::handler::Call;
use super::{decode, encode};
use crate::front::answers::Room;
use crate::service::{Service, ServiceError};

/// How long the next part may wait to be taken.
const TAKEN_WITHIN: Duration = Duration::from_secs(30);
/// Parts that wait to be sent.
const PARTS_WAITING: usize = 1;
/// When to ask again if another backup is being made.
const RETRY_AFTER_US: u64 = 1_000_000;

/// What is sent.
type Parts = ReceiverStream<Result<v1::BackupPart, Status>>;

/// The service of backups.
pub(super) struct Backups {
    service: Service,
    /// One at a time: each keeps what its rows show from being freed.
    turns: Arc<Semaphore>,
}

impl Backups {
    pub(super) fn new(service: Service) -> Backups {
        let turns = Arc::new(Semaphore::new(1));
        Backups { service, turns }
    }
}

#[tonic::async_trait]
impl v1::backups_server::Backups for Backups {
    type ReadStream = Parts;

    async fn read(&self, request: Request<v1::BackupRequest>) -> Result<Response<Parts>, Status> {
        let room = Room::of(request.extensions());
        let call = Call {
            service: &self.service,
            timeout_ms: 0,
            room: &room,
        };
        let turn = self.turns.clone().try_acquire_owned();
        let parts = begin(&call, request.into_inner(), turn.ok()).await;
        parts.map(Response::new).map_err(Status::from)
    }
}

/// Begins to send the rows of a group.
async fn begin(
    call: &Call<'_>,
    request: v1::BackupRequest,
    turn: Option<OwnedSemaphorePermit>,
) -> Result<Parts, WireError> {
    let service = call.service;
    let cluster = service.identity().cluster;
    if !request.cluster_id.is_empty() {
        let asked = decode::identity("cluster_id", &request.cluster_id)?;
        if asked != cluster {
            let (asked, actual) = (format!("{asked:032x}"), format!("{cluster:032x}"));
            return Err(WireError::wrong_cluster("cluster", asked, actual));
        }
    }
    let turn = turn.ok_or_else(|| WireError::overloaded("another backup is being made", RETRY_AFTER_US))?;
    let group = GroupId(request.group);
    let deadline = call.deadline(request.timeout_ms);
    // Whatever was acknowledged before is applied here then, and so in the image.
    service.read_point(group, deadline).await.map_err(of_service)?;
    let image = service.group(group).map_err(of_service)?.state.image();
    let image = Arc::new(image.map_err(|error| unreadable(&error))?);
    let read = image.clone();
    let point = service.read_aside(move || {
        let point = Machine::point_of_image(&*read);
        read.verify().map(|()| point)
    });
    let point = point.await.map_err(of_service)?;
    let (revision, time) = point.map_err(|error| unreadable(&error))?;
    let head = v1::BackupHead {
        cluster_id: encode::identity(cluster),
        group: group.0,
        applied_index: image.mark().map_or(0, |mark| mark.index),
        revision: revision.0,
        time_us: time.0,
    };
    let (parts, taken) = mpsc::channel(PARTS_WAITING);
    let sending = Sending {
        service: service.clone(),
        image,
        parts,
        turn,
    };
    let stopping = service.clone();
    let work = async move {
        tokio::select! {
            () = sending.run(head) => {}
            () = stopping.stopping() => {}
        }
    };
    // It ends with the last part, with whoever asked, or with the node.
    drop(service.runtime().tasks.spawn("backup", Box::pin(work)));
    Ok(ReceiverStream::new(taken))
}

/// A backup on its way to whoever asked.
struct Sending {
    service: Service,
    image: Arc<Image>,
    parts: mpsc::Sender<Result<v1::BackupPart, Status>>,
    turn: OwnedSemaphorePermit,
}

impl Sending {
    async fn run(self, head: v1::BackupHead) {
        if !self.send(Ok(Part::Head(head))).await {
            return;
        }
        let (mut rows, mut from) = (0, Some(Vec::new()));
        while let Some(key) = from {
            let (chunk, next) = match self.read(key).await {
                Ok(read) => read,
                Err(error) => {
                    self.send(Err(error)).await;
                    return;
                }
            };
            rows += chunk.counts().rows;
            from = next;
            if !chunk.bytes().is_empty() && !self.send(Ok(Part::Rows(chunk.bytes().clone()))).await {
                return;
            }
        }
        let Sending { parts, image, turn, .. } = self;
        // Whoever has seen the end may ask for the next group at once.
        drop((image, turn));
        hand_over(&parts, Ok(Part::End(v1::BackupEnd { rows }))).await;
    }

    /// The next rows. What is handed on was read without a fault so far.
    async fn read(&self, from: Vec<u8>) -> Result<(Chunk, Option<Vec<u8>>), WireError> {
        let image = self.image.clone();
        let read = self.service.read_aside(move || {
            let read = Chunk::read(&*image, &from);
            image.verify().map(|()| read)
        });
        let read = read.await.map_err(of_service)?;
        read.map_err(|error| unreadable(&error))
    }

    async fn send(&self, part: Result<Part, WireError>) -> bool {
        hand_over(&self.parts, part).await
    }
}

/// `false`: nobody takes it any more.
async fn hand_over(parts: &mpsc::Sender<Result<v1::BackupPart, Status>>, part: Result<Part, WireError>) -> bool {
    let part = match part {
        Ok(part) => Ok(v1::BackupPart { part: Some(part) }),
        Err(error) => Err(Status::from(error)),
    };
    matches!(tokio::time::timeout(TAKEN_WITHIN, parts.send(part)).await, Ok(Ok(())))
}

fn unreadable(error: &StateError) -> WireError {
    of_service(ServiceError::Internal(format!("the state cannot be read: {error}")))
}
