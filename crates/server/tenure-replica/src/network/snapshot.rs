//! A snapshot's way to a peer: its bytes in parts over a connection of its own, so that it holds up nothing else.
//!
//! One goes out and one comes in at a time; others wait. What comes in is held in memory, up to a limit.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use tonic::{Status, Streaming};

use tenure_core::ids::{GroupId, NodeId};

use super::wire::{self, peer};
use super::{Peers, link};
use crate::raft_types::{self, AppliedState, Snapshot, SnapshotMeta, Vote, in_scope};
use crate::snapshot_adapter::SnapshotData;
use peer::SnapshotPart;

/// Bytes of a part.
const PART_BYTES: usize = 256 << 10;
/// Bytes of a whole snapshot, while it is held in memory.
const SNAPSHOT_BYTES_MAX: usize = 1 << 30;
/// How long opening the connection may take.
const CONNECT_WITHIN: Duration = Duration::from_secs(2);
/// A snapshot of which no part moves for so long is given up: it may wait for another one to be installed.
const STALLED_AFTER: Duration = Duration::from_secs(60);
/// How long the next part of a snapshot that comes in may take.
const PART_WITHIN: Duration = Duration::from_secs(30);
/// Bytes of what a snapshot was applied up to.
const APPLIED_BYTES_MAX: usize = 64 << 10;

/// Sends a snapshot and waits until it is installed. Returns the other side's vote.
pub(super) async fn send(
    peers: &Peers,
    target: NodeId,
    group: GroupId,
    vote: Vote,
    snapshot: Snapshot,
) -> Result<Vote, String> {
    let inner = &peers.inner;
    let _turn = inner.sending.acquire().await.map_err(|error| error.to_string())?;
    let applied = AppliedState {
        last: snapshot.meta.last_log_id,
        membership: snapshot.meta.last_membership,
    };
    let head = peer::SnapshotHead {
        hello: Some(inner.world.hello(target)),
        group: group.0,
        vote: Some(wire::ballot(&vote)),
        applied: raft_types::encode_applied(&applied),
    };
    let data = snapshot.snapshot;
    let read = inner.lane.run(move || data.into_bytes()).await;
    let bytes = Bytes::from(read.map_err(|lost| lost.to_string())??);
    if bytes.len() > SNAPSHOT_BYTES_MAX {
        return Err(format!(
            "a snapshot of {} bytes is over the limit of {SNAPSHOT_BYTES_MAX}",
            bytes.len()
        ));
    }
    let address = inner.world.book.borrow().records.get(&target).cloned();
    let address = address.ok_or_else(|| format!("node {} has no known address", target.0))?;
    let connecting = link::connect(&inner.world.runtime, &address.address);
    let mut client = tokio::time::timeout(CONNECT_WITHIN, connecting)
        .await
        .map_err(|_| "no connection in time".to_owned())??;
    let moved = Arc::new(AtomicU64::new(0));
    let noted = moved.clone();
    let stream = futures_util::stream::iter(parts(head, bytes)).inspect(move |_| {
        noted.fetch_add(1, Ordering::Relaxed);
    });
    let installing = client.install_snapshot(stream);
    tokio::pin!(installing);
    let mut seen = u64::MAX;
    let installed = loop {
        match tokio::time::timeout(STALLED_AFTER, &mut installing).await {
            Ok(installed) => break installed.map_err(|status| status.message().to_owned())?,
            Err(_) if moved.load(Ordering::Relaxed) == seen => return Err("it does not move any more".to_owned()),
            Err(_) => seen = moved.load(Ordering::Relaxed),
        }
    };
    if let Some(member) = peers.member(group) {
        member.shared.snapshots_sent.fetch_add(1, Ordering::Relaxed);
    }
    wire::vote(installed.into_inner().vote.as_ref()).map_err(|error| error.to_string())
}

fn parts(head: peer::SnapshotHead, bytes: Bytes) -> impl Iterator<Item = SnapshotPart> {
    let count = bytes.len().div_ceil(PART_BYTES).max(1);
    let mut head = Some(head);
    (0..count).map(move |number| SnapshotPart {
        head: head.take(),
        bytes: bytes.slice(number * PART_BYTES..((number + 1) * PART_BYTES).min(bytes.len())),
        last: number + 1 == count,
    })
}

/// Takes a snapshot in and installs it. Returns this node's vote.
pub(super) async fn receive(peers: &Peers, mut incoming: Streaming<SnapshotPart>) -> Result<Vote, Status> {
    let mut part = next(&mut incoming).await?;
    let head = part
        .head
        .take()
        .ok_or_else(|| Status::invalid_argument("a snapshot begins with its head"))?;
    let hello = head.hello.as_ref();
    let hello = hello.ok_or_else(|| Status::invalid_argument("a snapshot begins with a hello"))?;
    peers.inner.world.check(hello)?;
    let malformed = |error: &dyn std::error::Error| Status::invalid_argument(error.to_string());
    let vote = wire::vote(head.vote.as_ref()).map_err(|error| malformed(&error))?;
    if head.applied.len() > APPLIED_BYTES_MAX {
        return Err(Status::invalid_argument("a snapshot with an oversized head"));
    }
    let applied = raft_types::decode_applied(&head.applied).map_err(|error| malformed(&error))?;
    let member = peers.member(GroupId(head.group));
    let member = member.ok_or_else(|| Status::unavailable("the group is not open on this node"))?;
    let turn = peers.inner.receiving.acquire();
    let _turn = tokio::time::timeout(PART_WITHIN, turn)
        .await
        .map_err(|_| Status::unavailable("another snapshot is coming in"))?;
    let mut bytes = Vec::new();
    loop {
        if bytes.len() + part.bytes.len() > SNAPSHOT_BYTES_MAX {
            let why = format!("a snapshot of more than {SNAPSHOT_BYTES_MAX} bytes");
            return Err(Status::resource_exhausted(why));
        }
        bytes.extend_from_slice(&part.bytes);
        if part.last {
            break;
        }
        part = next(&mut incoming).await?;
    }
    let snapshot = Snapshot {
        meta: SnapshotMeta {
            last_log_id: applied.last,
            last_membership: applied.membership,
        },
        snapshot: SnapshotData::Bytes(bytes),
    };
    let installing = member.raft.install_full_snapshot(vote, snapshot);
    let installed = in_scope(member.shared.next_seed(), installing).await;
    installed
        .map(|installed| installed.vote)
        .map_err(|fatal| Status::internal(fatal.to_string()))
}

async fn next(incoming: &mut Streaming<SnapshotPart>) -> Result<SnapshotPart, Status> {
    let part = tokio::time::timeout(PART_WITHIN, incoming.message()).await;
    let part = part.map_err(|_| Status::deadline_exceeded("the next part did not come in time"))??;
    part.ok_or_else(|| Status::invalid_argument("a snapshot that ends before its last part"))
}
