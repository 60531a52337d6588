//! Plain HTTP on the same address: whether the node lives, whether it serves, what it counts, and what became of a
//! session or a key lately.

mod debug;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use crate::observe::{GroupGauges, peers};
use crate::service::{Group, Service};

/// The routes.
pub(crate) fn routes(service: Service) -> Router {
    Router::new()
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .route("/debug/transitions", get(debug::transitions))
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

/// The node takes requests and every group answers; else every group that does not, a line each, and why. Behind it what
/// this node knows of the others, if there are any.
async fn readyz(State(service): State<Service>) -> (StatusCode, String) {
    if !service.is_serving() {
        let why = "the node does not take requests\n".to_owned();
        return (StatusCode::SERVICE_UNAVAILABLE, why);
    }
    let mut lines: Vec<String> = service
        .stopped_groups()
        .map(|(group, why)| format!("group {} has stopped: {why}\n", group.0))
        .collect();
    for group in service.groups() {
        let status = group.replica.status();
        match status.stopped {
            Some(why) => lines.push(format!("group {} has stopped: {why}\n", group.id.0)),
            None if status.leader.is_none() => lines.push(format!("group {} has no leader\n", group.id.0)),
            None => {}
        }
    }
    if lines.is_empty() {
        (StatusCode::OK, format!("ready\n{}", others(&service)))
    } else {
        lines.push(others(&service));
        (StatusCode::SERVICE_UNAVAILABLE, lines.concat())
    }
}

/// The other nodes and who leads which group, a line each; nothing where there is no other node.
fn others(service: &Service) -> String {
    let peers = peers::peers(service);
    if peers.is_empty() {
        return String::new();
    }
    let mut text = String::new();
    for (node, seen) in peers {
        let connected = if seen.connected { "connected" } else { "not connected" };
        let lag = seen.lag_entries;
        let line = format!(
            "node {} at {}: {connected}, {lag} entries behind\n",
            node.0, seen.address
        );
        text.push_str(&line);
    }
    for group in service.groups() {
        let leader = group.replica.status().leader;
        let leader = leader.map_or_else(|| "nobody".to_owned(), |leader| format!("node {}", leader.0));
        text.push_str(&format!("group {} is led by {leader}\n", group.id.0));
    }
    text
}

/// What the node counts, as Prometheus reads it.
async fn metrics(State(service): State<Service>) -> String {
    let metrics = service.metrics();
    let node = &metrics.node;
    let (admission, hub, connections, log) = (
        service.admission(),
        service.hub(),
        service.connections(),
        service.log().stats(),
    );
    node.connections_stalled.absolute(connections.stalled());
    node.streams.set(gauge(connections.streams() as u64));
    node.answer_bytes.set(gauge(connections.answer_bytes() as u64));
    node.in_flight.set(gauge(admission.in_flight() as u64));
    node.in_flight_bytes.set(gauge(admission.bytes_in_flight() as u64));
    node.watchers.set(gauge(hub.len() as u64));
    node.watcher_bytes.set(gauge(hub.bytes() as u64));
    node.watchers_cut_off.absolute(hub.cut_off());
    node.log_syncs.absolute(log.syncs);
    node.log_sync_seconds_max.set(seconds(log.sync_max_us));
    node.log_written_bytes.absolute(log.bytes);
    node.log_queue_bytes.set(gauge(log.queue_bytes as u64));
    node.log_tail_bytes.set(gauge(log.tail_bytes as u64));
    node.log_live_bytes.set(gauge(log.live_bytes));
    node.log_segments.set(gauge(log.segments as u64));
    node.disk_free_bytes.set(gauge(service.space().free()));
    node.log_lines_left_out.absolute(metrics.log_limit.left_out());
    for group in service.groups() {
        if let Some(gauges) = metrics.group(group.id.0) {
            look_at_group(group, gauges);
        }
    }
    let mut text = metrics.render() + &hub.observed().render();
    peers::render(&peers::peers(&service), &mut text);
    text
}

/// Sets what is shown of a group.
fn look_at_group(group: &Group, gauges: &GroupGauges) {
    let status = group.replica.status();
    gauges.applied_index.set(gauge(status.applied_index.unwrap_or(0)));
    gauges.revision.set(gauge(status.revision.0));
    gauges.cluster_time_seconds.set(gauge(status.time.0 / 1_000_000));
    gauges.lag_entries.set(gauge(status.lag_entries));
    gauges.waiting_requests.set(gauge(status.waiting as u64));
    gauges.waiting_bytes.set(gauge(status.waiting_bytes as u64));
    gauges.waiting_keep_alives.set(gauge(status.waiting_keep_alives as u64));
    gauges.entries_in_flight.set(gauge(status.in_flight as u64));
    gauges.entries.absolute(status.entries_proposed);
    gauges.leader.set(gauge(status.leader.map_or(0, |leader| leader.0)));
    gauges.leads.set(gauge(u64::from(status.leads)));
    gauges.snapshots_installed.absolute(status.snapshots_installed);
    gauges.snapshots_sent.absolute(status.snapshots_sent);
    gauges.state_pending_bytes.set(gauge(status.overlay_bytes as u64));
    let feed = group.state.feed().size();
    gauges.feed_bytes.set(gauge(feed.bytes));
    let age = feed.since.map_or(0, |since| (status.time - since).0);
    gauges.feed_age_seconds.set(seconds(age));
    let counts = group.replica.counts();
    gauges.sessions.set(gauge(counts.sessions as u64));
    gauges.keys_with_deadlines.set(gauge(counts.keys_with_deadlines as u64));
    gauges.remembered_results.set(gauge(counts.results as u64));
    gauges.remembered_one_shots.set(gauge(counts.one_shots as u64));
    gauges
        .remembered_one_shot_bytes
        .set(gauge(counts.one_shot_bytes as u64));
}

/// A number for a gauge, which may lose what is beyond 53 bits: metrics are for looking at.
#[expect(clippy::cast_precision_loss, reason = "metrics are for looking at")]
fn gauge(value: u64) -> f64 {
    value as f64
}

fn seconds(micros: u64) -> f64 {
    gauge(micros) / 1_000_000.0
}
