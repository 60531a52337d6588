//! Nothing is acknowledged before it is on the disk: the system calls of the process, as a tracer sees them.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;
use tenure_testkit::{NodeProcess, wait_unchanged};

use crate::support::{SOON, Site, client};
use crate::wire::{Wire, put};

const WRITES: u32 = 40;
/// A write is alone if nothing was synced for so long before it.
const QUIET: Duration = Duration::from_millis(60);
const TRACER: &str = "/usr/bin/strace";
const SYNCS: &str = "fsync,fdatasync";

#[tokio::test(flavor = "multi_thread")]
async fn between_a_lone_write_and_its_answer_the_log_is_synced() {
    let folder = TempDir::new().expect("a temporary folder");
    let trace = folder.path().join("trace");
    let node = traced(&folder.path().join("node"), &trace, &[]);
    let site = Site::on(folder, node).await;
    let wire = Wire::connect(&site.node.endpoint()).await;
    let log = site.node.folder().join("log");
    let mut total = 0;
    for number in 0..WRITES {
        let before = wait_unchanged("the log is quiet", QUIET, SOON, async || syncs(&trace, &log)).await;
        wire.put(put("key", &format!("value {number}")))
            .await
            .expect("the node answers");
        let after = syncs(&trace, &log);
        assert!(
            after > before,
            "write {number} was acknowledged with {before} syncs of the log before and {after} after"
        );
        total += after - before;
    }
    println!("{WRITES} lone writes, {total} syncs of the log between them and their answers");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_whose_sync_fails_is_never_acknowledged_and_the_node_stops() {
    let folder = TempDir::new().expect("a temporary folder");
    let trace = folder.path().join("trace");
    // The hundredth sync of a thread fails: only the log's thread gets so far.
    let fault = ["-e", "inject=fdatasync:error=EIO:when=100+"];
    let node = traced(&folder.path().join("node"), &trace, &fault);
    let mut site = Site::on(folder, node).await;
    let impatient = site
        .client
        .with_timeout(Duration::from_secs(3))
        .cache(site.cache.name());
    let mut acknowledged = Vec::new();
    let failed = loop {
        let key = format!("key-{:03}", acknowledged.len());
        match impatient.put(&key, "value").await {
            Ok(verdict) => acknowledged.push((key, verdict.done().expect("it has no guard").version)),
            Err(error) => break error,
        }
        assert!(acknowledged.len() < 200, "no sync has failed");
    };
    let status = site.node.wait(SOON);
    assert!(!status.success(), "a node that cannot sync ends with a failure");
    drop(site.client);
    let healthy = NodeProcess::start(site.node.folder());
    let cache = client(&healthy.endpoint()).await.cache(site.cache.name());
    for (key, version) in &acknowledged {
        let entry = cache
            .get(key)
            .await
            .expect("the node answers")
            .expect("it was acknowledged");
        assert_eq!(entry.version, *version);
    }
    println!("{} writes acknowledged, then: {failed} ({status})", acknowledged.len());
    assert!(!acknowledged.is_empty());
}

/// A node whose syncs are written to a file, each before the process goes on.
fn traced(folder: &Path, trace: &Path, more: &[&str]) -> NodeProcess {
    assert!(
        Path::new(TRACER).exists(),
        "there is no {TRACER}: run `cargo xtask test`, which installs it"
    );
    // The tracer is a process beside the node, which keeps the id that it was started with.
    let mut wrapper: Vec<OsString> = [TRACER, "-D", "-f", "-y", "-qq", "-e"].map(OsString::from).to_vec();
    wrapper.push(format!("trace={SYNCS}").into());
    wrapper.extend(more.iter().map(OsString::from));
    wrapper.push("-o".into());
    wrapper.push(trace.into());
    NodeProcess::start_under(folder, &wrapper)
}

/// How many syncs of files in this folder have come back with success.
fn syncs(trace: &Path, folder: &Path) -> usize {
    let trace = std::fs::read_to_string(trace).unwrap_or_default();
    let folder: PathBuf = folder.canonicalize().expect("the folder exists");
    let inside = format!("<{}/", folder.display());
    // While other threads make calls, a call is written in two parts; the second one, of a thread, has no path.
    let mut unfinished = std::collections::BTreeMap::new();
    let mut count = 0;
    for line in trace.lines() {
        let thread = line.split_whitespace().next().unwrap_or_default();
        if line.contains("<unfinished ...>") {
            unfinished.insert(thread, line.contains(&inside));
        } else if line.trim_end().ends_with("= 0") {
            let ours = if line.contains(" resumed>") {
                unfinished.remove(thread).unwrap_or(false)
            } else {
                line.contains(&inside)
            };
            count += usize::from(ours);
        }
    }
    count
}
