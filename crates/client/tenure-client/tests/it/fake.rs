//! A node that lives in the test: a small model of a namespace behind the real wire, and faults on the way.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::Stream;
use tenure_api::v1::mux_server::{Mux, MuxServer};
use tenure_api::v1::{self, ClientFrame, Header, ServerFrame, WireError, client_frame, server_frame};
use tenure_client::runtime::Tasks;
use tokio::io::DuplexStream;
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use crate::world::{TestClock, TestTasks, wait_virtually};

pub(crate) type Ask = client_frame::Body;
pub(crate) type Say = server_frame::Body;

/// The home group of every namespace.
pub(crate) const HOME: u32 = 3;

/// What happens to one frame.
#[derive(Clone, Debug)]
pub(crate) enum Fate {
    /// It is applied and answered.
    Served,
    /// It is applied, and the answer is lost.
    AnswerLost,
    /// It is applied, and the stream breaks before the answer.
    AnswerBroken,
    /// It is lost on the way.
    Lost,
    /// It is applied at once and answered later.
    Late(Duration),
    /// It is answered twice.
    Twice,
    /// It is not applied; this is the answer.
    Error(WireError),
}

/// A frame that a node has received.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    pub(crate) at: Duration,
    pub(crate) node: u64,
    pub(crate) body: Ask,
}

/// What one subscription of a watch gets.
#[derive(Clone, Debug)]
pub(crate) enum WatchStep {
    Send(v1::watch_event::Event),
    End(WireError),
    Break,
}

type Fates = Box<dyn FnMut(&Received) -> Fate + Send>;

/// What the nodes of a cluster share.
pub(crate) struct Cluster {
    pub(crate) clock: Arc<TestClock>,
    state: Mutex<State>,
}

pub(crate) struct State {
    pub(crate) id: Bytes,
    /// The group from which answers come.
    pub(crate) answering: u32,
    pub(crate) log: Vec<Received>,
    pub(crate) revision: u64,
    pub(crate) namespaces: BTreeSet<(String, String)>,
    pub(crate) sessions: BTreeMap<u64, FakeSession>,
    pub(crate) keys: BTreeMap<Bytes, (Bytes, u64, u64)>,
    /// Remembered results.
    pub(crate) results: BTreeMap<(u64, u64), Say>,
    pub(crate) one_shots: BTreeMap<Bytes, Say>,
    /// Results that were ever kept at the same time.
    pub(crate) results_kept_max: usize,
    /// How many mutations of keys ran.
    pub(crate) runs: u64,
    pub(crate) watches: VecDeque<Vec<WatchStep>>,
    fates: Fates,
}

#[derive(Clone, Debug)]
pub(crate) struct FakeSession {
    pub(crate) nonce: Bytes,
    pub(crate) secret: Bytes,
    pub(crate) ttl_ms: Option<u64>,
    pub(crate) ended: Option<v1::SessionEnd>,
    pub(crate) below: u64,
    pub(crate) acknowledged: BTreeSet<u64>,
}

impl Cluster {
    pub(crate) fn new(clock: Arc<TestClock>) -> Arc<Cluster> {
        let state = State {
            id: Bytes::from_static(&[7; 16]),
            answering: HOME,
            log: Vec::new(),
            revision: 100,
            namespaces: BTreeSet::from([("default".to_owned(), "default".to_owned())]),
            sessions: BTreeMap::new(),
            keys: BTreeMap::new(),
            results: BTreeMap::new(),
            one_shots: BTreeMap::new(),
            results_kept_max: 0,
            runs: 0,
            watches: VecDeque::new(),
            fates: Box::new(|_| Fate::Served),
        };
        Arc::new(Cluster {
            clock,
            state: Mutex::new(state),
        })
    }

    pub(crate) fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// From now on this decides about each frame but hellos of new streams.
    pub(crate) fn fates(&self, fates: impl FnMut(&Received) -> Fate + Send + 'static) {
        self.state().fates = Box::new(fates);
    }

    /// Frames received so far that are of interest.
    pub(crate) fn received<T>(&self, pick: impl Fn(&Received) -> Option<T>) -> Vec<T> {
        self.state().log.iter().filter_map(pick).collect()
    }

