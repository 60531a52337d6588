//! The same run twice, with equal output: nothing in this crate reaches past the world that it was handed.

use std::time::Duration;

use futures_util::future::join_all;

use tenure_core::time::Span;

use crate::world::{Told, VirtualNode, open_session, put_for, put_owned, wait_virtually};

/// Writes, ends, a kill and a restart; everything that was told, and when.
async fn history() -> Vec<(Duration, Told)> {
    let node = VirtualNode::new();
    let replica = node.start().await;
    let session = open_session(&replica, 5, Span::from_millis(700)).await;
    for round in 0..20 {
        let owner = (round % 3 == 0).then_some(session);
        let puts = (0..10).map(|number| {
            let ttl = Span::from_millis(50 + number * 37);
            match owner {
                Some(_) => replica.propose(put_owned(&format!("{round}-{number}"), "v", None, owner), None),
                None => replica.propose(put_for(&format!("{round}-{number}"), "v", Some(ttl)), None),
            }
        });
        let (kept, _) = tokio::join!(replica.keep_alive(session), join_all(puts));
        kept.unwrap();
        wait_virtually(Duration::from_millis(90)).await;
    }
    drop(replica);
    let mut told = node.sink.all();
    let node = node.after_kill(3);
    let replica = node.start().await;
    wait_virtually(Duration::from_secs(2)).await;
    told.extend(node.sink.all());
    assert!(replica.status().stopped.is_none());
    told
}

#[test]
fn a_run_is_replayed_exactly() {
    let run = || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(history())
    };
    let (first, second) = (run(), run());
    assert!(first.len() > 300, "{} things happened", first.len());
    let differs = first.iter().zip(&second).position(|(first, second)| first != second);
    assert!(
        differs.is_none() && first.len() == second.len(),
        "the runs differ from {differs:?} on"
    );
}
