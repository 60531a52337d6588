//! A feed that goes on: where one node's ends, another is asked for what comes next.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use tenure_api::v1::{WireError, client_frame, wire_error};
use tenure_api::{ErrorCode, Outcome};

use super::{FeedEnd, FeedEvent, FeedItem};
use crate::channel::{AttemptError, Feed};
use crate::client::Client;
use crate::error::Error;
use crate::runtime::random_u64;

/// An endpoint that has not taken up a feed after the time of a call divided by this is left for the next one.
const PATIENCE_DIVISOR: u32 = 4;

/// One feed after another, on whichever node serves. What is asked for next is the caller's affair.
pub(crate) struct Subscription {
    client: Client,
    feed: Option<Feed>,
    opening: Option<BoxFuture<'static, Result<Feed, (usize, Error)>>>,
    /// Until when, on the monotonic clock, the feed is to begin; `None` once it has.
    begin_by: Option<Duration>,
    /// Subscriptions in a row that came to nothing.
    failures: u32,
    endpoint: usize,
    /// Endpoints that do not keep what is wanted any more, and the lowest from which one of them does.
    compacted: BTreeSet<usize>,
    resume_from: Option<u64>,
    /// One of those endpoints had it, and dropped something of it.
    lagged: bool,
    last_error: Option<Error>,
}

/// Why no node can go on with what is wanted.
#[derive(Debug)]
pub(crate) enum SubscriptionEnd {
    /// No endpoint keeps it any more; one of them keeps what comes from here on.
    Compacted { resume_from: Option<u64> },
    /// A node dropped something of it that no other one keeps.
    Lagged { resume_from: Option<u64> },
    /// What was watched was deleted, at this revision if that is known.
    ObjectDeleted { revision: Option<u64> },
    /// It cannot go on.
    Failed(Error),
}

impl Subscription {
    pub(crate) fn new(client: Client) -> Subscription {
        let endpoint = client.shared.pool.first(client.known_home());
        Subscription {
            client,
            feed: None,
            opening: None,
            begin_by: None,
            failures: 0,
            endpoint,
            compacted: BTreeSet::new(),
            resume_from: None,
            lagged: false,
            last_error: None,
        }
    }

    /// One step: subscribes if need be, else takes one event. `request` makes what is to be asked for now, given the
    /// highest revision that the client has seen. Dropping the future loses nothing.
    ///
    /// # Errors
    /// No node can go on.
    pub(crate) async fn step(
        &mut self,
        request: impl FnOnce(u64) -> client_frame::Body,
    ) -> Result<Option<FeedEvent>, SubscriptionEnd> {
        let Some(feed) = &self.feed else {
            return self.subscribe(request).await.map(|()| None);
        };
        let endpoint = feed.stream.endpoint;
        let taking = feed.buffer.next();
        let taken = match self.begin_by {
            None => taking.await,
            Some(limit) => {
                let left = limit.saturating_sub(self.client.now().monotonic);
                match tokio::time::timeout(left, taking).await {
                    Ok(taken) => taken,
                    Err(_) => FeedItem::End(FeedEnd::Broken("the node did not begin in time".to_owned())),
                }
            }
        };
        match taken {
            FeedItem::Event(event) => Ok(Some(event)),
            FeedItem::End(end) => {
                self.feed = None;
                self.broken(end, endpoint).map(|()| None)
            }
        }
    }

    /// The event that was taken last was of use: what failed before it does not count any more.
    pub(crate) fn served(&mut self) {
        self.begin_by = None;
        self.failures = 0;
        self.forget_what_is_not_kept();
    }

    fn forget_what_is_not_kept(&mut self) {
        self.compacted.clear();
        self.resume_from = None;
        self.lagged = false;
    }

    /// Ends the feed that there is.
    pub(crate) fn close(&mut self) {
        self.feed = None;
        self.opening = None;
    }

    /// Why it has not begun within a time that is over now.
    pub(crate) fn not_begun(&mut self) -> Error {
        match self.last_error.take() {
            Some(error) => error.with_outcome(Outcome::NotApplied),
            None => Error::NoAnswer {
                why: "it did not begin in time".to_owned(),
                outcome: Outcome::NotApplied,
            },
        }
    }

    /// Asks a node for what is wanted next. What is under way is kept here, so that a caller who gives up waiting over
    /// and over does not begin it over and over.
    async fn subscribe(&mut self, request: impl FnOnce(u64) -> client_frame::Body) -> Result<(), SubscriptionEnd> {
        if self.opening.is_none() {
            self.opening = Some(self.opening(request(self.client.revision_seen())));
        }
        let Some(opening) = &mut self.opening else {
            return Ok(());
        };
        let result = opening.await;
        self.opening = None;
        match result {
            Ok(feed) => {
                self.begin_by = Some(self.client.now().monotonic + self.client.timeout() / PATIENCE_DIVISOR);
                self.feed = Some(feed);
                Ok(())
            }
            Err((_, error @ Error::WrongCluster { .. })) => Err(SubscriptionEnd::Failed(error)),
            Err((endpoint, error)) => self.failed(endpoint, error),
        }
    }

