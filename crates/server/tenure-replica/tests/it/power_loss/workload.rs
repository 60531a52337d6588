//! What a life is full of: claims with and without an end, sessions that are kept alive or neglected, numbered requests,
//! deletes, and the system group's business.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;

use tenure_core::codec::fingerprint;
use tenure_core::command::{CacheSettings, Command, Guard, Origin, Request, SystemCommand};
use tenure_core::ids::{Namespace, Nonce, OneShotId, Secret, SessionRef};
use tenure_core::refusal::Failure;
use tenure_core::response::{Done, KeptAlive, Response, SystemDone};
use tenure_core::time::Span;

use crate::power_loss::Random;
use crate::power_loss::life::{Fault, Node, Plan, numbered};
use crate::power_loss::oracle::Loss;
use crate::world::{anonymous, cache, namespace, wait_virtually};

/// Requests that are asked at once.
const BURST_MAX: u64 = 6;
const ACTORS_MAX: usize = 4;

/// A client with a session.
struct Actor {
    session: SessionRef,
    seq: u64,
    acknowledged_below: u64,
    /// It keeps its session alive.
    is_careful: bool,
}

struct Workload<'a> {
    node: &'a Node,
    random: Random,
    actors: Vec<Actor>,
    /// Makes names and values that no other request has.
    number: u64,
}

/// Works for some steps.
///
/// # Errors
/// [`Loss::NotServed`] when something is not answered.
pub(crate) async fn run(node: &Node, plan: &Plan) -> Result<(), Loss> {
    let mut workload = Workload {
        node,
        random: Random(plan.seed ^ (node.lives << 32)),
        actors: Vec::new(),
        number: node.lives * 1_000_000,
    };
    workload.found().await?;
    for _ in 0..plan.steps {
        workload.step().await?;
        if plan.fault == Some(Fault::PurgesTooEarly) {
            node.home().purge_too_early();
        }
    }
    Ok(())
}

