//! A client: the connections of a program to one cluster, seen from one namespace.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tenure_api::limits::PROTOCOL;
use tenure_api::v1::{
    self, AcknowledgeRequest, Header, HelloReply, HelloRequest, OpenSessionReply, OpenSessionRequest, RequestId,
    WireError, client_frame, server_frame,
};
use tenure_api::{ErrorCode, Outcome};
use tenure_recipes::outcome::Repeat;

use crate::cache::Cache;
use crate::call::{Budget, Plan, call};
use crate::channel::{Answer, Dialer};
use crate::directory::{Directory, Home};
use crate::error::Error;
use crate::keep_alive::KeepAlive;
use crate::options::{ClientBuilder, Options};
use crate::pool::{BACKOFF_MAX, Pool};
use crate::requests::{RequestMode, Requester, Ticket, one_shot};
use crate::runtime::{ClientRuntime, Instants, random_identity};

/// Namespaces of which one client remembers where they live.
const NAMESPACES_MAX: usize = 10_000;
/// A group's time that was told longer ago than this is asked for again before a one-shot request is dated by it.
const TIME_AGE_MAX: Duration = Duration::from_secs(20);
/// How often a call is begun anew under a fresh identity because the server had ended the old one.
const IDENTITIES_MAX: usize = 3;
/// How long an acknowledgement without a request may take.
const ACKNOWLEDGE_TIMEOUT: Duration = Duration::from_secs(5);

/// A client of one cluster, seen from one namespace. Cloning it is cheap; clones and views of other namespaces share
/// connections. What it has open ends when the last of them, and the last session and watch, is dropped.
#[derive(Clone)]
pub struct Client {
    pub(crate) shared: Arc<Shared>,
    namespace: Arc<Namespace>,
    timeout: Duration,
}

impl Client {
    /// Connects to a cluster, given some of its nodes as `HOST:PORT`: namespace `default` of tenant `default`.
    ///
    /// # Errors
    /// No endpoint is given, or none could be reached in 5 s.
    ///
    /// # Panics
    /// If it is called outside a tokio runtime.
    pub async fn connect<T: Into<String>>(endpoints: impl IntoIterator<Item = T>) -> Result<Client, Error> {
        Client::builder().endpoints(endpoints).connect().await
    }

