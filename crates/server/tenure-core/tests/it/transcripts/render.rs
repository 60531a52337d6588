//! What a machine says, as lines for a reader.

use std::collections::BTreeMap;
use std::fmt::Write;

use bytes::Bytes;
use tenure_core::command::FenceMode;
use tenure_core::effect::{Change, ChangeKind, Effect};
use tenure_core::ids::{Incarnation, ObjectName, Secret, SessionId, SessionRef};
use tenure_core::machine::Applied;
use tenure_core::query::{Found, KeyView, RecordView, SessionView, StreamView};
use tenure_core::refusal::{EndReason, Failure, KeyFacts, Missing, Refusal};
use tenure_core::response::{
    Answer, Appended, CacheRecord, Done, KeptAlive, OperationResult, Response, StreamRecord, SystemDone,
};
use tenure_core::time::Span;

use crate::lab::with_wrong_secret;

/// Removals in a row that are still told one by one.
const REMOVALS_TOLD: usize = 6;

/// What things are called in a transcript.
#[derive(Default)]
pub(super) struct Names {
    sessions: BTreeMap<String, SessionRef>,
    lives: BTreeMap<Incarnation, String>,
}

impl Names {
    pub(super) fn name_session(&mut self, name: &str, session: SessionRef) {
        self.sessions.insert(name.to_owned(), session);
    }

    pub(super) fn name_life(&mut self, name: &ObjectName, incarnation: Incarnation) {
        let name = short(&name.to_string());
        let earlier = self
            .lives
            .iter()
            .filter(|(life, known)| **life != incarnation && known.split('@').next() == Some(name.as_str()))
            .count();
        self.lives.entry(incarnation).or_insert_with(|| match earlier {
            0 => name,
            earlier => format!("{name}@{}", earlier + 1),
        });
    }

    pub(super) fn session(&self, name: &str) -> Result<SessionRef, String> {
        self.sessions
            .get(name)
            .copied()
            .ok_or_else(|| format!("no session is called {name}"))
    }

    /// A name, `NAME!wrong` for the same session with a wrong secret, or `s-7` for one that is not named.
    pub(super) fn session_called(&self, word: &str) -> Result<SessionRef, String> {
        if let Some(number) = word.strip_prefix("s-") {
            let number = number.parse().map_err(|_| "s- and a number")?;
            return Ok(SessionRef {
                id: SessionId(number),
                secret: Secret(0),
            });
        }
        match word.strip_suffix("!wrong") {
            Some(name) => Ok(with_wrong_secret(self.session(name)?)),
            None => self.session(word),
        }
    }

    fn of_session(&self, id: SessionId) -> String {
        self.sessions
            .iter()
            .find(|(_, session)| session.id == id)
            .map_or_else(|| id.to_string(), |(name, _)| name.clone())
    }

    fn of_life(&self, life: Incarnation) -> String {
        self.lives
            .get(&life)
            .cloned()
            .unwrap_or_else(|| format!("life {}", life.0))
    }
}

/// Everything that an entry said.
pub(super) fn render_applied(names: &Names, applied: &Applied) -> String {
    let mut lines = Vec::new();
    for kept in &applied.kept_alive {
        lines.push(kept_alive(names, kept));
    }
    for answer in &applied.answers {
        lines.push(render_answer(names, answer));
    }
    lines.extend(effects(names, &applied.effects));
    if applied.more_due {
        lines.push("more is due".to_owned());
    }
    join(lines)
}

/// A great number of answers: runs of the same kind of answer as one line.
pub(super) fn render_summary(names: &Names, all: &[Applied]) -> String {
    let answers: Vec<&Answer> = all.iter().flat_map(|applied| &applied.answers).collect();
    let mut lines = Vec::new();
    for run in answers.chunk_by(|a, b| kind_of(a) == kind_of(b)) {
        lines.push(match run {
            [one] => render_answer(names, one),
            [first, .., last] => format!(
                "{} times, from: {}\n{} to: {}",
                run.len(),
                render_answer(names, first),
                " ".repeat(run.len().to_string().len() + 10),
                render_answer(names, last),
            ),
            [] => unreachable!("a chunk holds something"),
        });
    }
    if all.last().is_some_and(|applied| applied.more_due) {
        lines.push("more is due".to_owned());
    }
    join(lines)
}

