//! Leases while leaders change, stand still and are gone: what ends when, who is told, and who gets it next.

use std::time::{Duration, Instant};

use tenure_client::{Cache, ErrorCode};
use tenure_testkit::{Direction, Proxy, eventually, eventually_some};

use crate::loss::claim_when_free;
use crate::support::{CACHE, SOON, client, client_at};
use crate::trio::Trio;
use crate::wire::Wire;

/// A busy machine takes longer to elect than the second that it takes elsewhere.
const ELECTION: Duration = Duration::from_millis(3_500);

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn whoever_waits_under_a_session_that_has_ended_is_never_given_the_key() {
    let trio = Trio::start().await;
    let cache = trio.client.cache(CACHE);
    let holder = trio
        .client
        .open_session(Duration::from_secs(4))
        .await
        .expect("the cluster answers");
    let put = cache
        .put("held", "first")
        .if_absent()
        .owner(&holder)
        .await
        .expect("the cluster answers");
    let token = put.done().expect("nobody has it").created;
    // It waits with a session that nobody renews.
    let waiting = trio.client.open_session(Duration::from_secs(1)).detached().await;
    let waiting = waiting.expect("the cluster answers");
    let leader = trio.leader().await;
    let wire = Wire::connect(trio.endpoint(leader)).await;
    eventually("the session of who waits ends", SOON, async || {
        let claim = cache.put("held", "never").if_absent().owner(waiting.key.clone()).await;
        assert!(!claim.expect("the cluster answers").is_done(), "it was given the key");
        wire.session(waiting.key.id()).await.ended.is_some()
    })
    .await;
    let entry = cache
        .get("held")
        .await
        .expect("the cluster answers")
        .expect("it is held");
    assert_eq!(entry.created, token, "the holder has it still");
    assert!(holder.is_valid());
    holder.close().await.expect("the cluster answers");
    let late = cache.put("held", "never").if_absent().owner(waiting.key).await;
    assert_eq!(late.expect_err("it has ended").code(), ErrorCode::SessionExpired);
    let (next, _) = claim_when_free(&cache, "held").await;
    assert!(next > token);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_claim_whose_answer_comes_after_its_session_is_a_loss_and_no_grant() {
    let mut trio = Trio::start().await;
    let leader = trio.leader().await;
    let proxy = Proxy::start(trio.cluster.node(leader).address()).await;
    let behind = client_at(&proxy.endpoint()).await;
    let ttl = Duration::from_secs(2);
    let session = behind.open_session(ttl).await.expect("the node answers");
    let cache = behind.cache(CACHE);
    assert!(cache.put("warm", "v").await.expect("the node answers").is_done());
    proxy.swallow(Direction::Replies);
    let asked = Instant::now();
    let claiming = tokio::spawn({
        let (cache, session) = (cache.clone(), session.clone());
        async move { cache.put("held", "late").if_absent().owner(&session).await }
    });
    let direct = trio.client.cache(CACHE);
    let granted = eventually_some("it is granted", SOON, async || {
        direct.get("held").await.expect("the cluster answers")
    })
    .await;
    let reason = tokio::time::timeout(SOON, session.lost()).await.expect("it is told");
    let believed = asked.elapsed();
    assert!(!claiming.is_finished(), "its answer is held back");
    let (token, claimed) = claim_when_free(&direct, "held").await;
    assert!(token > granted.created);
    assert!(
        believed < claimed - asked,
        "it stopped believing before the key was given away"
    );
    proxy.pass();
    // Whatever it is told of the claim, it does not hold anything.
    let late = claiming.await.expect("no panic");
    assert!(!session.is_valid());
    let unsent = cache.put("other", "v").owner(&session).await;
    assert!(unsent.is_err(), "nothing is done for a session that is lost");
    let entry = direct
        .get("held")
        .await
        .expect("the cluster answers")
        .expect("it is held");
    assert_eq!(entry.created, token);
    println!(
        "{reason:?} after {believed:?}, given away after {:?}; told late: {late:?}",
        claimed - asked
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_leader_that_stands_still_for_longer_than_leases_ends_none_and_confirms_none_that_is_gone() {
    let mut trio = Trio::start().await;
    let leader = trio.leader().await;
    let [another, _] = Trio::others(leader);
    let ttl = Duration::from_secs(4);
    // One is renewed through another node, the other one knows no node but the leader.
    let renewed = client_at(trio.endpoint(another)).await;
    let session = renewed.open_session(ttl).await.expect("the node answers");
    let put = renewed
        .cache(CACHE)
        .put("renewed", "v")
        .if_absent()
        .owner(&session)
        .await;
    let token = put.expect("the node answers").done().expect("nobody has it").created;
    let pinned = client_at(trio.endpoint(leader)).await;
    let lonely = pinned.open_session(ttl).await.expect("the node answers");
    let put = pinned.cache(CACHE).put("lonely", "v").if_absent().owner(&lonely).await;
    let lonely_token = put.expect("the node answers").done().expect("nobody has it").created;
    let told = tokio::spawn({
        let lost = lonely.lost();
        async move {
            lost.await;
            Instant::now()
        }
    });
    trio.cluster.node(leader).pause();
    let stopped = Instant::now();
    // The others give away what is not renewed any more, and nothing else.
    let (next, given) = claim_when_free(&renewed.cache(CACHE), "lonely").await;
    let lost = tokio::time::timeout(SOON, told)
        .await
        .expect("it is told")
        .expect("no panic");
    assert!(next > lonely_token && lost < given, "the holder knew of it first");
    eventually("it stands still for longer than the leases", SOON, async || {
        assert!(session.is_valid(), "a renewed session stays");
        stopped.elapsed() > 5 * ttl / 2
    })
    .await;
    trio.cluster.node(leader).resume();
    // What it had decided before is worth nothing, and neither has it anything to confirm.
    let began = Instant::now();
    eventually("its clients see what the others did", SOON, async || {
        assert!(!lonely.is_valid(), "a session that is gone was confirmed");
        let found = pinned.cache(CACHE).get("lonely").await;
        let entry = found.expect("the node answers").expect("somebody has it");
        assert_eq!(entry.created, next, "the woken leader served what was gone");
        assert!(session.is_valid(), "a renewed session stays");
        began.elapsed() > ttl
    })
    .await;
    let late = pinned.cache(CACHE).put("lonely", "late").if_created(lonely_token).await;
    assert!(!late.expect("the node answers").is_done(), "the old token is refused");
    let held = renewed
        .cache(CACHE)
        .get("renewed")
        .await
        .expect("the node answers")
        .expect("it is held");
    assert_eq!(held.created, token);
    println!(
        "lost {:?} after the leader stood still, given away after {:?}",
        lost - stopped,
        given - stopped
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_lease_that_nobody_renews_outlives_four_leaders_by_little() {
    let mut trio = Trio::start().await;
    let cache = trio.client.cache(CACHE);
    let ttl = Duration::from_secs(10);
    let asked = Instant::now();
    let put = cache.put("short", "v").ttl(ttl).await.expect("the cluster answers");
    assert!(put.is_done());
    let opened = trio
        .client
        .open_session(ttl)
        .detached()
        .await
        .expect("the cluster answers");
    let put = cache.put("owned", "v").if_absent().owner(opened.key.clone()).await;
    assert!(put.expect("the cluster answers").is_done());
    let granted = Instant::now();
    let mut terms = Vec::new();
    for change in 0..4 {
        eventually("it is time", SOON, async || asked.elapsed() > change * ttl / 5).await;
        let leader = trio.leader().await;
        trio.cluster.node(leader).kill();
        let began = Instant::now();
        assert!(cache.put("probe", "v").await.expect("another one leads").is_done());
        terms.push(began.elapsed());
        trio.cluster.node(leader).restart();
    }
    let gone = async |key: &str| ended(&cache, key, asked, ttl).await;
    let (short, owned) = (gone("short").await, gone("owned").await);
    // It may end while there is no leader. Time that stood still in each election, or began anew, would make it much later.
    let latest = ttl + ELECTION + (granted - asked);
    assert!(short < latest && owned < latest, "{short:?} and {owned:?} of {ttl:?}");
    println!("gone after {short:?} and {owned:?} of {ttl:?}; without a leader for {terms:?}");
}

/// When a key has ended, counted from its request; never before its time.
async fn ended(cache: &Cache, key: &str, asked: Instant, ttl: Duration) -> Duration {
    eventually("it ends", SOON, async || {
        let there = cache.get(key).await.expect("the cluster answers").is_some();
        assert!(
            there || asked.elapsed() >= ttl,
            "{key} ended after {:?}",
            asked.elapsed()
        );
        !there
    })
    .await;
    asked.elapsed()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn renewals_that_fail_while_no_majority_is_there_are_no_loss() {
    let mut trio = Trio::start().await;
    let ttl = Duration::from_secs(10);
    let mut held = Vec::new();
    for number in 0..6 {
        let client = client(&trio.endpoints).await;
        let session = client.open_session(ttl).await.expect("the cluster answers");
        let key = format!("held-{number}");
        let put = client.cache(CACHE).put(&key, "v").if_absent().owner(&session).await;
        let token = put.expect("the cluster answers").done().expect("nobody has it").created;
        held.push((key, session, token));
    }
    let leader = trio.leader().await;
    let [another, _] = Trio::others(leader);
    trio.cluster.node(leader).kill();
    trio.cluster.node(another).kill();
    let began = Instant::now();
    eventually("renewals fail for four seconds", SOON, async || {
        assert!(
            held.iter().all(|(_, session, _)| session.is_valid()),
            "an error is no loss"
        );
        began.elapsed() > Duration::from_secs(4)
    })
    .await;
    trio.cluster.node(another).restart();
    let cache = trio.client.cache(CACHE);
    for (key, session, token) in &held {
        let entry = cache.get(key).await.expect("the cluster answers").expect("it is held");
        assert_eq!(
            (entry.created, entry.owner_session),
            (*token, Some(session.id())),
            "{key}"
        );
    }
    eventually("longer than the TTL has passed", SOON, async || {
        assert!(
            held.iter().all(|(_, session, _)| session.is_valid()),
            "an error is no loss"
        );
        began.elapsed() > ttl + ttl / 2
    })
    .await;
    println!(
        "{} holders keep their tokens through {:?} of which four seconds had no leader",
        held.len(),
        began.elapsed()
    );
}
