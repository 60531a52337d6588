//! The little language of transcripts: what a line means, and playing it on a machine.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tenure_core::codec;
use tenure_core::command::{
    Acknowledged, Append, CacheSettings, Command, Entry, FenceMode, Guard, Origin, Request, StreamSettings,
    SystemCommand,
};
use tenure_core::ids::{GroupId, NodeId, Nonce, OneShotId, Secret, SessionRef};
use tenure_core::limits::{APPEND_RECORDS_MAX, BLOCK_REVISIONS, DEDUP_WINDOW_DEFAULT, ENTRY_COMMANDS_MAX};
use tenure_core::machine::{Applied, GroupKind};
use tenure_core::query::{Query, ReadFrom};
use tenure_core::response::{Done, Response};
use tenure_core::restore::NewCluster;
use tenure_core::table::{Table, TableRead};
use tenure_core::time::{Span, Timestamp};

use super::render::{Names, render_applied, render_found, render_summary};
use super::transactions::TxnDraft;
use super::words::{Outcome, Words, acknowledgements, bytes, name, namespace, number, range, span};
use crate::lab::{Lab, export, import, restored, secret_of};

/// A transcript being played.
pub(super) struct Script {
    lab: Lab,
    stamp: Timestamp,
    names: Names,
    draft: Option<Draft>,
    /// The transaction between `txn` and its `end`.
    txn: Option<(Vec<Identity>, TxnDraft)>,
    output: String,
}

/// The entry between `entry` and `end`.
#[derive(Default)]
struct Draft {
    keep_alives: Vec<SessionRef>,
    requests: Vec<Request>,
    /// For each request the local name that an opening gives to its session.
    opened: Vec<Option<String>>,
}

impl Script {
    pub(super) fn new() -> Script {
        Script {
            lab: Lab::empty(GroupKind::Home),
            stamp: Timestamp(0),
            names: Names::default(),
            draft: None,
            txn: None,
            output: String::new(),
        }
    }

    /// Plays the lines of a block and returns its output.
    pub(super) fn play(&mut self, lines: &[&str]) -> Outcome<String> {
        for line in lines {
            let mut words = Words::new(line);
            self.line(&mut words)
                .and_then(|()| words.done())
                .map_err(|error| format!("in the line {line:?}: {error}"))?;
        }
        if self.draft.is_some() || self.txn.is_some() {
            return Err("entry or txn without end".to_owned());
        }
        Ok(std::mem::take(&mut self.output))
    }

    /// What holds at the end of every transcript: the state survives a restart and a snapshot.
    pub(super) fn finish(&mut self) {
        self.lab.reopen();
        self.lab.check_memory();
        let bytes = self.lab.snapshot();
        assert_eq!(
            export(&import(&bytes)),
            bytes,
            "export, import, export is a fixed point"
        );
    }

    fn line(&mut self, words: &mut Words<'_>) -> Outcome<()> {
        if let Some((origins, mut txn)) = self.txn.take() {
            if txn.line(words, &self.names)? {
                self.send(origins, Command::Txn(txn.txn), None);
            } else {
                self.txn = Some((origins, txn));
            }
            return Ok(());
        }
        match words.peek() {
            Some("at") => {
                words.next()?;
                self.stamp = Timestamp(span(words.next()?)?.0);
            }
            Some("tick") => {
                words.next()?;
                if let Some(ahead) = words.word() {
                    self.stamp = self.lab.machine.time().max(self.stamp) + span(ahead)?;
                }
                self.tick();
            }
            Some("entry") => {
                words.next()?;
                self.draft = Some(Draft::default());
            }
            Some("end") => {
                words.next()?;
                let draft = self.draft.take().ok_or("end without entry")?;
                self.apply(draft);
            }
            Some("keepalive") => {
                words.next()?;
                let session = self.session(words)?;
                match &mut self.draft {
                    Some(draft) => draft.keep_alives.push(session),
                    None => self.apply(Draft {
                        keep_alives: vec![session],
                        ..Draft::default()
                    }),
                }
            }
            Some("fill") => self.fill(words)?,
            Some("fill-stream") => self.fill_stream(words)?,
            Some("group" | "leave" | "status" | "reopen" | "snapshot" | "restore") => self.upkeep(words)?,
            Some(first) if QUERIES.contains(&first) => {
                let query = self.query(words)?;
                let found = self.lab.query(&query);
                let text = render_found(&self.names, &found);
                self.output.push_str(&text);
            }
            _ => self.requests(words)?,
        }
        Ok(())
    }