/// What a read found.
pub(super) fn render_found(names: &Names, found: &Found) -> String {
    let mut lines = Vec::new();
    let mut is_more = false;
    match found {
        Found::Key(key) => lines.extend(key.iter().map(|key| key_view(names, key))),
        Found::Keys { keys, more } => {
            is_more = *more;
            match keys.as_slice() {
                [first, .., last] if keys.len() > 3 * REMOVALS_TOLD => lines.push(format!(
                    "{} keys, {} to {}",
                    keys.len(),
                    text(&first.key),
                    text(&last.key)
                )),
                keys => lines.extend(keys.iter().map(|key| key_view(names, key))),
            }
        }
        Found::Cache(record) => lines.push(cache_record(record)),
        Found::Caches(records) => lines.extend(records.iter().map(cache_record)),
        Found::Home(home) => lines.extend(home.map(|home| home.to_string())),
        Found::Namespaces(all) => lines.extend(all.iter().map(|(name, home)| format!("{name} in {home}"))),
        Found::Nodes(view) => {
            lines.extend(view.nodes.iter().map(|node| {
                let drained = if view.draining.contains(&node.id) {
                    ", drained"
                } else {
                    ""
                };
                format!(
                    "node {}: folder {}, address {}{drained}",
                    node.id.0, node.folder, node.address
                )
            }));
            let chosen = view.leaders.iter();
            lines.extend(chosen.map(|(group, node)| format!("{group} is to be led by node {}", node.0)));
        }
        Found::Cluster(cluster) => lines.extend(cluster.map(|cluster| {
            format!(
                "cluster {}, {} home groups, floor {}",
                cluster.cluster, cluster.home_groups, cluster.floor
            )
        })),
        Found::Session(session) => lines.extend(session.iter().map(|session| session_view(names, session))),
        Found::Sessions { sessions, more } => {
            is_more = *more;
            lines.extend(sessions.iter().map(|session| session_view(names, session)));
        }
        Found::Failed(failure) => lines.push(render_failure(names, failure)),
        Found::Stream(stream) => lines.push(stream_view(stream)),
        Found::Streams(records) => lines.extend(records.iter().map(stream_record)),
        Found::Records {
            records, first, tail, ..
        } => {
            match records.as_slice() {
                [first, .., last] if records.len() > 3 * REMOVALS_TOLD => lines.push(format!(
                    "{} records, {} to {}",
                    records.len(),
                    first.offset,
                    last.offset
                )),
                records => lines.extend(records.iter().map(record_view)),
            }
            lines.push(format!("of {first} to below {tail}"));
        }
    }
    if lines.is_empty() {
        lines.push("nothing".to_owned());
    }
    if is_more {
        lines.push("and more".to_owned());
    }
    join(lines)
}

/// A length of time in the largest unit that tells it exactly.
pub(super) fn time(micros: u64) -> String {
    const UNITS: [(u64, &str); 4] = [(3_600_000_000, "h"), (60_000_000, "m"), (1_000_000, "s"), (1_000, "ms")];
    if micros == 0 {
        return "0s".to_owned();
    }
    match UNITS.iter().find(|(unit, _)| micros.is_multiple_of(*unit)) {
        Some((unit, name)) => format!("{}{name}", micros / unit),
        None => format!("{micros}us"),
    }
}

fn render_answer(names: &Names, answer: &Answer) -> String {
    let mut line = match &answer.response {
        Response::Done(what) => format!("done: {}", done(names, what)),
        Response::Refused(refusal) => format!("refused: {}", render_refusal(names, refusal)),
        Response::Failed(failure) => render_failure(names, failure),
    };
    if let Some(remaining) = answer.remaining {
        let _ = write!(line, ", remaining {}", time(remaining.0));
    }
    if answer.repeated {
        line.push_str(" [the first answer]");
    }
    line
}

