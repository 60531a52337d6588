//! Message ids that grow older than their window while a replica is away: whether it comes back by the log or by a snapshot,
//! it knows the same ids as the others, also when it leads.

use std::time::{Duration, Instant};

use tenure_client::{Client, Stream};
use tenure_testkit::eventually;
use tenure_testkit::observe::metric;

use crate::membership::run;
use crate::replicas::assert_equal;
use crate::support::{CACHE, SOON, client_at};
use crate::trio::{HOME, HOME_GROUPS, Trio};

const STREAM: &str = "orders";
/// Longer than the return of a node takes, also on a machine that is busy.
const WINDOW: Duration = Duration::from_secs(8);
/// Ids of each kind.
const IDS: usize = 12;
/// So many entries of the log are kept for a replica that is away, in one of the proofs: it is cut at five times as many.
const KEPT: &str = "200";
const ENTRIES_BEYOND: usize = 1_400;
/// Writes that are made at once where many are made.
const AT_ONCE: usize = 4;

/// A message that was stored, not before this instant.
struct Sent {
    id: String,
    called: Instant,
    offset: u64,
}

/// What is known of messages, and how often they were sent again within the window and beyond it.
#[derive(Default)]
struct Judge {
    known: usize,
    forgotten: usize,
}

/// Sends a message for the first time.
async fn send(stream: &Stream, id: String) -> Sent {
    let called = Instant::now();
    let sent = stream.append([&id]).message_id(&id).await;
    let appended = sent.expect("the cluster answers").done().expect("nothing is expected");
    assert!(!appended.duplicate, "{id} is new");
    Sent {
        id,
        called,
        offset: appended.first,
    }
}

async fn send_all(stream: &Stream, kind: &str) -> Vec<Sent> {
    let mut sent = Vec::new();
    for number in 0..IDS {
        sent.push(send(stream, format!("{kind}-{number}")).await);
    }
    sent
}

impl Judge {
    /// Sends a message again. Within the window it is answered with the first offset; beyond it, it is a new message, which
    /// takes the place of the first. While the window may be ending either is right.
    async fn again(&mut self, client: &Client, message: &mut Sent) {
        let called = Instant::now();
        let sent = client
            .stream(STREAM)
            .append([&message.id])
            .message_id(&message.id)
            .await;
        let appended = sent.expect("the node answers").done().expect("nothing is expected");
        // Cluster time goes no faster than the clock here; a change of the leader makes it late.
        let since = message.called.elapsed();
        let is_within = since < WINDOW - WINDOW / 20;
        if appended.duplicate {
            assert_eq!(appended.first, message.offset, "{}", message.id);
            self.known += usize::from(is_within);
            return;
        }
        assert!(!is_within, "{} was forgotten after {since:?}", message.id);
        assert!(
            appended.first > message.offset,
            "{}: an offset is given once",
            message.id
        );
        self.forgotten += 1;
        (message.called, message.offset) = (called, appended.first);
    }

    /// Sends messages again that must be new.
    async fn again_as_new(&mut self, client: &Client, messages: &mut [Sent]) {
        for message in messages {
            let before = self.forgotten;
            self.again(client, message).await;
            assert_eq!(self.forgotten, before + 1, "{} is beyond the window", message.id);
        }
    }
}

/// Waits until a message is a new one again, as the others say. Until then it was known, with the offset that it had.
async fn wait_until_forgotten(client: &Client, judge: &mut Judge, canary: &mut Sent) {
    let before = judge.forgotten;
    eventually("the window is over", SOON, async || {
        judge.again(client, canary).await;
        judge.forgotten > before
    })
    .await;
}

/// Makes so many entries of the log, about, of which the stream knows nothing.
async fn fill_log(client: &Client, entries: usize) {
    let filling = (0..AT_ONCE).map(|lane| {
        let cache = client.cache(CACHE);
        tokio::spawn(async move {
            for number in 0..entries {
                let put = cache.put(format!("filler-{lane}"), number.to_string()).await;
                assert!(put.expect("the cluster answers").is_done());
            }
        })
    });
    for lane in filling.collect::<Vec<_>>() {
        lane.await.expect("no panic");
    }
}

async fn snapshots_installed(trio: &mut Trio, node: u64) -> f64 {
    let name = format!("tenure_group_snapshots_installed_total{{group=\"{HOME}\"}}");
    metric(trio.cluster.node(node).address(), &name).await
}

/// A replica is away while ids grow too old and new ones come, comes back, and leads.
async fn play(options: &[&str], entries: usize) -> (Judge, f64) {
    let mut trio = Trio::start_under(options, |_, _| Vec::new()).await;
    let stream = trio.client.stream(STREAM);
    let created = stream.create().dedup_window(WINDOW).await.expect("the cluster answers");
    assert!(created.is_done());
    let mut judge = Judge::default();
    let leader = trio.leader().await;
    let [away, _] = Trio::others(leader);
    let (mut old, mut canary) = (send_all(&stream, "old").await, send(&stream, "canary".to_owned()).await);
    for message in &mut old {
        judge.again(&client_at(trio.endpoint(away)).await, message).await;
    }
    assert_eq!(judge.known, IDS, "the node that is about to go knows all of them");
    trio.cluster.node(away).kill();
    fill_log(&trio.client, entries).await;
    wait_until_forgotten(&trio.client, &mut judge, &mut canary).await;
    // Half of those that are forgotten come again, and half of them stay away until the other node leads.
    let (returning, staying) = old.split_at_mut(IDS / 2);
    judge.again_as_new(&trio.client, returning).await;
    let mut young = send_all(&stream, "young").await;

    let known_before = judge.known;
    trio.cluster.node(away).restart();
    trio.wait_until_whole().await;
    let installed = snapshots_installed(&mut trio, away).await;
    let words = ["transfer-leader", &HOME.to_string(), &away.to_string()];
    // The leader may not have found it yet.
    let chosen = async || run(&trio.endpoints, &words).status == Some(0);
    eventually("the one that was away leads", SOON, chosen).await;
    for node in 1..=3 {
        let asked = client_at(trio.endpoint(node)).await;
        for message in young.iter_mut().chain(returning.iter_mut()) {
            judge.again(&asked, message).await;
        }
    }
    assert_eq!(trio.leader().await, away, "it led meanwhile");
    assert!(judge.known > known_before, "the return took longer than the window");
    judge.again_as_new(&client_at(trio.endpoint(away)).await, staying).await;
    let all = stream
        .read()
        .from_earliest()
        .await
        .expect("the cluster answers")
        .records;
    assert_eq!(
        all.len(),
        1 + 2 * IDS + judge.forgotten,
        "each message is stored as often as it was new"
    );
    assert_equal(&mut trio.cluster, &[1, 2, 3], HOME_GROUPS).await;
    (judge, installed)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_replica_that_comes_back_by_the_log_knows_the_same_message_ids_and_leads_with_them() {
    let (judge, installed) = play(&[], 10).await;
    assert_eq!(installed, 0.0, "it was to come back by the log");
    println!(
        "by the log: {} repeats known, {} forgotten",
        judge.known, judge.forgotten
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_replica_that_comes_back_by_a_snapshot_knows_the_same_message_ids_and_leads_with_them() {
    let (judge, installed) = play(&["--log-entries-kept", KEPT], ENTRIES_BEYOND).await;
    assert!(installed >= 1.0, "it was to come back by a snapshot");
    println!(
        "by a snapshot: {} repeats known, {} forgotten",
        judge.known, judge.forgotten
    );
}
