//! What a node tells of itself: metrics in the Prometheus text format, the last transitions, and warnings that do not
//! flood the log.
//!
//! The recorder belongs to the node and is not the process's, so that several nodes of one process (in tests and
//! in the simulator) do not count into each other.

pub(crate) mod histogram;
pub(crate) mod log_limit;
pub(crate) mod peers;
pub(crate) mod transitions;

use std::collections::BTreeMap;
use std::sync::Arc;

use metrics::{Counter, Gauge, Level, Metadata, Recorder};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use tenure_core::time::Span;
use tenure_replica::EntrySize;
use tenure_storage::log::SyncCost;

use self::histogram::Histogram;
use self::log_limit::LogLimit;
use self::transitions::Transitions;

const METADATA: Metadata<'static> = Metadata::new("tenure", Level::INFO, None);
/// Bounds of histograms of bytes that are written at once.
const BYTES_BOUNDS: &[u64] = &[256, 1_024, 4_096, 16_384, 65_536, 262_144, 1_048_576, 4_194_304];

/// What a node counts.
#[derive(Clone)]
pub(crate) struct Metrics {
    handle: PrometheusHandle,
    pub(crate) requests: Counter,
    pub(crate) refusals: Counter,
    pub(crate) errors: Counter,
    pub(crate) overloaded: Counter,
    pub(crate) keep_alives: Counter,
    pub(crate) connections: Gauge,
    pub(crate) connections_refused: Counter,
    pub(crate) node: Arc<NodeGauges>,
    pub(crate) log_limit: Arc<LogLimit>,
    groups: Arc<BTreeMap<u32, GroupGauges>>,
}

/// What is looked up when the metrics are read.
pub(crate) struct NodeGauges {
    pub(crate) connections_stalled: Counter,
    pub(crate) streams: Gauge,
    pub(crate) answer_bytes: Gauge,
    pub(crate) in_flight: Gauge,
    pub(crate) in_flight_bytes: Gauge,
    pub(crate) watchers: Gauge,
    pub(crate) watcher_bytes: Gauge,
    pub(crate) watchers_cut_off: Counter,
    pub(crate) log_syncs: Counter,
    pub(crate) log_sync_seconds_max: Gauge,
    pub(crate) log_written_bytes: Counter,
    pub(crate) log_queue_bytes: Gauge,
    pub(crate) log_tail_bytes: Gauge,
    pub(crate) log_live_bytes: Gauge,
    pub(crate) log_segments: Gauge,
    pub(crate) disk_free_bytes: Gauge,
    pub(crate) log_lines_left_out: Counter,
}

/// What is shown of one group.
pub(crate) struct GroupGauges {
    pub(crate) applied_index: Gauge,
    pub(crate) revision: Gauge,
    pub(crate) cluster_time_seconds: Gauge,
    pub(crate) lag_entries: Gauge,
    pub(crate) waiting_requests: Gauge,
    pub(crate) waiting_bytes: Gauge,
    pub(crate) waiting_keep_alives: Gauge,
    pub(crate) entries_in_flight: Gauge,
    pub(crate) entries: Counter,
    pub(crate) leader: Gauge,
    pub(crate) leads: Gauge,
    pub(crate) snapshots_installed: Counter,
    pub(crate) snapshots_sent: Counter,
    pub(crate) state_pending_bytes: Gauge,
    pub(crate) feed_bytes: Gauge,
    pub(crate) feed_age_seconds: Gauge,
    pub(crate) sessions: Gauge,
    pub(crate) keys_with_deadlines: Gauge,
    pub(crate) remembered_results: Gauge,
    pub(crate) remembered_one_shots: Gauge,
    pub(crate) remembered_one_shot_bytes: Gauge,
}

