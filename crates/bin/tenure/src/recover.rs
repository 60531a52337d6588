//! `tenure recover`: groups that have lost their majority for good go on from the one node that is left.

use std::io::{self, Write as _};
use std::path::Path;

use serde::Serialize;

use tenure_node::Runtime;
use tenure_node::recover::{NodeRecord, OfflineView, Outcome, Plan, RecoverError, RecoverOptions, Recovery, RowsError};
use tenure_storage::error::OpenError;
use tenure_storage::inspect::{Finding, InspectError, Part, inspect};

use crate::args::server::Recover;
use crate::backup::unix_secs;
use crate::exit::Failure;
use crate::floor::revision_floor;
use crate::inspect::remove_on_signals;
use crate::logs;
use crate::output::{Answer, Decimal, Output, table};
use crate::scratch::Scratch;
use crate::start::open_on_disk;

/// The system group.
const SYSTEM: u32 = 0;

/// What never reached this node, of which nothing is known.
const MAY_BE_LOST: [&str; 3] = [
    "every write, grant and record that was acknowledged and never reached this node",
    "who got a lease or kept it alive meanwhile is not known: wait for the longest TTL in use, counted from the loss; \
     whatever checks fencing tokens refuses those holders once it has seen a new token",
    "a request that was done and never reached this node is done anew if it is repeated",
];

/// What the operator has to see to.
const NEVER_AGAIN: &str = "never start a folder of the other nodes again, not even an older copy: where this node is reached \
                           it is refused, but two of them that reach only each other go on as the old cluster";

/// `tenure recover`.
///
/// # Errors
/// There is no such folder or group, the folder is in use or damaged, the floor is too low, and nothing was changed; or what
/// would be done was printed and not confirmed; or it was done only in part, which doing it again mends.
pub(crate) fn run(arguments: &Recover, output: &mut Output) -> Result<(), Failure> {
    logs::of_a_command()?;
    let floor = revision_floor(arguments.revision_floor, unix_secs())?;
    check_whole(&arguments.data_dir, arguments.group)?;
    let options = RecoverOptions {
        data_dir: arguments.data_dir.clone(),
        group: arguments.group,
        floor,
    };
    // Nothing here waits, but the system's world is that of a runtime.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::failed(format!("no runtime could be started: {error}"), "free some resources"))?;
    let _entered = runtime.enter();
    let recovery = Recovery::look(&options, &Runtime::system(), open_on_disk()).map_err(not_recovered)?;
    let plan = recovery.plan().clone();
    output.answer(&Found::new(&arguments.data_dir, &plan))?;
    if plan.is_empty() {
        return Ok(());
    }
    if !arguments.yes {
        return Err(Failure::unconfirmed("nothing was changed"));
    }
    let progress = &mut |group, _: &Outcome| {
        // The recovery goes on where nobody reads it.
        let _ = writeln!(io::stderr(), "group {group}: recovered");
    };
    let done = recovery.carry_out(progress).map_err(not_recovered)?;
    output.answer(&Recovered::new(&plan, &done))
}

/// Reads the whole folder and changes nothing. What is damaged and needed is never built upon; changes that watches read
/// begin anew anyway.
fn check_whole(folder: &Path, group: Option<u32>) -> Result<(), Failure> {
    let scratch = Scratch::new()?;
    let runtime = remove_on_signals(scratch.path())?;
    let inspection = inspect(folder, scratch.path()).map_err(not_read)?;
    drop(runtime);
    let is_needed = |found: &&Finding| match (found.part, found.group) {
        (Part::Feed, _) => false,
        (Part::State, Some(of)) => group.is_none_or(|group| of.0 == group) || of.0 == SYSTEM,
        (Part::Identity | Part::Log | Part::State, _) => true,
    };
    match inspection.damage.iter().find(is_needed) {
        None => Ok(()),
        Some(found) => Err(Failure::Damaged {
            what: format!("{} is damaged, in {}: {}", folder.display(), found.file.display(), found.what),
            remedy: "nothing was changed; look at it with `tenure inspect`, and take the folder of another node or restore a \
                     backup"
                .to_owned(),
        }),
    }
}

