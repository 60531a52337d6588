//! Recipes over small traits: what every provider of leases shares, whatever server stands behind it.
//!
//! - [`outcome`]: what is known after a call that may have been tried several times, and the one rule for trying
//!   again.
//! - [`session`]: keep-alive as a pure schedule: what to send when, and when a holder must stop believing.
//! - [`clock`]: the pair of clocks that a holder measures with.
//!
//! Nothing here knows a server, opens a connection or reads a clock by itself.

pub mod clock;
pub mod outcome;
pub mod session;

pub use clock::{Clock, Instants, ManualClock};
pub use outcome::Outcome;
pub use session::{EndCause, KeepAliveSchedule, LostReason, SessionState};
