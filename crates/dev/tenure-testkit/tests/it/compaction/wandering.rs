//! A watcher that leaves and comes back at random, beside a writer that fills the feed over its bound again and again.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tenure_client::{Cache, ChangeKind, WatchEnd, WatchItem};
use tenure_testkit::eventually;
use tokio::task::JoinHandle;

use crate::support::{CACHE, Dice, SOON, Site, client};
use crate::trio::Trio;

/// Large values fill the feed fast: it keeps 64 MiB, so it begins anew several times.
const VALUE_BYTES: u64 = 900 << 10;
const WRITES: u64 = 600;
const KEYS: u64 = 12;
/// Of three nodes, how often who leads is killed.
const KILLS: u64 = 3;
/// The watcher that comes when all is written, and asks for what is not kept any more.
const LATE: u64 = 3;
/// After so many writes the state is noted.
const MARK_EVERY: u64 = 5;
/// Written last.
const END: &str = "end";

/// Keys with the versions of their last writes.
type Versions = BTreeMap<String, u64>;

/// The states that the writer left, by revision.
type Marks = Arc<Mutex<BTreeMap<u64, Versions>>>;

/// What a watcher has met.
#[derive(Debug, Default)]
struct Met {
    compared: usize,
    left: usize,
    compacted: usize,
    lagged: usize,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_watcher_that_comes_and_goes_rebuilds_every_state_or_is_told_what_it_missed() {
    let site = Site::start().await;
    let marks = Marks::default();
    let mut watchers = watchers(&site.node.endpoint(), &marks);
    write(&site.cache, &marks).await;
    watchers.push(watcher(&site.node.endpoint(), &marks, LATE));
    judge(watchers).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_watcher_of_three_nodes_does_so_too_while_their_leaders_are_killed() {
    let mut trio = Trio::start().await;
    let marks = Marks::default();
    let mut watchers = watchers(&trio.endpoints, &marks);
    let writing = {
        let (cache, marks) = (trio.client.cache(CACHE), Arc::clone(&marks));
        tokio::spawn(async move { write(&cache, &marks).await })
    };
    for kill in 1..=KILLS {
        let due = (WRITES / MARK_EVERY) * kill / (KILLS + 1);
        eventually("writes between the kills", SOON, async || {
            locked(&marks).len() as u64 >= due
        })
        .await;
        let leader = trio.leader().await;
        trio.cluster.node(leader).kill();
        trio.cluster.node(leader).restart();
    }
    assert!(!writing.is_finished(), "a leader was killed after all was written");
    writing.await.expect("no panic");
    watchers.push(watcher(&trio.endpoints, &marks, LATE));
    judge(watchers).await;
}

fn watchers(endpoints: &str, marks: &Marks) -> Vec<JoinHandle<Met>> {
    (0..LATE).map(|number| watcher(endpoints, marks, number)).collect()
}

fn watcher(endpoints: &str, marks: &Marks, number: u64) -> JoinHandle<Met> {
    let (endpoints, marks) = (endpoints.to_owned(), Arc::clone(marks));
    tokio::spawn(async move { follow(client(&endpoints).await.cache(CACHE), marks, number).await })
}

/// Waits until all of them have seen the end; they must have met what this is about.
async fn judge(watchers: Vec<JoinHandle<Met>>) {
    let mut all = Met::default();
    for watcher in watchers {
        let met = tokio::time::timeout(SOON, watcher)
            .await
            .expect("the end is seen")
            .expect("no panic");
        println!("{met:?}");
        all.compared += met.compared;
        all.left += met.left;
        all.compacted += met.compacted;
    }
    assert!(all.compared > 50 && all.left > 10, "{all:?}");
    assert!(
        all.compacted > 0,
        "the feed was trimmed behind somebody's back: {all:?}"
    );
}

/// Writes and removes keys, and notes what is there now and then. It is alone, so it knows.
async fn write(cache: &Cache, marks: &Marks) {
    let mut dice = Dice::new(21);
    let mut state = Versions::new();
    for number in 1..=WRITES {
        let key = format!("key-{}", dice.below(KEYS));
        let revision = if dice.below(4) == 0 && state.contains_key(&key) {
            let deleted = cache
                .delete(&key)
                .await
                .expect("the node answers")
                .done()
                .expect("it has no guard");
            state.remove(&key);
            deleted.removed.expect("it was there").revision
        } else {
            let value = vec![b'v'; usize::try_from(1 + dice.below(VALUE_BYTES)).expect("a small number")];
            let written = cache
                .put(&key, value)
                .await
                .expect("the node answers")
                .done()
                .expect("it has no guard");
            state.insert(key, written.version);
            written.version
        };
        if number % MARK_EVERY == 0 {
            locked(marks).insert(revision, state.clone());
        }
    }
    assert!(cache.put(END, "end").await.expect("the node answers").is_done());
}

async fn follow(cache: Cache, marks: Marks, number: u64) -> Met {
    let mut dice = Dice::new(number + 31);
    let mut met = Met::default();
    let mut state = Versions::new();
    let (mut from, mut reached) = (1, 0);
    let mut with_state = false;
    loop {
        let watching = match with_state {
            true => cache.watch().with_state().await,
            false => cache.watch().from(from).await,
        };
        let mut watch = match watching {
            Ok(watch) => watch,
            Err(error) => {
                assert_eq!(error.code(), tenure_client::ErrorCode::Compacted, "{error}");
                met.compacted += 1;
                with_state = true;
                continue;
            }
        };
        // It leaves after so many messages.
        for _ in 0..1 + dice.below(30) {
            match watch.next().await.expect("a watch without end") {
                Ok(WatchItem::State {
                    entries,
                    first,
                    last,
                    revision,
                    ..
                }) => {
                    if first {
                        state.clear();
                    }
                    let entries = entries.into_iter();
                    state
                        .extend(entries.map(|entry| (String::from_utf8_lossy(&entry.key).into_owned(), entry.version)));
                    if last {
                        (with_state, reached, from) = (false, revision, revision + 1);
                        met.compared += compare(&marks, reached, &state);
                        // The end was written before the state was read: no change will tell it.
                        if state.contains_key(END) {
                            return met;
                        }
                    }
                }
                Ok(WatchItem::Changes { revision, changes }) => {
                    assert!(revision > reached && !with_state, "{revision} after {reached}");
                    for change in changes {
                        let key = String::from_utf8_lossy(&change.key).into_owned();
                        if key == END {
                            return met;
                        }
                        assert!(change.revision > reached, "{} twice", change.revision);
                        match change.kind {
                            ChangeKind::Put { version, .. } => state.insert(key, version),
                            ChangeKind::Removed { .. } => state.remove(&key),
                        };
                    }
                    (reached, from) = (revision, revision + 1);
                    met.compared += compare(&marks, reached, &state);
                }
                Ok(WatchItem::Progress { .. }) => {}
                Err(WatchEnd::Lagged { resume_from }) => {
                    met.lagged += 1;
                    // What lies between was not told, unless nothing does.
                    with_state = resume_from > from;
                    break;
                }
                Err(WatchEnd::Compacted { .. }) => {
                    met.compacted += 1;
                    with_state = true;
                    break;
                }
                Err(end) => panic!("the watch ended: {end}"),
            }
        }
        if with_state {
            continue;
        }
        met.left += 1;
        drop(watch);
        if dice.below(3) == 0 {
            // Away long enough for the feed to be trimmed now and then.
            let away = tokio::time::timeout(Duration::from_millis(dice.below(1_500)), std::future::pending::<()>());
            assert!(away.await.is_err());
        }
    }
}

/// Compares what a watch gave with what was noted at that revision; 1 if something was.
fn compare(marks: &Marks, revision: u64, state: &Versions) -> usize {
    let noted = locked(marks).get(&revision).cloned();
    if let Some(noted) = &noted {
        let mut state = state.clone();
        state.remove(END);
        assert_eq!(&state, noted, "at revision {revision}");
    }
    usize::from(noted.is_some())
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