    /// When keep-alives were received.
    pub(crate) fn keep_alives(&self) -> Vec<Duration> {
        self.received(|frame| matches!(frame.body, Ask::KeepAlive(_)).then_some(frame.at))
    }

    fn header(&self, state: &State) -> Header {
        Header {
            group: state.answering,
            revision: state.revision,
            time_us: self.time_us(),
        }
    }

    pub(crate) fn time_us(&self) -> u64 {
        5_000_000 + u64::try_from(self.clock.elapsed().as_micros()).unwrap()
    }
}

impl State {
    fn next_revision(&mut self) -> u64 {
        self.revision += 1;
        self.revision
    }

    /// Applies a request and returns its answer.
    fn apply(&mut self, cluster: &Cluster, body: &Ask, node_id: u64) -> Say {
        match body {
            Ask::Hello(hello) => self.hello(cluster, hello, node_id),
            Ask::OpenSession(open) => self.open(cluster, open),
            Ask::KeepAlive(request) => self.keep_alive(cluster, request),
            Ask::Put(put) => {
                let request = put.request.clone();
                self.remembered(cluster, request, |state, cluster| state.put(cluster, put))
            }
            Ask::Touch(touch) => self.touch(cluster, touch),
            Ask::CloseSession(close) => {
                let request = close.request.clone();
                self.remembered(cluster, request, |state, cluster| state.close(cluster, close))
            }
            Ask::CreateCache(create) => {
                let request = create.request.clone();
                self.remembered(cluster, request, |state, cluster| {
                    let info = v1::CacheInfo {
                        name: create.name.clone(),
                        shards: 1,
                        ..v1::CacheInfo::default()
                    };
                    let verdict = Some(v1::create_cache_reply::Verdict::Done(info));
                    let header = Some(cluster.header(state));
                    Say::CreateCache(v1::CreateCacheReply {
                        header,
                        repeated: false,
                        verdict,
                        existed: false,
                    })
                })
            }
            Ask::Get(get) => {
                let key = self.keys.get(&get.key).map(|(value, version, created)| v1::KeyValue {
                    key: get.key.clone(),
                    value: value.clone(),
                    version: *version,
                    created: *created,
                    owner_session: None,
                    remaining_us: None,
                });
                Say::Get(v1::GetReply {
                    header: Some(cluster.header(self)),
                    key,
                    age_us: None,
                })
            }
            Ask::List(list) => self.list(cluster, list),
            Ask::Acknowledge(request) => {
                let session = request.session.as_ref().unwrap().id;
                self.acknowledge(session, request.below, &request.also);
                Say::Acknowledge(v1::AcknowledgeReply {
                    header: Some(cluster.header(self)),
                })
            }
            Ask::Status(_) => Say::Status(v1::StatusReply {
                node_id,
                serving: true,
                ..v1::StatusReply::default()
            }),
            other => Say::Error(WireError::internal(format!("the fake does not know {other:?}"))),
        }
    }

    fn hello(&mut self, cluster: &Cluster, hello: &v1::HelloRequest, node_id: u64) -> Say {
        if !hello.cluster_id.is_empty() && hello.cluster_id != self.id {
            return Say::Error(WireError::wrong_cluster("cluster", "the one asked for", "another"));
        }
        let scope = hello.scope.clone().unwrap_or_default();
        let name = (scope.tenant, scope.namespace);
        if hello.create_namespace {
            self.namespaces.insert(name.clone());
        }
        let namespace_exists = self.namespaces.contains(&name);
        Say::Hello(v1::HelloReply {
            cluster_id: self.id.clone(),
            node_id,
            namespace_exists,
            home_group: if namespace_exists { HOME } else { 0 },
            time_us: if namespace_exists { cluster.time_us() } else { 0 },
            revision: if namespace_exists { self.revision } else { 0 },
            protocol: 1,
            ..v1::HelloReply::default()
        })
    }

