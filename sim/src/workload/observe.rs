//! An observer that asks every node who leads, and reads the registers at every node, again and again. Each of its clients
//! knows one node only: whatever befalls that node, nobody else answers for it.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join, join_all};
use tenure_client::{Cache, Client};
use tenure_testkit::Operation;

use super::{CACHE, NAMESPACE, TENANT, registers};
use crate::clock;
use crate::cluster::World;

/// The machine that observes.
pub(crate) const OBSERVER: &str = "observer";
/// How often a node is asked who leads.
const ASK_EVERY: Duration = Duration::from_millis(20);
/// How often a register is read at a node.
const READ_EVERY: Duration = Duration::from_millis(50);
/// How long an answer is waited for.
const WITHIN: Duration = Duration::from_millis(500);
/// What its readers are called in the history of the registers: they come behind all others.
const FIRST_READER: u32 = 1_000;

/// Asks and reads at every node as long as this says so.
pub(crate) async fn observe(world: Arc<World>, goes_on: impl Fn() -> bool) -> turmoil::Result {
    let names = world.setup.node_names();
    let mut clients = Vec::new();
    for name in &names {
        clients.push(world.client_at(OBSERVER, name, WITHIN)?);
    }
    let (world, goes_on) = (&world, &goes_on);
    let observing = clients.iter().zip(1..).map(|(client, node)| {
        let asking = async move {
            while goes_on() {
                ask(world, client, node).await;
                tokio::time::sleep(ASK_EVERY).await;
            }
        };
        let cache = client.namespace(TENANT, NAMESPACE).cache(CACHE);
        let reading = async move {
            let reader = FIRST_READER + u32::try_from(node).unwrap_or(0);
            for register in (0..registers::COUNT).cycle() {
                if !goes_on() {
                    return;
                }
                read(world, &cache, reader, registers::name(register)).await;
                tokio::time::sleep(READ_EVERY).await;
            }
        };
        join(asking, reading)
    });
    join_all(observing).await;
    Ok(())
}

async fn ask(world: &World, client: &Client, node: usize) {
    let asked = clock::now().unwrap_or_default();
    let Ok(status) = client.status().await else { return };
    let before = world.leaders.terms_led_by(node);
    world.leaders.says(node, asked, status);
    let now = world.leaders.terms_led_by(node);
    for (group, term) in now.difference(&before) {
        let what = format_args!("leads group {group} in term {term}");
        world.journal.note(&format!("node-{node}"), what);
    }
}

async fn read(world: &World, cache: &Cache, reader: u32, key: String) {
    let now = || clock::now().unwrap_or_default();
    let operation = Operation::Get { key: key.clone() };
    let call = world.calls.called(reader, operation, now());
    let read = cache.get(&key).await;
    world.calls.returned(call, registers::told_of_read(&read), now());
}
