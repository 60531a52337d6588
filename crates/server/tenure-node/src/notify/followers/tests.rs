//! A follower is woken by whatever was told since it registered, and by nothing of other streams.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use super::*;

const GROUP: GroupId = GroupId(1);
const STREAM: Incarnation = Incarnation(3);

fn appended(incarnation: Incarnation, tail: u64) -> Effect {
    Effect::Appended {
        incarnation,
        tail,
        revision: 9,
    }
}

fn now<T>(future: impl Future<Output = T>) -> Option<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

#[test]
fn an_append_told_after_the_registration_is_never_missed() {
    let followers = Arc::new(Followers::default());
    let mut following = followers.register(GROUP, STREAM, 1).expect("there is room");
    followers.applied(GROUP, &[appended(STREAM, 5)]);
    assert_eq!(now(following.wait_for(4)), Some(Ok(5)));
    assert_eq!(now(following.wait_for(5)), None);
    followers.applied(GROUP, &[appended(Incarnation(4), 9)]);
    followers.applied(GroupId(2), &[appended(STREAM, 9)]);
    assert_eq!(now(following.wait_for(5)), None);
    followers.applied(GROUP, &[appended(STREAM, 6), appended(STREAM, 7)]);
    assert_eq!(now(following.wait_for(5)), Some(Ok(7)));
}

#[test]
fn a_deletion_a_stop_and_a_reset_are_told_to_every_follower_of_the_group() {
    let followers = Arc::new(Followers::default());
    let mut both: Vec<Following> = [STREAM, Incarnation(8)]
        .map(|stream| followers.register(GROUP, stream, 9).expect("there is room"))
        .into();
    followers.reset(GROUP);
    for following in &mut both {
        assert_eq!(now(following.wait_for(0)), Some(Ok(0)));
        assert_eq!(now(following.wait_for(0)), None);
    }
    let deleted = Effect::ObjectDeleted {
        incarnation: STREAM,
        revision: 12,
    };
    followers.applied(GROUP, &[deleted]);
    let end = FollowEnd::ObjectDeleted { revision: 12 };
    assert_eq!(now(both[0].wait_for(0)), Some(Err(end.clone())));
    assert_eq!(now(both[0].ended()), Some(end.clone()));
    assert_eq!(now(both[1].ended()), None);
    followers.stopped(GROUP, "the disk is gone");
    assert_eq!(now(both[0].ended()), Some(end));
    let stopped = FollowEnd::Stopped {
        why: "the disk is gone".to_owned(),
    };
    assert_eq!(now(both[1].ended()), Some(stopped));
}

#[test]
fn followers_are_counted_and_leave_nothing_behind() {
    let followers = Arc::new(Followers::default());
    let one = followers.register(GROUP, STREAM, 2).expect("there is room");
    let two = followers.register(GROUP, STREAM, 2).expect("there is room");
    assert_eq!(followers.register(GROUP, STREAM, 2).expect_err("it is full"), 2);
    drop(one);
    assert_eq!(followers.len(), 1);
    let three = followers.register(GROUP, Incarnation(4), 2).expect("there is room");
    drop((two, three));
    assert_eq!(followers.len(), 0);
    assert!(followers.locked().followed.is_empty());
}
