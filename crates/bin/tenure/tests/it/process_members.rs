//! The commands about the members of a cluster, on a cluster of one; with more nodes they are proved in `tenure-testkit`.

use crate::binary::{self, Server, closed_address, folder};

#[test]
fn nodes_and_groups_are_listed_as_text_and_as_json() {
    let (_temporary, data) = folder();
    let server = Server::dev(&data);
    let address = &server.address;
    let nodes = server.done(["cluster", "nodes"]);
    let lines: Vec<Vec<&str>> = nodes.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["NODE", "ADDRESS", "STATE", "LEADS", "VOTES", "BEHIND"]);
    assert_eq!(lines[1], ["1", address, "connected", "2", "2", "0"]);
    assert_eq!(lines.len(), 2);
    let json = server.done(["cluster", "nodes", "--output", "json"]);
    let expected = format!(
        r#"{{"node":"1","address":"{address}","connected":true,"drained":false,"leads":2,"votes":2,"behind":"0"}}"#
    );
    assert_eq!(json, expected);
    let groups = server.done(["cluster", "groups"]);
    let lines: Vec<Vec<&str>> = groups.lines().map(|line| line.split_whitespace().collect()).collect();
    let titles = [
        "GROUP", "LEADER", "CHOSEN", "TERM", "LAST", "VOTERS", "LEARNERS", "BEHIND", "STATE",
    ];
    assert_eq!(lines[0], titles);
    assert_eq!(lines.len(), 3, "the system group and one home group");
    for (group, line) in ["0", "1"].iter().zip(&lines[1..]) {
        assert_eq!((line[0], line[1], line[2]), (*group, "1", "-"));
        assert_eq!(line[5..], ["1", "-", "-", "runs"]);
    }
    let json = server.done(["cluster", "groups", "--output", "json"]);
    for line in json.lines() {
        assert!(line.contains(r#""leader":"1","chosen_leader":null,"term":"#), "{line}");
        assert!(
            line.contains(r#""changing":false,"replicas":[],"stopped_reason":"""#),
            "{line}"
        );
    }
}

#[test]
fn a_leader_is_chosen_and_a_node_is_drained_and_not_any_more() {
    let (_temporary, data) = folder();
    let server = Server::dev(&data);
    assert_eq!(
        server.done(["cluster", "transfer-leader", "1", "1"]),
        "group 1 leader 1"
    );
    let groups = server.done(["cluster", "groups"]);
    let row: Vec<&str> = groups
        .lines()
        .nth(2)
        .expect("a home group")
        .split_whitespace()
        .collect();
    assert_eq!(row[..3], ["1", "1", "1"], "it is chosen");
    // There is no other, so it leads and votes on.
    assert_eq!(server.done(["cluster", "drain", "1"]), "drained 1");
    let nodes = server.done(["cluster", "nodes"]);
    assert!(nodes.contains("connected, drained  2"), "{nodes}");
    let mut command = server.command(["cluster", "drain", "1", "--undo", "--output", "json"]);
    assert_eq!(
        binary::run(&mut command, b"").text(),
        "{\"node\":\"1\",\"drained\":false}\n"
    );
}

#[test]
fn what_there_is_not_and_what_stands_in_the_way_is_named() {
    let (_temporary, data) = folder();
    let server = Server::dev(&data);
    for words in [
        ["cluster", "drain", "9"].as_slice(),
        &["cluster", "remove", "9", "--yes"],
        &["cluster", "transfer-leader", "9", "1"],
    ] {
        let ran = server.run(words);
        assert_eq!((ran.status, ran.text()), (5, ""), "{ran:?}");
        assert!(ran.stderr.contains(" 9 does not exist"), "{ran:?}");
    }
    let ran = server.run(["cluster", "transfer-leader", "1", "9"]);
    let refused = "refused: node 9 is not a voter of the group\n";
    assert_eq!((ran.status, ran.text(), ran.stderr.as_str()), (4, "", refused));
    let ran = server.run(["cluster", "remove", "1"]);
    assert_eq!(ran.status, 2, "{ran:?}");
    assert!(ran.stderr.contains("say --yes"), "{ran:?}");
    let ran = server.run(["cluster", "remove", "1", "--yes"]);
    let refused = "refused: node 1 is the last one of the cluster\n";
    assert_eq!((ran.status, ran.text(), ran.stderr.as_str()), (4, "", refused));
    let ran = server.run(["cluster", "remove", "1", "--yes", "--output", "json"]);
    assert_eq!(ran.status, 4, "{ran:?}");
    let object = r#"{"applied":false,"code":"condition_failed","refused":"node 1 is the last one of the cluster"}"#;
    assert_eq!(ran.text().trim_end(), object);
    assert_eq!(
        server.done(["cluster", "nodes"]).lines().count(),
        2,
        "it is still there"
    );
}

#[test]
fn a_cluster_that_is_not_there_is_asked_for_as_long_as_a_request_may_take() {
    let mut command = binary::command();
    command.args([
        "cluster",
        "nodes",
        "--timeout",
        "300ms",
        "--endpoints",
        &closed_address(),
    ]);
    let ran = binary::run(&mut command, b"");
    assert_eq!((ran.status, ran.text()), (3, ""), "{ran:?}");
    assert!(ran.stderr.starts_with("tenure: no endpoint can be reached"), "{ran:?}");
}