fn done(names: &Names, done: &Done) -> String {
    match done {
        Done::SessionOpened { id, secret: _, ttl } => {
            let ttl = ttl.map_or_else(|| "no TTL".to_owned(), |ttl| format!("TTL {}", time(ttl.0)));
            format!("session {} is {id}, {ttl}", names.of_session(*id))
        }
        Done::SessionClosed { revision, removed } => format!("closed at {revision}, {removed} keys removed"),
        Done::Acknowledged => "acknowledged".to_owned(),
        Done::CacheCreated { record, existed } => {
            let existed = if *existed { "existed: " } else { "created " };
            format!("{existed}{}", cache_record(record))
        }
        Done::CacheDeleted { revision } => format!("cache deleted at {revision}"),
        Done::Put { version, created } => format!("put, version {version}, token {created}"),
        Done::Deleted { removed: None } => "there was no key".to_owned(),
        Done::Deleted { removed: Some(removed) } => {
            format!("deleted at {}, was version {}", removed.revision, removed.version)
        }
        Done::Touched { version, created } => format!("touched, version {version}, token {created}"),
        Done::BlockTaken { taken: true } => "block taken".to_owned(),
        Done::BlockTaken { taken: false } => "block ignored".to_owned(),
        Done::System(SystemDone::Founded { cluster, home_groups }) => {
            format!("cluster {cluster} with {home_groups} home groups")
        }
        Done::System(SystemDone::NodeAdded { id }) => format!("node {}", id.0),
        Done::System(SystemDone::NamespaceAssigned { home }) => format!("home {home}"),
        Done::System(SystemDone::BlockReserved { first }) => format!("block from {first}"),
        Done::System(SystemDone::NodeRemoved) => "node removed".to_owned(),
        Done::System(SystemDone::NodeMarked) => "node marked".to_owned(),
        Done::System(SystemDone::LeaderChosen) => "leader chosen".to_owned(),
        Done::Added { sum, version, created } => format!("sum {sum}, version {version}, token {created}"),
        Done::PrefixDeleted {
            revision,
            removed,
            more,
        } => {
            let at = revision.map_or_else(String::new, |revision| format!(" at {revision}"));
            format!(
                "{removed} keys deleted{at}{}",
                if *more { ", and there are more" } else { "" }
            )
        }
        Done::Txn {
            applied: _,
            failed_guard,
            revision,
            results,
        } => {
            let branch = match failed_guard {
                None => "then".to_owned(),
                Some(at) => format!("else, by guard {at}"),
            };
            let at = revision.map_or_else(|| "nothing changed".to_owned(), |revision| format!("at {revision}"));
            let results: Vec<String> = results
                .iter()
                .map(|one| format!("\n  [{}]", result(names, one)))
                .collect();
            format!("{branch}, {at}{}", results.concat())
        }
        Done::StreamCreated { record, existed } => {
            let existed = if *existed { "existed: " } else { "created " };
            format!("{existed}{}", stream_record(record))
        }
        Done::StreamDeleted { revision } => format!("stream deleted at {revision}"),
        Done::Appended(appended) => render_appended(appended),
        Done::StreamTrimmed { first } => format!("begins at {first}"),
    }
}

fn result(names: &Names, result: &OperationResult) -> String {
    match result {
        OperationResult::Put { version, created } => format!("put, version {version}, token {created}"),
        OperationResult::Deleted { removed: None } => "there was no key".to_owned(),
        OperationResult::Deleted { removed: Some(removed) } => {
            format!("deleted at {}, was version {}", removed.revision, removed.version)
        }
        OperationResult::Added { sum, version, created } => format!("sum {sum}, version {version}, token {created}"),
        OperationResult::Appended(appended) => render_appended(appended),
        OperationResult::Got(None) => "no key".to_owned(),
        OperationResult::Got(Some(key)) => {
            let mut line = format!("{}, version {}, token {}", text(&key.value), key.version, key.created);
            push_claim(names, &mut line, key.owner, None);
            line
        }
    }
}

fn render_appended(appended: &Appended) -> String {
    let Appended {
        first,
        count,
        duplicate,
    } = appended;
    let known = if *duplicate { ", known" } else { "" };
    format!("{count} records at {first}{known}")
}

fn render_refusal(names: &Names, refusal: &Refusal) -> String {
    match refusal {
        Refusal::ConditionFailed(None) => "there is no such key".to_owned(),
        Refusal::ConditionFailed(Some(facts)) => {
            let KeyFacts {
                version,
                created,
                holder,
                remaining,
                value,
                value_len,
            } = facts;
            let mut line = match value {
                Some(value) => format!("the key is {}", text(value)),
                None => format!("the key has {value_len} bytes"),
            };
            let _ = write!(line, ", version {version}, token {created}");
            push_claim(names, &mut line, *holder, *remaining);
            format!("[{line}]")
        }
        Refusal::ExistsOtherwise(record) => format!("exists otherwise: {}", cache_record(record)),
        Refusal::WrongTail { tail } => format!("the tail is {tail}"),
        Refusal::StaleToken { current } => format!("a stale token: the highest is {current}"),
        Refusal::StreamExistsOtherwise(record) => format!("exists otherwise: {}", stream_record(record)),
    }
}