fn not_read(error: InspectError) -> Failure {
    let what = error.to_string();
    match error {
        InspectError::Absent { folder } => absent(&folder),
        InspectError::Folder(OpenError::Held { .. }) => Failure::failed(what, "stop the node first"),
        InspectError::Copy { .. } => Failure::failed(what, "give it room, or set TMPDIR to a folder that has some"),
        InspectError::Folder(_) => Failure::failed("the folder cannot be read", what),
    }
}

fn absent(folder: &Path) -> Failure {
    Failure::Missing {
        what: format!("a data folder of a node in {}", folder.display()),
        remedy: "name the folder that --data-dir of the node named".to_owned(),
    }
}

fn not_recovered(error: RecoverError) -> Failure {
    let what = error.to_string();
    match error {
        RecoverError::Absent { folder } => absent(&folder),
        RecoverError::NoSuchGroup { group, home_groups } => Failure::Missing {
            what: format!("group {group}"),
            remedy: format!("name one of 0 to {home_groups}, or none for all"),
        },
        RecoverError::NothingOf { .. } | RecoverError::NoCluster => {
            Failure::failed(what, "take the folder of another node, or restore a backup")
        }
        RecoverError::Folder(OpenError::Held { .. }) => Failure::failed(what, "stop the node first"),
        RecoverError::Folder(_) => Failure::failed("the folder cannot be used", what),
        RecoverError::Rows {
            error: RowsError::FloorTooLow { .. },
            ..
        } => Failure::settings(
            what,
            "set this machine's clock, or name a higher one with --revision-floor",
        ),
        RecoverError::Rows {
            error: RowsError::FloorTooHigh { .. },
            ..
        } => Failure::settings(what, "name a lower one with --revision-floor"),
        RecoverError::Rows {
            error: RowsError::NotANode { .. },
            ..
        } => Failure::failed(what, "take the folder of a node that was not removed"),
        RecoverError::Rows { .. } | RecoverError::Group(_) => Failure::Damaged {
            what,
            remedy: "take the folder of another node, or restore a backup".to_owned(),
        },
        RecoverError::State(_) | RecoverError::Replica(_) => {
            Failure::failed(what, "look at the disk, and do it again: what is done stays done")
        }
    }
}

/// What there is, and what is to be done.
#[derive(Serialize)]
struct Found {
    stage: &'static str,
    data_dir: String,
    cluster: String,
    node: Decimal,
    revision_floor: Decimal,
    groups: Vec<Group>,
    removed: Vec<Node>,
    stay: Vec<Node>,
    may_be_lost: Vec<&'static str>,
}

/// A group.
#[derive(Serialize)]
struct Group {
    group: u32,
    last_index: Option<Decimal>,
    last_term: Decimal,
    applied_index: Option<Decimal>,
    not_applied: Decimal,
    voters: Vec<Decimal>,
    given_up: Vec<Decimal>,
    recover: bool,
}

/// Another node.
#[derive(Serialize)]
struct Node {
    node: Decimal,
    address: String,
}

impl Found {
    fn new(folder: &Path, plan: &Plan) -> Found {
        let nodes = |of: &[NodeRecord]| {
            let nodes = of.iter().map(|record| Node {
                node: Decimal(record.id.0),
                address: record.address.clone(),
            });
            nodes.collect::<Vec<_>>()
        };
        let own = plan.identity.node;
        let (removed, stay) = match plan.removes_others {
            true => (nodes(&plan.others), Vec::new()),
            false => (Vec::new(), nodes(&plan.others)),
        };
        Found {
            stage: "found",
            data_dir: folder.display().to_string(),
            cluster: format!("{:032x}", plan.identity.cluster),
            node: Decimal(own),
            revision_floor: Decimal(plan.floor),
            groups: plan.groups.iter().map(|view| Group::new(view, own)).collect(),
            removed,
            stay,
            may_be_lost: match plan.is_empty() {
                true => Vec::new(),
                false => MAY_BE_LOST.to_vec(),
            },
        }
    }
}

