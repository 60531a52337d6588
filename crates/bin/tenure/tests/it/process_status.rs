//! `tenure cluster status` of a node that does not serve.

use std::net::TcpListener;
use std::thread;

use tenure_api::v1::cluster_server::{Cluster, ClusterServer};
use tenure_api::v1::{self, GroupInfo, StatusReply};
use tonic::{Request, Response, Status};

use crate::binary;

/// A node whose system group has no leader: it takes in nobody, and says of itself what it knows.
struct Leaderless;

#[tonic::async_trait]
impl Cluster for Leaderless {
    async fn hello(&self, _: Request<v1::HelloRequest>) -> Result<Response<v1::HelloReply>, Status> {
        Err(Status::unavailable("the system group has no leader"))
    }

    async fn status(&self, _: Request<v1::StatusRequest>) -> Result<Response<StatusReply>, Status> {
        Ok(Response::new(StatusReply {
            cluster_id: vec![0xab; 16].into(),
            node_id: 7,
            address: "127.0.0.1:1".to_owned(),
            version: "1.2.3".to_owned(),
            serving: false,
            not_serving_reason: "the system group has no leader".to_owned(),
            home_groups: 1,
            groups: vec![GroupInfo {
                last_index: 41,
                ..GroupInfo::default()
            }],
            ..StatusReply::default()
        }))
    }

    async fn list_namespaces(
        &self,
        _: Request<v1::ListNamespacesRequest>,
    ) -> Result<Response<v1::ListNamespacesReply>, Status> {
        Err(Status::unavailable("the system group has no leader"))
    }

    async fn list_tenants(&self, _: Request<v1::ListTenantsRequest>) -> Result<Response<v1::ListTenantsReply>, Status> {
        Err(Status::unavailable("the system group has no leader"))
    }
}

/// Serves it until the test process ends; returns where.
fn serve() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    // Between the two somebody else could take the port, which no test of this machine does.
    drop(listener);
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let server = tonic::transport::Server::builder().add_service(ClusterServer::new(Leaderless));
        runtime.block_on(server.serve(address)).unwrap();
    });
    address.to_string()
}

#[test]
fn a_node_that_does_not_serve_says_what_it_knows() {
    let endpoint = serve();
    let status = |more: &[&str]| {
        let mut command = binary::command();
        command.args(["cluster", "status", "--timeout", "10s", "--endpoints", &endpoint]);
        binary::run(command.args(more), b"")
    };
    binary::wait_until(|| std::net::TcpStream::connect(&endpoint).is_ok());
    let ran = status(&[]);
    assert_eq!(ran.status, 3, "{ran:?}");
    let text = ran.text();
    for part in [
        "7 at 127.0.0.1:1",
        "no: the system group has no leader",
        "abababab",
        " 41 ",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!(
        ran.stderr,
        "tenure: node 7 does not serve: the system group has no leader: wait, or look at its log\n"
    );
    let ran = status(&["--output", "json"]);
    assert_eq!(ran.status, 3, "{ran:?}");
    assert!(ran.text().contains(r#""serving":false"#), "{ran:?}");
}