    /// Chooses what a client is like before it is made.
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }

    /// The same client seen from another namespace.
    #[must_use]
    pub fn namespace(&self, tenant: impl Into<String>, namespace: impl Into<String>) -> Client {
        let namespace = self.shared.namespace(tenant.into(), namespace.into());
        Client {
            shared: Arc::clone(&self.shared),
            namespace,
            timeout: self.timeout,
        }
    }

    /// The same client with another time for a call over all its attempts.
    #[must_use]
    pub fn with_timeout(&self, timeout: Duration) -> Client {
        Client {
            timeout: timeout.max(Duration::from_millis(1)),
            ..self.clone()
        }
    }

    /// The tenant of this view.
    pub fn tenant_name(&self) -> &str {
        &self.namespace.scope.tenant
    }

    /// The namespace of this view, within its tenant.
    pub fn namespace_name(&self) -> &str {
        &self.namespace.scope.namespace
    }

    /// The time for a call over all its attempts.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// The world in which this client lives.
    pub fn runtime(&self) -> &ClientRuntime {
        &self.shared.runtime
    }

    /// The keys of a cache. Nothing is sent: whether it exists shows when it is used.
    pub fn cache(&self, name: impl Into<String>) -> Cache {
        Cache::new(self.clone(), name.into())
    }

    /// Asks which cluster this is, and where the namespace lives. It does not bring the namespace into being.
    ///
    /// # Errors
    /// No endpoint could be reached, or one belongs to another cluster than before.
    pub async fn hello(&self) -> Result<HelloReply, Error> {
        self.say_hello(false, self.timeout).await
    }

    pub(crate) fn new(options: Options) -> Client {
        let directory = Arc::new(Directory::default());
        let scope = v1::Scope {
            tenant: options.tenant,
            namespace: options.namespace,
        };
        let namespace = Arc::new(Namespace::new(scope.clone()));
        let key = (scope.tenant.clone(), scope.namespace.clone());
        let dialer = Dialer {
            runtime: options.runtime.clone(),
            directory: Arc::clone(&directory),
            scope,
            home: Arc::clone(&namespace.home),
            label: options.label.clone(),
            connect_timeout: options.timeout,
            backoff_max: BACKOFF_MAX,
        };
        let shared = Arc::new(Shared {
            pool: Pool::new(&options.endpoints, dialer.clone())
                .waiting_for_node(options.wait_for_node)
                .of_given_only(options.only_given_endpoints),
            keep_alive: KeepAlive::new(options.endpoints, options.only_given_endpoints, dialer),
            runtime: options.runtime,
            label: options.label,
            request_mode: options.request_mode,
            directory,
            namespaces: Mutex::new(BTreeMap::from([(key, Arc::clone(&namespace))])),
        });
        Client {
            shared,
            namespace,
            timeout: options.timeout,
        }
    }

    /// The scope that goes into requests.
    pub(crate) fn scope(&self) -> v1::Scope {
        self.namespace.scope.clone()
    }

    pub(crate) fn now(&self) -> Instants {
        self.shared.runtime.clock.now()
    }

    /// Takes note of what an answer says of the group that it came from.
    pub(crate) fn saw(&self, header: Option<&Header>) {
        self.shared.directory.saw(header, self.shared.runtime.clock.boot());
    }

    /// The highest revision seen of the namespace's group; 0 if none was, or the group is not known.
    pub(crate) fn revision_seen(&self) -> u64 {
        self.known_home()
            .map_or(0, |group| self.shared.directory.revision(group))
    }

    /// What a read may be no older than, and the time that is left for it: if it is stale, the highest revision seen. The
    /// group is asked for if it is not known, as there may be something that was seen of it.
    ///
    /// # Errors
    /// Those of [`home`](Client::home).
    pub(crate) async fn oldest_wanted(&self, stale: bool) -> Result<(u64, Duration), Error> {
        if !stale {
            return Ok((0, self.timeout));
        }
        let budget = Budget::new(&self.shared.runtime, self.timeout);
        let group = self.home(false, self.timeout).await?;
        Ok((self.shared.directory.revision(group), budget.left(&self.shared.runtime)))
    }

    /// The group in which the namespace lives, if it is known already.
    pub(crate) fn known_home(&self) -> Option<u32> {
        self.namespace.home.group()
    }

    /// A call that changes nothing and concerns the node that is asked, whichever that is.
    pub(crate) async fn ask_any_node(&self, make: impl Fn() -> client_frame::Body) -> Result<Answer, Error> {
        let plan = Plan {
            repeat: Repeat::Read,
            group: None,
            timeout: self.timeout,
        };
        call(&self.shared.pool, &self.shared.runtime, plan, make).await
    }

    /// A call that changes nothing.
    pub(crate) async fn read(&self, make: impl Fn() -> client_frame::Body) -> Result<Answer, Error> {
        self.repeatable(Repeat::Read, self.timeout, make).await
    }

    /// A call without an identity of its own that may be sent again.
    pub(crate) async fn repeatable(
        &self,
        repeat: Repeat,
        timeout: Duration,
        make: impl Fn() -> client_frame::Body,
    ) -> Result<Answer, Error> {
        let plan = Plan {
            repeat,
            group: self.known_home(),
            timeout,
        };
        call(&self.shared.pool, &self.shared.runtime, plan, make).await
    }

    /// A mutation, under the identity that the client's mode gives it.
    pub(crate) async fn mutate(
        &self,
        mutation: Mutation,
        timeout: Duration,
        make: impl Fn(Option<RequestId>) -> client_frame::Body,
    ) -> Result<Answer, Error> {
        let runtime = &self.shared.runtime;
        let budget = Budget::new(runtime, timeout);
        let mut identities = 0;
        loop {
            identities += 1;
            let group = match self.known_home() {
                Some(group) => group,
                None => {
                    let home = self.home(mutation.creates, budget.left(runtime));
                    home.await.map_err(Error::before_sending)?
                }
            };
            let identity = self.identify(group, budget).await.map_err(Error::before_sending)?;
            let repeat = match identity {
                Identity::None => mutation.unidentified,
                Identity::Numbered(_) | Identity::OneShot(_) => Repeat::Remembered,
            };
            let plan = Plan {
                repeat,
                group: Some(group),
                timeout: budget.left(runtime),
            };
            let result = call(&self.shared.pool, runtime, plan, || make(identity.request_id())).await;
            let again = self.finish(identity, &result);
            if !(again && identities < IDENTITIES_MAX) {
                return result;
            }
        }
    }

    /// The group in which the namespace lives.
    ///
    /// # Errors
    /// `not_found` if it does not exist and is not to be created.
    pub(crate) async fn home(&self, create: bool, timeout: Duration) -> Result<u32, Error> {
        if let Some(group) = self.known_home() {
            return Ok(group);
        }
        let hello = self.say_hello(create, timeout).await?;
        if hello.namespace_exists {
            return Ok(hello.home_group);
        }
        let name = format!("{}/{}", self.tenant_name(), self.namespace_name());
        Err(Error::from_wire(WireError::not_found("namespace", name)))
    }

    /// Opens a session, kept by nobody yet. Returns also when the answered attempt was sent.
    pub(crate) async fn open(
        &self,
        ttl: Option<Duration>,
        label: &str,
        timeout: Duration,
        create: bool,
    ) -> Result<(OpenSessionReply, Instants), Error> {
        let runtime = &self.shared.runtime;
        let budget = Budget::new(runtime, timeout);
        self.home(create, timeout).await.map_err(Error::before_sending)?;
        let request = OpenSessionRequest {
            scope: Some(self.scope()),
            nonce: random_identity(&*runtime.random),
            ttl_ms: ttl.map(crate::channel::milliseconds),
            label: label.to_owned(),
            timeout_ms: 0,
        };
        let make = || client_frame::Body::OpenSession(request.clone());
        let answer = self.repeatable(Repeat::Harmless, budget.left(runtime), make).await?;
        let server_frame::Body::OpenSession(reply) = answer.body else {
            return Err(Error::unexpected("open_session"));
        };
        self.saw(reply.header.as_ref());
        Ok((reply, answer.sent))
    }

    async fn say_hello(&self, create: bool, timeout: Duration) -> Result<HelloReply, Error> {
        let make = || {
            client_frame::Body::Hello(HelloRequest {
                scope: Some(self.scope()),
                create_namespace: create,
                cluster_id: self.shared.directory.cluster(),
                client: self.shared.label.clone(),
                protocol: PROTOCOL,
                timeout_ms: 0,
            })
        };
        // Bringing a namespace into being twice leaves one.
        let repeat = if create { Repeat::Harmless } else { Repeat::Read };
        let answer = self.repeatable(repeat, timeout, make).await?;
        let server_frame::Body::Hello(reply) = answer.body else {
            return Err(Error::unexpected("hello"));
        };
        self.shared
            .directory
            .met("the node", &reply, self.shared.runtime.clock.boot())?;
        self.namespace.home.told(&reply);
        Ok(reply)
    }

    async fn identify(&self, group: u32, budget: Budget) -> Result<Identity, Error> {
        match self.shared.request_mode {
            RequestMode::Anonymous => Ok(Identity::None),
            RequestMode::OneShot => {
                let fresh = |(time_us, age): (u64, Duration)| (age <= TIME_AGE_MAX).then_some(time_us);
                let time_us = match self
                    .shared
                    .directory
                    .time_us(group, self.shared.runtime.clock.boot())
                    .and_then(fresh)
                {
                    Some(time_us) => time_us,
                    None => {
                        let left = budget.left(&self.shared.runtime);
                        self.say_hello(false, left).await?.time_us
                    }
                };
                Ok(Identity::OneShot(one_shot(
                    random_identity(&*self.shared.runtime.random),
                    time_us,
                )))
            }
            RequestMode::Numbered => {
                let now = self.shared.runtime.clock.boot();
                let requester = self.requester(budget, now).await?;
                if let Some(ticket) = requester.try_begin(now) {
                    return Ok(Identity::Numbered(Held::new(self.clone(), ticket)));
                }
                let beginning = requester.begin(now);
                match tokio::time::timeout(budget.left(&self.shared.runtime), beginning).await {
                    Ok(ticket) => Ok(Identity::Numbered(Held::new(self.clone(), ticket))),
                    Err(_) => Err(Error::Busy {
                        what: "numbered requests",
                    }),
                }
            }
        }
    }

    /// The session as which this client asks in this namespace.
    async fn requester(&self, budget: Budget, now: Duration) -> Result<Arc<Requester>, Error> {
        let known = |requester: &Option<Arc<Requester>>| requester.as_ref().filter(|known| known.fresh(now)).cloned();
        if let Ok(requester) = self.namespace.requester.try_lock()
            && let Some(known) = known(&requester)
        {
            return Ok(known);
        }
        let left = || budget.left(&self.shared.runtime);
        let locking = tokio::time::timeout(left(), self.namespace.requester.lock());
        let mut requester = locking.await.map_err(|_| Error::NoAnswer {
            why: "another call is still opening the session of this client's requests".to_owned(),
            outcome: Outcome::NotApplied,
        })?;
        if let Some(known) = known(&requester) {
            return Ok(known);
        }
        let (reply, sent) = self.open(None, &self.shared.label, left(), false).await?;
        let session = reply.session.ok_or_else(|| Error::unexpected("open_session"))?;
        let opened = Arc::new(Requester::new(session, self.scope(), sent.boot));
        *requester = Some(Arc::clone(&opened));
        Ok(opened)
    }

    /// Ends the use of an identity; says whether the call may be begun anew under a fresh one.
    fn finish(&self, identity: Identity, result: &Result<Answer, Error>) -> bool {
        let Identity::Numbered(held) = identity else {
            return false;
        };
        let Some(ticket) = held.take() else {
            return false;
        };
        let requester = Arc::clone(&ticket.requester);
        let code = result
            .as_ref()
            .err()
            .and_then(Error::server)
            .and_then(WireError::error_code);
        let ended = match result.as_ref().err().and_then(Error::detail) {
            Some(v1::wire_error::Detail::SessionExpired(expired)) => expired.session == requester.session.id,
            Some(v1::wire_error::Detail::SessionUnknown(session)) => *session == requester.session.id,
            _ => code == Some(ErrorCode::SessionUnknown),
        };
        let given_up = ticket.finish(result.is_ok());
        if ended {
            requester.end();
        } else if given_up && result.as_ref().is_err_and(|error| error.outcome() == Outcome::Unknown) {
            self.acknowledge(requester);
        }
        // Only "it never ran" allows to run it under another identity.
        ended && code == Some(ErrorCode::SessionExpired)
    }

    /// Tells the server in the background what is needed no more, so that a late copy of a call that was given up
    /// runs nowhere.
    fn acknowledge(&self, requester: Arc<Requester>) {
        if !requester.start_acknowledging() {
            return;
        }
        let client = self.clone();
        let task = async move {
            loop {
                let (below, also) = requester.acknowledgements();
                let request = AcknowledgeRequest {
                    scope: Some(requester.scope.clone()),
                    session: Some(requester.session.clone()),
                    below,
                    also: also.clone(),
                    timeout_ms: 0,
                };
                let make = || client_frame::Body::Acknowledge(request.clone());
                match client.repeatable(Repeat::Harmless, ACKNOWLEDGE_TIMEOUT, make).await {
                    Ok(_) if requester.acknowledged(&also) => {}
                    Ok(_) => break,
                    Err(error) => {
                        tracing::debug!(%error, "an acknowledgement was not taken; it goes with the next request");
                        requester.stop_acknowledging();
                        break;
                    }
                }
            }
        };
        self.shared
            .runtime
            .tasks
            .spawn("tenure acknowledgement", Box::pin(task));
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client")
            .field("tenant", &self.tenant_name())
            .field("namespace", &self.namespace_name())
            .finish_non_exhaustive()
    }
}

