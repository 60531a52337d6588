//! What needs room is told from what gives it back.

use bytes::Bytes;
use tenure_core::command::{Append, Txn};
use tenure_core::ids::{ObjectName, SessionId};
use tenure_core::time::Span;

use super::*;

fn name() -> ObjectName {
    ObjectName {
        namespace: Namespace {
            tenant: "default".to_owned(),
            name: "default".to_owned(),
        },
        name: "o".to_owned(),
    }
}

fn txn(then: Vec<Operation>, otherwise: Vec<Operation>) -> Command {
    Command::Txn(Txn {
        guards: Vec::new(),
        then,
        otherwise,
    })
}

#[test]
fn what_frees_room_goes_through_where_there_is_none() {
    let (cache, stream, key) = (name, name, || Bytes::from_static(b"k"));
    let get = || Operation::Get {
        cache: cache(),
        key: key(),
    };
    let delete = || Operation::Delete {
        cache: cache(),
        key: key(),
    };
    let append = || Operation::Append {
        stream: stream(),
        append: Append::default(),
    };
    let grow = [
        Command::Put {
            cache: cache(),
            key: key(),
            value: Bytes::new(),
            ttl: None,
            guard: None,
            owner: None,
        },
        Command::Add {
            cache: cache(),
            key: key(),
            delta: -1,
            ttl: None,
        },
        Command::Append {
            stream: stream(),
            append: Append::default(),
        },
        txn(vec![get(), append()], vec![]),
        txn(vec![delete()], vec![append()]),
    ];
    let free = [
        Command::Delete {
            cache: cache(),
            key: key(),
            guard: None,
        },
        Command::DeletePrefix {
            cache: cache(),
            prefix: Bytes::new(),
        },
        Command::TrimStream {
            stream: stream(),
            before: 9,
        },
        Command::DeleteStream { name: stream() },
        Command::DeleteCache { name: cache() },
        Command::Touch {
            cache: cache(),
            key: key(),
            ttl: Span::from_secs(1),
            guard: None,
        },
        Command::CloseSession {
            session: SessionId(1),
            secret: None,
        },
        txn(vec![get(), delete()], vec![delete()]),
    ];
    assert!(grow.iter().all(grows));
    assert!(!free.iter().any(grows));
}
