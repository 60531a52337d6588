//! temp
#![allow(clippy::all, clippy::unwrap_used, clippy::disallowed_methods)]
use std::time::{Duration, Instant};
use tenure_client::*;
#[tokio::main]
async fn main() {
    let endpoint = std::env::args().nth(1).unwrap();
    let client = Client::connect([endpoint]).await.unwrap().namespace("acme", "prod");
    let _ = client.create_cache("c").await.unwrap().done().unwrap();
    let cache = client.cache("c");
    let mut watch = cache.watch().prefix("k").await.unwrap();
    let t = Instant::now();
    let n = 5000;
    let tasks: Vec<_> = (0..64).map(|w| { let cache = cache.clone(); tokio::spawn(async move {
        for i in 0..n/64 { let _ = cache.put(format!("k{w}-{i}"), "v").await.unwrap().done().unwrap(); } }) }).collect();
    for t in tasks { t.await.unwrap(); }
    println!("{} puts in {:?}", n/64*64, t.elapsed());
    let mut seen = 0; let mut last = 0;
    while seen < n/64*64 { match watch.next().await.unwrap().unwrap() { WatchItem::Changes{revision, changes} => { assert!(revision > last); last = revision; seen += changes.len(); }, WatchItem::Progress{..} => {}, other => panic!("{other:?}") } }
    println!("watch saw {seen}");
    let session = client.open_session(Duration::from_secs(10)).await.unwrap();
    let written = cache.put("lock", "me").if_absent().owner(&session).await.unwrap().done().unwrap();
    println!("token {} remaining {:?} deadline {:?}", written.token(), written.remaining, written.deadline);
    println!("ready");
    let t = Instant::now();
    let mut n = 0; let mut errs = 0; let mut watched = 0u64;
    while t.elapsed() < Duration::from_secs(20) {
        n += 1;
        match cache.put("kx", format!("{n}")).await { Ok(v) => { v.done().unwrap(); }, Err(e) => { errs += 1; println!("{:?} {e:?}", t.elapsed()); } }
        tokio::time::sleep(Duration::from_millis(50)).await;
        if !session.is_valid() { println!("LOST {:?}", session.state()); }
        while let Ok(item) = tokio::time::timeout(Duration::from_millis(1), watch.next()).await {
            match item { Some(Ok(WatchItem::Changes{changes, ..})) => watched += changes.len() as u64, Some(Ok(_)) => {}, other => { println!("watch {other:?}"); break } }
        }
    }
    println!("puts {n} errors {errs} watched {watched} state {:?} remaining {:?}", session.state(), session.remaining());
    let entry = cache.get("lock").await.unwrap().unwrap();
    assert_eq!(entry.created, written.created);
    session.close().await.unwrap();
    assert!(cache.get("lock").await.unwrap().is_none());
    println!("sessions {:?}", client.sessions().await.unwrap().len());
    println!("ok");
}
