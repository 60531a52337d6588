//! What a node knows of the others: whether it reaches them, and how far their replicas of the groups that it leads are.
//! There is a line for each other node, of which there are at most 63, and none for a pair of node and group.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use tenure_core::ids::NodeId;

use crate::service::Service;

/// What is known of another node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PeerSeen {
    pub(crate) address: String,
    pub(crate) connected: bool,
    /// Of the groups that are led here: how many entries its replica lacks that lacks the most.
    pub(crate) lag_entries: u64,
}

/// The other nodes.
pub(crate) fn peers(service: &Service) -> BTreeMap<NodeId, PeerSeen> {
    let peers = &service.identity().peers;
    let seen = peers.known().into_iter().map(|(node, record)| {
        let seen = PeerSeen {
            address: record.address,
            connected: peers.is_connected(node),
            lag_entries: 0,
        };
        (node, seen)
    });
    let mut seen: BTreeMap<NodeId, PeerSeen> = seen.collect();
    if seen.is_empty() {
        return seen;
    }
    for group in service.groups() {
        let status = group.replica.status();
        if !status.leads {
            continue;
        }
        let last = status.last_index.unwrap_or(0);
        for (node, acknowledged) in &status.replicated {
            if let Some(seen) = seen.get_mut(node) {
                let lag = last.saturating_sub(acknowledged.unwrap_or(0));
                seen.lag_entries = seen.lag_entries.max(lag);
            }
        }
    }
    seen
}

/// The same, as Prometheus reads it.
pub(crate) fn render(peers: &BTreeMap<NodeId, PeerSeen>, text: &mut String) {
    let mut metric = |name: &str, value: &dyn Fn(&PeerSeen) -> u64| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "# TYPE {name} gauge");
        for (node, seen) in peers {
            let _ = writeln!(text, "{name}{{node=\"{}\"}} {}", node.0, value(seen));
        }
    };
    metric("tenure_peer_connected", &|seen| u64::from(seen.connected));
    metric("tenure_peer_lag_entries", &|seen| seen.lag_entries);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_other_node_has_a_line_in_each_metric() {
        let seen = PeerSeen {
            address: "b:1".to_owned(),
            connected: true,
            lag_entries: 7,
        };
        let peers = BTreeMap::from([(NodeId(2), seen), (NodeId(9), PeerSeen::default())]);
        let mut text = String::new();
        render(&peers, &mut text);
        assert_eq!(
            text,
            "# TYPE tenure_peer_connected gauge\n\
             tenure_peer_connected{node=\"2\"} 1\n\
             tenure_peer_connected{node=\"9\"} 0\n\
             # TYPE tenure_peer_lag_entries gauge\n\
             tenure_peer_lag_entries{node=\"2\"} 7\n\
             tenure_peer_lag_entries{node=\"9\"} 0\n"
        );
    }
}
