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
use tokio::sync::{Notify, mpsc};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use crate::objects::{Objects, answer, verdict};
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

/// What one following of a stream gets.
#[derive(Clone, Debug)]
pub(crate) enum FollowStep {
    Send(v1::follow_event::Event),
    End(WireError),
    Break,
}

type Fates = Box<dyn FnMut(&Received) -> Fate + Send>;

/// What the nodes of a cluster share.
pub(crate) struct Cluster {
    pub(crate) clock: Arc<TestClock>,
    state: Mutex<State>,
    changed: Notify,
}

pub(crate) struct State {
    pub(crate) id: Bytes,
    /// Where the nodes say that they are reached, by id.
    pub(crate) addresses: Vec<String>,
    /// Who leads, as nodes say in a hello.
    pub(crate) leader: Option<v1::LeaderHint>,
    /// Said on the stream on which the next answer goes, before it.
    pub(crate) hints: VecDeque<v1::LeaderHint>,
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
    pub(crate) follows: VecDeque<Vec<FollowStep>>,
    /// The caches and streams. The keys of a put, a get and a delete are there too if caches have to exist.
    pub(crate) objects: Objects,
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
            addresses: Vec::new(),
            leader: None,
            hints: VecDeque::new(),
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
            follows: VecDeque::new(),
            objects: Objects {
                lenient: true,
                ..Objects::default()
            },
            fates: Box::new(|_| Fate::Served),
        };
        Arc::new(Cluster {
            clock,
            state: Mutex::new(state),
            changed: Notify::new(),
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
            Ask::Get(_) | Ask::Put(_) if !self.objects.lenient => self.apply_to_objects(cluster, body),
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
                    state.objects.caches.entry(create.name.clone()).or_default();
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
            other => self.apply_to_objects(cluster, other),
        }
    }

    /// Applies what the model of the objects knows.
    fn apply_to_objects(&mut self, cluster: &Cluster, body: &Ask) -> Say {
        let request = identity(body);
        let read = matches!(
            body,
            Ask::Get(_) | Ask::GetStream(_) | Ask::ListStreams(_) | Ask::ReadRecords(_)
        );
        if read {
            return self.read_objects(cluster, body);
        }
        self.remembered(cluster, request, |state, cluster| {
            state.runs += 1;
            let revision = state.next_revision();
            let header = Some(cluster.header(state));
            state.change_objects(body, revision, header)
        })
    }

    fn read_objects(&mut self, cluster: &Cluster, body: &Ask) -> Say {
        let header = cluster.header(self);
        let objects = &mut self.objects;
        match body {
            Ask::Get(get) => answer(objects.get(&get.cache, &get.key), |key| {
                Say::Get(v1::GetReply {
                    header: Some(header),
                    key,
                    age_us: None,
                })
            }),
            Ask::GetStream(get) => answer(objects.stream_state(&get.name, header), Say::GetStream),
            Ask::ReadRecords(read) => answer(objects.read(read, header), Say::ReadRecords),
            _ => {
                let streams = objects.streams.keys().map(|name| v1::StreamInfo {
                    name: name.clone(),
                    ..v1::StreamInfo::default()
                });
                Say::ListStreams(v1::ListStreamsReply {
                    header: Some(header),
                    streams: streams.collect(),
                })
            }
        }
    }

    fn change_objects(&mut self, body: &Ask, revision: u64, header: Option<Header>) -> Say {
        let objects = &mut self.objects;
        let repeated = false;
        match body {
            Ask::Put(put) => {
                let say = |verdict| {
                    Say::Put(v1::PutReply {
                        header,
                        repeated,
                        remaining_us: put.ttl_ms.map(|ttl| ttl * 1_000),
                        verdict: Some(verdict),
                    })
                };
                let guard = put.guard.as_ref();
                verdict(
                    objects.put(revision, &put.cache, &put.key, &put.value, put.ttl_ms, guard),
                    |done| say(v1::put_reply::Verdict::Done(done)),
                    |refusal| say(v1::put_reply::Verdict::Refused(refusal)),
                )
            }
            Ask::Delete(delete) => {
                let say = |verdict| {
                    Say::Delete(v1::DeleteReply {
                        header,
                        repeated,
                        verdict: Some(verdict),
                    })
                };
                verdict(
                    objects.delete(revision, &delete.cache, &delete.key, delete.guard.as_ref()),
                    |done| say(v1::delete_reply::Verdict::Done(done)),
                    |refusal| say(v1::delete_reply::Verdict::Refused(refusal)),
                )
            }
            Ask::Add(add) => answer(
                objects.add(revision, &add.cache, &add.key, add.delta, add.ttl_ms),
                |done| {
                    Say::Add(v1::AddReply {
                        header,
                        repeated,
                        remaining_us: add.ttl_ms.map(|ttl| ttl * 1_000),
                        done: Some(done),
                    })
                },
            ),
            Ask::DeletePrefix(delete) => answer(
                objects.delete_prefix(&delete.cache, &delete.prefix),
                |(removed, more)| {
                    Say::DeletePrefix(v1::DeletePrefixReply {
                        header,
                        repeated,
                        removed,
                        revision: (removed > 0).then_some(revision),
                        more,
                    })
                },
            ),
            Ask::Txn(txn) => {
                let say = |verdict| {
                    Say::Txn(v1::TxnReply {
                        header,
                        repeated,
                        verdict: Some(verdict),
                    })
                };
                verdict(
                    objects.txn(txn, revision),
                    |done| say(v1::txn_reply::Verdict::Done(done)),
                    |refusal| say(v1::txn_reply::Verdict::Refused(refusal)),
                )
            }
            _ => self.change_streams(body, revision, header),
        }
    }

    fn change_streams(&mut self, body: &Ask, revision: u64, header: Option<Header>) -> Say {
        let objects = &mut self.objects;
        let repeated = false;
        match body {
            Ask::CreateStream(create) => {
                let say = |verdict, existed| {
                    Say::CreateStream(v1::CreateStreamReply {
                        header,
                        repeated,
                        existed,
                        verdict: Some(verdict),
                    })
                };
                verdict(
                    objects.create_stream(create, revision),
                    |(info, existed)| say(v1::create_stream_reply::Verdict::Done(info), existed),
                    |refusal| say(v1::create_stream_reply::Verdict::Refused(refusal), true),
                )
            }
            Ask::Append(append) => {
                let say = |verdict| {
                    Say::Append(v1::AppendReply {
                        header,
                        repeated,
                        verdict: Some(verdict),
                    })
                };
                verdict(
                    objects.append(&append.stream, append.append.as_ref().unwrap()),
                    |done| say(v1::append_reply::Verdict::Done(done)),
                    |refusal| say(v1::append_reply::Verdict::Refused(refusal)),
                )
            }
            Ask::TrimStream(trim) => answer(objects.trim(&trim.stream, trim.before), |first| {
                Say::TrimStream(v1::TrimStreamReply {
                    header,
                    repeated,
                    first,
                })
            }),
            Ask::DeleteStream(delete) => match objects.streams.remove(&delete.name) {
                Some(_) => Say::DeleteStream(v1::DeleteStreamReply {
                    header,
                    repeated,
                    revision,
                }),
                None => Say::Error(WireError::not_found("stream", delete.name.clone())),
            },
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
        let mut endpoints = self.addresses.clone();
        let own = usize::try_from(node_id).unwrap() - 1;
        if own < endpoints.len() {
            endpoints[..=own].rotate_right(1);
        }
        Say::Hello(v1::HelloReply {
            cluster_id: self.id.clone(),
            node_id,
            namespace_exists,
            home_group: if namespace_exists { HOME } else { 0 },
            time_us: if namespace_exists { cluster.time_us() } else { 0 },
            revision: if namespace_exists { self.revision } else { 0 },
            protocol: 1,
            endpoints,
            leaders: self.leader.iter().cloned().collect(),
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

/// Under which identity a mutation of an object is asked for.
fn identity(body: &Ask) -> Option<v1::RequestId> {
    match body {
        Ask::Put(request) => request.request.clone(),
        Ask::Delete(request) => request.request.clone(),
        Ask::Add(request) => request.request.clone(),
        Ask::DeletePrefix(request) => request.request.clone(),
        Ask::Txn(request) => request.request.clone(),
        Ask::CreateStream(request) => request.request.clone(),
        Ask::Append(request) => request.request.clone(),
        Ask::TrimStream(request) => request.request.clone(),
        Ask::DeleteStream(request) => request.request.clone(),
        _ => None,
    }
}

fn repeated(mut known: Say) -> Say {
    match &mut known {
        Say::Add(reply) => reply.repeated = true,
        Say::DeletePrefix(reply) => reply.repeated = true,
        Say::Txn(reply) => reply.repeated = true,
        Say::Append(reply) => reply.repeated = true,
        Say::CreateStream(reply) => reply.repeated = true,
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
            (Ask::Follow(follow), _) => {
                let script = cluster.state().follows.pop_front();
                let Some(script) = script else {
                    let live = follow_live(id, follow.clone(), answers.clone(), Arc::clone(&cluster));
                    TestTasks.spawn("fake following", Box::pin(live));
                    continue;
                };
                let steps = script.into_iter().map(Step::from);
                if play(id, steps, &answers).await {
                    return;
                }
                continue;
            }
            (Ask::Watch(watch), _) => {
                let missing = {
                    let state = cluster.state();
                    !state.objects.lenient && !state.objects.caches.contains_key(&watch.cache)
                };
                if missing {
                    let error = WireError::not_found("cache", watch.cache.clone());
                    let end = v1::WatchEnd { error: Some(error) };
                    let body = Some(Say::WatchEnded(end));
                    let _ = answers.send(Ok(ServerFrame { id, body })).await;
                    continue;
                }
                let script = cluster.state().watches.pop_front();
                let Some(script) = script else {
                    let live = watch_live(id, watch.clone(), answers.clone(), Arc::clone(&cluster));
                    TestTasks.spawn("fake watch", Box::pin(live));
                    continue;
                };
                if play(id, script.into_iter().map(Step::from), &answers).await {
                    return;
                }
                continue;
            }
            _ => {}
        }
        let hint = cluster.state().hints.pop_front();
        if let Some(hint) = hint {
            let body = Some(Say::Leader(hint));
            let _ = answers.send(Ok(ServerFrame { id: 0, body })).await;
        }
        let say = cluster.state().apply(&cluster, &received.body, node);
        cluster.changed.notify_waiters();
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

/// One step of a script.
enum Step {
    Say(Box<Say>),
    Break,
}

impl From<WatchStep> for Step {
    fn from(step: WatchStep) -> Step {
        match step {
            WatchStep::Send(event) => Step::Say(Box::new(Say::WatchEvent(v1::WatchEvent { event: Some(event) }))),
            WatchStep::End(error) => Step::Say(Box::new(Say::WatchEnded(v1::WatchEnd { error: Some(error) }))),
            WatchStep::Break => Step::Break,
        }
    }
}

impl From<FollowStep> for Step {
    fn from(step: FollowStep) -> Step {
        match step {
            FollowStep::Send(event) => Step::Say(Box::new(Say::FollowEvent(v1::FollowEvent { event: Some(event) }))),
            FollowStep::End(error) => Step::Say(Box::new(Say::WatchEnded(v1::WatchEnd { error: Some(error) }))),
            FollowStep::Break => Step::Break,
        }
    }
}

/// Plays what a watch or a following gets; says whether the stream is to break.
async fn play(id: u64, script: impl Iterator<Item = Step>, answers: &Sender) -> bool {
    for step in script {
        let body = match step {
            Step::Say(body) => *body,
            Step::Break => {
                let _ = answers.send(Err(Status::unavailable("broken by the test"))).await;
                return true;
            }
        };
        let _ = answers.send(Ok(ServerFrame { id, body: Some(body) })).await;
    }
    false
}

/// Gives a watch what changes, until nobody takes it any more. Without objects there is nothing to give.
async fn watch_live(id: u64, watch: v1::WatchRequest, answers: Sender, cluster: Arc<Cluster>) {
    let mut next = {
        let state = cluster.state();
        if state.objects.lenient {
            return;
        }
        watch.from.unwrap_or(state.revision + 1)
    };
    let started = v1::watch_event::Started {
        revision: next - 1,
        incarnation: 1,
    };
    let mut event = Some(v1::watch_event::Event::Started(started));
    loop {
        let mut changed = std::pin::pin!(cluster.changed.notified());
        changed.as_mut().enable();
        let changes = match event.take() {
            Some(event) => Some(event),
            None => cluster
                .state()
                .objects
                .changes_from(&watch, next)
                .map(|(revision, changes)| {
                    next = revision + 1;
                    v1::watch_event::Event::Changes(v1::watch_event::Changes {
                        changes,
                        revision,
                        more: false,
                    })
                }),
        };
        let Some(event) = changes else {
            changed.await;
            continue;
        };
        let body = Some(Say::WatchEvent(v1::WatchEvent { event: Some(event) }));
        if answers.send(Ok(ServerFrame { id, body })).await.is_err() {
            return;
        }
    }
}

/// Gives a following the records of its stream, until nobody takes them any more.
async fn follow_live(id: u64, follow: v1::FollowRequest, answers: Sender, cluster: Arc<Cluster>) {
    let mut read = v1::ReadRecordsRequest {
        stream: follow.stream.clone(),
        from: follow.from,
        ..v1::ReadRecordsRequest::default()
    };
    let mut started = false;
    loop {
        let mut changed = std::pin::pin!(cluster.changed.notified());
        changed.as_mut().enable();
        let page = {
            let mut state = cluster.state();
            let header = cluster.header(&state);
            answer(state.objects.read(&read, header), Say::ReadRecords)
        };
        let Say::ReadRecords(page) = page else {
            let error = match page {
                Say::Error(error) => Some(error),
                _ => None,
            };
            let body = Some(Say::WatchEnded(v1::WatchEnd { error }));
            let _ = answers.send(Ok(ServerFrame { id, body })).await;
            return;
        };
        let event = if started {
            v1::follow_event::Event::Records(v1::follow_event::Records { records: page.records })
        } else {
            let next = page.records.first().map_or(page.next, |record| record.offset);
            v1::follow_event::Event::Started(v1::follow_event::Started { next, incarnation: 1 })
        };
        if started
            && page.next == page.tail
            && matches!(&event, v1::follow_event::Event::Records(it) if it.records.is_empty())
        {
            changed.await;
            continue;
        }
        if started {
            read.from = Some(v1::ReadFrom {
                from: Some(v1::read_from::From::Offset(page.next)),
            });
        }
        started = true;
        let body = Some(Say::FollowEvent(v1::FollowEvent { event: Some(event) }));
        if answers.send(Ok(ServerFrame { id, body })).await.is_err() {
            return;
        }
    }
}