/// What all views of a client share.
pub(crate) struct Shared {
    pub(crate) runtime: ClientRuntime,
    pub(crate) directory: Arc<Directory>,
    pub(crate) pool: Pool,
    pub(crate) keep_alive: KeepAlive,
    pub(crate) label: String,
    request_mode: RequestMode,
    namespaces: Mutex<BTreeMap<(String, String), Arc<Namespace>>>,
}

impl Shared {
    /// What is known of a namespace, kept for the next who asks.
    fn namespace(&self, tenant: String, namespace: String) -> Arc<Namespace> {
        let mut namespaces = self.namespaces.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (tenant.clone(), namespace.clone());
        if let Some(known) = namespaces.get(&key) {
            return Arc::clone(known);
        }
        let scope = v1::Scope { tenant, namespace };
        let fresh = Arc::new(Namespace::new(scope));
        if namespaces.len() < NAMESPACES_MAX {
            namespaces.insert(key, Arc::clone(&fresh));
        }
        fresh
    }
}

/// A namespace as one client knows it.
struct Namespace {
    scope: v1::Scope,
    home: Arc<Home>,
    requester: tokio::sync::Mutex<Option<Arc<Requester>>>,
}

impl Namespace {
    fn new(scope: v1::Scope) -> Namespace {
        Namespace {
            scope,
            home: Arc::default(),
            requester: tokio::sync::Mutex::new(None),
        }
    }
}