    /// A feed on its way: after a pause if the last one came to nothing, to the endpoint whose turn it is.
    fn opening(&mut self, request: client_frame::Body) -> BoxFuture<'static, Result<Feed, (usize, Error)>> {
        let client = self.client.clone();
        let endpoint = self.next_endpoint();
        let only_there = !self.compacted.is_empty();
        let pause = match (self.failures, &self.last_error) {
            (0, _) | (_, None) => Duration::ZERO,
            (failures, Some(error)) => {
                let random = random_u64(&*client.shared.runtime.random);
                client.shared.pool.pause(error, failures, random)
            }
        };
        async move {
            if !pause.is_zero() {
                tokio::time::sleep(pause).await;
            }
            let pool = &client.shared.pool;
            let opened = if only_there {
                pool.link_stream(endpoint).await
            } else {
                pool.stream(endpoint, client.timeout() / PATIENCE_DIVISOR).await
            };
            let stream = opened.map_err(|error| (endpoint, error))?;
            let feeding = stream.feed(request, client.timeout()).await;
            feeding.map_err(|error| (stream.endpoint, error.into_error()))
        }
        .boxed()
    }

    /// Where to subscribe: an endpoint that has not said that it does not keep what is wanted.
    fn next_endpoint(&self) -> usize {
        let endpoints = self.client.shared.pool.len();
        let mut candidates = (0..endpoints).map(|offset| (self.endpoint + offset) % endpoints);
        candidates
            .find(|endpoint| !self.compacted.contains(endpoint))
            .unwrap_or(self.endpoint)
    }

    /// This endpoint did not serve: the next one is asked, unless all others do not keep what is wanted.
    fn failed(&mut self, endpoint: usize, error: Error) -> Result<(), SubscriptionEnd> {
        tracing::debug!(%error, "a subscription looks for another node");
        let pool = &self.client.shared.pool;
        self.failures = self.failures.saturating_add(1);
        self.endpoint = pool.after(endpoint);
        self.last_error = Some(error);
        if self.compacted.is_empty() {
            Ok(())
        } else {
            self.without(endpoint % pool.len(), None)
        }
    }

    /// The feed has ended: is it to go on elsewhere?
    fn broken(&mut self, end: FeedEnd, endpoint: usize) -> Result<(), SubscriptionEnd> {
        let error = match end {
            FeedEnd::Overflow => return Ok(()),
            FeedEnd::Broken(why) => {
                return self.failed(endpoint, AttemptError::Broken(why).into_error());
            }
            FeedEnd::Cancelled => WireError::unavailable("the node ended it without a reason"),
            FeedEnd::Server(error) => *error,
        };
        match error.error_code() {
            Some(ErrorCode::Compacted) => self.without(endpoint, error.resume_from()),
            // What this node dropped, because nobody took it or because it made its state anew, another one may have.
            Some(ErrorCode::Lagged) => {
                self.lagged = true;
                self.without(endpoint, error.resume_from())
            }
            Some(ErrorCode::ObjectDeleted) => {
                let revision = match error.detail {
                    Some(wire_error::Detail::ObjectDeleted(revision)) if revision > 0 => Some(revision),
                    _ => None,
                };
                Err(SubscriptionEnd::ObjectDeleted { revision })
            }
            Some(code) if code.retryable() || code == ErrorCode::Deadline || code == ErrorCode::Internal => {
                self.failed(endpoint, Error::from_wire(error))
            }
            _ => Err(SubscriptionEnd::Failed(
                Error::from_wire(error).with_outcome(Outcome::NotApplied),
            )),
        }
    }

    /// This endpoint cannot give what is wanted, and keeps what comes from `resume_from` on if it says so. If none can,
    /// it is over.
    fn without(&mut self, endpoint: usize, resume_from: Option<u64>) -> Result<(), SubscriptionEnd> {
        self.compacted.insert(endpoint);
        self.resume_from = match (self.resume_from, resume_from) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        if self.compacted.len() < self.client.shared.pool.len() {
            return Ok(());
        }
        let (resume_from, lagged) = (self.resume_from, self.lagged);
        self.forget_what_is_not_kept();
        Err(match lagged {
            true => SubscriptionEnd::Lagged { resume_from },
            false => SubscriptionEnd::Compacted { resume_from },
        })
    }
}