impl Metrics {
    /// Metrics of a node with these groups.
    pub(crate) fn new(groups: impl Iterator<Item = u32>) -> Metrics {
        let recorder = PrometheusBuilder::new().build_recorder();
        let counter = |name: &'static str| register_counter(&recorder, name, None);
        let gauge = |name: &'static str| register_gauge(&recorder, name, None);
        Metrics {
            handle: recorder.handle(),
            requests: counter("tenure_requests_total"),
            refusals: counter("tenure_refusals_total"),
            errors: counter("tenure_errors_total"),
            overloaded: counter("tenure_overloaded_total"),
            keep_alives: counter("tenure_keep_alives_total"),
            connections: gauge("tenure_connections"),
            connections_refused: counter("tenure_connections_refused_total"),
            node: Arc::new(NodeGauges::new(&recorder)),
            log_limit: Arc::default(),
            groups: Arc::new(
                groups
                    .map(|group| (group, GroupGauges::new(&recorder, group)))
                    .collect(),
            ),
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

impl NodeGauges {
    fn new(recorder: &impl Recorder) -> NodeGauges {
        let counter = |name: &'static str| register_counter(recorder, name, None);
        let gauge = |name: &'static str| register_gauge(recorder, name, None);
        NodeGauges {
            connections_stalled: counter("tenure_connections_stalled_total"),
            streams: gauge("tenure_streams"),
            answer_bytes: gauge("tenure_answer_bytes"),
            in_flight: gauge("tenure_requests_in_flight"),
            in_flight_bytes: gauge("tenure_request_bytes_in_flight"),
            watchers: gauge("tenure_watchers"),
            watcher_bytes: gauge("tenure_watcher_bytes"),
            watchers_cut_off: counter("tenure_watchers_cut_off_total"),
            log_syncs: counter("tenure_log_syncs_total"),
            log_sync_seconds_max: gauge("tenure_log_sync_seconds_max"),
            log_written_bytes: counter("tenure_log_written_bytes_total"),
            log_queue_bytes: gauge("tenure_log_queue_bytes"),
            log_tail_bytes: gauge("tenure_log_tail_bytes"),
            log_live_bytes: gauge("tenure_log_live_bytes"),
            log_segments: gauge("tenure_log_segments"),
            disk_free_bytes: gauge("tenure_disk_free_bytes"),
            log_lines_left_out: counter("tenure_warnings_left_out_total"),
        }
    }
}

impl GroupGauges {
    fn new(recorder: &impl Recorder, group: u32) -> GroupGauges {
        let gauge = |name: &'static str| register_gauge(recorder, name, Some(group));
        GroupGauges {
            applied_index: gauge("tenure_group_applied_index"),
            revision: gauge("tenure_group_revision"),
            cluster_time_seconds: gauge("tenure_group_cluster_time_seconds"),
            lag_entries: gauge("tenure_group_lag_entries"),
            waiting_requests: gauge("tenure_group_waiting_requests"),
            waiting_bytes: gauge("tenure_group_waiting_bytes"),
            waiting_keep_alives: gauge("tenure_group_waiting_keep_alives"),
            entries_in_flight: gauge("tenure_group_entries_in_flight"),
            entries: register_counter(recorder, "tenure_group_entries_total", Some(group)),
            leader: gauge("tenure_group_leader"),
            leads: gauge("tenure_group_leads"),
            snapshots_installed: register_counter(recorder, "tenure_group_snapshots_installed_total", Some(group)),
            snapshots_sent: register_counter(recorder, "tenure_group_snapshots_sent_total", Some(group)),
            state_pending_bytes: gauge("tenure_group_state_pending_bytes"),
            feed_bytes: gauge("tenure_group_feed_bytes"),
            feed_age_seconds: gauge("tenure_group_feed_age_seconds"),
            sessions: gauge("tenure_group_sessions"),
            keys_with_deadlines: gauge("tenure_group_keys_with_deadlines"),
            remembered_results: gauge("tenure_group_remembered_results"),
            remembered_one_shots: gauge("tenure_group_remembered_one_shots"),
            remembered_one_shot_bytes: gauge("tenure_group_remembered_one_shot_bytes"),
        }
    }
}

/// What is noted where it happens, on the thread of the apply, of the log or of a request. A histogram takes two additions.
/// The transitions of all groups are behind one lock, which is held while those of an entry are put in, and while somebody
/// who asks for those of a session or a key looks through what is kept. Nothing here grows without a bound.
#[derive(Debug)]
pub(crate) struct Observed {
    pub(crate) transitions: Transitions,
    end_lateness: Histogram,
    renewal_margin: Histogram,
    entry_requests: Histogram,
    entry_keep_alives: Histogram,
    entry_bytes: Histogram,
    log_sync: Histogram,
    log_batch_bytes: Histogram,
}

impl Default for Observed {
    fn default() -> Observed {
        Observed {
            transitions: Transitions::default(),
            end_lateness: Histogram::new(
                "tenure_end_lateness_seconds",
                &[
                    1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 500_000, 1_000_000, 10_000_000,
                ],
                1_000_000,
            ),
            renewal_margin: Histogram::new(
                "tenure_renewal_margin_ratio",
                &[0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100],
                100,
            ),
            entry_requests: Histogram::new(
                "tenure_entry_requests",
                &[0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1_024],
                1,
            ),
            entry_keep_alives: Histogram::new("tenure_entry_keep_alives", &[0, 1, 4, 16, 64, 256, 1_024, 16_384], 1),
            entry_bytes: Histogram::new("tenure_entry_bytes", BYTES_BOUNDS, 1),
            log_sync: Histogram::new(
                "tenure_log_sync_seconds",
                &[
                    50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 500_000, 2_000_000,
                ],
                1_000_000,
            ),
            log_batch_bytes: Histogram::new("tenure_log_batch_bytes", BYTES_BOUNDS, 1),
        }
    }
}

impl Observed {
    /// Notes an entry that was proposed here.
    pub(crate) fn note_entry(&self, size: EntrySize) {
        self.entry_requests.note(size.requests as u64);
        self.entry_keep_alives.note(size.keep_alives as u64);
        self.entry_bytes.note(size.bytes as u64);
    }

    /// Notes a sync of the log.
    pub(crate) fn note_sync(&self, cost: SyncCost) {
        self.log_sync
            .note(u64::try_from(cost.took.as_micros()).unwrap_or(u64::MAX));
        self.log_batch_bytes.note(cost.bytes as u64);
    }

    /// Notes how late the first end of an entry was.
    pub(crate) fn note_end(&self, late: Span) {
        self.end_lateness.note(late.0);
    }

    /// Notes how much of its TTL a session had left when it was renewed, in hundredths.
    pub(crate) fn note_renewal(&self, margin_percent: u64) {
        self.renewal_margin.note(margin_percent);
    }

    /// The histograms, as Prometheus reads them.
    pub(crate) fn render(&self) -> String {
        let mut text = String::new();
        for histogram in [
            &self.end_lateness,
            &self.renewal_margin,
            &self.entry_requests,
            &self.entry_keep_alives,
            &self.entry_bytes,
            &self.log_sync,
            &self.log_batch_bytes,
        ] {
            histogram.render(&mut text);
        }
        text
    }
}

fn register_counter(recorder: &impl Recorder, name: &'static str, group: Option<u32>) -> Counter {
    recorder.register_counter(&key(name, group), &METADATA)
}

fn register_gauge(recorder: &impl Recorder, name: &'static str, group: Option<u32>) -> Gauge {
    recorder.register_gauge(&key(name, group), &METADATA)
}

fn key(name: &'static str, group: Option<u32>) -> metrics::Key {
    let labels = group.map(|group| metrics::Label::new("group", group.to_string()));
    metrics::Key::from_parts(name, labels.into_iter().collect::<Vec<_>>())
}