    /// What is done to the machine from outside.
    fn upkeep(&mut self, words: &mut Words<'_>) -> Outcome<()> {
        match words.next()? {
            "group" => {
                let kind = match words.next()? {
                    "system" => GroupKind::System,
                    "home" => GroupKind::Home,
                    other => return Err(format!("no group is called {other}")),
                };
                self.lab = Lab::empty(kind);
            }
            "leave" => {
                let left = words.number()?;
                words.expect("revisions")?;
                leave_revisions(&mut self.lab, left);
            }
            "status" => {
                self.status();
            }
            "reopen" => {
                self.lab.reopen();
                self.lab.check_memory();
                self.say("the same");
            }
            "snapshot" => {
                let bytes = self.lab.snapshot();
                self.lab.table = import(&bytes);
                self.lab.reopen();
                assert_eq!(self.lab.snapshot(), bytes, "export, import, export is a fixed point");
                self.say("the same");
            }
            "restore" => self.restore(words.number()?)?,
            other => return Err(format!("{other} does nothing to a machine")),
        }
        Ok(())
    }

    /// Goes on with what a restore makes of the table, from the beginning of a block on.
    fn restore(&mut self, block: u64) -> Outcome<()> {
        let new = NewCluster {
            cluster: 2,
            folder: 2,
            floor: first_of(block),
        };
        let made = restored(self.lab.kind, &self.lab.table, new);
        let (table, outcome) = made.map_err(|error| error.to_string())?;
        self.lab = Lab::over(self.lab.kind, table);
        self.say(&format!(
            "restored: {} sessions, {} of their keys and {} results forgotten, {} streams go on behind a gap",
            outcome.sessions, outcome.owned_keys, outcome.requests, outcome.streams
        ));
        Ok(())
    }

    fn say(&mut self, line: &str) {
        self.output.push_str(line);
        self.output.push('\n');
    }

    fn tick(&mut self) {
        let applied = self.lab.apply(&Entry {
            stamp: self.stamp,
            keep_alives: Vec::new(),
            requests: Vec::new(),
        });
        let text = render_applied(&self.names, &applied);
        let nothing = if text.is_empty() { " nothing" } else { "" };
        self.say(&format!("at {}:{nothing}", super::render::time(applied.time.0)));
        self.output.push_str(&text);
    }

    fn apply(&mut self, draft: Draft) {
        let applied = self.lab.apply(&Entry {
            stamp: self.stamp,
            keep_alives: draft.keep_alives,
            requests: draft.requests,
        });
        self.learn(&draft.opened, &applied);
        let text = render_applied(&self.names, &applied);
        self.output.push_str(&text);
    }

    /// Takes note of the names that answers gave to things.
    fn learn(&mut self, opened: &[Option<String>], applied: &Applied) {
        for (answer, name) in applied.answers.iter().zip(opened) {
            match (&answer.response, name) {
                (Response::Done(Done::SessionOpened { id, secret, .. }), Some(name)) => {
                    self.names.name_session(
                        name,
                        SessionRef {
                            id: *id,
                            secret: *secret,
                        },
                    );
                }
                (Response::Done(Done::CacheCreated { record, .. }), _) => {
                    self.names.name_life(&record.name, record.incarnation);
                }
                (Response::Done(Done::StreamCreated { record, .. }), _) => {
                    self.names.name_life(&record.name, record.incarnation);
                }
                _ => {}
            }
        }
    }

    /// One request, or a numbered row of equal ones.
    fn requests(&mut self, words: &mut Words<'_>) -> Outcome<()> {
        let origins = self.origins(words)?;
        if words.peek() == Some("txn") {
            words.next()?;
            self.txn = Some((origins, TxnDraft::default()));
            return Ok(());
        }
        let (command, name) = self.command(words)?;
        self.send(origins, command, name);
        Ok(())
    }

