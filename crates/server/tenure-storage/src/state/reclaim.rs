//! Giving back room on the disk that the engine holds and does not need.
//!
//! What was deleted goes when tables are merged, and a journal when every keyspace with rows in it has written them
//! into tables. The engine does either when it has taken in enough, which on a disk that is almost full never comes:
//! what frees room is then all that is still written.
//!
//! Both need room before they give any, so how much there is decides what is done.

use std::thread;
use std::time::Duration;

use fjall::{Database, Keyspace};

/// Memory is made into tables only where it fits so many times: tables have an index beside their rows.
const ROOM_PER_MEMORY: u64 = 2;
/// A keyspace is merged only where it fits so many times: its tables stay until the merged ones are whole.
const ROOM_PER_KEYSPACE: u64 = 2;
/// How long a keyspace's memory may take to become a table before the next one's turn.
const WRITTEN_WITHIN: Duration = Duration::from_secs(10);
/// How often it is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Writes what is in memory into tables, so that journals can go, and merges the tables of the keyspaces for which
/// there is room. `room` tells how much is free, and `touch` writes anything into a keyspace and returns it.
///
/// # Errors
/// What the engine said. Nothing is lost then.
pub(super) fn reclaim(
    database: &Database,
    keyspaces: &[Keyspace],
    touch: &dyn Fn() -> Result<Keyspace, fjall::Error>,
    room: &dyn Fn() -> Option<u64>,
) -> Result<(), fjall::Error> {
    let fits = |bytes: u64, times: u64| room().is_some_and(|room| bytes.saturating_mul(times) <= room);
    for keyspace in keyspaces {
        // A table that cannot be written ends the engine, so it is better not begun.
        if !fits(database.write_buffer_size(), ROOM_PER_MEMORY) {
            return Ok(());
        }
        write(keyspace)?;
    }
    // Which rows and files nobody reads any more the engine finds out when it begins a new table, and not for an empty
    // one: before the merge for the rows that it leaves out, and behind it for the files that it has replaced.
    write(&touch()?)?;
    for keyspace in keyspaces {
        if keyspace.table_count() > 0 && fits(keyspace.disk_space(), ROOM_PER_KEYSPACE) {
            keyspace.major_compact()?;
        }
    }
    write(&touch()?)
}

/// Makes what is in memory a table.
fn write(keyspace: &Keyspace) -> Result<(), fjall::Error> {
    if keyspace.rotate_memtable()? {
        wait_until_written(keyspace);
    }
    Ok(())
}

/// The engine's own way to wait for this does not end when the engine has given up.
#[expect(
    clippy::disallowed_methods,
    reason = "the engine writes with threads of its own, which no simulation sees, and tells nobody"
)]
fn wait_until_written(keyspace: &Keyspace) {
    let mut waited = Duration::ZERO;
    while keyspace.sealed_memtable_count() > 0 && waited < WRITTEN_WITHIN {
        thread::sleep(LOOK_EVERY);
        waited += LOOK_EVERY;
    }
}
