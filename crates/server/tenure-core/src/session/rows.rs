//! The rows of the sessions that an entry meets. One request of a session looks at its row several times, and an
//! entry holds many of them: each row is decoded once, and written once when the entry is done.
//!
//! So while an entry is applied a session is read here and never in the table.

use std::collections::BTreeMap;

use crate::ids::SessionId;
use crate::keyspace::{self, SessionRow};
use crate::session;
use crate::table::Table;

/// The rows met so far, and what is to become of them.
#[derive(Debug, Default)]
pub(crate) struct SessionRows {
    met: BTreeMap<SessionId, Met>,
}

#[derive(Debug)]
struct Met {
    /// `None` if there is no such session, or not any more.
    row: Option<SessionRow>,
    is_changed: bool,
}

impl SessionRows {
    /// The session's row.
    pub(crate) fn get(&mut self, table: &dyn Table, id: SessionId) -> Option<&SessionRow> {
        self.meet(table, id).row.as_ref()
    }

    /// The session's row, to be changed.
    pub(crate) fn get_mut(&mut self, table: &dyn Table, id: SessionId) -> Option<&mut SessionRow> {
        let met = self.meet(table, id);
        met.is_changed |= met.row.is_some();
        met.row.as_mut()
    }

    /// Sets the row of a session (`None`: there is none any more).
    pub(crate) fn set(&mut self, id: SessionId, row: Option<SessionRow>) {
        let is_changed = true;
        self.met.insert(id, Met { row, is_changed });
    }

    /// Writes what was changed.
    pub(crate) fn write(self, table: &mut dyn Table) {
        for (id, met) in self.met {
            if !met.is_changed {
                continue;
            }
            let key = keyspace::session(id);
            match met.row {
                Some(row) => {
                    keyspace::write(table, key, &row);
                }
                None => table.delete(&key),
            }
        }
    }

    fn meet(&mut self, table: &dyn Table, id: SessionId) -> &mut Met {
        self.met.entry(id).or_insert_with(|| Met {
            row: session::load(table, id),
            is_changed: false,
        })
    }
}