    fn open(&mut self, cluster: &Cluster, open: &v1::OpenSessionRequest) -> Say {
        let known = self
            .sessions
            .iter()
            .find(|(_, session)| session.nonce == open.nonce)
            .map(|(id, _)| *id);
        let id = known.unwrap_or_else(|| {
            let id = self.next_revision();
            let secret = Bytes::copy_from_slice(&[u8::try_from(id % 251).unwrap(); 16]);
            let session = FakeSession {
                nonce: open.nonce.clone(),
                secret,
                ttl_ms: open.ttl_ms,
                ended: None,
                below: 1,
                acknowledged: BTreeSet::new(),
            };
            self.sessions.insert(id, session);
            id
        });
        Say::OpenSession(v1::OpenSessionReply {
            header: Some(cluster.header(self)),
            session: Some(v1::SessionRef {
                id,
                secret: self.sessions[&id].secret.clone(),
            }),
            ttl_ms: open.ttl_ms,
            remaining_us: open.ttl_ms.map(|ttl| ttl * 1_000),
            repeated: known.is_some(),
        })
    }

    fn keep_alive(&mut self, cluster: &Cluster, request: &v1::KeepAliveRequest) -> Say {
        let mut sessions = Vec::new();
        for asked in &request.sessions {
            let session = asked.session.as_ref().unwrap();
            let result = match self
                .sessions
                .get(&session.id)
                .filter(|known| known.secret == session.secret)
            {
                None => v1::kept_alive::Result::Unknown(true),
                Some(FakeSession { ended: Some(end), .. }) => v1::kept_alive::Result::Ended(*end),
                Some(known) => v1::kept_alive::Result::Renewed(v1::kept_alive::Renewed {
                    remaining_us: known.ttl_ms.map(|ttl| ttl * 1_000),
                }),
            };
            sessions.push(v1::KeptAlive {
                group: asked.group,
                session: session.id,
                result: Some(result),
            });
        }
        let headers = vec![cluster.header(self)];
        Say::KeepAlive(v1::KeepAliveReply {
            attempt: request.attempt,
            sessions,
            headers,
        })
    }

    fn put(&mut self, cluster: &Cluster, put: &v1::PutRequest) -> Say {
        let known = self.keys.get(&put.key).cloned();
        let owner = put.owner.as_ref().map(|owner| owner.id);
        if let Some(end) = owner
            .and_then(|owner| self.sessions.get(&owner))
            .and_then(|session| session.ended)
        {
            return Say::Error(WireError::session_expired(owner.unwrap(), end.reason(), end.revision));
        }
        let absent = Some(v1::Guard {
            condition: Some(v1::guard::Condition::Absent(true)),
        });
        let verdict = match known {
            Some((value, version, created)) if put.guard == absent => {
                let facts = v1::KeyFacts {
                    version,
                    created,
                    holder: Some(9),
                    remaining_us: Some(812_000),
                    value_len: value.len() as u64,
                    value: Some(value),
                };
                let detail = v1::refusal::Detail::ConditionFailed(v1::refusal::ConditionFailed { key: Some(facts) });
                v1::put_reply::Verdict::Refused(v1::Refusal {
                    code: "condition_failed".to_owned(),
                    detail: Some(detail),
                })
            }
            known => {
                self.runs += 1;
                let version = self.next_revision();
                let created = known.map_or(version, |(_, _, created)| created);
                self.keys.insert(put.key.clone(), (put.value.clone(), version, created));
                v1::put_reply::Verdict::Done(v1::PutDone { version, created })
            }
        };
        let remaining_us = put.ttl_ms.map(|ttl| ttl * 1_000);
        let header = Some(cluster.header(self));
        Say::Put(v1::PutReply {
            header,
            repeated: false,
            remaining_us,
            verdict: Some(verdict),
        })
    }

