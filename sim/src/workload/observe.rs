//! An observer that asks every node who leads, again and again.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tenure_client::Client;

use crate::clock;
use crate::cluster::World;

/// The machine that observes.
pub(crate) const OBSERVER: &str = "observer";
/// How often a node is asked.
const ASK_EVERY: Duration = Duration::from_millis(20);
/// How long an answer is waited for.
const WITHIN: Duration = Duration::from_millis(500);

/// Asks every node who leads as long as this says so.
pub(crate) async fn observe(world: Arc<World>, goes_on: impl Fn() -> bool) -> turmoil::Result {
    let names = world.setup.node_names();
    let mut clients = Vec::new();
    for name in &names {
        clients.push(world.client_at(OBSERVER, name, WITHIN)?);
    }
    let (world, goes_on) = (&world, &goes_on);
    let asking = clients.iter().zip(1..).map(|(client, node)| async move {
        while goes_on() {
            ask(world, client, node).await;
            tokio::time::sleep(ASK_EVERY).await;
        }
    });
    join_all(asking).await;
    Ok(())
}

async fn ask(world: &World, client: &Client, node: usize) {
    let asked = clock::now().unwrap_or_default();
    let Ok(status) = client.status().await else { return };
    let before = world.leaders.terms_led_by(node);
    world.leaders.says(node, asked, status.groups);
    let now = world.leaders.terms_led_by(node);
    for (group, term) in now.difference(&before) {
        let what = format_args!("leads group {group} in term {term}");
        world.journal.note(&format!("node-{node}"), what);
    }
}