    fn send(&mut self, origins: Vec<Identity>, command: Command, name: Option<String>) {
        if origins.len() == 1 || self.draft.is_some() {
            for origin in origins {
                let request = origin.with(command.clone());
                match &mut self.draft {
                    Some(draft) => {
                        draft.requests.push(request);
                        draft.opened.push(name.clone());
                    }
                    None => self.apply(Draft {
                        keep_alives: Vec::new(),
                        requests: vec![request],
                        opened: vec![name.clone()],
                    }),
                }
            }
            return;
        }
        let requests = origins.into_iter().map(|origin| origin.with(command.clone())).collect();
        self.many(requests);
    }

    fn many(&mut self, requests: Vec<Request>) {
        let applied = self.lab.run_many(self.stamp, requests);
        let text = render_summary(&self.names, &applied);
        self.output.push_str(&text);
    }

    /// `fill CACHE PREFIX COUNT [ttl=] [owner=] [value=]`: that many new keys, in entries of the largest size.
    fn fill(&mut self, words: &mut Words<'_>) -> Outcome<()> {
        words.next()?;
        let cache = name(words.next()?)?;
        let prefix = words.next()?;
        let count = words.number()?;
        let options = self.options(words)?;
        let requests = (0..count)
            .map(|number| Request {
                origin: Origin::Anonymous,
                command: Command::Put {
                    cache: cache.clone(),
                    key: Bytes::from(format!("{prefix}{number:04}")),
                    value: options.value.clone().unwrap_or_else(|| Bytes::from_static(b"v")),
                    ttl: options.ttl,
                    guard: None,
                    owner: options.owner,
                },
            })
            .collect::<Vec<_>>();
        assert!(
            count as usize <= 16 * ENTRY_COMMANDS_MAX,
            "that is enough for any bound"
        );
        self.many(requests);
        Ok(())
    }

    /// `fill-stream STREAM COUNT [value=] [ids]`: that many records, as many in an append as may be; with `ids` each
    /// of its own, under the message ids `m0000` and on.
    fn fill_stream(&mut self, words: &mut Words<'_>) -> Outcome<()> {
        words.next()?;
        let stream = name(words.next()?)?;
        let count = words.number()? as usize;
        let with_ids = words.flag("ids");
        let value = words
            .option("value")
            .map(bytes)
            .transpose()?
            .unwrap_or_else(|| Bytes::from_static(b"r"));
        let records = vec![value; count];
        let appends = records
            .chunks(if with_ids { 1 } else { APPEND_RECORDS_MAX })
            .enumerate();
        let requests = appends
            .map(|(at, records)| Request {
                origin: Origin::Anonymous,
                command: Command::Append {
                    stream: stream.clone(),
                    append: Append {
                        records: records.to_vec(),
                        message_id: with_ids.then(|| Bytes::from(format!("m{at:04}"))),
                        ..Append::default()
                    },
                },
            })
            .collect();
        self.many(requests);
        Ok(())
    }

    fn status(&mut self) {
        let machine = &self.lab.machine;
        let mut line = format!(
            "revision {}, time {}",
            machine.revision(),
            super::render::time(machine.time().0)
        );
        match machine.next_deadline() {
            Some(next) => line.push_str(&format!(", next deadline {}", super::render::time(next.0))),
            None => line.push_str(", no deadline to wait for"),
        }
        if machine.wants_block() {
            line.push_str(", wants a block");
        }
        self.say(&line);
    }

    /// `as S #SEQ [ack<N] [ack=N,N]`, `oneshot ID not-after=T`, or nothing.
    fn origins(&mut self, words: &mut Words<'_>) -> Outcome<Vec<Identity>> {
        match words.peek() {
            Some("as") => {
                words.next()?;
                let session = self.session(words)?;
                let seqs = words.next()?.strip_prefix('#').ok_or("a number like #1 is missing")?;
                let seqs = range(seqs)?;
                let acknowledged = acknowledgements(words)?;
                Ok(seqs
                    .map(|seq| Identity::Numbered {
                        session,
                        seq,
                        acknowledged: acknowledged.clone(),
                    })
                    .collect())
            }
            Some("oneshot") => {
                words.next()?;
                let ids = range(words.next()?)?;
                let not_after = words.option("not-after").ok_or("not-after= is missing")?;
                let not_after = Timestamp(span(not_after)?.0);
                Ok(ids
                    .map(|id| Identity::OneShot {
                        id: OneShotId(u128::from(id)),
                        not_after,
                    })
                    .collect())
            }
            _ => Ok(vec![Identity::Anonymous]),
        }
    }

