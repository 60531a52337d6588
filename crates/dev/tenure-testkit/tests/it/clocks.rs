//! The wall clock of a node may be anything. Debian's package `faketime` lets it jump for one process; the clocks that count
//! since the machine was started are as they are.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tenure_testkit::eventually;

use crate::load::{Follower, Keys, Load};
use crate::support::{CACHE, SOON, client};
use crate::trio::Trio;

const CLIENTS: u32 = 6;
/// Where Debian keeps such libraries, in a folder for the machine's architecture.
const LIBRARIES: &str = "/usr/lib";
const LIBRARY: &str = "faketime/libfaketimeMT.so.1";
const HOUR: i64 = 3_600;
const DAY: i64 = 24 * HOUR;
/// How far a clock of a log may be from where it should be: lines wait to be read.
const ABOUT: i64 = 60;
const TTL: Duration = Duration::from_secs(6);

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn wall_clocks_that_jump_by_an_hour_change_nothing() {
    let library = library();
    let mut trio = Trio::start_under(&[], |folder, node| under(&library, folder, node)).await;
    let follower = Follower::start(&trio.endpoints, 1).await;
    let mut load = Load::start(&trio.endpoints, CLIENTS, Keys::Ending).await;
    let holder = client(&trio.endpoints).await;
    let session = holder
        .open_session(Duration::from_secs(3))
        .await
        .expect("the cluster answers");
    let aside = holder.create_cache("aside").await.expect("the cluster answers");
    assert!(aside.is_done());
    let cache = holder.cache("aside");
    let held = cache.put("held", "mine").if_absent().owner(&session).await;
    let token = held
        .expect("the cluster answers")
        .done()
        .expect("nobody has it")
        .created;
    // Hours that clocks are off, of each node in turn: forwards, back, and behind.
    for (round, hours) in [[1, 0, 0], [1, -1, 0], [0, 1, 0], [-1, -1, 1]].into_iter().enumerate() {
        let key = format!("short-{round}");
        let began = Instant::now();
        let put = cache.put(&key, "v").ttl(TTL).await.expect("the cluster answers");
        assert!(put.is_done());
        for (node, off) in (1..).zip(hours) {
            set(trio.folder.path(), node, off);
        }
        load.wait_for_more(200).await;
        // Whoever leads is somebody else then, and everybody says so in the log.
        let leader = trio.leader().await;
        trio.cluster.node(leader).kill();
        load.wait_for_more(200).await;
        trio.cluster.node(leader).restart();
        for (node, off) in (1..).zip(hours) {
            wait_for_log(&mut trio, node, off * HOUR).await;
        }
        eventually("it ends", 2 * TTL + SOON, async || {
            let there = cache.get(&key).await.expect("the cluster answers").is_some();
            assert!(there || began.elapsed() >= TTL, "it ended after {:?}", began.elapsed());
            !there
        })
        .await;
        assert!(session.is_valid(), "the holder keeps its session");
        println!(
            "{hours:?} hours off: a key with {TTL:?} to live was gone after {:?}",
            began.elapsed()
        );
    }
    let entry = cache
        .get("held")
        .await
        .expect("the cluster answers")
        .expect("it is held");
    assert_eq!(entry.created, token);
    let judged = load.judge(&trio.client.cache(CACHE), follower).await;
    load.assert_settled();
    assert_eq!(judged.sessions_lost, 0, "no session is lost");
    println!("{:?}, {} changes", judged.counts, judged.changes);
}

fn library() -> PathBuf {
    let folders = fs::read_dir(LIBRARIES).expect("a system has libraries").flatten();
    let mut libraries = folders.map(|folder| folder.path().join(LIBRARY));
    let found = libraries.find(|library| library.is_file());
    found.unwrap_or_else(|| panic!("there is no {LIBRARY}: run `cargo xtask test`, which installs it"))
}

/// What starts a node so that its wall clock is as a file says.
fn under(library: &Path, folder: &Path, node: usize) -> Vec<OsString> {
    set(folder, node, 0);
    let setting = |name: &str, value: &Path| {
        let mut word = OsString::from(name);
        word.push("=");
        word.push(value);
        word
    };
    vec![
        "/usr/bin/env".into(),
        setting("LD_PRELOAD", library),
        setting("FAKETIME_TIMESTAMP_FILE", &file(folder, node)),
        "FAKETIME_NO_CACHE=1".into(),
        "FAKETIME_DONT_FAKE_MONOTONIC=1".into(),
        "DONT_FAKE_MONOTONIC=1".into(),
    ]
}

fn file(folder: &Path, node: usize) -> PathBuf {
    folder.join(format!("clock-{node}"))
}

/// From now on a node's wall clock is so many hours off.
fn set(folder: &Path, node: usize, hours: i64) {
    let (file, new) = (file(folder, node), folder.join("clock-new"));
    fs::write(&new, format!("{:+}\n", hours * HOUR)).expect("the folder can be written");
    fs::rename(&new, &file).expect("the folder can be written");
}

/// Waits until a node has logged something, with its clock so many seconds off.
async fn wait_for_log(trio: &mut Trio, node: usize, off: i64) {
    let node = trio.cluster.node(node as u64);
    eventually("the node logs something by its own clock", SOON, async || {
        let log = node.stderr();
        log.lines().filter_map(second_of_day).next_back().is_some_and(|second| {
            let real = SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .expect("after 1970")
                .as_secs();
            let real = i64::try_from(real).expect("a small number");
            let apart = (second - real - off).rem_euclid(DAY);
            apart.min(DAY - apart) < ABOUT
        })
    })
    .await;
}

/// The time of a line of the log: `2026-01-31T12:34:56.789Z …`.
fn second_of_day(line: &str) -> Option<i64> {
    let (_, time) = line.split_whitespace().next()?.split_once('T')?;
    let mut parts = time.split(':');
    let (hours, minutes) = (parts.next()?.parse::<i64>().ok()?, parts.next()?.parse::<i64>().ok()?);
    let seconds: i64 = parts.next()?.get(..2)?.parse().ok()?;
    Some(hours * HOUR + minutes * 60 + seconds)
}
