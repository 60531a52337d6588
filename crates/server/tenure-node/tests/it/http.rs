//! Plain HTTP, health and reflection on the same address.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

use crate::support::TestNode;

#[expect(clippy::disallowed_methods, reason = "the test is the outside world")]
async fn connect(node: &TestNode) -> TcpStream {
    TcpStream::connect(node.node.address()).await.expect("the node listens")
}

async fn get(node: &TestNode, path: &str) -> String {
    let mut stream = connect(node).await;
    let request = format!("GET {path} HTTP/1.1\r\nhost: node\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("the request is sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("the answer is read");
    answer
}

#[tokio::test(flavor = "multi_thread")]
async fn health_readiness_and_metrics_are_on_the_one_address() {
    let node = TestNode::start().await;
    assert!(get(&node, "/healthz").await.starts_with("HTTP/1.1 200"));
    assert!(get(&node, "/readyz").await.ends_with("ready\n"));
    let metrics = get(&node, "/metrics").await;
    for name in [
        "tenure_requests_total",
        "tenure_log_syncs_total",
        "tenure_group_revision{group=\"1\"}",
    ] {
        assert!(metrics.contains(name), "{name} is missing in {metrics}");
    }
    assert!(get(&node, "/nothing").await.starts_with("HTTP/1.1 404"));
    node.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn health_and_reflection_answer_any_grpc_tool() {
    let node = TestNode::start().await;
    let mut health = HealthClient::new(node.channel().await);
    let status = health
        .check(HealthCheckRequest::default())
        .await
        .expect("health is answered")
        .into_inner();
    assert_eq!(
        status.status(),
        tonic_health::pb::health_check_response::ServingStatus::Serving
    );
    let mut reflection = ServerReflectionClient::new(node.channel().await);
    let list = MessageRequest::ListServices(String::new());
    let request = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(list),
    };
    let mut answers = reflection
        .server_reflection_info(tokio_stream::iter([request]))
        .await
        .expect("reflection is answered")
        .into_inner();
    let answer = answers.message().await.expect("no error").expect("an answer");
    let Some(MessageResponse::ListServicesResponse(services)) = answer.message_response else {
        panic!("no list")
    };
    let names: Vec<String> = services.service.into_iter().map(|service| service.name).collect();
    for name in [
        "tenure.v1.Keys",
        "tenure.v1.Mux",
        "tenure.v1.Sessions",
        "tenure.v1.Catalog",
        "tenure.v1.Cluster",
    ] {
        assert!(
            names.iter().any(|known| known == name),
            "{name} is missing in {names:?}"
        );
    }
    node.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_that_are_no_protocol_close_the_connection_and_the_node_goes_on() {
    let node = TestNode::start().await;
    for garbage in [
        &b"\x00\x01\x02\x03 nonsense"[..],
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
        b"GET",
    ] {
        let mut stream = connect(&node).await;
        stream.write_all(garbage).await.expect("the bytes are sent");
        stream.shutdown().await.expect("the end is sent");
        let mut answer = Vec::new();
        // Whatever is answered, the connection ends.
        let _ = stream.read_to_end(&mut answer).await;
    }
    assert!(get(&node, "/readyz").await.ends_with("ready\n"));
    node.node.stop().await;
}
