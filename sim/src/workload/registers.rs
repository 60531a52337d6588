//! Registers that several clients read, write, compare and delete, all at once, at any node. What they were told is to
//! have one order.

use tenure_client::{Cache, Deleted, Entry, Error, Outcome, PutOutcome, Refusal, Verdict};
use tenure_testkit::{Guarded, Operation, ReadValue, Told};

use super::{Actor, Answer, Stopped};
use crate::clock;

/// How many registers there are.
pub(crate) const COUNT: u64 = 2;

/// What a register is called.
pub(crate) fn name(number: u64) -> String {
    format!("register/{number}")
}

/// Works on the registers until the time is over.
pub(super) async fn share(actor: Actor) -> Result<(), Stopped> {
    let mut registers = Registers::new(actor);
    while registers.actor.at_work() {
        registers.step().await;
        registers.actor.pause(1, 60).await;
    }
    Ok(())
}

/// What one client knows of the registers.
struct Registers {
    actor: Actor,
    client: u32,
    /// Values that it wrote: no two are equal.
    written: u64,
    /// The last version of a register that it was told of.
    version: Option<u64>,
}

impl Registers {
    fn new(actor: Actor) -> Registers {
        let number = actor.name.rsplit('-').next().and_then(|number| number.parse().ok());
        Registers {
            client: number.unwrap_or(0),
            actor,
            written: 0,
            version: None,
        }
    }

    /// One call.
    async fn step(&mut self) {
        let key = name(self.actor.random.between(0, COUNT));
        match self.actor.random.between(0, 10) {
            0..5 => self.read(key).await,
            5..7 => self.write(key, Guarded::Nothing).await,
            7..9 => {
                let guard = self.version.map_or(Guarded::Absent, Guarded::Version);
                self.write(key, guard).await;
            }
            _ => self.delete(key).await,
        }
    }

    async fn read(&mut self, key: String) {
        let call = self.called(Operation::Get { key: key.clone() });
        let read = self.actor.cache.get(&key).await;
        self.actor.note(format_args!("get {key}: {}", Answer(&read)));
        if let Ok(found) = &read {
            self.version = found.as_ref().map(|entry| entry.version);
        }
        self.returned(call, told_of_read(&read));
    }

    async fn write(&mut self, key: String, guard: Guarded) {
        self.written += 1;
        let value = format!("{} of {}", self.written, self.actor.name);
        let call = self.called(Operation::Put {
            key: key.clone(),
            value: value.clone(),
            guard,
        });
        let put = put(&self.actor.cache, &key, &value, guard).await;
        self.actor
            .note(format_args!("put {key} if {guard:?}: {}", Answer(&put)));
        if let Ok(Verdict::Done(written)) = &put {
            self.version = Some(written.version);
        }
        self.returned(call, told_of_put(&put));
    }

    async fn delete(&mut self, key: String) {
        let guard = Guarded::Nothing;
        let call = self.called(Operation::Delete {
            key: key.clone(),
            guard,
        });
        let deleted = self.actor.cache.delete(&key).await;
        self.actor.note(format_args!("delete {key}: {}", Answer(&deleted)));
        self.returned(call, told_of_delete(&deleted));
    }

    fn called(&self, operation: Operation) -> usize {
        let now = clock::now().unwrap_or_default();
        self.actor.world.calls.called(self.client, operation, now)
    }

    fn returned(&self, call: usize, told: Told) {
        let now = clock::now().unwrap_or_default();
        self.actor.world.calls.returned(call, told, now);
    }
}

async fn put(cache: &Cache, key: &str, value: &str, guard: Guarded) -> Result<PutOutcome, Error> {
    match guard.to_guard() {
        None => cache.put(key, value).await,
        Some(guard) => cache.put(key, value).guard(guard).await,
    }
}

pub(crate) fn told_of_read(read: &Result<Option<Entry>, Error>) -> Told {
    let found = match read {
        Ok(found) => found.as_ref(),
        Err(error) => return told_of_error(error),
    };
    Told::Read {
        found: found.map(|entry| ReadValue {
            value: super::text(&entry.value),
            version: entry.version,
            created: entry.created,
        }),
    }
}

pub(crate) fn told_of_put(put: &Result<PutOutcome, Error>) -> Told {
    match put {
        Ok(Verdict::Done(written)) => Told::Written {
            version: written.version,
            created: written.created,
        },
        Ok(Verdict::Refused(refusal)) => told_of_refusal(refusal),
        Err(error) => told_of_error(error),
    }
}

fn told_of_delete(deleted: &Result<Verdict<Deleted>, Error>) -> Told {
    match deleted {
        Ok(Verdict::Done(deleted)) => Told::Deleted {
            removed: deleted.removed.map(|removal| (removal.revision, removal.version)),
        },
        Ok(Verdict::Refused(refusal)) => told_of_refusal(refusal),
        Err(error) => told_of_error(error),
    }
}

fn told_of_refusal(refusal: &Refusal) -> Told {
    Told::Refused {
        version: refusal.key().map(|key| key.version),
    }
}

fn told_of_error(error: &Error) -> Told {
    match error.outcome() {
        Outcome::Unknown => Told::Unknown,
        Outcome::NotApplied | Outcome::Refused => Told::NotApplied,
    }
}