    fn touch(&self, cluster: &Cluster, touch: &v1::TouchRequest) -> Say {
        if touch.request.is_some() {
            return Say::Error(WireError::invalid("request", "a touch carries none"));
        }
        let known = self.keys.get(&touch.key);
        let wanted = match touch.guard.as_ref().and_then(|guard| guard.condition.as_ref()) {
            Some(v1::guard::Condition::Version(version)) => known.filter(|(_, current, _)| current == version),
            _ => known,
        };
        let verdict = match wanted {
            Some((_, version, created)) => v1::touch_reply::Verdict::Done(v1::TouchDone {
                version: *version,
                created: *created,
            }),
            None => v1::touch_reply::Verdict::Refused(v1::Refusal {
                code: "condition_failed".to_owned(),
                detail: None,
            }),
        };
        Say::Touch(v1::TouchReply {
            header: Some(cluster.header(self)),
            remaining_us: Some(touch.ttl_ms * 1_000),
            verdict: Some(verdict),
        })
    }

    fn close(&mut self, cluster: &Cluster, close: &v1::CloseSessionRequest) -> Say {
        let id = close.session.as_ref().unwrap().id;
        let revision = self.next_revision();
        match self.sessions.get_mut(&id) {
            None => Say::Error(WireError::not_found("session", id.to_string())),
            Some(FakeSession { ended: Some(end), .. }) => {
                Say::Error(WireError::session_expired(id, end.reason(), end.revision))
            }
            Some(session) => {
                session.ended = Some(v1::SessionEnd {
                    reason: v1::EndReason::Closed.into(),
                    revision,
                });
                let header = Some(cluster.header(self));
                Say::CloseSession(v1::CloseSessionReply {
                    header,
                    repeated: false,
                    revision,
                    removed: 0,
                })
            }
        }
    }

    fn list(&self, cluster: &Cluster, list: &v1::ListRequest) -> Say {
        let limit = usize::try_from(list.limit).unwrap();
        let mut matching = self
            .keys
            .iter()
            .filter(|(key, _)| key.starts_with(&list.prefix) && list.after.as_ref().is_none_or(|after| *key > after));
        let keys = matching
            .by_ref()
            .take(limit)
            .map(|(key, (value, version, created))| v1::KeyValue {
                key: key.clone(),
                value: value.clone(),
                version: *version,
                created: *created,
                owner_session: None,
                remaining_us: None,
            });
        let keys = keys.collect();
        let more = matching.next().is_some();
        Say::List(v1::ListReply {
            header: Some(cluster.header(self)),
            keys,
            more,
            age_us: None,
        })
    }

    fn acknowledge(&mut self, id: u64, below: u64, singles: &[u64]) {
        let session = self.sessions.get_mut(&id).unwrap();
        session.below = session.below.max(below);
        session.acknowledged.extend(singles);
        let (below, acknowledged) = (session.below, session.acknowledged.clone());
        self.results
            .retain(|(session, seq), _| *session != id || (*seq >= below && !acknowledged.contains(seq)));
    }

    /// Runs a mutation, or gives the result that is remembered of it.
    fn remembered(
        &mut self,
        cluster: &Cluster,
        request: Option<v1::RequestId>,
        run: impl FnOnce(&mut State, &Cluster) -> Say,
    ) -> Say {
        match request.and_then(|request| request.kind) {
            None => run(self, cluster),
            Some(v1::request_id::Kind::OneShot(one_shot)) => match self.one_shots.get(&one_shot.id) {
                Some(known) => repeated(known.clone()),
                None => {
                    let result = run(self, cluster);
                    self.one_shots.insert(one_shot.id, result.clone());
                    result
                }
            },
            Some(v1::request_id::Kind::Session(numbered)) => {
                let id = numbered.session.unwrap().id;
                self.acknowledge(id, numbered.acknowledged_below, &numbered.acknowledged);
                let session = &self.sessions[&id];
                if let Some(known) = self.results.get(&(id, numbered.seq)) {
                    return repeated(known.clone());
                }
                if numbered.seq < session.below || session.acknowledged.contains(&numbered.seq) {
                    return Say::Error(WireError::request_forgotten(numbered.seq));
                }
                if let Some(end) = session.ended {
                    return Say::Error(WireError::session_expired(id, end.reason(), end.revision));
                }
                let result = run(self, cluster);
                self.results.insert((id, numbered.seq), result.clone());
                self.results_kept_max = self.results_kept_max.max(self.results.len());
                result
            }
        }
    }
}

