//! Several replicas of one group: proposals, reads, failover, lost answers, snapshots, transfer, lost nodes.

use std::time::Duration;

use futures_util::future::join_all;

use tenure_core::codec::fingerprint;
use tenure_core::command::{Acknowledged, Origin, Request};
use tenure_core::ids::{NodeId, SessionRef};
use tenure_core::query::Query;
use tenure_core::response::KeptAlive;
use tenure_core::time::Span;
use tenure_replica::{MembershipError, Outcome, PurgeLimits, Replica, Unavailable};

use crate::cluster::{Cluster, LIMIT, eventually};
use crate::world::{GROUP, Told, get, namespace, open_session, put, version};

/// A put under a number of a session.
fn numbered(session: SessionRef, seq: u64, key: &str, value: &str) -> Request {
    let command = put(key, value).command;
    Request {
        origin: Origin::Session {
            session,
            seq,
            acknowledged: Acknowledged::default(),
            fingerprint: fingerprint(&command),
        },
        command,
    }
}

async fn linearizable(replica: &Replica, key: &str) -> Option<String> {
    replica.read_index().await.unwrap();
    get(replica, key).map(|found| String::from_utf8(found.value.to_vec()).unwrap())
}

/// An instant of a node's clock.
fn soon(cluster: &Cluster, id: u64, after: Duration) -> Option<Duration> {
    Some(cluster.now(id) + after)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_replica_answers_proposals_keep_alives_and_linearizable_reads() {
    let cluster = Cluster::start(3).await;
    let session = open_session(&cluster.replica(2), 5, Span::from_secs(60)).await;
    for round in 0..10 {
        for id in 1..=3 {
            let key = format!("{round}-{id}");
            let answer = cluster.replica(id).propose(put(&key, "v"), None).await.unwrap();
            for reader in 1..=3 {
                let reader = cluster.replica(reader);
                reader.read_index().await.unwrap();
                assert_eq!(get(&reader, &key).unwrap().version, version(&answer), "{key}");
            }
        }
    }
    for id in 1..=3 {
        let (kept, _) = cluster.replica(id).keep_alive(session).await.unwrap();
        assert!(matches!(kept, KeptAlive::Renewed { .. }), "{kept:?}");
    }
    let status = cluster.replica(1).status();
    assert_eq!(status.replicated.len(), 3, "the leader counts itself: {status:?}");
    cluster.eventually_equal(&[1, 2, 3]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_on_a_follower_waits_for_what_was_acknowledged_before_it() {
    let cluster = Cluster::start(3).await;
    let (leader, follower) = (cluster.replica(1), cluster.replica(3));
    follower.propose(put("connected", "v"), None).await.unwrap();
    // It still reaches its leader, and hears of no entry.
    cluster.switches.cut(1, 3);
    leader.propose(put("a", "1"), None).await.unwrap();
    let mut reading = Box::pin(follower.read_index());
    let early = tokio::time::timeout(Duration::from_millis(150), &mut reading).await;
    assert!(
        !matches!(early, Ok(Ok(_))),
        "it cannot have what was written: {early:?}"
    );
    cluster.switches.heal();
    if early.is_err() && reading.await.is_ok() {
        assert!(get(&follower, "a").is_some());
    }
    cluster.eventually_equal(&[1, 2, 3]).await;
    assert_eq!(linearizable(&follower, "a").await.unwrap(), "1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_proposals_on_followers_go_in_few_messages_and_each_gets_its_own_answer() {
    let cluster = Cluster::start(3).await;
    let before = cluster.replica(1).status().entries_proposed;
    let follower = cluster.replica(3);
    let keys: Vec<String> = (0..2_000).map(|number| format!("k{number}")).collect();
    let answers = join_all(keys.iter().map(|key| follower.propose(put(key, key), None))).await;
    for (key, answer) in keys.iter().zip(&answers) {
        let found = get(&follower, key);
        // The answer may have come before the apply here.
        if let Some(found) = found {
            assert_eq!(found.version, version(answer.as_ref().unwrap()));
        }
    }
    follower.read_index().await.unwrap();
    for (key, answer) in keys.iter().zip(&answers) {
        let found = get(&follower, key).unwrap();
        assert_eq!(
            (found.version, &found.value[..]),
            (version(answer.as_ref().unwrap()), key.as_bytes())
        );
    }
    let entries = cluster.replica(1).status().entries_proposed - before;
    assert!(entries < 500, "2,000 requests went into {entries} entries");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_is_cut_off_is_replaced_and_answers_nothing_and_follows_when_it_is_back() {
    let cluster = Cluster::start(3).await;
    let session = open_session(&cluster.replica(1), 5, Span::from_secs(60)).await;
    cluster.replica(1).propose(put("a", "1"), None).await.unwrap();
    cluster.switches.cut_off(1);
    let cut = cluster.replica(1);
    let began = cluster.now(2);
    let leader = cluster.eventually_leads(&[2, 3]).await;
    let took = cluster.now(2) - began;
    assert!(took < Duration::from_secs(10), "another one leads after {took:?}");
    let (read, kept, wrote) = {
        let waits = Duration::from_secs(1);
        let kept = tokio::time::timeout(waits, cut.keep_alive(session));
        let wrote = cut.propose(put("a", "cut off"), soon(&cluster, 1, waits));
        tokio::join!(cut.read_index(), kept, wrote)
    };
    assert!(read.is_err(), "{read:?}");
    assert!(!matches!(kept, Ok(Ok(_))), "{kept:?}");
    // Whether it was proposed before this node knew that it does not lead is not the point.
    assert!(wrote.is_err(), "{wrote:?}");
    cluster.replica(leader).propose(put("a", "2"), None).await.unwrap();
    assert_eq!(linearizable(&cluster.replica(5 - leader), "a").await.unwrap(), "2");
    cluster.switches.heal();
    eventually("it follows", || {
        cut.status().leader == Some(NodeId(leader)) && !cut.status().leads
    })
    .await;
    assert_eq!(linearizable(&cut, "a").await.unwrap(), "2");
    cut.propose(put("b", "3"), None).await.unwrap();
    cluster.eventually_equal(&[1, 2, 3]).await;
}

/// For how long a replica may lack something that was acknowledged, if it has heard from a leader.
fn age(cluster: &Cluster, id: u64) -> Option<Duration> {
    let current = cluster.replica(id).current_as_of()?;
    Some(cluster.now(id).saturating_sub(current))
}

/// What was on its way when a node was cut off may still come, for this long.
const ON_ITS_WAY: Duration = Duration::from_millis(500);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_age_of_a_state_is_small_where_the_leader_is_heard_and_grows_where_it_is_not() {
    let cluster = Cluster::start(3).await;
    let small = |id| age(&cluster, id).is_some_and(|age| age < Duration::from_millis(400));
    let began = cluster.now(1);
    // Also while nothing is written.
    eventually("all are current, again and again", || {
        (1..=3).all(small) && cluster.now(1) - began > Duration::from_secs(1)
    })
    .await;
    cluster.switches.cut_off(3);
    let cut_at = cluster.now(3);
    let cut = cluster.replica(3);
    eventually("its age grows", || age(&cluster, 3).unwrap() > 3 * ON_ITS_WAY).await;
    let then = cut.current_as_of().unwrap();
    assert!(then < cut_at + ON_ITS_WAY, "{then:?}, cut off at {cut_at:?}");
    cluster.replica(1).propose(put("a", "1"), None).await.unwrap();
    eventually("its age goes on growing", || {
        cut.current_as_of() == Some(then) && age(&cluster, 3).unwrap() > 5 * ON_ITS_WAY
    })
    .await;
    assert!(get(&cut, "a").is_none());
    eventually("the others are current", || (1..=2).all(small)).await;
    let healed_at = cluster.now(3);
    cluster.switches.heal();
    eventually("it is current", || small(3) && cut.current_as_of().unwrap() > healed_at).await;
    assert!(get(&cut, "a").is_some(), "it says so only with what it lacked");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_without_a_majority_and_who_follows_it_know_that_they_may_be_behind() {
    let cluster = Cluster::start(5).await;
    eventually("all are current", || {
        (1..=5).all(|id| age(&cluster, id).is_some_and(|age| age < ON_ITS_WAY))
    })
    .await;
    for (one, other) in [1, 2].into_iter().flat_map(|one| [(one, 3), (one, 4), (one, 5)]) {
        cluster.switches.cut(one, other);
        cluster.switches.cut(other, one);
    }
    let cut_at = cluster.now(1);
    let leader = cluster.eventually_leads(&[3, 4, 5]).await;
    cluster.replica(leader).propose(put("a", "1"), None).await.unwrap();
    // The second still hears the first, which may still believe that it leads.
    for id in [1, 2] {
        eventually("its age grows", || {
            age(&cluster, id).is_none_or(|age| age > 3 * ON_ITS_WAY)
        })
        .await;
        let current = cluster.replica(id).current_as_of();
        assert!(
            current.is_none_or(|current| current < cut_at + ON_ITS_WAY),
            "{id}: {current:?}, cut off at {cut_at:?}"
        );
        assert!(get(&cluster.replica(id), "a").is_none());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_was_cut_off_does_not_unseat_the_leader_when_it_is_back() {
    let cluster = Cluster::start(3).await;
    let term = cluster.replica(1).status().term;
    cluster.switches.cut_off(3);
    let began = cluster.now(3);
    // Several elections could have been held meanwhile.
    eventually("time passes", || cluster.now(3) - began > Duration::from_secs(3)).await;
    let cut = cluster.replica(3).read_index().await;
    assert!(cut.is_err(), "{cut:?}");
    cluster.replica(1).propose(put("a", "1"), None).await.unwrap();
    cluster.switches.heal();
    assert_eq!(cluster.replica(3).status().term, term, "it asked before it stood");
    cluster.eventually_equal(&[1, 2, 3]).await;
    assert_eq!(linearizable(&cluster.replica(3), "a").await.unwrap(), "1");
    let status = cluster.replica(1).status();
    assert!(status.leads && status.term == term, "{status:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proposal_whose_answer_is_lost_is_unknown_and_its_repeat_gets_the_first_result() {
    let cluster = Cluster::start(3).await;
    let follower = cluster.replica(2);
    let session = open_session(&follower, 5, Span::from_secs(60)).await;
    // What the follower asks still arrives; nothing comes back, neither the reply nor the entry.
    cluster.switches.cut_replies(2, 1);
    cluster.switches.cut(1, 2);
    cluster.switches.cut(3, 2);
    let request = numbered(session, 1, "once", "v");
    let deadline = soon(&cluster, 2, Duration::from_millis(400));
    let lost = follower.propose(request.clone(), deadline).await.unwrap_err();
    assert_eq!(lost.outcome(), Outcome::Unknown, "{lost}");
    let leader = cluster.replica(1);
    eventually("it was applied", || get(&leader, "once").is_some()).await;
    let first = get(&leader, "once").unwrap().version;
    cluster.switches.heal();
    let again = follower.propose(request, None).await.unwrap();
    // Either the machine remembered it, or the entry of the first attempt came here just now.
    assert_eq!(version(&again), first);
    cluster.eventually_equal(&[1, 2, 3]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_with_an_identity_is_answered_by_the_apply_here_when_the_reply_is_lost() {
    let cluster = Cluster::start(3).await;
    let follower = cluster.replica(2);
    let session = open_session(&follower, 5, Span::from_secs(60)).await;
    follower.propose(put("connected", "v"), None).await.unwrap();
    cluster.switches.cut_replies(2, 1);
    let with = follower.propose(numbered(session, 1, "with", "v"), soon(&cluster, 2, LIMIT));
    let without = follower.propose(put("without", "v"), soon(&cluster, 2, Duration::from_millis(500)));
    let (with, without) = tokio::join!(with, without);
    assert!(!with.unwrap().repeated);
    let without = without.unwrap_err();
    assert_eq!(without.outcome(), Outcome::Unknown, "{without}");
    eventually("it was applied", || get(&follower, "without").is_some()).await;
    assert!(get(&follower, "with").is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_never_sent_is_tried_again_until_the_wait_for_a_leader_is_over() {
    let cluster = Cluster::start(3).await;
    let follower = cluster.replica(2);
    follower.propose(put("a", "1"), None).await.unwrap();
    // It still hears of its leader, so it stays a follower, and cannot reach it.
    let known = cluster.nodes[&2].peers.known()[&NodeId(1)].clone();
    let peers = &cluster.nodes[&2].peers;
    peers.forget(NodeId(1));
    // What goes over the stream while it ends may arrive, and is not known to be refused.
    eventually("the stream has ended", || !peers.is_connected(NodeId(1))).await;
    let refused = follower.propose(put("b", "2"), None).await.unwrap_err();
    assert_eq!(
        refused,
        Unavailable::NotLeader {
            leader: Some(NodeId(1))
        }
    );
    let deadline = soon(&cluster, 2, Duration::from_millis(100));
    let late = follower.propose(put("b", "2"), deadline).await.unwrap_err();
    assert_eq!(
        late,
        Unavailable::Deadline,
        "it was never sent, so it is known not to be applied"
    );
    let later = follower.propose(put("c", "3"), None);
    let found_again = async {
        eventually("it waits", || {
            follower.status().handed_on > 0 || follower.status().waiting > 0
        })
        .await;
        cluster.nodes[&2].peers.set(NodeId(1), known);
    };
    let (later, ()) = tokio::join!(later, found_again);
    later.unwrap();
    assert_eq!(linearizable(&follower, "c").await.unwrap(), "3");
    assert_eq!(linearizable(&follower, "b").await, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_missed_what_the_log_has_no_more_catches_up_by_a_snapshot() {
    let purge = PurgeLimits {
        entries_max: 50,
        bytes_max: u64::MAX,
        entries_kept: 10,
    };
    let cluster = Cluster::founded(3, purge).await;
    cluster.take_in(1, 2..=3).await;
    cluster.eventually_equal(&[1, 2, 3]).await;
    let before = cluster.replica(3).status().last_index.unwrap();
    cluster.switches.cut_off(3);
    let value = "v".repeat(10_000);
    let leader = cluster.replica(1);
    for number in 0..200 {
        leader.propose(put(&format!("k{number}"), &value), None).await.unwrap();
    }
    eventually("the log was purged beyond it", || {
        leader.status().first_index.unwrap() > before + 1
    })
    .await;
    cluster.switches.heal();
    cluster.eventually_equal(&[1, 2, 3]).await;
    let told = cluster.nodes[&3].sink.all();
    assert!(
        told.iter().any(|(_, told)| matches!(told, Told::Reset(_))),
        "no snapshot was installed"
    );
    assert_eq!(linearizable(&cluster.replica(3), "k199").await.unwrap(), value);
    let times = [1, 3].map(|id| cluster.replica(id).status().time);
    assert_eq!(times[0], times[1]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_replica_is_filled_by_a_snapshot_and_does_not_stand_for_election_before() {
    let purge = PurgeLimits {
        entries_max: 50,
        bytes_max: u64::MAX,
        entries_kept: 10,
    };
    let cluster = Cluster::founded(3, purge).await;
    let leader = cluster.replica(1);
    for number in 0..200 {
        leader.propose(put(&format!("k{number}"), "v"), None).await.unwrap();
    }
    eventually("the log was purged", || leader.status().first_index.unwrap() > 1).await;
    let new = cluster.replica(2).status();
    assert_eq!(
        (new.term, new.leader, new.last_index),
        (0, None, None),
        "it waits to be added"
    );
    cluster.take_in(1, 2..=3).await;
    cluster.eventually_equal(&[1, 2, 3]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transfer_of_the_leadership_loses_nothing() {
    let cluster = Cluster::start(3).await;
    let refused = cluster.replica(2).transfer_leadership(NodeId(3)).await.unwrap_err();
    assert!(
        matches!(refused, MembershipError::Unavailable(Unavailable::NotLeader { .. })),
        "{refused}"
    );
    let refused = cluster.replica(1).transfer_leadership(NodeId(9)).await.unwrap_err();
    assert!(matches!(refused, MembershipError::Refused { .. }), "{refused}");
    let writing = join_all((1..=3).map(|id| {
        let replica = cluster.replica(id);
        async move {
            let mut done = Vec::new();
            for number in 0..150 {
                let key = format!("{id}-{number}");
                match replica.propose(put(&key, "v"), None).await {
                    Ok(_) => done.push(key),
                    Err(error) => assert_eq!(error.outcome(), Outcome::Unknown, "{error}"),
                }
            }
            done
        }
    }));
    let transferring = async {
        let leader = cluster.replica(1);
        eventually("some are written", || leader.status().entries_proposed > 20).await;
        leader.transfer_leadership(NodeId(3)).await.unwrap();
    };
    let (written, ()) = tokio::join!(writing, transferring);
    let leader = cluster.eventually_leads(&[1, 2, 3]).await;
    let written: Vec<String> = written.into_iter().flatten().collect();
    assert!(written.len() > 400, "{} of 450", written.len());
    cluster.replica(leader).read_index().await.unwrap();
    for key in &written {
        assert!(get(&cluster.replica(leader), key).is_some(), "{key} was acknowledged");
    }
    cluster.eventually_equal(&[1, 2, 3]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_killed_before_its_own_flush_never_gives_a_committed_place_to_another_entry() {
    let mut cluster = Cluster::start(3).await;
    cluster.replica(1).propose(put("before", "v"), None).await.unwrap();
    cluster.nodes[&1].disk.hold();
    let leader = cluster.replica(1);
    let held = tokio::time::timeout(Duration::from_secs(5), leader.propose(put("held", "v"), None)).await;
    let index = leader.status().last_index;
    let followers = [cluster.replica(2), cluster.replica(3)];
    eventually("both followers have it", || {
        followers
            .iter()
            .all(|follower| follower.status().flushed_index >= index)
    })
    .await;
    drop(leader);
    let left = cluster.kill(1);
    cluster.restart(1, left).await;
    let leader = cluster.eventually_leads(&[1, 2, 3]).await;
    cluster.replica(leader).propose(put("after", "v"), None).await.unwrap();
    cluster.eventually_equal(&[1, 2, 3]).await;
    for id in 1..=3 {
        assert!(get(&cluster.replica(id), "before").is_some() && get(&cluster.replica(id), "after").is_some());
        if matches!(held, Ok(Ok(_))) {
            assert!(get(&cluster.replica(id), "held").is_some(), "it was acknowledged");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_whose_state_cannot_be_read_leads_no_more_and_the_others_go_on() {
    let cluster = Cluster::start(3).await;
    let leader = cluster.replica(1);
    leader.propose(put("a", "1"), None).await.unwrap();
    eventually("its rows are in the engine", || leader.status().overlay_bytes == 0).await;
    cluster.nodes[&1].engine.fail_reads(GROUP, true);
    let query = Query::Caches(namespace());
    assert!(matches!(leader.query(&query), Err(Unavailable::Stopped { .. })));
    // Nobody asks it for anything more: the others must notice by themselves.
    let next = cluster.eventually_leads(&[2, 3]).await;
    for id in [2, 3] {
        let deadline = soon(&cluster, id, LIMIT);
        let put = put(&format!("b{id}"), "2");
        cluster.replica(id).propose(put, deadline).await.unwrap();
        assert_eq!(linearizable(&cluster.replica(id), "a").await.unwrap(), "1");
    }
    eventually("it knows that it does not lead", || !leader.status().leads).await;
    assert!(leader.status().stopped.is_some() && next != 1);
    cluster.eventually_equal(&[2, 3]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_voters_survive_the_loss_of_two_and_members_come_and_go() {
    let mut cluster = Cluster::start(5).await;
    cluster.replica(4).propose(put("a", "1"), None).await.unwrap();
    cluster.kill(1);
    cluster.kill(2);
    let leader = cluster.eventually_leads(&[3, 4, 5]).await;
    for id in 3..=5 {
        cluster
            .replica(id)
            .propose(put(&format!("b{id}"), "2"), None)
            .await
            .unwrap();
        assert_eq!(linearizable(&cluster.replica(id), "a").await.unwrap(), "1");
    }
    let leads = cluster.replica(leader);
    let refused = leads.remove(NodeId(leader)).await.unwrap_err();
    assert_eq!(refused.outcome(), Outcome::NotApplied);
    let unknown = leads.set_voters([NodeId(leader), NodeId(9)].into()).await.unwrap_err();
    assert!(matches!(unknown, MembershipError::Refused { .. }), "{unknown}");
    leads.set_voters((3..=5).map(NodeId).collect()).await.unwrap();
    let status = leads.status();
    assert_eq!(status.learners, [NodeId(1), NodeId(2)].into());
    leads.remove(NodeId(1)).await.unwrap();
    leads.remove(NodeId(2)).await.unwrap();
    leads.remove(NodeId(2)).await.unwrap();
    let status = leads.status();
    assert_eq!(status.voters, (3..=5).map(NodeId).collect());
    assert!(status.learners.is_empty() && !status.joint);
    cluster.eventually_equal(&[3, 4, 5]).await;
}