/// What kind of mutation a call makes.
#[derive(Clone, Copy)]
pub(crate) struct Mutation {
    /// The namespace comes into being with it.
    pub(crate) creates: bool,
    /// Whether it may be repeated without an identity.
    pub(crate) unidentified: Repeat,
}

impl Mutation {
    /// One whose repetition might do more than itself.
    pub(crate) const ONCE: Mutation = Mutation {
        creates: false,
        unidentified: Repeat::Never,
    };
    /// One that is done after being done twice just as after being done once.
    pub(crate) const HARMLESS: Mutation = Mutation {
        creates: false,
        unidentified: Repeat::Harmless,
    };
    /// The same, and it brings its namespace into being.
    pub(crate) const CREATION: Mutation = Mutation {
        creates: true,
        unidentified: Repeat::Harmless,
    };
}

/// Under which identity one call is made.
enum Identity {
    Numbered(Held),
    OneShot(RequestId),
    None,
}

impl Identity {
    fn request_id(&self) -> Option<RequestId> {
        match self {
            Identity::Numbered(held) => held.ticket.as_ref().map(Ticket::request_id),
            Identity::OneShot(id) => Some(id.clone()),
            Identity::None => None,
        }
    }
}

/// The number of a call. Dropping it gives the call up, and acknowledges it if a copy of it may be on its way.
struct Held {
    client: Client,
    ticket: Option<Ticket>,
}

impl Held {
    fn new(client: Client, ticket: Ticket) -> Held {
        Held {
            client,
            ticket: Some(ticket),
        }
    }

    /// The number of a call that has ended by itself.
    fn take(mut self) -> Option<Ticket> {
        self.ticket.take()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            let requester = Arc::clone(&ticket.requester);
            let sent = ticket.attempts() > 0;
            ticket.finish(false);
            if sent {
                self.client.acknowledge(requester);
            }
        }
    }
}