impl Workload<'_> {
    /// Sets up what is not set up yet.
    async fn found(&mut self) -> Result<(), Loss> {
        let system = self.node.system();
        for command in [
            SystemCommand::Found {
                cluster: 7,
                home_groups: 1,
            },
            SystemCommand::AddNode {
                folder: 1,
                address: format!("127.0.0.1:{}", self.node.lives),
            },
            SystemCommand::AssignNamespace { namespace: namespace() },
        ] {
            system.ask(anonymous(Command::System(command))).await?;
        }
        if self.node.home().replica.status().wants_block {
            let reserved = system
                .ask(anonymous(Command::System(SystemCommand::ReserveBlock)))
                .await?;
            let Response::Done(Done::System(SystemDone::BlockReserved { first })) = reserved.response else {
                panic!("no block: {reserved:?}");
            };
            self.node.home().ask(anonymous(Command::TakeBlock { first })).await?;
        }
        let create = Command::CreateCache {
            name: cache(),
            settings: CacheSettings { replication: 1 },
        };
        self.node.home().ask(anonymous(create)).await?;
        Ok(())
    }

    /// Asks for some things at once, and lets some time pass.
    async fn step(&mut self) -> Result<(), Loss> {
        if self.actors.len() < ACTORS_MAX && self.random.below(4) == 0 {
            self.open_session().await?;
        }
        let count = match self.random.below(3) {
            0 => 2 + self.random.below(BURST_MAX - 1),
            _ => 1,
        };
        let requests: Vec<Request> = (0..count).map(|_| self.request()).collect();
        let asks_system = self.random.below(6) == 0;
        let home = self.node.home();
        let careful = self.actors.iter().filter(|actor| actor.is_careful);
        let keep_alives = join_all(careful.map(|actor| home.keep_alive(actor.session)));
        let system = async {
            match asks_system {
                true => self.ask_system().await,
                false => Ok(()),
            }
        };
        let answers = join_all(requests.into_iter().map(|request| home.ask(request)));
        let (answers, kept, system) = tokio::join!(answers, keep_alives, system);
        system?;
        for answer in answers {
            if let Response::Failed(Failure::SessionExpired { session, .. }) = answer?.response {
                self.actors.retain(|actor| actor.session.id != session);
            }
        }
        for kept in kept {
            if let KeptAlive::Ended { session, .. } = kept? {
                self.actors.retain(|actor| actor.session.id != session);
            }
        }
        if self.random.below(20) == 0
            && let Some(actor) = self.any_actor()
        {
            // Everything that it asked has been answered.
            actor.acknowledged_below = actor.seq + 1;
        }
        self.note_entries();
        wait_virtually(Duration::from_millis(1 + self.random.below(120))).await;
        self.note_entries();
        Ok(())
    }

    fn note_entries(&self) {
        for group in &self.node.groups {
            group.note_entries();
        }
    }

    async fn open_session(&mut self) -> Result<(), Loss> {
        let number = u128::from(self.next_number());
        let open = Command::OpenSession {
            nonce: Nonce(number),
            secret: Secret(number),
            ttl: Some(Span::from_millis(600 + self.random.below(1_500))),
            label: format!("worker {number}"),
            namespace: namespace(),
        };
        let opened = self.node.home().ask(anonymous(open)).await?;
        let Response::Done(Done::SessionOpened { id, secret, .. }) = opened.response else {
            panic!("no session: {opened:?}");
        };
        self.actors.push(Actor {
            session: SessionRef { id, secret },
            seq: 0,
            acknowledged_below: 1,
            is_careful: self.random.below(2) == 0,
        });
        Ok(())
    }

    /// What the system group is asked now and then.
    async fn ask_system(&self) -> Result<(), Loss> {
        let name = self.number;
        let system = self.node.system();
        for command in [
            SystemCommand::ReserveBlock,
            SystemCommand::AssignNamespace {
                namespace: Namespace {
                    tenant: "acme".into(),
                    name: format!("n{name}"),
                },
            },
            SystemCommand::AddNode {
                folder: u128::from(name),
                address: format!("127.0.0.1:{name}"),
            },
        ] {
            system.ask(anonymous(Command::System(command))).await?;
        }
        Ok(())
    }

    fn request(&mut self) -> Request {
        let kind = self.random.below(100);
        let key = match kind % 2 {
            0 => format!("claim-{}", self.random.below(40)),
            _ => format!("key-{}", self.random.below(40)),
        };
        let key = Bytes::from(key);
        let put = |guard, ttl, value, owner| Command::Put {
            cache: cache(),
            key: key.clone(),
            value,
            ttl,
            guard,
            owner,
        };
        let value = self.value();
        let ttl = (self.random.below(3) > 0).then(|| Span::from_millis(50 + self.random.below(2_000)));
        match kind {
            0..25 => anonymous(put(None, ttl, value, None)),
            25..50 => self.as_actor(|owner| put(Some(Guard::Absent), ttl, value, owner)),
            50..60 => self.as_actor(|owner| put(None, ttl, value, owner)),
            60..70 => self.as_actor(|_| Command::Delete {
                cache: cache(),
                key: key.clone(),
                guard: None,
            }),
            70..80 => self.one_shot(put(Some(Guard::Present), ttl, value, None)),
            80..88 => anonymous(Command::Touch {
                cache: cache(),
                key,
                ttl: ttl.unwrap_or(Span::from_secs(5)),
                guard: None,
            }),
            88..98 => anonymous(Command::Delete {
                cache: cache(),
                key,
                guard: None,
            }),
            _ => match self.any_actor() {
                Some(actor) => {
                    let session = actor.session;
                    anonymous(Command::CloseSession {
                        session: session.id,
                        secret: Some(session.secret),
                    })
                }
                None => anonymous(put(None, ttl, value, None)),
            },
        }
    }

    /// A command under the next number of some session that owns what it claims; without a session, an anonymous one.
    fn as_actor(&mut self, command: impl FnOnce(Option<SessionRef>) -> Command) -> Request {
        match self.any_actor() {
            None => anonymous(command(None)),
            Some(actor) => {
                actor.seq += 1;
                let (session, seq, below) = (actor.session, actor.seq, actor.acknowledged_below);
                numbered(session, seq, below, command(Some(session)))
            }
        }
    }

    fn one_shot(&mut self, command: Command) -> Request {
        let time = self.node.home().replica.status().time;
        Request {
            origin: Origin::OneShot {
                id: OneShotId(u128::from(self.next_number())),
                not_after: time + Span::from_secs(60),
                fingerprint: fingerprint(&command),
            },
            command,
        }
    }

    fn any_actor(&mut self) -> Option<&mut Actor> {
        let place = self.random.below(self.actors.len().max(1) as u64);
        self.actors.get_mut(usize::try_from(place).unwrap())
    }

    /// A value that no other request has.
    fn value(&mut self) -> Bytes {
        let mut value = format!("value {}", self.next_number()).into_bytes();
        let length = value.len() + usize::try_from(self.random.below(900)).unwrap();
        value.resize(length, b'.');
        value.into()
    }

    fn next_number(&mut self) -> u64 {
        self.number += 1;
        self.number
    }
}