    fn command(&mut self, words: &mut Words<'_>) -> Outcome<(Command, Option<String>)> {
        let command = match words.next()? {
            "block" => Command::TakeBlock {
                first: first_of(words.number()?),
            },
            "open" => {
                let name = words.next()?.to_owned();
                let nonce = u128::from(
                    words
                        .option("nonce")
                        .ok_or("nonce= is missing")?
                        .parse::<u64>()
                        .map_err(|error| error.to_string())?,
                );
                let ttl = words.option("ttl").map(span).transpose()?;
                let label = words.option("label").unwrap_or(&name).to_owned();
                let command = Command::OpenSession {
                    nonce: Nonce(nonce),
                    secret: words
                        .option("secret")
                        .map(|secret| secret.parse().map(Secret))
                        .transpose()
                        .map_err(|_| "a secret is a number")?
                        .unwrap_or_else(|| secret_of(nonce)),
                    ttl,
                    label,
                    namespace: namespace("acme/prod")?,
                };
                return Ok((command, Some(name)));
            }
            "close" => {
                let forced = words.peek() == Some("forced");
                if forced {
                    words.next()?;
                }
                let session = self.session(words)?;
                Command::CloseSession {
                    session: session.id,
                    secret: (!forced).then_some(session.secret),
                }
            }
            "ack" => Command::Acknowledge {
                session: self.session(words)?,
                acknowledged: acknowledgements(words)?,
            },
            "system" => Command::System(system(words)?),
            word => self.object_command(word, words)?,
        };
        Ok((command, None))
    }

    fn object_command(&self, word: &str, words: &mut Words<'_>) -> Outcome<Command> {
        Ok(match word {
            "cache" => match words.next()? {
                "create" => Command::CreateCache {
                    name: name(words.next()?)?,
                    settings: CacheSettings {
                        replication: words
                            .option("replication")
                            .map_or(Ok(1), str::parse)
                            .map_err(|_| "replication is a number")?,
                    },
                },
                "delete" => Command::DeleteCache {
                    name: name(words.next()?)?,
                },
                other => return Err(format!("nothing is known of cache {other}")),
            },
            "put" => {
                let (cache, key) = (name(words.next()?)?, bytes(words.next()?)?);
                let value = bytes(words.next()?)?;
                let options = self.options(words)?;
                Command::Put {
                    cache,
                    key,
                    value,
                    ttl: options.ttl,
                    guard: options.guard,
                    owner: options.owner,
                }
            }
            "delete" => {
                let (cache, key) = (name(words.next()?)?, bytes(words.next()?)?);
                let guard = self.options(words)?.guard;
                Command::Delete { cache, key, guard }
            }
            "touch" => {
                let (cache, key) = (name(words.next()?)?, bytes(words.next()?)?);
                let options = self.options(words)?;
                Command::Touch {
                    cache,
                    key,
                    ttl: options.ttl.ok_or("ttl= is missing")?,
                    guard: options.guard,
                }
            }
            "add" => Command::Add {
                cache: name(words.next()?)?,
                key: bytes(words.next()?)?,
                delta: words.signed()?,
                ttl: words.option("ttl").map(span).transpose()?,
            },
            "delete-prefix" => Command::DeletePrefix {
                cache: name(words.next()?)?,
                prefix: words.word().map_or(Ok(Bytes::new()), bytes)?,
            },
            "stream" => stream(words)?,
            "append" => Command::Append {
                stream: name(words.next()?)?,
                append: append(words)?,
            },
            "trim" => Command::TrimStream {
                stream: name(words.next()?)?,
                before: words.number()?,
            },
            other => return Err(format!("no command is called {other}")),
        })
    }

