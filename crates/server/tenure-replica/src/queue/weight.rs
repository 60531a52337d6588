//! Whose turn a command is, and how many bytes it takes in an entry.

use tenure_core::command::{Append, Command, Guard, Operation, Origin, Request, SystemCommand, Txn};
use tenure_core::ids::{Namespace, ObjectName};

/// The turn of the node's own commands.
const OWN: u64 = 0;
/// The turn of commands that name no namespace.
const NAMELESS: u64 = 1;
/// What is a request's beside what its command and origin vary by.
const REQUEST_BYTES: usize = 160;
/// What is a guard's, an operation's or an append's beside what varies.
const PART_BYTES: usize = 64;
/// What a record takes beside its bytes.
const RECORD_BYTES: usize = 4;
/// What an acknowledged number takes.
const NUMBER_BYTES: usize = 10;

/// Where in an entry a command belongs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Class {
    /// It gives something free, so it comes before those who want it.
    Close,
    /// It takes its turn among the namespaces. Two that share a number share their turns, no more.
    Of(u64),
}

/// Where in an entry this command belongs.
pub(super) fn class(command: &Command) -> Class {
    match command {
        Command::CloseSession { .. } => Class::Close,
        Command::TakeBlock { .. } | Command::System(_) => Class::Of(OWN),
        other => Class::Of(namespace_of(other).map_or(NAMELESS, number_of)),
    }
}

/// The namespace that a command names first.
pub fn namespace_of(command: &Command) -> Option<&Namespace> {
    match command {
        Command::OpenSession { namespace, .. } | Command::System(SystemCommand::AssignNamespace { namespace }) => {
            Some(namespace)
        }
        Command::CreateCache { name, .. }
        | Command::DeleteCache { name }
        | Command::CreateStream { name, .. }
        | Command::DeleteStream { name } => Some(&name.namespace),
        Command::Put { cache, .. }
        | Command::Delete { cache, .. }
        | Command::Touch { cache, .. }
        | Command::Add { cache, .. }
        | Command::DeletePrefix { cache, .. } => Some(&cache.namespace),
        Command::Append { stream, .. } | Command::TrimStream { stream, .. } => Some(&stream.namespace),
        Command::Txn(txn) => txn.objects().next().map(|object| &object.namespace),
        Command::CloseSession { .. } | Command::Acknowledge { .. } | Command::TakeBlock { .. } | Command::System(_) => {
            None
        }
    }
}

/// A number for a namespace (FNV-1a): equal for equal names, and cheaper to keep than the name.
pub(super) fn number_of(namespace: &Namespace) -> u64 {
    let bytes = namespace.tenant.bytes().chain([0]).chain(namespace.name.bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// About how many bytes a request takes in an entry, never less than it really takes.
pub fn request_bytes(request: &Request) -> usize {
    let origin = match &request.origin {
        Origin::Session { acknowledged, .. } => acknowledged.also.len() * NUMBER_BYTES,
        Origin::Anonymous | Origin::OneShot { .. } => 0,
    };
    REQUEST_BYTES + origin + command_bytes(&request.command)
}

fn command_bytes(command: &Command) -> usize {
    match command {
        Command::OpenSession { label, namespace, .. } => label.len() + of_namespace(namespace),
        Command::CloseSession { .. } | Command::TakeBlock { .. } => 0,
        Command::Acknowledge { acknowledged, .. } => acknowledged.also.len() * NUMBER_BYTES,
        Command::CreateCache { name, .. }
        | Command::DeleteCache { name }
        | Command::CreateStream { name, .. }
        | Command::DeleteStream { name }
        | Command::TrimStream { stream: name, .. } => of_object(name),
        Command::Put {
            cache,
            key,
            value,
            guard,
            ..
        } => of_object(cache) + key.len() + value.len() + guard.as_ref().map_or(0, Guard::bytes),
        Command::Delete { cache, key, guard } | Command::Touch { cache, key, guard, .. } => {
            of_object(cache) + key.len() + guard.as_ref().map_or(0, Guard::bytes)
        }
        Command::Add { cache, key, .. } | Command::DeletePrefix { cache, prefix: key } => of_object(cache) + key.len(),
        Command::Append { stream, append } => of_object(stream) + of_append(append),
        Command::Txn(txn) => of_txn(txn),
        Command::System(SystemCommand::AddNode { address, .. }) => address.len(),
        Command::System(SystemCommand::AssignNamespace { namespace }) => of_namespace(namespace),
        Command::System(_) => 0,
    }
}

fn of_namespace(namespace: &Namespace) -> usize {
    namespace.tenant.len() + namespace.name.len()
}

fn of_object(name: &ObjectName) -> usize {
    of_namespace(&name.namespace) + name.name.len()
}

fn of_append(append: &Append) -> usize {
    PART_BYTES + append.records.len() * RECORD_BYTES + append.bytes()
}

fn of_txn(txn: &Txn) -> usize {
    let names: usize = txn.objects().map(of_object).sum();
    let parts = (txn.guards.len() + txn.operations().count()) * PART_BYTES;
    let appends = txn.operations().filter_map(|operation| match operation {
        Operation::Append { append, .. } => Some(PART_BYTES + append.records.len() * RECORD_BYTES),
        _ => None,
    });
    txn.bytes() + names + parts + appends.sum::<usize>()
}
