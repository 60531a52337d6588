//! Streams: create, list, look at, trim and delete them. Their records are in the submodules.

mod publish;
mod read;

use std::time::Duration;

use serde::Serialize;

use tenure_client::{Client, Consistency, FenceMode, StreamCreated, StreamInfo, StreamState, Verdict};

use crate::args::stream::{Create, Fence, StreamCommand};
use crate::duration::display;
use crate::exit::Failure;
use crate::output::{Answer, Decimal, Output, fields};

/// Runs a command of `tenure stream`.
///
/// # Errors
/// Those of the command.
pub(crate) async fn run(command: StreamCommand, client: Client, output: &mut Output) -> Result<(), Failure> {
    match command {
        StreamCommand::Create(arguments) => create(arguments, &client, output).await,
        StreamCommand::Ls => ls(&client, output).await,
        StreamCommand::Info { name } => info(&name, &client, output).await,
        StreamCommand::Rm { name, yes } => rm(&name, yes, &client, output).await,
        StreamCommand::Trim { name, before } => trim(&name, before, &client, output).await,
        StreamCommand::Publish(arguments) => publish::publish(arguments, &client, output).await,
        StreamCommand::Read(arguments) => read::read(arguments, &client, output).await,
    }
}

/// The settings of a stream, as an object.
#[derive(Serialize)]
pub(crate) struct Settings {
    name: String,
    retention_ms: Option<u64>,
    retention_bytes: Option<u64>,
    fence: &'static str,
    dedup_window_ms: u64,
    shards: u32,
    replication: u32,
    replication_actual: u32,
    consistency: &'static str,
    incarnation: Decimal,
}

impl Settings {
    pub(crate) fn new(info: &StreamInfo) -> Settings {
        let settings = info.settings.unwrap_or_default();
        Settings {
            name: info.name.clone(),
            retention_ms: settings.retention_ms,
            retention_bytes: settings.retention_bytes,
            fence: match settings.fence() {
                FenceMode::Mandatory => "mandatory",
                FenceMode::Optional | FenceMode::Unspecified => "optional",
            },
            dedup_window_ms: settings.dedup_window_ms.unwrap_or_default(),
            shards: settings.shards.unwrap_or_default(),
            replication: settings.replication.unwrap_or_default(),
            replication_actual: info.replication_actual,
            consistency: match settings.consistency() {
                Consistency::Leader => "leader",
                Consistency::Quorum | Consistency::Unspecified => "quorum",
            },
            incarnation: Decimal(info.incarnation),
        }
    }

    /// Says of what exists under a name how it is set.
    pub(crate) fn exists_with(&self) -> String {
        format!(
            "{} exists with retention {}, bytes {}, fence {}, dedup window {}, shards {}, replication {}, consistency {}",
            self.name,
            self.retention(),
            self.bytes(),
            self.fence,
            length_of_time(self.dedup_window_ms),
            self.shards,
            self.replication,
            self.consistency,
        )
    }

    fn retention(&self) -> String {
        self.retention_ms
            .map_or_else(|| "without end".to_owned(), length_of_time)
    }

    fn bytes(&self) -> String {
        self.retention_bytes
            .map_or_else(|| "without end".to_owned(), |bytes| bytes.to_string())
    }
}

fn length_of_time(ms: u64) -> String {
    display(Duration::from_millis(ms))
}

/// `stream info`.
#[derive(Serialize)]
struct Info {
    #[serde(flatten)]
    settings: Settings,
    first: Decimal,
    tail: Decimal,
    bytes: u64,
    fence_token: Option<Decimal>,
}

impl Answer for Info {
    fn text(&self, line: &mut Vec<u8>) {
        let settings = &self.settings;
        let pairs = [
            ("name", settings.name.clone()),
            ("retention", settings.retention()),
            ("retention bytes", settings.bytes()),
            ("fence", settings.fence.to_owned()),
            ("dedup window", length_of_time(settings.dedup_window_ms)),
            ("shards", settings.shards.to_string()),
            (
                "replication",
                format!(
                    "{} wished, {} actual",
                    settings.replication, settings.replication_actual
                ),
            ),
            ("consistency", settings.consistency.to_owned()),
            ("incarnation", settings.incarnation.to_string()),
            ("first", self.first.to_string()),
            ("tail", self.tail.to_string()),
            ("bytes", self.bytes.to_string()),
            (
                "fence token",
                self.fence_token
                    .map_or_else(|| "-".to_owned(), |token| token.to_string()),
            ),
        ];
        line.extend(fields(&pairs).into_bytes());
    }
}