fn repeated(mut known: Say) -> Say {
    match &mut known {
        Say::Put(reply) => reply.repeated = true,
        Say::CloseSession(reply) => reply.repeated = true,
        Say::CreateCache(reply) => reply.repeated = true,
        _ => {}
    }
    known
}

/// Serves a node on the connections that it is given.
pub(crate) fn serve(accepted: mpsc::Receiver<io::Result<DuplexStream>>, node_id: u64, cluster: Arc<Cluster>) {
    let node = Node { node_id, cluster };
    let server = tonic::transport::Server::builder()
        .add_service(MuxServer::new(node))
        .serve_with_incoming(ReceiverStream::new(accepted));
    TestTasks.spawn("fake node", Box::pin(async move { server.await.unwrap() }));
}

struct Node {
    node_id: u64,
    cluster: Arc<Cluster>,
}

type Answers = Pin<Box<dyn Stream<Item = Result<ServerFrame, Status>> + Send>>;

#[tonic::async_trait]
impl Mux for Node {
    type ConnectStream = Answers;

    async fn connect(&self, request: Request<Streaming<ClientFrame>>) -> Result<Response<Answers>, Status> {
        let (answers, outgoing) = mpsc::channel(4_096);
        let conversation = converse(request.into_inner(), answers, self.node_id, Arc::clone(&self.cluster));
        TestTasks.spawn("fake conversation", Box::pin(conversation));
        Ok(Response::new(Box::pin(ReceiverStream::new(outgoing))))
    }
}

type Sender = mpsc::Sender<Result<ServerFrame, Status>>;

async fn converse(mut incoming: Streaming<ClientFrame>, answers: Sender, node: u64, cluster: Arc<Cluster>) {
    let mut first = true;
    while let Some(Ok(frame)) = incoming.next().await {
        let (id, Some(body)) = (frame.id, frame.body) else {
            continue;
        };
        let received = Received {
            at: cluster.clock.elapsed(),
            node,
            body,
        };
        let fate = {
            let mut state = cluster.state();
            state.log.push(received.clone());
            if first { Fate::Served } else { (state.fates)(&received) }
        };
        first = false;
        match (&received.body, &fate) {
            (Ask::Cancel(_), _) | (_, Fate::Lost) => continue,
            (_, Fate::Error(error)) => {
                let _ = answers
                    .send(Ok(ServerFrame {
                        id,
                        body: Some(Say::Error(error.clone())),
                    }))
                    .await;
                continue;
            }
            (Ask::Watch(_), _) => {
                let script = cluster.state().watches.pop_front().unwrap_or_default();
                if play(id, script, &answers).await {
                    return;
                }
                continue;
            }
            _ => {}
        }
        let say = cluster.state().apply(&cluster, &received.body, node);
        let answer = ServerFrame { id, body: Some(say) };
        match fate {
            Fate::AnswerLost => {}
            Fate::AnswerBroken => {
                let _ = answers.send(Err(Status::unavailable("broken by the test"))).await;
                return;
            }
            Fate::Late(time) => {
                let answers = answers.clone();
                let later = async move {
                    wait_virtually(time).await;
                    let _ = answers.send(Ok(answer)).await;
                };
                TestTasks.spawn("fake delay", Box::pin(later));
            }
            Fate::Twice => {
                let _ = answers.send(Ok(answer.clone())).await;
                let _ = answers.send(Ok(answer)).await;
            }
            Fate::Served | Fate::Lost | Fate::Error(_) => {
                let _ = answers.send(Ok(answer)).await;
            }
        }
    }
}

/// Plays what a watch gets; says whether the stream is to break.
async fn play(id: u64, script: Vec<WatchStep>, answers: &Sender) -> bool {
    for step in script {
        let body = match step {
            WatchStep::Send(event) => Say::WatchEvent(v1::WatchEvent { event: Some(event) }),
            WatchStep::End(error) => Say::WatchEnded(v1::WatchEnd { error: Some(error) }),
            WatchStep::Break => {
                let _ = answers.send(Err(Status::unavailable("broken by the test"))).await;
                return true;
            }
        };
        let _ = answers.send(Ok(ServerFrame { id, body: Some(body) })).await;
    }
    false
}
