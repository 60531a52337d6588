//! `tenure backup`: everything that a running cluster holds, in one file.
//!
//! The home groups come first and the system group last: so every namespace that the rows of a home group have is known to
//! the rows of the system group, and every block of revisions that they have lies below its floor.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Seek as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serialize;
use tonic::Streaming;
use tonic::transport::Endpoint;

use tenure_api::v1::backup_part::Part;
use tenure_api::v1::backups_client::BackupsClient;
use tenure_api::v1::{BackupPart, BackupRequest, WireError};
use tenure_client::{Client, Error, Outcome};
use tenure_storage::backup::{BackupHead, BackupReader, BackupWriter, Chunk, GroupEnd, GroupHead, Item};

use crate::args::Global;
use crate::args::server::Backup;
use crate::duration;
use crate::exit::Failure;
use crate::output::{Answer, Decimal, Output};

/// The file of a backup in its folder.
pub(crate) const FILE: &str = "backup.tenure";
/// The same until it is whole.
const UNFINISHED: &str = "backup.tenure.tmp";
/// How long the next part may take. A node gives up on us sooner.
const PART_WITHIN: Duration = Duration::from_secs(60);
/// Bytes that are kept back for a larger write.
const BUFFER_BYTES: usize = 1 << 20;

/// `tenure backup`.
///
/// # Errors
/// The cluster cannot be read, or the file cannot be written. There is then no file of this name, or the one that was
/// there before.
pub(crate) async fn run(
    arguments: &Backup,
    global: &Global,
    client: &Client,
    output: &mut Output,
) -> Result<(), Failure> {
    let target = Target::new(arguments)?;
    let status = client.status().await?;
    let cluster = <[u8; 16]>::try_from(&*status.cluster_id).map_err(|_| unusable("it does not name its cluster"))?;
    let head = BackupHead {
        cluster: u128::from_be_bytes(cluster),
        begun_unix_secs: unix_secs(),
        groups: status.home_groups.saturating_add(1),
    };
    let file = target.create()?;
    let written = write(global, &head, &file).await;
    let finished = written.and_then(|written| target.finish(&file).map(|()| written));
    match finished {
        Ok(written) => output.answer(&Done {
            file: target.finished.display().to_string(),
            cluster: format!("{:032x}", head.cluster),
            groups: head.groups,
            rows: Decimal(written.rows),
            bytes: Decimal(written.bytes),
        }),
        Err(failure) => {
            // It is of no use. Under that name it is nobody's backup, should it stay.
            let _ = fs::remove_file(&target.unfinished);
            Err(failure)
        }
    }
}

/// Seconds since 1970 on this machine's clock.
pub(crate) fn unix_secs() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

/// What was backed up.
#[derive(Serialize)]
struct Done {
    file: String,
    cluster: String,
    groups: u32,
    rows: Decimal,
    bytes: Decimal,
}

impl Answer for Done {
    fn text(&self, line: &mut Vec<u8>) {
        let Done {
            file,
            cluster,
            groups,
            rows,
            bytes,
        } = self;
        let text = format!("backup {file}: {rows} rows of {groups} groups, {bytes} bytes, cluster {cluster}");
        line.extend(text.into_bytes());
    }
}

/// Where the backup goes.
struct Target {
    folder: PathBuf,
    finished: PathBuf,
    unfinished: PathBuf,
}

impl Target {
    fn new(arguments: &Backup) -> Result<Target, Failure> {
        let folder = arguments.folder.clone();
        fs::create_dir_all(&folder).map_err(|error| not_written(&folder, &error))?;
        let finished = folder.join(FILE);
        if finished.exists() && !arguments.replace {
            return Err(Failure::settings(
                format!("there is a backup in {} already", folder.display()),
                "choose another folder, or say --replace",
            ));
        }
        let unfinished = folder.join(UNFINISHED);
        Ok(Target {
            folder,
            finished,
            unfinished,
        })
    }

    /// The file under the name that it has until it is whole. One that a backup before has left is written over. Only its
    /// owner reads it: it holds secrets of sessions.
    fn create(&self) -> Result<File, Failure> {
        let failed = |error: &io::Error| not_written(&self.unfinished, error);
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = options.open(&self.unfinished).map_err(|error| failed(&error))?;
        if file.try_lock().is_err() {
            let what = format!("another backup is being written into {}", self.folder.display());
            return Err(Failure::failed(what, "wait for it, or choose another folder"));
        }
        file.set_len(0).map_err(|error| failed(&error))?;
        Ok(file)
    }

    /// Reads back what was written, and gives it its name.
    fn finish(&self, mut file: &File) -> Result<(), Failure> {
        let failed = |error: &io::Error| not_written(&self.unfinished, error);
        file.sync_all().map_err(|error| failed(&error))?;
        file.rewind().map_err(|error| failed(&error))?;
        let mut reader = BackupReader::begin(BufReader::new(file)).map_err(|error| not_as_written(&error))?;
        while reader.next_item().map_err(|error| not_as_written(&error))? != Item::End {}
        fs::rename(&self.unfinished, &self.finished).map_err(|error| failed(&error))?;
        let folder = File::open(&self.folder).and_then(|folder| folder.sync_all());
        folder.map_err(|error| not_written(&self.folder, &error))
    }
}

/// Writes every group. Returns how much it was in all.
async fn write(global: &Global, head: &BackupHead, file: &File) -> Result<GroupEnd, Failure> {
    let failed = |error: io::Error| not_written(Path::new(UNFINISHED), &error);
    let file = BufWriter::with_capacity(BUFFER_BYTES, file);
    let mut writer = BackupWriter::begin(file, head).map_err(failed)?;
    let mut written = GroupEnd::default();
    for group in (1..head.groups).chain([0]) {
        let end = write_group(global, head, group, &mut writer).await?;
        written.rows += end.rows;
        written.bytes += end.bytes;
    }
    writer.end().and_then(|mut file| file.flush()).map_err(failed)?;
    Ok(written)
}

