//! The hot paths: what each claim, renewal and release goes through, with fixed input.

mod core;
mod log;
mod wire;

/// A path that is counted.
pub(crate) struct Path {
    /// Its name in the table and, as part of a test's name, on the command line.
    pub(crate) name: &'static str,
    /// Operations of one count.
    pub(crate) operations: u64,
    /// Prepares, then does so many operations.
    pub(crate) run: fn(u64),
}

pub(crate) const PATHS: &[Path] = &[
    Path {
        name: "core_claim_and_release",
        operations: 5_000,
        run: core::claims,
    },
    Path {
        name: "core_touch",
        operations: 5_000,
        run: core::touches,
    },
    Path {
        name: "core_keep_alive",
        operations: 5_000,
        run: core::keep_alives,
    },
    Path {
        name: "codec_entry_of_64",
        operations: 200,
        run: core::entries,
    },
    Path {
        name: "wire_put_and_answer",
        operations: 5_000,
        run: wire::puts,
    },
    Path {
        name: "log_batch_of_64",
        operations: 300,
        run: log::batches,
    },
];
