//! What clients asked for and were told of keys that several of them read and write, for the search for one order.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure_testkit::check::linearizability;
use tenure_testkit::{Call, Operation, Told};

/// The calls of all clients of one run.
#[derive(Default)]
pub(crate) struct Calls {
    calls: Mutex<Vec<Call>>,
}

impl Calls {
    /// A call is made now. Until it is answered its outcome is unknown. Returns its number.
    pub(crate) fn called(&self, client: u32, operation: Operation, now: Duration) -> usize {
        let mut calls = self.lock();
        calls.push(Call {
            client,
            operation,
            called: now,
            returned: None,
            told: Told::Unknown,
            failure: None,
        });
        calls.len() - 1
    }

    /// It was answered now.
    pub(crate) fn returned(&self, call: usize, told: Told, now: Duration) {
        let call = &mut self.lock()[call];
        call.returned = (told != Told::Unknown).then_some(now);
        call.told = told;
    }

    /// Whether one order explains all answers; what is wrong if none does.
    pub(crate) fn settle(&self) -> Option<String> {
        let settled = linearizability::linearizable(&self.lock());
        settled.err().map(|violation| violation.to_string())
    }

    /// A line about all calls.
    pub(crate) fn summary(&self) -> String {
        let calls = self.lock();
        let count = |wanted: fn(&Told) -> bool| calls.iter().filter(|call| wanted(&call.told)).count();
        format!(
            "{} calls of registers: {} read, {} refused, {} unknown, {} not applied",
            calls.len(),
            count(|told| matches!(told, Told::Read { .. })),
            count(|told| matches!(told, Told::Refused { .. })),
            count(|told| matches!(told, Told::Unknown)),
            count(|told| matches!(told, Told::NotApplied)),
        )
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Call>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
