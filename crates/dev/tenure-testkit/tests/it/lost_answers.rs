//! A leader is killed when what it was asked for is committed and before anybody has its answer. Asking again finds the first
//! answer at another node, and what was asked for happened once.
//!
//! `TENURE_LOST_ANSWERS` is how many leaders are killed.

use std::collections::BTreeMap;

use tenure_api::v1::{self, guard, put_reply};
use tenure_client::{Cache, Client, Entry, Error, Verdict};
use tenure_testkit::{Direction, EventKind, Proxy, eventually_some};

use crate::load::Follower;
use crate::support::{CACHE, SOON, client_at};
use crate::trio::Trio;
use crate::wire::{Wire, guard, numbered, put};

const ROUNDS: u64 = 10;
const STREAM: &str = "events";
/// A session that outlives a round.
const TTL_MS: u64 = 60_000;

/// What the client library is asked for in a round. Each is numbered, so that the library may ask again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Claim,
    Change,
    Remove,
    Append,
    Add,
}

/// What the library was told, in numbers that no other call is told.
type Told = (u64, u64);

/// Three nodes, each with a proxy in front of it that can keep answers back.
struct Site {
    trio: Trio,
    proxies: Vec<Proxy>,
    /// A client that reaches the nodes through the proxies.
    behind: Client,
}

impl Site {
    async fn start() -> Site {
        let mut trio = Trio::start().await;
        let mut proxies = Vec::new();
        for node in 1..=3 {
            proxies.push(Proxy::start(trio.cluster.node(node).address()).await);
        }
        let created = trio.client.stream(STREAM).create().await.expect("the cluster answers");
        assert!(created.is_done());
        let endpoints: Vec<String> = proxies.iter().map(Proxy::endpoint).collect();
        let behind = client_at(&endpoints.join(",")).await;
        Site { trio, proxies, behind }
    }