fn render_failure(names: &Names, failure: &Failure) -> String {
    let outcome = if failure.is_unknown() { "unknown" } else { "not applied" };
    let what = match failure {
        Failure::SessionExpired {
            session,
            reason,
            revision,
        } => format!(
            "session_expired, {} ended ({}) at {revision}",
            names.of_session(*session),
            render_reason(*reason)
        ),
        Failure::SessionUnknown { session } => format!("session_unknown, {}", names.of_session(*session)),
        Failure::WrongSecret { session } => format!("wrong_secret, {}", names.of_session(*session)),
        Failure::RequestForgotten { seq } => format!("request_forgotten, #{seq}"),
        Failure::TooLate => "too_late".to_owned(),
        Failure::RequestReused => "request_reused".to_owned(),
        Failure::WindowFull { seqs, bytes } => format!("window_full, {seqs} results of {bytes} bytes"),
        Failure::NotFound { what } => match what {
            Missing::Cache(name) => format!("not_found, cache {name}"),
            Missing::Key(key) => format!("not_found, key {}", text(key)),
            Missing::Session(session) => format!("not_found, session {}", names.of_session(*session)),
            Missing::Stream(name) => format!("not_found, stream {name}"),
            Missing::Node(node) => format!("not_found, node {}", node.0),
        },
        Failure::Invalid { field, rule } => format!("invalid, {field}: {rule}"),
        Failure::Limit { which, value } => format!("limit, {which}: {value}"),
        Failure::Overloaded { what, retry_after } => format!("overloaded, {what}: again in {}", time(retry_after.0)),
        Failure::WrongGroup => "wrong_group".to_owned(),
        Failure::WrongType { is } => format!("wrong_type, it is a {is}"),
    };
    format!("{outcome}: {what}")
}

fn kept_alive(names: &Names, kept: &KeptAlive) -> String {
    match kept {
        KeptAlive::Renewed { session, remaining } => {
            let remaining = remaining.map_or_else(String::new, |left| format!(", remaining {}", time(left.0)));
            format!("{} kept alive{remaining}", names.of_session(*session))
        }
        KeptAlive::Ended {
            session,
            reason,
            revision,
        } => format!(
            "{} cannot be kept alive: ended ({}) at {revision}",
            names.of_session(*session),
            render_reason(*reason)
        ),
        KeptAlive::Unknown { session } => format!("{} cannot be kept alive: unknown", names.of_session(*session)),
    }
}

fn effects(names: &Names, effects: &[Effect]) -> Vec<String> {
    let mut lines = Vec::new();
    for run in effects.chunk_by(|a, b| removal_of(a).is_some() && removal_of(a) == removal_of(b)) {
        match run {
            [Effect::Changed(first), .., Effect::Changed(last)] if run.len() > REMOVALS_TOLD => {
                let revisions = match (first.revision, last.revision) {
                    (first, last) if first == last => format!("all at {first}"),
                    (first, last) => format!("at {first} to {last}"),
                };
                let reason = removal_of(&run[0]).map_or("", |(_, reason)| render_reason(reason));
                lines.push(format!(
                    "  {}: {} keys removed ({reason}), {} to {}, {revisions}",
                    names.of_life(first.incarnation),
                    run.len(),
                    text(&first.key),
                    text(&last.key),
                ));
            }
            run => lines.extend(run.iter().map(|effect| render_effect(names, effect))),
        }
    }
    lines
}

fn render_effect(names: &Names, effect: &Effect) -> String {
    match effect {
        Effect::Changed(change) => render_change(names, change),
        Effect::SessionEnded {
            session,
            reason,
            revision,
        } => format!(
            "  session {} ended ({}) at {revision}",
            names.of_session(*session),
            render_reason(*reason)
        ),
        Effect::ObjectDeleted { incarnation, revision } => {
            format!("  {} deleted at {revision}", names.of_life(*incarnation))
        }
        Effect::Appended {
            incarnation,
            tail,
            revision,
        } => format!("  {} ends at {tail}, at {revision}", names.of_life(*incarnation)),
    }
}

fn render_change(names: &Names, change: &Change) -> String {
    let mut line = format!("  {}: {}", names.of_life(change.incarnation), text(&change.key));
    match &change.kind {
        ChangeKind::Put {
            value,
            created,
            owner,
            ttl,
        } => {
            let _ = write!(line, " = {}, token {created}", text(value));
            if let Some(owner) = owner {
                let _ = write!(line, ", owner {}", names.of_session(*owner));
            }
            if let Some(ttl) = ttl {
                let _ = write!(line, ", TTL {}", time(ttl.0));
            }
        }
        ChangeKind::Removed { reason } => {
            let _ = write!(line, " removed ({})", render_reason(*reason));
        }
    }
    let _ = write!(line, ", at {}", change.revision);
    if let Some(version) = change.previous_version {
        let _ = write!(line, ", was version {version}");
    }
    line
}