async fn write_group(
    global: &Global,
    head: &BackupHead,
    group: u32,
    writer: &mut BackupWriter<BufWriter<&File>>,
) -> Result<GroupEnd, Failure> {
    let failed = |error: io::Error| not_written(Path::new(UNFINISHED), &error);
    let mut parts = begin(global, head, group).await?;
    let about = match next(&mut parts).await? {
        Part::Head(about) if about.group == group => about,
        _ => return Err(unusable("it did not begin with its head")),
    };
    let about = GroupHead {
        group,
        applied: about.applied_index,
        revision: about.revision,
        time_us: about.time_us,
    };
    writer.begin_group(&about).map_err(failed)?;
    loop {
        match next(&mut parts).await? {
            Part::Rows(rows) => {
                let chunk = Chunk::parse(rows).ok_or_else(|| unusable("it sent what are no rows"))?;
                writer.rows(&chunk).map_err(failed)?;
            }
            Part::End(said) => {
                let end = writer.end_group().map_err(failed)?;
                if end.rows != said.rows {
                    return Err(unusable("it sent another number of rows than it says"));
                }
                let (rows, bytes, revision) = (end.rows, end.bytes, about.revision);
                say(&format!(
                    "group {group}: {rows} rows, {bytes} bytes, at revision {revision}"
                ));
                return Ok(end);
            }
            Part::Head(_) => return Err(unusable("it began again")),
        }
    }
}

/// Begins to read a group from the first endpoint that serves it, for as long as a request may take.
async fn begin(global: &Global, head: &BackupHead, group: u32) -> Result<Streaming<BackupPart>, Failure> {
    let deadline = tokio::time::Instant::now() + global.timeout;
    let mut failure = None;
    loop {
        for endpoint in &global.endpoints {
            match tokio::time::timeout_at(deadline, begin_at(endpoint, global, head, group)).await {
                Ok(Ok(parts)) => return Ok(parts),
                Ok(Err(error)) => failure = Some(error),
                Err(_) => {
                    let limit = duration::display(global.timeout);
                    let why = format!("{endpoint} did not begin to send group {group} within {limit}");
                    return Err(failure.unwrap_or(no_answer(why)));
                }
            }
        }
        let wait = match &failure {
            Some(Failure::Client(error)) => error.retry_after(),
            _ => None,
        };
        match wait {
            // Another backup is being made there.
            Some(wait) if tokio::time::Instant::now() + wait < deadline => tokio::time::sleep(wait).await,
            _ => return Err(failure.unwrap_or(no_answer("there is no endpoint".to_owned()))),
        }
    }
}

async fn begin_at(
    endpoint: &str,
    global: &Global,
    head: &BackupHead,
    group: u32,
) -> Result<Streaming<BackupPart>, Failure> {
    let endpoint = endpoint.trim();
    let unreachable = |why: String| {
        Failure::from(Error::Unreachable {
            why,
            outcome: Outcome::NotApplied,
        })
    };
    let node = Endpoint::from_shared(format!("http://{endpoint}")).map_err(|error| unreachable(error.to_string()))?;
    let connected = node.connect().await;
    let channel = connected.map_err(|error| unreachable(format!("{endpoint}: {error}")))?;
    let request = BackupRequest {
        cluster_id: head.cluster.to_be_bytes().to_vec().into(),
        group,
        timeout_ms: duration::whole_ms(global.timeout),
    };
    let begun = BackupsClient::new(channel).read(request).await;
    Ok(begun.map_err(|status| of_status(&status))?.into_inner())
}

async fn next(parts: &mut Streaming<BackupPart>) -> Result<Part, Failure> {
    let part = match tokio::time::timeout(PART_WITHIN, parts.message()).await {
        Ok(part) => part.map_err(|status| of_status(&status))?,
        Err(_) => {
            let limit = duration::display(PART_WITHIN);
            return Err(no_answer(format!("the node sent nothing more for {limit}")));
        }
    };
    part.and_then(|part| part.part)
        .ok_or_else(|| unusable("it ended before its end"))
}

fn no_answer(why: String) -> Failure {
    Failure::from(Error::NoAnswer {
        why,
        outcome: Outcome::NotApplied,
    })
}

/// A read changes nothing, whatever became of it.
fn of_status(status: &tonic::Status) -> Failure {
    match WireError::from_status(status) {
        Ok(Some(error)) => Failure::from(Error::Server {
            error: Box::new(error),
            outcome: Outcome::NotApplied,
        }),
        Ok(None) | Err(_) => no_answer(format!("the node broke off: {}", status.message())),
    }
}

fn unusable(what: &str) -> Failure {
    Failure::failed(
        format!("the node's answer cannot be used: {what}"),
        "use a program of the node's release",
    )
}

fn not_written(path: &Path, error: &io::Error) -> Failure {
    Failure::failed(
        format!("{} cannot be written: {error}", path.display()),
        "look at the disk and the rights to it",
    )
}

fn not_as_written(error: &dyn std::error::Error) -> Failure {
    Failure::failed(
        format!("the backup is not what was written: {error}"),
        "look at the disk, and write it elsewhere",
    )
}

/// Progress, for people.
fn say(line: &str) {
    // The backup goes on where nobody reads it.
    let _ = writeln!(io::stderr(), "{line}");
}