    fn proxy(&self, node: u64) -> &Proxy {
        &self.proxies[usize::try_from(node).expect("a small number") - 1]
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn leaders_killed_after_the_commit_and_before_the_answer_are_asked_again_with_one_effect() {
    let rounds = std::env::var("TENURE_LOST_ANSWERS").map_or(ROUNDS, |rounds| rounds.parse().expect("a number"));
    let mut site = Site::start().await;
    let follower = Follower::start(&site.trio.endpoints, 1).await;
    let kinds = [Asked::Claim, Asked::Change, Asked::Remove, Asked::Append, Asked::Add];
    let mut written = BTreeMap::new();
    for (number, asked) in (0..rounds).zip(kinds.into_iter().cycle()) {
        let (key, version) = play(&mut site, number, asked).await;
        written.insert(key, version);
    }
    let marked = site.trio.client.cache(CACHE).put("marker", "the end").await;
    assert!(marked.expect("the cluster answers").is_done());
    let events = follower.finish().await;
    for (key, version) in &written {
        let puts = events
            .iter()
            .filter(|event| event.key == *key)
            .filter_map(|event| match &event.kind {
                EventKind::Put { value, version, .. } => (value == "claimed").then_some(*version),
                EventKind::Removed { .. } => None,
            });
        assert_eq!(puts.collect::<Vec<_>>(), [*version], "{key} was written once");
    }
    println!(
        "{rounds} leaders killed after a commit and before its answer, {} writes asked again of another node by hand and as many \
         by the library: each has its first answer and happened once",
        written.len()
    );
}

/// Returns the key that was claimed at the leader, and the version of the claim.
async fn play(site: &mut Site, number: u64, asked: Asked) -> (String, u64) {
    let leader = site.trio.leader().await;
    let [another, _] = Trio::others(leader);
    let witness = client_at(site.trio.endpoint(another)).await;
    let wire = Wire::connect(site.trio.endpoint(another)).await;
    let key = format!("claim-{number}");
    let asker = wire.open(TTL_MS, u128::from(number)).await;
    let claim = v1::PutRequest {
        guard: guard(guard::Condition::Absent(true)),
        request: numbered(&asker, 1),
        ..put(&key, "claimed")
    };
    let subject = format!("subject-{number}");
    let before = Before::prepare(&witness, asked, &subject).await;
    // The library has opened what it needs before the first answer is lost.
    let warm = site.behind.cache(CACHE).put(format!("warm-{number}"), "v").await;
    assert!(warm.expect("the cluster answers").is_done());
    let lossy = Wire::connect(&site.proxy(leader).endpoint()).await;
    for proxy in &site.proxies {
        proxy.swallow(Direction::Replies);
    }
    let by_hand = tokio::spawn({
        let claim = claim.clone();
        async move { lossy.put(claim).await }
    });
    let by_library = tokio::spawn({
        let (client, subject, before) = (site.behind.clone(), subject.clone(), before.clone());
        async move { ask(&client, asked, &subject, &before).await }
    });
    // What another node reads without looking at its own state alone is committed.
    let seen = eventually_some("the claim is seen at another node", SOON, async || wire.get(&key).await).await;
    let effect = eventually_some("the effect is seen at another node", SOON, async || {
        before.effect(&witness, asked, &subject).await
    })
    .await;
    assert!(
        !by_hand.is_finished() && !by_library.is_finished(),
        "no answer came through"
    );
    site.trio.cluster.node(leader).kill();
    assert!(by_hand.await.expect("no panic").is_err(), "the answer is lost for good");
    assert!(!by_library.is_finished(), "no answer came through");
    site.proxies.iter().for_each(Proxy::pass);

    let again = eventually_some("another node leads", SOON, async || wire.put(claim.clone()).await.ok()).await;
    assert!(again.repeated, "round {number}: it was remembered");
    let Some(put_reply::Verdict::Done(done)) = again.verdict else {
        panic!("round {number}: {again:?}");
    };
    assert_eq!(
        (done.version, done.created),
        (seen.version, seen.created),
        "round {number}"
    );
    let told = by_library.await.expect("no panic");
    let told = told.unwrap_or_else(|error| panic!("round {number}, {asked:?}: {error}"));
    assert_eq!(told, effect, "round {number}, {asked:?}: the first answer");
    assert_eq!(
        before.effect(&witness, asked, &subject).await,
        Some(effect),
        "round {number}, {asked:?}: once"
    );
    site.trio.cluster.node(leader).restart();
    (key, done.version)
}

/// What was there before a round.
#[derive(Clone, Debug, Default)]
struct Before {
    entry: Option<Entry>,
    tail: u64,
    count: i64,
}

impl Before {
    async fn prepare(client: &Client, asked: Asked, subject: &str) -> Before {
        let cache = client.cache(CACHE);
        if matches!(asked, Asked::Change | Asked::Remove) {
            assert!(cache.put(subject, "before").await.expect("the node answers").is_done());
        }
        Before {
            entry: cache.get(subject).await.expect("the node answers"),
            tail: client.stream(STREAM).info().await.expect("the node answers").tail,
            count: cache
                .counter("count")
                .await
                .expect("the node answers")
                .unwrap_or_default(),
        }
    }

    fn version(&self) -> u64 {
        self.entry.as_ref().map_or(0, |entry| entry.version)
    }

    /// What a round did, as any node says, in the words in which the library is told of it; `None`: nothing yet.
    async fn effect(&self, client: &Client, asked: Asked, subject: &str) -> Option<Told> {
        let cache = client.cache(CACHE);
        match asked {
            Asked::Claim | Asked::Change => {
                let entry = cache.get(subject).await.ok()??;
                (entry.value == "after").then_some((entry.version, entry.created))
            }
            Asked::Remove => cache.get(subject).await.ok()?.is_none().then(|| (self.version(), 1)),
            Asked::Append => {
                let tail = client.stream(STREAM).info().await.ok()?.tail;
                (tail > self.tail).then(|| (self.tail, tail - self.tail))
            }
            Asked::Add => {
                let count = cache.counter("count").await.ok()??;
                (count > self.count).then(|| (count.unsigned_abs(), (count - self.count).unsigned_abs()))
            }
        }
    }
}

/// Asks by the library, which asks again by itself.
async fn ask(client: &Client, asked: Asked, subject: &str, before: &Before) -> Result<Told, Error> {
    let cache: Cache = client.cache(CACHE);
    let refused = "what has to hold did when it was asked first";
    match asked {
        Asked::Claim | Asked::Change => {
            let put = cache.put(subject, "after");
            let put = match asked {
                Asked::Claim => put.if_absent(),
                _ => put.if_version(before.version()),
            };
            let written = put.await?.done().expect(refused);
            assert!(written.repeated, "the server remembered it");
            Ok((written.version, written.created))
        }
        Asked::Remove => match cache.delete(subject).if_version(before.version()).await? {
            Verdict::Done(deleted) => Ok((deleted.removed.expect("it was there").version, 1)),
            Verdict::Refused(refusal) => panic!("{refused}: {refusal}"),
        },
        Asked::Append => {
            let appended = client.stream(STREAM).append([subject]).if_offset(before.tail).await?;
            let appended = appended.done().expect(refused);
            Ok((appended.first, appended.next() - appended.first))
        }
        Asked::Add => {
            let added = cache.add("count", 1).await?;
            Ok((added.sum.unsigned_abs(), (added.sum - before.count).unsigned_abs()))
        }
    }
}
