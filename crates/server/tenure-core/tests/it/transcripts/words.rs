//! One line of a transcript word by word, and what single words mean.

use bytes::Bytes;
use tenure_core::command::Acknowledged;
use tenure_core::ids::{Namespace, ObjectName};
use tenure_core::time::Span;

/// What a word or a line means, or why it means nothing.
pub(super) type Outcome<T> = Result<T, String>;

/// One line, word by word.
pub(super) struct Words<'a> {
    line: &'a str,
    words: std::collections::VecDeque<&'a str>,
}

impl<'a> Words<'a> {
    pub(super) fn new(line: &'a str) -> Words<'a> {
        Words {
            line,
            words: line.split_whitespace().collect(),
        }
    }

    pub(super) fn peek(&self) -> Option<&'a str> {
        self.words.front().copied()
    }

    pub(super) fn next(&mut self) -> Outcome<&'a str> {
        self.words.pop_front().ok_or_else(|| "a word is missing".to_owned())
    }

    /// The next word, if there is one.
    pub(super) fn word(&mut self) -> Option<&'a str> {
        self.words.pop_front()
    }

    /// The words that are left.
    pub(super) fn rest(&mut self) -> Vec<&'a str> {
        self.words.drain(..).collect()
    }

    pub(super) fn number(&mut self) -> Outcome<u64> {
        number(self.next()?)
    }

    pub(super) fn signed(&mut self) -> Outcome<i64> {
        signed(self.next()?)
    }

    pub(super) fn expect(&mut self, word: &str) -> Outcome<()> {
        let found = self.next()?;
        if found == word {
            Ok(())
        } else {
            Err(format!("{word} is missing before {found}"))
        }
    }

    /// Takes `name=value` from anywhere in the rest of the line.
    pub(super) fn option(&mut self, name: &str) -> Option<&'a str> {
        let at = self
            .words
            .iter()
            .position(|word| word.strip_prefix(name).is_some_and(|rest| rest.starts_with('=')))?;
        self.words.remove(at).map(|word| &word[name.len() + 1..])
    }

    pub(super) fn flag(&mut self, name: &str) -> bool {
        let at = self.words.iter().position(|word| *word == name);
        at.is_some_and(|at| self.words.remove(at).is_some())
    }

    pub(super) fn done(&self) -> Outcome<()> {
        match self.peek() {
            None => Ok(()),
            Some(word) => Err(format!("{word} means nothing here: {}", self.line)),
        }
    }
}

pub(super) fn acknowledgements(words: &mut Words<'_>) -> Outcome<Acknowledged> {
    let mut acknowledged = Acknowledged::default();
    while let Some(rest) = words.peek().and_then(|word| word.strip_prefix("ack")) {
        if let Some(below) = rest.strip_prefix('<') {
            acknowledged.below = number(below)?;
        } else if let Some(seqs) = rest.strip_prefix('=') {
            for seq in seqs.split(',') {
                acknowledged.also.extend(stepped(seq)?);
            }
        } else {
            break;
        }
        words.next()?;
    }
    Ok(acknowledged)
}

/// `7`, `3..9` (both ends inclusive) or `3..9/2` (every second).
pub(super) fn stepped(text: &str) -> Outcome<Vec<u64>> {
    let (seqs, step) = match text.split_once('/') {
        Some((seqs, step)) => (seqs, number(step)?),
        None => (text, 1),
    };
    Ok(range(seqs)?.step_by(step as usize).collect())
}

/// `7` or `3..9`, both ends inclusive.
pub(super) fn range(text: &str) -> Outcome<std::ops::RangeInclusive<u64>> {
    match text.split_once("..") {
        Some((first, last)) => Ok(number(first)?..=number(last)?),
        None => number(text).map(|one| one..=one),
    }
}

pub(super) fn number(text: &str) -> Outcome<u64> {
    text.parse().map_err(|_| format!("{text} is no number"))
}

pub(super) fn signed(text: &str) -> Outcome<i64> {
    text.parse().map_err(|_| format!("{text} is no number"))
}

pub(super) fn span(text: &str) -> Outcome<Span> {
    let at = text.find(|c: char| !c.is_ascii_digit()).ok_or("a unit is missing")?;
    let (amount, unit) = text.split_at(at);
    let amount = number(amount)?;
    Ok(match unit {
        "us" => Span::from_micros(amount),
        "ms" => Span::from_millis(amount),
        "s" => Span::from_secs(amount),
        "m" => Span::from_secs(60 * amount),
        "h" => Span::from_secs(3_600 * amount),
        other => return Err(format!("no unit of time is called {other}")),
    })
}

/// The word itself, or `x*5000` for a long one.
pub(super) fn bytes(text: &str) -> Outcome<Bytes> {
    match text.split_once('*') {
        Some((part, times)) => Ok(Bytes::from(part.repeat(number(times)? as usize))),
        None => Ok(Bytes::copy_from_slice(text.as_bytes())),
    }
}

/// `leases` in `acme/prod`, or a full name.
pub(super) fn name(text: &str) -> Outcome<ObjectName> {
    match text.rsplit_once('/') {
        Some((space, name)) => Ok(ObjectName {
            namespace: namespace(space)?,
            name: name.to_owned(),
        }),
        None => name(&format!("acme/prod/{text}")),
    }
}

pub(super) fn namespace(text: &str) -> Outcome<Namespace> {
    let (tenant, name) = text.split_once('/').ok_or("a namespace is tenant/name")?;
    Ok(Namespace {
        tenant: tenant.to_owned(),
        name: name.to_owned(),
    })
}