    fn query(&mut self, words: &mut Words<'_>) -> Outcome<Query> {
        Ok(match words.next()? {
            "get" => Query::Get {
                cache: name(words.next()?)?,
                key: bytes(words.next()?)?,
            },
            "list" => Query::List {
                cache: name(words.next()?)?,
                prefix: words.option("prefix").map_or(Ok(Bytes::new()), bytes)?,
                after: words.option("after").map(bytes).transpose()?,
                limit: words
                    .option("limit")
                    .map_or(Ok(1_000), str::parse)
                    .map_err(|_| "limit is a number")?,
            },
            "show" => Query::Cache(name(words.next()?)?),
            "caches" => Query::Caches(namespace(words.word().unwrap_or("acme/prod"))?),
            "session" => Query::Session(self.session(words)?.id),
            "sessions" => Query::Sessions {
                namespace: namespace(words.option("namespace").unwrap_or("acme/prod"))?,
                after: match words.option("after") {
                    Some(name) => Some(self.names.session(name)?.id),
                    None => None,
                },
                limit: words
                    .option("limit")
                    .map_or(Ok(1_000), str::parse)
                    .map_err(|_| "limit is a number")?,
            },
            "home" => Query::Home(namespace(words.next()?)?),
            "namespaces" => Query::Namespaces,
            "nodes" => Query::Nodes,
            "head" => Query::Stream(name(words.next()?)?),
            "streams" => Query::Streams(namespace(words.word().unwrap_or("acme/prod"))?),
            "read" => Query::Records {
                stream: name(words.next()?)?,
                from: match words.option("from") {
                    None | Some("earliest") => ReadFrom::Earliest,
                    Some("latest") => ReadFrom::Latest,
                    Some(offset) => ReadFrom::Offset(number(offset)?),
                },
                limit: words
                    .option("limit")
                    .map_or(Ok(1_000), str::parse)
                    .map_err(|_| "limit is a number")?,
            },
            _ => Query::Cluster,
        })
    }

    fn session(&self, words: &mut Words<'_>) -> Outcome<SessionRef> {
        self.names.session_called(words.next()?)
    }

    fn options(&self, words: &mut Words<'_>) -> Outcome<Options> {
        Ok(Options {
            value: words.option("value").map(bytes).transpose()?,
            ttl: words.option("ttl").map(span).transpose()?,
            guard: guard(words)?,
            owner: words
                .option("owner")
                .map(|name| self.names.session_called(name))
                .transpose()?,
        })
    }
}

/// Words that begin a read.
const QUERIES: [&str; 13] = [
    "get",
    "list",
    "show",
    "caches",
    "session",
    "sessions",
    "home",
    "namespaces",
    "nodes",
    "head",
    "streams",
    "read",
    "cluster",
];

struct Options {
    value: Option<Bytes>,
    ttl: Option<Span>,
    guard: Option<Guard>,
    owner: Option<SessionRef>,
}

/// An identity that is still without its command.
enum Identity {
    Anonymous,
    OneShot {
        id: OneShotId,
        not_after: Timestamp,
    },
    Numbered {
        session: SessionRef,
        seq: u64,
        acknowledged: Acknowledged,
    },
}

impl Identity {
    fn with(self, command: Command) -> Request {
        let fingerprint = codec::fingerprint(&command);
        let origin = match self {
            Identity::Anonymous => Origin::Anonymous,
            Identity::OneShot { id, not_after } => Origin::OneShot {
                id,
                not_after,
                fingerprint,
            },
            Identity::Numbered {
                session,
                seq,
                acknowledged,
            } => Origin::Session {
                session,
                seq,
                acknowledged,
                fingerprint,
            },
        };
        Request { origin, command }
    }
}

/// `if-absent`, `if-present`, `if-version=3`, `if-value=v` or `if-token=3`, anywhere in the rest of the line.
pub(super) fn guard(words: &mut Words<'_>) -> Outcome<Option<Guard>> {
    let guards = [
        words.flag("if-absent").then_some(Guard::Absent),
        words.flag("if-present").then_some(Guard::Present),
        words.option("if-version").map(number).transpose()?.map(Guard::Version),
        words.option("if-value").map(bytes).transpose()?.map(Guard::Value),
        words.option("if-token").map(number).transpose()?.map(Guard::Created),
    ];
    Ok(guards.into_iter().flatten().next())
}

