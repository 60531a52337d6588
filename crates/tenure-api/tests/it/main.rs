//! What must not change, and what must come back as it went.

mod errors;
mod fixtures;
mod messages;
mod schema;
