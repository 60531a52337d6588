//! Metrics: counted here, and rendered in the Prometheus text format.
//!
//! The recorder belongs to the node and is not the process's, so that several nodes of one process (in tests and
//! in the simulator) do not count into each other.

use metrics::{Counter, Gauge, Level, Metadata, Recorder};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};

/// What a node counts.
#[derive(Clone)]
pub(crate) struct Metrics {
    handle: PrometheusHandle,
    pub(crate) requests: Counter,
    pub(crate) refusals: Counter,
    pub(crate) errors: Counter,
    pub(crate) keep_alives: Counter,
    pub(crate) connections: Gauge,
    pub(crate) in_flight: Gauge,
    pub(crate) watchers: Gauge,
    pub(crate) log_syncs: Gauge,
    pub(crate) log_bytes: Gauge,
    pub(crate) log_sync_max_us: Gauge,
    groups: std::sync::Arc<std::collections::BTreeMap<u32, GroupGauges>>,
}

/// What is shown of one group.
pub(crate) struct GroupGauges {
    pub(crate) applied_index: Gauge,
    pub(crate) revision: Gauge,
    pub(crate) cluster_time_seconds: Gauge,
    pub(crate) state_pending_bytes: Gauge,
}

impl Metrics {
    /// Metrics of a node with these groups.
    pub(crate) fn new(groups: impl Iterator<Item = u32>) -> Metrics {
        let recorder = PrometheusBuilder::new().build_recorder();
        let counter = |name: &'static str| register_counter(&recorder, name);
        let gauge = |name: &'static str| register_gauge(&recorder, name, None);
        let of_group = |group: u32| GroupGauges {
            applied_index: register_gauge(&recorder, "tenure_group_applied_index", Some(group)),
            revision: register_gauge(&recorder, "tenure_group_revision", Some(group)),
            cluster_time_seconds: register_gauge(&recorder, "tenure_group_cluster_time_seconds", Some(group)),
            state_pending_bytes: register_gauge(&recorder, "tenure_group_state_pending_bytes", Some(group)),
        };
        Metrics {
            handle: recorder.handle(),
            requests: counter("tenure_requests_total"),
            refusals: counter("tenure_refusals_total"),
            errors: counter("tenure_errors_total"),
            keep_alives: counter("tenure_keep_alives_total"),
            connections: gauge("tenure_connections"),
            in_flight: gauge("tenure_requests_in_flight"),
            watchers: gauge("tenure_watchers"),
            log_syncs: gauge("tenure_log_syncs"),
            log_bytes: gauge("tenure_log_bytes"),
            log_sync_max_us: gauge("tenure_log_sync_max_microseconds"),
            groups: std::sync::Arc::new(groups.map(|group| (group, of_group(group))).collect()),
        }
    }

    /// The gauges of one group.
    pub(crate) fn group(&self, group: u32) -> Option<&GroupGauges> {
        self.groups.get(&group)
    }

    /// Everything, as Prometheus reads it.
    pub(crate) fn render(&self) -> String {
        self.handle.render()
    }
}

const METADATA: Metadata<'static> = Metadata::new("tenure", Level::INFO, None);

fn register_counter(recorder: &impl Recorder, name: &'static str) -> Counter {
    recorder.register_counter(&metrics::Key::from_static_name(name), &METADATA)
}

fn register_gauge(recorder: &impl Recorder, name: &'static str, group: Option<u32>) -> Gauge {
    let labels = group.map(|group| metrics::Label::new("group", group.to_string()));
    let key = metrics::Key::from_parts(name, labels.into_iter().collect::<Vec<_>>());
    recorder.register_gauge(&key, &METADATA)
}
