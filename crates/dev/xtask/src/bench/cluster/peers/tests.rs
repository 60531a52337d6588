//! Settings of the peers.

use super::*;

fn ports(nodes: u16) -> Vec<Ports> {
    (1..=nodes)
        .map(|number| Ports {
            client: number * 10 + 1,
            peer: number * 10 + 2,
            election: number * 10 + 3,
        })
        .collect()
}

#[test]
fn a_node_of_etcd_knows_itself_and_all_others() {
    let arguments = etcd_arguments(1, &ports(3)).join(" ");
    let expected = "--name node-2 --listen-client-urls http://127.0.0.1:21 --advertise-client-urls http://127.0.0.1:21 \
                    --listen-peer-urls http://127.0.0.1:22 --initial-advertise-peer-urls http://127.0.0.1:22 \
                    --initial-cluster node-1=http://127.0.0.1:12,node-2=http://127.0.0.1:22,node-3=http://127.0.0.1:32 \
                    --initial-cluster-state new --logger zap --log-level error";
    assert_eq!(arguments, expected);
}

#[test]
fn a_node_of_zookeeper_syncs_and_knows_the_others() {
    let settings = zookeeper_settings(0, &ports(3), Path::new("/data"));
    for line in [
        "forceSync=yes",
        "dataDir=/data",
        "clientPort=11",
        "server.1=127.0.0.1:12:13",
        "server.3=127.0.0.1:32:33",
    ] {
        assert!(settings.lines().any(|known| known == line), "{line}: {settings}");
    }
    let alone = zookeeper_settings(0, &ports(1), Path::new("/data"));
    assert!(!alone.contains("server."), "{alone}");
}

#[test]
fn free_ports_are_all_different() {
    let ports = free_ports(3).unwrap();
    let mut all: Vec<u16> = ports
        .iter()
        .flat_map(|ports| [ports.client, ports.peer, ports.election])
        .collect();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 9);
}