/// `stream create`.
#[derive(Serialize)]
struct Created {
    applied: bool,
    existed: bool,
    #[serde(flatten)]
    settings: Settings,
}

impl Answer for Created {
    fn text(&self, line: &mut Vec<u8>) {
        line.extend_from_slice(if self.existed { b"exists" } else { b"created" });
    }
}

async fn create(arguments: Create, client: &Client, output: &mut Output) -> Result<(), Failure> {
    let mut creation = client.stream(arguments.name).create().fence(match arguments.fence {
        Fence::Optional => FenceMode::Optional,
        Fence::Mandatory => FenceMode::Mandatory,
    });
    if let Some(seconds) = arguments.retention_secs {
        creation = creation.retention(Duration::from_secs(seconds));
    }
    if let Some(bytes) = arguments.retention_bytes {
        creation = creation.retention_bytes(bytes);
    }
    if let Some(window_ms) = arguments.dedup_window_ms {
        creation = creation.dedup_window(Duration::from_millis(window_ms));
    }
    if let Some(shards) = arguments.shards {
        creation = creation.shards(shards);
    }
    if let Some(copies) = arguments.replication {
        creation = creation.replication(copies);
    }
    if let Some(level) = arguments.consistency {
        creation = creation.consistency(level.into());
    }
    match creation.await? {
        Verdict::Done(StreamCreated { info, existed, .. }) => output.answer(&Created {
            applied: true,
            existed,
            settings: Settings::new(&info),
        }),
        Verdict::Refused(refusal) => Err(refusal.into()),
    }
}

/// A line of `stream ls`.
#[derive(Serialize)]
struct Listed(Settings);

impl Answer for Listed {
    fn text(&self, line: &mut Vec<u8>) {
        line.extend_from_slice(self.0.name.as_bytes());
    }
}

async fn ls(client: &Client, output: &mut Output) -> Result<(), Failure> {
    let streams = client.streams().await?;
    let streams: Vec<Listed> = streams.iter().map(Settings::new).map(Listed).collect();
    output.answers(&streams)
}

async fn info(name: &str, client: &Client, output: &mut Output) -> Result<(), Failure> {
    let StreamState {
        info,
        first,
        tail,
        bytes,
        fence_token,
    } = client.stream(name).info().await?;
    output.answer(&Info {
        settings: Settings::new(&info),
        first: Decimal(first),
        tail: Decimal(tail),
        bytes,
        fence_token: fence_token.map(Decimal),
    })
}

/// `stream rm`.
#[derive(Serialize)]
struct Removed {
    applied: bool,
    deleted: bool,
    revision: Decimal,
}

impl Answer for Removed {
    fn text(&self, line: &mut Vec<u8>) {
        line.extend_from_slice(b"deleted");
    }
}

async fn rm(name: &str, yes: bool, client: &Client, output: &mut Output) -> Result<(), Failure> {
    if !yes {
        return Err(Failure::unconfirmed(format!(
            "`stream rm {name}` deletes every record of it"
        )));
    }
    let revision = client.stream(name).delete().await?;
    output.answer(&Removed {
        applied: true,
        deleted: true,
        revision: Decimal(revision),
    })
}

/// `stream trim`.
#[derive(Serialize)]
struct Trimmed {
    applied: bool,
    first: Decimal,
}

impl Answer for Trimmed {
    fn text(&self, line: &mut Vec<u8>) {
        line.extend(format!("first {}", self.first).into_bytes());
    }
}

async fn trim(name: &str, before: u64, client: &Client, output: &mut Output) -> Result<(), Failure> {
    let first = client.stream(name).trim(before).await?;
    output.answer(&Trimmed {
        applied: true,
        first: Decimal(first),
    })
}