impl Group {
    fn new(view: &OfflineView, own: u64) -> Group {
        let voters: Vec<u64> = view.voters.iter().map(|voter| voter.0).collect();
        let given_up = voters.iter().filter(|voter| **voter != own && !view.is_alone);
        Group {
            group: view.group.0,
            last_index: view.last_index.map(Decimal),
            last_term: Decimal(view.last_term),
            applied_index: view.applied_index.map(Decimal),
            not_applied: Decimal(view.not_applied),
            given_up: given_up.map(|voter| Decimal(*voter)).collect(),
            voters: voters.into_iter().map(Decimal).collect(),
            recover: !view.is_alone,
        }
    }

    fn cells(&self) -> [String; 7] {
        let or_dash = |number: Option<Decimal>| number.map_or_else(|| "-".to_owned(), |number| number.to_string());
        [
            self.group.to_string(),
            self.last_term.to_string(),
            or_dash(self.last_index),
            or_dash(self.applied_index),
            list(&self.voters),
            list(&self.given_up),
            match self.recover {
                true => "votes alone from now on",
                false => "votes alone: stays as it is",
            }
            .to_owned(),
        ]
    }
}

fn list(nodes: &[Decimal]) -> String {
    match nodes {
        [] => "-".to_owned(),
        nodes => nodes.iter().map(Decimal::to_string).collect::<Vec<_>>().join(","),
    }
}

impl Answer for Found {
    fn text(&self, line: &mut Vec<u8>) {
        let titles = ["GROUP", "TERM", "LAST", "APPLIED", "VOTERS", "GIVEN UP", "NODE"];
        let mut lines = vec![
            format!("{}: node {} of cluster {}", self.data_dir, self.node, self.cluster),
            table(titles, self.groups.iter().map(Group::cells)),
        ];
        let told = |node: &Node| format!("node {} at {}", node.node, node.address);
        lines.extend(
            self.removed
                .iter()
                .map(|node| format!("out of the cluster for good: {}", told(node))),
        );
        let recovers = self.groups.iter().any(|group| group.recover);
        if recovers {
            let stay = self.stay.iter();
            lines.extend(stay.map(|node| format!("stays in the cluster until it is removed: {}", told(node))));
            lines.push(format!("revisions go on from {}", self.revision_floor));
            lines.extend(self.may_be_lost.iter().map(|what| format!("may be lost: {what}")));
            lines.push(NEVER_AGAIN.to_owned());
        } else {
            lines.push("there is nothing to recover: the node votes alone".to_owned());
        }
        line.extend(lines.join("\n").into_bytes());
    }
}

/// What was done.
#[derive(Serialize)]
struct Recovered {
    stage: &'static str,
    node: Decimal,
    revision_floor: Decimal,
    groups: Vec<Done>,
    removed: Vec<Decimal>,
}

/// A group that was recovered.
#[derive(Serialize)]
struct Done {
    group: u32,
    rows: Decimal,
    streams_with_a_gap: Decimal,
}

impl Recovered {
    fn new(plan: &Plan, done: &[(u32, Outcome)]) -> Recovered {
        let removed = done.iter().flat_map(|(_, outcome)| &outcome.removed);
        Recovered {
            stage: "recovered",
            node: Decimal(plan.identity.node),
            revision_floor: Decimal(plan.floor),
            removed: removed.map(|record| Decimal(record.id.0)).collect(),
            groups: done
                .iter()
                .map(|(group, outcome)| Done {
                    group: *group,
                    rows: Decimal(outcome.rows),
                    streams_with_a_gap: Decimal(outcome.streams),
                })
                .collect(),
        }
    }
}

impl Answer for Recovered {
    fn text(&self, line: &mut Vec<u8>) {
        let groups = self
            .groups
            .iter()
            .map(|done| done.group.to_string())
            .collect::<Vec<_>>();
        let streams: u64 = self.groups.iter().map(|done| done.streams_with_a_gap.0).sum();
        let text = format!(
            "recovered groups {}: node {} votes alone, revisions from {}; nodes removed: {}; streams with a gap: {streams}",
            groups.join(","),
            self.node,
            self.revision_floor,
            list(&self.removed),
        );
        line.extend(text.into_bytes());
    }
}
