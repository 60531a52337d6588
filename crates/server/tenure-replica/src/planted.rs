//! Mechanisms that the simulation takes out, to see that it finds what happens then. The product is never built with
//! this.

use std::cell::Cell;

thread_local! {
    /// A simulation runs on one thread, and each of its runs has one defect at most.
    static PLANTED: Cell<Option<Planted>> = const { Cell::new(None) };
}

/// A mechanism that is taken out of every replica of this thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// Who leads, or believes to, gives a read index without asking a majority whether it still does.
    NoReadIndex,
    /// Who follows does not take the time of the leader's stamps over: it goes on by its own clock.
    LostTime,
}

/// Takes a mechanism out, or none any more.
pub fn plant(planted: Option<Planted>) {
    PLANTED.set(planted);
}

pub(crate) fn is(planted: Planted) -> bool {
    PLANTED.get() == Some(planted)
}
