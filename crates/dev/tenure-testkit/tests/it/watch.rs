//! What one step changed is told as one.

use std::time::Duration;

use tenure_client::WatchItem;
use tokio::task::JoinSet;

use crate::support::{CACHE, SOON, Site, client};

/// What one session owns.
const OWNED: usize = 200;
const SESSIONS: usize = 25;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn all_that_goes_with_a_session_is_told_as_one_step() {
    let site = Site::start().await;
    let ttl = Duration::from_secs(60);
    let mut watch = client(&site.node.endpoint())
        .await
        .cache(CACHE)
        .watch()
        .from(1)
        .await
        .expect("the watch begins");
    for number in 0..SESSIONS {
        let session = site.client.open_session(ttl).await.expect("the node answers");
        let mut writers = JoinSet::new();
        for key in 0..OWNED {
            let put = site.cache.put(format!("{number}-{key}"), "owned").owner(&session);
            writers.spawn(async move { put.await.expect("the node answers").is_done() });
        }
        assert!(writers.join_all().await.into_iter().all(|done| done));
        let closed = site
            .client
            .close_session(session.key())
            .await
            .expect("the node answers");
        assert_eq!(closed.removed, OWNED as u64);
        let end = tokio::time::timeout(SOON, async {
            loop {
                match watch.next().await.expect("a watch without end") {
                    Ok(WatchItem::Changes { revision, changes }) if revision == closed.revision => return changes,
                    Ok(WatchItem::Changes { revision, .. }) => assert!(revision < closed.revision),
                    Ok(_) => {}
                    Err(end) => panic!("the watch ended: {end}"),
                }
            }
        });
        let changes = end.await.expect("the end is told soon");
        assert_eq!(changes.len(), OWNED, "session {number}: its end is told in parts");
    }
    println!("{SESSIONS} sessions with {OWNED} keys each, the end of each told as one step");
}