fn key_view(names: &Names, key: &KeyView) -> String {
    let mut line = format!(
        "{} = {}, version {}, token {}",
        text(&key.key),
        text(&key.value),
        key.version,
        key.created
    );
    push_claim(names, &mut line, key.owner, key.remaining);
    line
}

fn session_view(names: &Names, session: &SessionView) -> String {
    let mut line = format!("{} {:?}", names.of_session(session.id), session.label);
    match session.ttl {
        Some(ttl) => {
            let _ = write!(line, ", TTL {}", time(ttl.0));
        }
        None => line.push_str(", no TTL"),
    }
    if let Some(remaining) = session.remaining {
        let _ = write!(line, ", remaining {}", time(remaining.0));
    }
    if let Some((reason, revision)) = session.ended {
        let _ = write!(line, ", ended ({}) at {revision}", render_reason(reason));
    }
    let _ = write!(line, ", owns {}", session.owned_count);
    if session.owned.len() <= REMOVALS_TOLD {
        for (cache, key) in &session.owned {
            let _ = write!(line, ", {} {}", short(&cache.to_string()), text(key));
        }
    }
    let _ = write!(line, ", {} results", session.results_kept);
    line
}

fn cache_record(record: &CacheRecord) -> String {
    format!(
        "{} from {}, replication {}",
        short(&record.name.to_string()),
        record.incarnation.0,
        record.settings.replication
    )
}

fn stream_record(record: &StreamRecord) -> String {
    let mut line = format!("{} from {}", short(&record.name.to_string()), record.incarnation.0);
    let settings = &record.settings;
    if let Some(retention) = settings.retention {
        let _ = write!(line, ", kept {}", time(retention.0));
    }
    if let Some(bytes) = settings.retention_bytes {
        let _ = write!(line, ", kept {bytes} bytes");
    }
    if settings.fence == FenceMode::Mandatory {
        line.push_str(", fenced");
    }
    let _ = write!(
        line,
        ", window {}, replication {}",
        time(settings.dedup_window.0),
        settings.replication
    );
    line
}

fn stream_view(stream: &StreamView) -> String {
    let StreamView {
        record,
        first,
        tail,
        bytes,
        token,
    } = stream;
    let token = token.map_or_else(|| "no token".to_owned(), |token| format!("token {token}"));
    format!(
        "{}: {first} to below {tail}, {bytes} bytes, {token}",
        stream_record(record)
    )
}

fn record_view(record: &RecordView) -> String {
    let RecordView {
        offset,
        data,
        time: at,
        token,
    } = record;
    let token = token.map_or_else(String::new, |token| format!(", token {token}"));
    format!("{offset}: {}, at {}{token}", text(data), time(at.0))
}

fn push_claim(names: &Names, line: &mut String, owner: Option<SessionId>, remaining: Option<Span>) {
    if let Some(owner) = owner {
        let _ = write!(line, ", owner {}", names.of_session(owner));
    }
    if let Some(remaining) = remaining {
        let _ = write!(line, ", remaining {}", time(remaining.0));
    }
}

fn render_reason(reason: EndReason) -> &'static str {
    match reason {
        EndReason::Delete => "delete",
        EndReason::Expired => "expired",
        EndReason::Session => "session",
        EndReason::Closed => "closed",
        EndReason::Forced => "forced",
        EndReason::ObjectDeleted => "object deleted",
    }
}

/// Which removals may be told as one: of one cache, for one reason.
fn removal_of(effect: &Effect) -> Option<(Incarnation, EndReason)> {
    match effect {
        Effect::Changed(Change {
            incarnation,
            kind: ChangeKind::Removed { reason },
            ..
        }) => Some((*incarnation, *reason)),
        _ => None,
    }
}

/// Which answers may be told as one.
fn kind_of(answer: &Answer) -> (std::mem::Discriminant<Response>, String) {
    let kind = match &answer.response {
        Response::Done(done) => format!("{:?}", std::mem::discriminant(done)),
        Response::Refused(refusal) => format!("{:?}", std::mem::discriminant(refusal)),
        Response::Failed(failure) => format!("{:?}", std::mem::discriminant(failure)),
    };
    (std::mem::discriminant(&answer.response), kind)
}

fn text(bytes: &Bytes) -> String {
    if bytes.len() > 64 {
        return format!("({} bytes)", bytes.len());
    }
    bytes.escape_ascii().to_string()
}

/// The name without the namespace that most transcripts use.
fn short(name: &str) -> String {
    name.strip_prefix("acme/prod/").unwrap_or(name).to_owned()
}

fn join(lines: Vec<String>) -> String {
    lines.into_iter().map(|line| line + "\n").collect()
}
