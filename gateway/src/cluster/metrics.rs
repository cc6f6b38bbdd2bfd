//! Metrics of a cluster, registered once; the gauges are set at each scrape.

use prometheus::{Encoder as _, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry, TextEncoder};
use repartee_cluster::{Feed, TableCounts};

/// Metrics of a cluster as one node knows it.
#[derive(Debug)]
pub struct ClusterMetrics {
    registry: Registry,
    /// Requests to other nodes by `outcome`: `answered`, `full` or `failed`.
    pub forwards: IntCounterVec,
    nodes: IntGaugeVec,
    slots: IntGauge,
    free: IntGauge,
    live: IntGauge,
    messages: IntCounterVec,
}

/// State of the cluster at a scrape.
#[derive(Debug)]
pub struct ClusterState<'a> {
    /// Number of nodes by state; the same state may come several times.
    pub nodes: Vec<(&'static str, i64)>,
    /// Slots of the nodes that are there, and the free ones.
    pub slots: (i64, i64),
    /// State of the feed of messages.
    pub feed: Feed,
    /// Messages by what became of them.
    pub counts: &'a TableCounts,
}

impl ClusterMetrics {
    /// Registers the metrics. Fails only if two have one name.
    pub fn new() -> Result<Self, prometheus::Error> {
        let gauge = IntGauge::new;
        let counter = |name, help| IntCounterVec::new(Opts::new(name, help), &["outcome"]);
        let nodes = Opts::new("repartee_cluster_nodes", "Nodes by state, this one is `own`");
        let metrics = Self {
            registry: Registry::new(),
            forwards: counter("repartee_cluster_forwards_total", "Requests to other nodes by what became of them")?,
            nodes: IntGaugeVec::new(nodes, &["state"])?,
            slots: gauge("repartee_cluster_slots", "Sessions that the nodes can hold")?,
            free: gauge("repartee_cluster_free_slots", "Sessions that they can still take")?,
            live: gauge("repartee_cluster_feed_live", "1 while messages of nodes come, 0 while NATS is away")?,
            messages: counter("repartee_cluster_messages_total", "Messages of nodes by what became of them")?,
        };
        metrics.registry.register(Box::new(metrics.forwards.clone()))?;
        metrics.registry.register(Box::new(metrics.nodes.clone()))?;
        for gauge in [&metrics.slots, &metrics.free, &metrics.live] {
            metrics.registry.register(Box::new(gauge.clone()))?;
        }
        metrics.registry.register(Box::new(metrics.messages.clone()))?;
        Ok(metrics)
    }

    /// Sets the gauges and counters to the present state.
    pub fn set(&self, state: &ClusterState<'_>) {
        let ClusterState { nodes, slots, feed, counts } = state;
        self.nodes.reset();
        for (name, count) in nodes {
            self.nodes.with_label_values(&[name]).add(*count);
        }
        self.slots.set(slots.0);
        self.free.set(slots.1);
        self.live.set(i64::from(*feed == Feed::Live));
        let own = [("taken", counts.taken), ("echo", counts.echoes), ("late", counts.late), ("ended", counts.of_ended)];
        let rest =
            [("superseded", counts.superseded), ("no_capacity", counts.no_capacity), ("tag_taken", counts.tag_taken)];
        for (outcome, count) in own.into_iter().chain(rest).chain(counts.refused()) {
            // The table counts; a scrape that comes at the same time adds nothing twice.
            let counter = self.messages.with_label_values(&[outcome]);
            counter.inc_by(count.saturating_sub(counter.get()));
        }
    }

    /// Writes the metrics as Prometheus text.
    pub fn render(&self) -> Result<String, prometheus::Error> {
        let mut text = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut text)?;
        String::from_utf8(text).map_err(|error| prometheus::Error::Msg(error.to_string()))
    }
}
