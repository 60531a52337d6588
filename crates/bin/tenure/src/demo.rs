//! `tenure demo`: the README's stories, played on a node of their own in a temporary folder.
//!
//! Each story checks what it tells and ends with a line `ok STORY: what was checked`. What is to be fenced runs as a
//! process of its own, so that it can really be paused.

mod child;
mod nightly;
mod paused;
mod payment;
mod resource;
mod takeover;
mod writer;

use std::time::Duration;

use serde::Serialize;

use tenure_client::{Client, Error};
use tenure_node::config::{CONNECTIONS_MAX, HOME_GROUPS_DEV};
use tenure_node::{Node, NodeConfig, Runtime};

use crate::args::server::DemoPart;
use crate::exit::Failure;
use crate::logs;
use crate::output::{Answer, Output};
use crate::scratch::Scratch;
use crate::start::{Signals, not_started, open_on_disk};

/// No story takes so long.
const STORY_TIME_MAX: Duration = Duration::from_secs(20);
/// How long what is left of the node is waited for at the end.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);

/// `tenure demo`.
///
/// # Errors
/// The node could not start; a story did not go as it is told; a signal stopped it.
pub(crate) fn run(output: &mut Output) -> Result<(), Failure> {
    logs::of_a_command()?;
    let scratch = Scratch::new()?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::failed(format!("no thread could be started: {error}"), "free some resources"))?;
    let result = runtime.block_on(play(&scratch, output));
    runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
    // Removed here, when nothing writes to it any more.
    drop(scratch);
    result
}

/// One of the processes that a story needs.
///
/// # Errors
/// It cannot do its part.
pub(crate) fn part(part: DemoPart) -> Result<(), Failure> {
    child::end_with_parent();
    match part {
        DemoPart::Resource => resource::serve(),
        DemoPart::Writer { node, resource, ttl_ms } => writer::run(&node, &resource, Duration::from_millis(ttl_ms)),
    }
}

async fn play(scratch: &Scratch, output: &mut Output) -> Result<(), Failure> {
    let mut signals = Signals::new()?;
    let config = NodeConfig {
        data_dir: scratch.path().join("data"),
        listen: ([127, 0, 0, 1], 0).into(),
        advertise: None,
        join: Vec::new(),
        home_groups: HOME_GROUPS_DEV,
        connections_max: CONNECTIONS_MAX,
        reserve_bytes: None,
        log_entries_kept: None,
        log_segment_bytes: None,
        insecure: false,
    };
    let node = Node::start(config, Runtime::system(), open_on_disk())
        .await
        .map_err(not_started)?;
    let result = tokio::select! {
        biased;
        () = signals.next() => Err(Failure::failed("the demo was stopped before its end", "start it again")),
        result = stories(&node, output) => result,
    };
    node.stop().await;
    result
}

async fn stories(node: &Node, output: &mut Output) -> Result<(), Failure> {
    let address = node.address().to_string();
    let mut stage = Stage {
        client: Client::connect([address.clone()]).await?,
        address,
        output,
    };
    stage.story("nightly run", nightly::play).await?;
    stage.story("payment", payment::play).await?;
    stage.story("paused writer", paused::play).await?;
    stage.story("stream takeover", takeover::play).await
}

/// What a story is played on.
struct Stage<'a> {
    client: Client,
    address: String,
    output: &'a mut Output,
}

/// How a story ended.
#[derive(Serialize)]
struct Told {
    story: &'static str,
    ok: bool,
    checked: String,
}

impl Answer for Told {
    fn text(&self, line: &mut Vec<u8>) {
        line.extend(format!("ok {}: {}", self.story, self.checked).into_bytes());
    }
}

impl Stage<'_> {
    /// Tells what happens, to people.
    fn say(&mut self, what: &str) -> Result<(), Failure> {
        if self.output.is_json() {
            return Ok(());
        }
        self.output.raw(format!("   {what}\n").as_bytes())
    }

    /// Plays a story, which returns what it has checked.
    async fn story(
        &mut self,
        story: &'static str,
        play: impl AsyncFnOnce(&mut Self) -> Result<String, Wrong>,
    ) -> Result<(), Failure> {
        let played = tokio::time::timeout(STORY_TIME_MAX, play(self)).await;
        match played.unwrap_or_else(|_| Err(Wrong::Story(format!("it took more than {STORY_TIME_MAX:?}")))) {
            Ok(checked) => self.output.answer(&Told {
                story,
                ok: true,
                checked,
            }),
            Err(Wrong::Failure(failure)) => Err(failure),
            Err(Wrong::Story(what)) => Err(Failure::failed(
                format!("the story {story:?} did not go as it is told: {what}"),
                "report it",
            )),
        }
    }
}

/// Why a story could not be told to its end.
enum Wrong {
    /// Something else happened than is told.
    Story(String),
    /// It could not be played.
    Failure(Failure),
}

impl From<Failure> for Wrong {
    fn from(failure: Failure) -> Wrong {
        Wrong::Failure(failure)
    }
}

impl From<Error> for Wrong {
    fn from(error: Error) -> Wrong {
        Wrong::Story(format!("a call failed: {error}"))
    }
}

/// Something that a story says must hold.
fn check(holds: bool, what: impl FnOnce() -> String) -> Result<(), Wrong> {
    if holds { Ok(()) } else { Err(Wrong::Story(what())) }
}
