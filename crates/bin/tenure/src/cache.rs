//! Caches: create, list, look at and delete them. Their keys are in the submodules.

mod keys;
mod watch;

use serde::Serialize;

use tenure_client::{CacheCreated, CacheInfo, Client, Consistency, Verdict};

use crate::args::cache::{CacheCommand, Create};
use crate::exit::Failure;
use crate::output::{Answer, Decimal, Output, fields};

/// Runs a command of `tenure cache`.
///
/// # Errors
/// Those of the command.
pub(crate) async fn run(command: CacheCommand, client: Client, output: &mut Output) -> Result<(), Failure> {
    match command {
        CacheCommand::Create(arguments) => create(arguments, &client, output).await,
        CacheCommand::Ls => ls(&client, output).await,
        CacheCommand::Info { name } => info(&name, &client, output).await,
        CacheCommand::Rm { name, yes } => rm(&name, yes, &client, output).await,
        CacheCommand::Put(arguments) => keys::put(arguments, &client, output).await,
        CacheCommand::Touch(arguments) => keys::touch(arguments, &client, output).await,
        CacheCommand::Get { target, with_meta } => keys::get(target, with_meta, &client, output).await,
        CacheCommand::Delete(arguments) => keys::delete(arguments, &client, output).await,
        CacheCommand::LsKeys(arguments) => keys::ls_keys(arguments, &client, output).await,
        CacheCommand::Watch(arguments) => watch::watch(arguments, &client, output).await,
    }
}

/// The settings of a cache, as an object.
#[derive(Serialize)]
pub(crate) struct CacheSettings {
    name: String,
    shards: u32,
    replication: u32,
    replication_actual: u32,
    consistency: &'static str,
    incarnation: Decimal,
}

impl CacheSettings {
    pub(crate) fn new(info: &CacheInfo) -> CacheSettings {
        CacheSettings {
            name: info.name.clone(),
            shards: info.shards,
            replication: info.replication,
            replication_actual: info.replication_actual,
            consistency: match info.consistency() {
                Consistency::Leader => "leader",
                Consistency::Quorum | Consistency::Unspecified => "quorum",
            },
            incarnation: Decimal(info.incarnation),
        }
    }

    /// Says of what exists under a name how it is set.
    pub(crate) fn exists_with(&self) -> String {
        let CacheSettings {
            name,
            shards,
            replication,
            consistency,
            ..
        } = self;
        format!("{name} exists with shards {shards}, replication {replication}, consistency {consistency}")
    }
}

/// `cache info`.
#[derive(Serialize)]
struct Info(CacheSettings);

impl Answer for Info {
    fn text(&self, line: &mut Vec<u8>) {
        let settings = &self.0;
        let pairs = [
            ("name", settings.name.clone()),
            ("shards", settings.shards.to_string()),
            (
                "replication",
                format!(
                    "{} wished, {} actual",
                    settings.replication, settings.replication_actual
                ),
            ),
            ("consistency", settings.consistency.to_owned()),
            ("incarnation", settings.incarnation.0.to_string()),
        ];
        line.extend(fields(&pairs).into_bytes());
    }
}

/// `cache create`.
#[derive(Serialize)]
struct Created {
    applied: bool,
    existed: bool,
    #[serde(flatten)]
    settings: CacheSettings,
}

impl Answer for Created {
    fn text(&self, line: &mut Vec<u8>) {
        line.extend_from_slice(if self.existed { b"exists" } else { b"created" });
    }
}

async fn create(arguments: Create, client: &Client, output: &mut Output) -> Result<(), Failure> {
    let mut creation = client.create_cache(arguments.name);
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
        Verdict::Done(CacheCreated { info, existed, .. }) => output.answer(&Created {
            applied: true,
            existed,
            settings: CacheSettings::new(&info),
        }),
        Verdict::Refused(refusal) => Err(refusal.into()),
    }
}

/// A line of `cache ls`.
#[derive(Serialize)]
struct Listed(CacheSettings);

impl Answer for Listed {
    fn text(&self, line: &mut Vec<u8>) {
        line.extend_from_slice(self.0.name.as_bytes());
    }
}

async fn ls(client: &Client, output: &mut Output) -> Result<(), Failure> {
    let caches: Vec<Listed> = client
        .caches()
        .await?
        .iter()
        .map(CacheSettings::new)
        .map(Listed)
        .collect();
    output.answers(&caches)
}

async fn info(name: &str, client: &Client, output: &mut Output) -> Result<(), Failure> {
    let info = client.cache_info(name).await?;
    output.answer(&Info(CacheSettings::new(&info)))
}

/// `cache rm`.
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
            "`cache rm {name}` deletes every key of it"
        )));
    }
    let revision = client.delete_cache(name).await?;
    output.answer(&Removed {
        applied: true,
        deleted: true,
        revision: Decimal(revision),
    })
}
