//! Mechanisms that the simulation takes out, to see that it finds what happens then, and a reply that it lets no node give, to
//! kill it at that moment. The product is never built with this.

use std::any::Any;
use std::cell::{Cell, RefCell};

use tenure_core::ids::NodeId;
use tenure_core::response::{Answer, Response};

thread_local! {
    /// A simulation runs on one thread, and each of its runs has one defect at most.
    static PLANTED: Cell<Option<Planted>> = const { Cell::new(None) };
    /// And one reply at a time that is not given.
    static REPLY: RefCell<Reply> = const { RefCell::new(Reply::Given) };
    /// What would have given it, and those after it. Dropped before its node is dead it would answer, and kept for ever so
    /// would be its node.
    static SILENCED: RefCell<Vec<Box<dyn Any>>> = const { RefCell::new(Vec::new()) };
}

/// A mechanism that is taken out of every replica of this thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// A read that is to see everything does not ask a majority whether its leader still leads.
    NoReadIndex,
    /// Who follows does not take the leader's time over: its time goes on by its own clock from the first stamp that it saw.
    LostTime,
}

/// A reply that was not given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Withheld {
    /// Whose it was: this node says nothing any more of what it applies.
    pub node: NodeId,
    /// What it would have said, for each request of the entry.
    pub answers: Vec<Answer>,
}

/// What becomes of replies.
enum Reply {
    /// All are given.
    Given,
    /// Whoever has the next one to give that has an answer like this is silent instead.
    Awaited(fn(&Response) -> bool),
    /// There was one.
    Withheld(Withheld),
}

/// Takes a mechanism out, or none any more, and lets every reply be given.
pub fn plant(planted: Option<Planted>) {
    PLANTED.set(planted);
    give_replies();
}

pub(crate) fn is(planted: Planted) -> bool {
    PLANTED.get() == Some(planted)
}

/// The next replica that has applied what it proposed itself, with an answer like this, does not give it: its node is silent
/// from then on, until it is killed and replies are [given again](give_replies).
pub fn withhold_reply(of: fn(&Response) -> bool) {
    REPLY.set(Reply::Awaited(of));
}

/// The reply that was not given, if there is one since they were [withheld](withhold_reply).
pub fn withheld() -> Option<Withheld> {
    REPLY.with_borrow(|reply| match reply {
        Reply::Withheld(withheld) => Some(withheld.clone()),
        Reply::Given | Reply::Awaited(_) => None,
    })
}

/// Every reply is given again. Whoever was silent is dead by now.
pub fn give_replies() {
    REPLY.set(Reply::Given);
    // Dropped when nothing is borrowed any more: it may hold the last of its node.
    drop(SILENCED.take());
}

/// Whether this node tells nobody what it has applied. `proposed`: it proposed it itself, so that somebody waits for it.
pub(crate) fn is_silent(node: NodeId, answers: &[Answer], proposed: bool) -> bool {
    REPLY.with_borrow_mut(|reply| {
        if let Reply::Awaited(of) = reply
            && proposed
            && answers.iter().any(|answer| of(&answer.response))
        {
            let answers = answers.to_vec();
            *reply = Reply::Withheld(Withheld { node, answers });
        }
        matches!(reply, Reply::Withheld(withheld) if withheld.node == node)
    })
}

/// Keeps what would have replied.
pub(crate) fn silence(responder: impl Any) {
    SILENCED.with_borrow_mut(|silenced| silenced.push(Box::new(responder)));
}
