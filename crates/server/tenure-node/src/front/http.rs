//! Plain HTTP on the same address: whether the node lives, whether it serves, and what it counts.

use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use crate::service::Service;

/// The routes.
pub(crate) fn routes(service: Service) -> Router {
    Router::new()
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .with_state(service)
}

/// What no route takes: a gRPC call of a method that is not here, or a path that is nothing.
pub(crate) async fn unknown(request: Request) -> Response {
    let content_type = request
        .headers()
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    if content_type.is_some_and(|value| value.starts_with("application/grpc")) {
        return tonic::Status::unimplemented("this node has no such method").into_http();
    }
    StatusCode::NOT_FOUND.into_response()
}

/// The process lives and answers.
async fn healthz() -> &'static str {
    "ok\n"
}

/// The node takes requests and every group answers.
async fn readyz(State(service): State<Service>) -> (StatusCode, String) {
    if !service.is_serving() {
        return (
            StatusCode::SERVICE_UNAVAILABLE,
            "the node does not take requests\n".to_owned(),
        );
    }
    for group in service.groups() {
        let status = group.replica.status();
        if let Some(why) = status.stopped {
            return (
                StatusCode::SERVICE_UNAVAILABLE,
                format!("group {} has stopped: {why}\n", group.id),
            );
        }
        if status.leader.is_none() {
            return (
                StatusCode::SERVICE_UNAVAILABLE,
                format!("group {} has no leader\n", group.id),
            );
        }
    }
    (StatusCode::OK, "ready\n".to_owned())
}

/// What the node counts, as Prometheus reads it.
async fn metrics(State(service): State<Service>) -> String {
    let metrics = service.metrics();
    metrics.in_flight.set(gauge(service.in_flight() as u64));
    metrics.watchers.set(gauge(service.hub().len() as u64));
    let log = service.log().stats();
    metrics.log_syncs.set(gauge(log.syncs));
    metrics.log_bytes.set(gauge(log.bytes));
    metrics.log_sync_max_us.set(gauge(log.sync_max_us));
    for group in service.groups() {
        let Some(gauges) = metrics.group(group.id.0) else {
            continue;
        };
        let status = group.replica.status();
        gauges.applied_index.set(gauge(status.applied_index.unwrap_or(0)));
        gauges.revision.set(gauge(status.revision.0));
        gauges.cluster_time_seconds.set(gauge(status.time.0 / 1_000_000));
        gauges
            .state_pending_bytes
            .set(gauge(group.state.pending().bytes as u64));
    }
    metrics.render()
}

/// A number for a gauge, which may lose what is beyond 53 bits: metrics are for looking at.
#[expect(clippy::cast_precision_loss, reason = "metrics are for looking at")]
fn gauge(value: u64) -> f64 {
    value as f64
}
