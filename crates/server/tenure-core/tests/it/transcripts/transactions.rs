//! The lines of a transcript between `txn` and `end`.

use tenure_core::command::{Operation, Txn, TxnGuard};

use super::language::{append, guard};
use super::render::Names;
use super::words::{Outcome, Words, bytes, name, signed, span};

/// A transaction that is being written down.
#[derive(Default)]
pub(super) struct TxnDraft {
    pub(super) txn: Txn,
    is_else: bool,
}

impl TxnDraft {
    /// Takes a line, and says whether it was the last.
    pub(super) fn line(&mut self, words: &mut Words<'_>, names: &Names) -> Outcome<bool> {
        match words.next()? {
            "end" => return Ok(true),
            "else" => self.is_else = true,
            "if" => self.txn.guards.push(TxnGuard::Key {
                cache: name(words.next()?)?,
                key: bytes(words.next()?)?,
                guard: guard(words)?.ok_or("a guard is missing")?,
            }),
            "if-counter" => self.txn.guards.push(TxnGuard::Counter {
                cache: name(words.next()?)?,
                key: bytes(words.next()?)?,
                min: words.option("min").map(signed).transpose()?,
                max: words.option("max").map(signed).transpose()?,
            }),
            "if-tail" => self.txn.guards.push(TxnGuard::StreamTail {
                stream: name(words.next()?)?,
                tail: words.number()?,
            }),
            "if-alive" => self.txn.guards.push(TxnGuard::SessionAlive {
                session: names.session_called(words.next()?)?.id,
            }),
            operation => {
                let operation = parse(operation, words, names)?;
                if self.is_else {
                    self.txn.otherwise.push(operation);
                } else {
                    self.txn.then.push(operation);
                }
            }
        }
        Ok(false)
    }
}

fn parse(operation: &str, words: &mut Words<'_>, names: &Names) -> Outcome<Operation> {
    let place = name(words.next()?)?;
    Ok(match operation {
        "put" => Operation::Put {
            cache: place,
            key: bytes(words.next()?)?,
            value: bytes(words.next()?)?,
            ttl: words.option("ttl").map(span).transpose()?,
            owner: words
                .option("owner")
                .map(|owner| names.session_called(owner))
                .transpose()?,
        },
        "delete" => Operation::Delete {
            cache: place,
            key: bytes(words.next()?)?,
        },
        "add" => Operation::Add {
            cache: place,
            key: bytes(words.next()?)?,
            delta: words.signed()?,
            ttl: words.option("ttl").map(span).transpose()?,
        },
        "append" => Operation::Append {
            stream: place,
            append: append(words)?,
        },
        "get" => Operation::Get {
            cache: place,
            key: bytes(words.next()?)?,
        },
        other => return Err(format!("no operation is called {other}")),
    })
}