fn stream(words: &mut Words<'_>) -> Outcome<Command> {
    Ok(match words.next()? {
        "create" => Command::CreateStream {
            name: name(words.next()?)?,
            settings: StreamSettings {
                retention: words.option("retention").map(span).transpose()?,
                retention_bytes: words.option("retention-bytes").map(number).transpose()?,
                fence: if words.flag("fenced") {
                    FenceMode::Mandatory
                } else {
                    FenceMode::Optional
                },
                dedup_window: words
                    .option("window")
                    .map(span)
                    .transpose()?
                    .unwrap_or(DEDUP_WINDOW_DEFAULT),
                replication: words
                    .option("replication")
                    .map_or(Ok(1), str::parse)
                    .map_err(|_| "replication is a number")?,
            },
        },
        "delete" => Command::DeleteStream {
            name: name(words.next()?)?,
        },
        other => return Err(format!("nothing is known of stream {other}")),
    })
}

/// `[tail=3] [token=5] [id=m]` anywhere, and everything else is a record.
pub(super) fn append(words: &mut Words<'_>) -> Outcome<Append> {
    Ok(Append {
        expected: words.option("tail").map(number).transpose()?,
        token: words.option("token").map(number).transpose()?,
        message_id: words.option("id").map(bytes).transpose()?,
        records: words.rest().into_iter().map(bytes).collect::<Outcome<_>>()?,
    })
}

fn system(words: &mut Words<'_>) -> Outcome<SystemCommand> {
    let kind = words.next()?;
    Ok(match kind {
        "found" => SystemCommand::Found {
            cluster: words
                .option("cluster")
                .map_or(Ok(0), str::parse)
                .map_err(|_| "cluster is a number")?,
            home_groups: words
                .option("homes")
                .map_or(Ok(1), str::parse)
                .map_err(|_| "homes is a number")?,
        },
        "node" => SystemCommand::AddNode {
            folder: words
                .option("folder")
                .map_or(Ok(0), str::parse)
                .map_err(|_| "folder is a number")?,
            address: words.option("address").unwrap_or_default().to_owned(),
        },
        "namespace" => SystemCommand::AssignNamespace {
            namespace: namespace(words.next()?)?,
        },
        "reserve" => match words.option("from") {
            None => SystemCommand::ReserveBlock,
            Some(at_least) => SystemCommand::ReserveBlockFrom {
                at_least: number(at_least)?,
            },
        },
        "remove" => SystemCommand::RemoveNode {
            node: node(words.next()?)?,
            of: number(words.option("of").unwrap_or("1"))?,
        },
        "drain" | "undrain" => SystemCommand::DrainNode {
            node: node(words.next()?)?,
            draining: kind == "drain",
        },
        "lead" => SystemCommand::ChooseLeader {
            group: GroupId(words.next()?.parse().map_err(|_| "a group is a number")?),
            node: node(words.next()?)?,
        },
        other => return Err(format!("no system command is called {other}")),
    })
}

fn node(word: &str) -> Outcome<NodeId> {
    Ok(NodeId(number(word)?))
}

/// The first revision of a block.
fn first_of(block: u64) -> u64 {
    (block - 1) * BLOCK_REVISIONS + 1
}

/// Writes the row of revisions as if all but so many of them had been consumed.
fn leave_revisions(lab: &mut Lab, left: u64) {
    #[derive(Serialize, Deserialize)]
    struct Revisions {
        last: u64,
        next: u64,
        end: u64,
        waiting: Vec<u64>,
        top: u64,
    }
    let row = lab.table.get(b"R").expect("a block was taken");
    let mut revisions: Revisions = postcard::from_bytes(&row[1..]).expect("the row has this form");
    revisions.next = revisions.end - left;
    revisions.last = revisions.next - 1;
    let row = postcard::to_extend(&revisions, vec![row[0]]).expect("plain data always encodes");
    lab.table.put(b"R".to_vec(), Bytes::from(row));
    lab.reopen();
}
