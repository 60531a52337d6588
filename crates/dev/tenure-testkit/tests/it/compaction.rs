//! A watch that comes back too late is told so, with where to go on; then the state and what follows are enough.

mod wandering;

use std::time::Duration;

use tenure_client::{Cache, ErrorCode, WatchEnd, WatchItem, WireError};
use tenure_testkit::check::{self, Held, State};
use tenure_testkit::{Event, EventKind, wait_unchanged};
use tokio::task::JoinSet;

use crate::support::{CACHE, SOON, Site, client};

/// Large values fill the feed fast.
const VALUE_BYTES: usize = 900 << 10;
const WRITERS: usize = 4;
const WRITES: usize = 28;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_watch_from_before_the_feed_is_told_where_to_go_on_and_list_and_watch_give_the_state() {
    let site = Site::start().await;
    let first = site.cache.put("small", "first").await.expect("the node answers");
    let first = first.done().expect("it has no guard").version;
    // From here on this one sees everything, and says what is right.
    let witness = collect(client(&site.node.endpoint()).await.cache(CACHE), first);
    fill(&site.cache).await;
    let still = Duration::from_millis(500);
    let told = wait_unchanged("the feed's beginning", still, SOON, async || {
        compacted(&site.cache, first).await
    })
    .await;
    let oldest_kept = told.expect("more was written than the feed keeps");
    assert!(oldest_kept > first);
    assert_eq!(compacted(&site.cache, oldest_kept - 1).await, Some(oldest_kept));
    assert_eq!(compacted(&site.cache, oldest_kept).await, None);

    let (state, revision) = list(&site.cache).await;
    let follower = collect(client(&site.node.endpoint()).await.cache(CACHE), revision + 1);
    let oldest = collect(client(&site.node.endpoint()).await.cache(CACHE), oldest_kept);
    for number in 0..50 {
        let key = format!("small-{}", number % 7);
        let put = site
            .cache
            .put(&key, format!("value {number}"))
            .await
            .expect("the node answers");
        assert!(put.is_done());
        if number % 3 == 0 {
            assert!(site.cache.delete(&key).await.expect("the node answers").is_done());
        }
    }
    let end = site.cache.put("end", "end").await.expect("the node answers");
    let end = end.done().expect("it has no guard").version;
    let (witness, follower, oldest) = (finish(witness).await, finish(follower).await, finish(oldest).await);

    let now = list(&site.cache).await.0;
    assert_eq!(check::replay(&state, &follower), now, "list and watch give the state");
    for (events, from) in [(&follower, revision + 1), (&oldest, oldest_kept)] {
        if let Err(violation) = check::watches_agree(&witness, events, from, end) {
            panic!("{violation}");
        }
    }
    println!(
        "from {first}: compacted, resume from {oldest_kept}; {} changes from there, {} witnessed",
        oldest.len(),
        witness.len()
    );
    assert!(oldest.len() > follower.len(), "it began before the list");
}

/// Writes more than the feed keeps.
async fn fill(cache: &Cache) {
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let cache = cache.clone();
        writers.spawn(async move {
            for number in 0..WRITES {
                let value = format!("{number:08}").repeat(VALUE_BYTES / 8);
                let put = cache
                    .put(format!("large-{writer}"), value)
                    .await
                    .expect("the node answers");
                assert!(put.is_done());
            }
        });
    }
    writers.join_all().await;
}

/// Where a watch from this revision is told to go on, if it is not kept any more.
async fn compacted(cache: &Cache, from: u64) -> Option<u64> {
    let error = cache.watch().from(from).await.err()?;
    assert_eq!(error.code(), ErrorCode::Compacted, "{error}");
    let told = error.server().and_then(WireError::resume_from);
    Some(told.expect("compacted says where to go on"))
}

/// Follows until the end is written. Large values are cut down to their first bytes.
fn collect(cache: Cache, from: u64) -> tokio::task::JoinHandle<Vec<Event>> {
    tokio::spawn(async move {
        let mut events = Vec::new();
        let mut watch = cache.watch().from(from).await.expect("the watch begins");
        loop {
            match watch.next().await.expect("a watch without end") {
                Ok(WatchItem::Changes { changes, .. }) => {
                    events.extend(changes.into_iter().map(Event::of).map(shortened));
                    if events.last().is_some_and(|event| event.key == "end") {
                        return events;
                    }
                }
                Ok(WatchItem::Progress { .. } | WatchItem::State { .. }) => {}
                Err(WatchEnd::Lagged { resume_from }) => {
                    watch = cache.watch().from(resume_from).await.expect("the watch begins again");
                }
                Err(end) => panic!("the watch ended: {end}"),
            }
        }
    })
}

async fn finish(collecting: tokio::task::JoinHandle<Vec<Event>>) -> Vec<Event> {
    let finished = tokio::time::timeout(SOON, collecting).await;
    finished.expect("the end comes soon").expect("no panic")
}

fn shortened(event: Event) -> Event {
    let kind = match event.kind {
        EventKind::Put {
            mut value,
            version,
            created,
        } => {
            value.truncate(16);
            EventKind::Put {
                value,
                version,
                created,
            }
        }
        removed @ EventKind::Removed { .. } => removed,
    };
    Event { kind, ..event }
}

/// The state over several pages, while nothing is written.
async fn list(cache: &Cache) -> (State, u64) {
    let revision = cache.list().limit(1).page().await.expect("the node answers").revision;
    let entries = cache.list().await.expect("the node answers");
    let state = entries.into_iter().map(|entry| {
        let value = String::from_utf8_lossy(&entry.value[..entry.value.len().min(16)]).into_owned();
        let held = Held {
            value,
            version: entry.version,
            created: entry.created,
        };
        (String::from_utf8_lossy(&entry.key).into_owned(), held)
    });
    (state.collect(), revision)
}
