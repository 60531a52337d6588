//! A holder and the network between it and the node: what is a loss, what is none, and who knows it first.

use std::time::{Duration, Instant};

use tenure_client::{Cache, LostReason, Session, SessionState};
use tenure_testkit::observe::metric;
use tenure_testkit::{Direction, Proxy, eventually, eventually_some, wait_unchanged};

use crate::support::{CACHE, SOON, Site, client_at};

const KEEP_ALIVES: &str = "tenure_keep_alives_total";

/// A key that is held by a session of a client behind a proxy.
struct Holder {
    proxy: Proxy,
    session: Session,
    cache: Cache,
    token: u64,
}

impl Holder {
    async fn start(site: &Site, key: &str, ttl: Duration) -> Holder {
        let proxy = Proxy::start(site.node.address()).await;
        let client = client_at(&proxy.endpoint()).await;
        let session = client.open_session(ttl).await.expect("the node answers");
        let cache = client.cache(CACHE);
        let put = cache.put(key, "held").if_absent().owner(&session).await;
        let token = put.expect("the node answers").done().expect("the key is free").token();
        Holder {
            proxy,
            session,
            cache,
            token,
        }
    }

    /// Waits until a renewal that was sent from now on has come through.
    async fn wait_until_confirmed(&self) {
        let before = self.session.remaining();
        eventually("the session is confirmed", SOON, async || {
            self.session.state() == SessionState::Live && self.session.remaining() > before
        })
        .await;
    }
}

/// Claims a key as soon as it is free; returns the token and when the claim that succeeded was answered.
pub(crate) async fn claim_when_free(cache: &Cache, key: &str) -> (u64, Instant) {
    eventually_some("the key is free", SOON, async || {
        let put = cache
            .put(key, "taken over")
            .if_absent()
            .await
            .expect("the node answers");
        put.done().ok().map(|written| (written.token(), Instant::now()))
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_holder_whose_renewals_die_silently_knows_its_loss_before_the_node_gives_its_key_away() {
    let site = Site::start().await;
    let ttl = Duration::from_secs(2);
    for fault in ["everything is lost", "requests are lost", "replies are lost"] {
        let key = fault;
        let holder = Holder::start(&site, key, ttl).await;
        let watcher = {
            let lost = holder.session.lost();
            tokio::spawn(async move { (lost.await, Instant::now()) })
        };
        // Two renewals at least have gone through when the fault begins.
        let renewals = metric(site.node.address(), KEEP_ALIVES).await + 2.0;
        eventually("renewals", SOON, async || {
            metric(site.node.address(), KEEP_ALIVES).await >= renewals
        })
        .await;
        match fault {
            "everything is lost" => holder.proxy.swallow_everything(),
            "requests are lost" => holder.proxy.swallow(Direction::Requests),
            _ => holder.proxy.swallow(Direction::Replies),
        }
        let began = Instant::now();
        let (token, claimed) = claim_when_free(&site.cache, key).await;
        let (reason, lost) = watcher.await.expect("no panic");
        println!(
            "{fault}: lost after {:?} ({reason:?}), claimed by another after {:?}, TTL {ttl:?}",
            lost - began,
            claimed - began,
        );
        assert_eq!(reason, LostReason::Unconfirmed);
        assert!(lost < claimed, "the key was given away while its holder believed in it");
        assert!(lost - began < ttl, "the loss came after the TTL");
        assert!(token > holder.token);
        assert!(!holder.session.is_valid());
        // A loss is for good, also when the network is back, and nothing is renewed any more.
        holder.proxy.pass();
        let renewed = async || metric(site.node.address(), KEEP_ALIVES).await.to_bits();
        wait_unchanged("renewals of a lost session", ttl / 2, SOON, renewed).await;
        assert!(matches!(holder.session.state(), SessionState::Lost { .. }));
        let late = holder.cache.put(key, "late").if_created(holder.token).await;
        assert!(late.expect("the node answers").refusal().is_some());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn renewals_that_fail_for_four_seconds_of_ten_are_no_loss_and_change_no_token() {
    let mut site = Site::start().await;
    let ttl = Duration::from_secs(10);
    let outage = Duration::from_secs(4);
    let silent = Holder::start(&site, "silent", ttl).await;
    let refused = Holder::start(&site, "refused", ttl).await;
    let restarted = Holder::start(&site, "restarted", ttl).await;
    silent.proxy.swallow_everything();
    wait_for_outage(outage, || refused.proxy.cut()).await;
    silent.proxy.pass();
    for holder in [&silent, &refused, &restarted] {
        holder.wait_until_confirmed().await;
    }
    site.node.kill();
    wait_for_outage(outage, || {}).await;
    site.node.restart();
    for (holder, key) in [(&silent, "silent"), (&refused, "refused"), (&restarted, "restarted")] {
        holder.wait_until_confirmed().await;
        assert!(holder.session.is_valid());
        let entry = site
            .cache
            .get(key)
            .await
            .expect("the node answers")
            .expect("it is held");
        assert_eq!(
            (entry.token(), entry.owner_session),
            (holder.token, Some(holder.session.id()))
        );
        let write = holder
            .cache
            .put(key, "still mine")
            .if_created(holder.token)
            .owner(&holder.session);
        assert!(write.await.expect("the node answers").is_done());
    }
    println!("three holders with a TTL of {ttl:?} each live through {outage:?} without an answer");
}

/// An outage: time during which something is done again and again.
async fn wait_for_outage(length: Duration, disturb: impl Fn()) {
    let started = Instant::now();
    while started.elapsed() < length {
        disturb();
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_reader_that_never_looks_whether_the_session_is_lost_changes_nothing_of_its_renewals() {
    let site = Site::start().await;
    let ttl = Duration::from_millis(600);
    let session = site.client.open_session(ttl).await.expect("the node answers");
    let window = 5 * ttl;
    let before = metric(site.node.address(), KEEP_ALIVES).await;
    let started = Instant::now();
    wait_for_outage(window, || {}).await;
    let renewals = metric(site.node.address(), KEEP_ALIVES).await - before;
    let due = started.elapsed().as_secs_f64() / (ttl.as_secs_f64() / 6.0);
    println!("{renewals} renewals where {due:.1} were due");
    assert!(session.is_valid(), "it is renewed though nobody looks");
    assert!(renewals <= due + 2.0, "too many renewals");
    assert!(renewals >= due / 2.0, "too few renewals");
}
