//! Whatever tells its caller one thing after the other until it ends: a watch of keys, or following a stream.

use tenure_api::v1::server_frame::Body as Reply;
use tenure_api::v1::{self, WireError};

use super::handler::Call;
use super::streams::{self, WireFollow};
use super::watch::{self, WireWatch};
use crate::front::answers::AnswerShare;

/// What is to be told.
pub(super) enum Subscribe {
    Watch(v1::WatchRequest),
    Follow(v1::FollowRequest),
}

/// A subscription under way. Dropping it ends it.
pub(super) enum Subscription {
    Watch(Box<WireWatch>),
    Follow(Box<WireFollow>),
}

impl Subscription {
    /// Begins to tell.
    pub(super) async fn begin(call: &Call<'_>, asked: Subscribe) -> Result<Subscription, WireError> {
        Ok(match asked {
            Subscribe::Watch(request) => Subscription::Watch(Box::new(watch::begin(call, request).await?)),
            Subscribe::Follow(request) => Subscription::Follow(Box::new(streams::follow(call, request).await?)),
        })
    }

    /// The next event as a frame's body, with its share of the connection's room, or why there is none any more. Nothing is lost when the future is dropped before
    /// it is ready.
    pub(super) async fn next(&mut self) -> Result<(Reply, AnswerShare), WireError> {
        Ok(match self {
            Subscription::Watch(watch) => {
                let (event, share) = watch.next().await?;
                (Reply::WatchEvent(event), share)
            }
            Subscription::Follow(follow) => {
                let (event, share) = follow.next().await?;
                (Reply::FollowEvent(event), share)
            }
        })
    }
}
