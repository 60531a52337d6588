//! `tenure recover` where there is nothing to recover; with more nodes it is proved in `tenure-testkit`.

use rustix::process::Signal;

use crate::binary::{self, Ran, Server, folder};

fn recover(data: &std::path::Path, more: &[&str]) -> Ran {
    let mut command = binary::command();
    command.arg("recover").arg("--data-dir").arg(data).args(more);
    binary::run(&mut command, b"")
}

#[test]
fn a_node_that_votes_alone_is_left_as_it_is() {
    let (_temporary, data) = folder();
    let server = Server::dev(&data);
    server.done(["cache", "create", "c"]);
    let version = server.done(["cache", "put", "c", "k", "v"]);
    let ran = recover(&data, &["--yes"]);
    assert_eq!((ran.status, ran.text()), (1, ""), "{ran:?}");
    server.stop(Signal::TERM);
    for more in [&[][..], &["--yes"], &["--group", "1"]] {
        let ran = recover(&data, more);
        assert_eq!((ran.status, ran.stderr.as_str()), (0, ""), "{ran:?}");
        assert!(ran.text().contains("votes alone: stays as it is"), "{ran:?}");
        assert!(
            ran.text()
                .ends_with("there is nothing to recover: the node votes alone\n"),
            "{ran:?}"
        );
    }
    let ran = recover(&data, &["--output", "json"]);
    let object: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!((&object["stage"], &object["node"]), (&"found".into(), &"1".into()));
    assert_eq!(object["groups"][1]["recover"], false);
    assert_eq!(object["may_be_lost"], serde_json::json!([]));
    let server = Server::dev(&data);
    assert_eq!(server.done(["cache", "get", "c", "k"]), "v");
    assert!(version.starts_with("version "), "{version}");
    assert!(
        server.done(["cache", "put", "c", "k", "w"]).len() < 20,
        "no revision was passed over"
    );
}
