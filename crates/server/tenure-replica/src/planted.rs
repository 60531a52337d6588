//! Mechanisms that the simulation takes out, and moments at which it kills, to see what happens then. The product is never
//! built with this.

use std::any::Any;
use std::cell::{Cell, RefCell};

use tenure_core::ids::NodeId;

thread_local! {
    /// A simulation runs on one thread, and each of its runs has one defect at most.
    static PLANTED: Cell<Option<Planted>> = const { Cell::new(None) };
    /// And one reply at a time that is not given.
    static REPLY: Cell<Reply> = const { Cell::new(Reply::Given) };
    /// What would have given them. Dropped before its node is dead it would answer, and kept for ever so would be its node.
    static WITHHELD: RefCell<Vec<Box<dyn Any>>> = const { RefCell::new(Vec::new()) };
}

/// A mechanism that is taken out of every replica of this thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// Who leads, or believes to, gives a read index without asking a majority whether it still does.
    NoReadIndex,
    /// Who follows does not take the time of the leader's stamps over: it goes on by its own clock.
    LostTime,
}

/// What becomes of replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reply {
    /// All are given.
    Given,
    /// Whoever has the next one to give is silent instead.
    Withheld,
    /// This node had one to give, and says nothing any more.
    Silent(NodeId),
}

/// Takes a mechanism out, or none any more.
pub fn plant(planted: Option<Planted>) {
    PLANTED.set(planted);
    REPLY.set(Reply::Given);
}

pub(crate) fn is(planted: Planted) -> bool {
    PLANTED.get() == Some(planted)
}

/// The next replica that has applied what it proposed itself gives no reply: its node is silent from then on, until it is
/// [killed](silent) and replies are [given again](give_replies).
pub fn withhold_next_reply() {
    REPLY.set(Reply::Withheld);
}

/// Every reply is given again. Whoever was silent is dead.
pub fn give_replies() {
    REPLY.set(Reply::Given);
    drop(WITHHELD.take());
}

pub(crate) fn withhold(reply: impl Any) {
    WITHHELD.with_borrow_mut(|withheld| withheld.push(Box::new(reply)));
}

/// The node that is silent and is to be killed, if there is one.
pub fn silent() -> Option<NodeId> {
    match REPLY.get() {
        Reply::Silent(node) => Some(node),
        Reply::Given | Reply::Withheld => None,
    }
}

/// Whether this node tells nobody what it has applied. `replies`: somebody waits for the reply to a request in it.
pub(crate) fn is_silent(node: NodeId, replies: bool) -> bool {
    if replies && REPLY.get() == Reply::Withheld {
        REPLY.set(Reply::Silent(node));
    }
    silent() == Some(node)
}
