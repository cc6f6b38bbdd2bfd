//! Metrics of a cluster, as this node knows it.

use prometheus::{Encoder as _, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry, TextEncoder};
use repartee_cluster::{Feed, Liveness, NodeLoad, Table};

use super::super::app::AppState;
use super::nodes::state;

/// Writes the metrics as Prometheus text; none on a server without a cluster.
pub(in crate::server) fn render(app: &AppState) -> Result<String, prometheus::Error> {
    let Some(cluster) = app.cluster.get() else { return Ok(String::new()) };
    let registry = Registry::new();
    cluster.directory.with(|table, now| {
        let mut loads = vec![table.own().load];
        let nodes = gauges(&registry, "repartee_cluster_nodes", "Nodes by state, this one is `own`", "state")?;
        nodes.with_label_values(&["own"]).set(1);
        for (record, liveness) in table.nodes(now) {
            nodes.with_label_values(&[state(liveness)]).inc();
            if liveness == Liveness::Fresh {
                loads.push(record.load);
            }
        }
        let sum = |of: fn(&NodeLoad) -> u32| loads.iter().map(|load| i64::from(of(load))).sum();
        gauge(&registry, "repartee_cluster_slots", "Sessions that the nodes can hold", sum(|load| load.slots))?;
        gauge(&registry, "repartee_cluster_free_slots", "Sessions that they can still take", sum(|load| load.free))?;
        let live = i64::from(table.feed(now) == Feed::Live);
        gauge(&registry, "repartee_cluster_feed_live", "1 while messages of nodes come, 0 while NATS is away", live)?;
        messages(&registry, table)
    })?;
    registry.register(Box::new(cluster.forwards.clone()))?;
    let mut text = Vec::new();
    TextEncoder::new().encode(&registry.gather(), &mut text)?;
    String::from_utf8(text).map_err(|error| prometheus::Error::Msg(error.to_string()))
}

fn messages(registry: &Registry, table: &Table) -> Result<(), prometheus::Error> {
    let counts = table.counts();
    let help = Opts::new("repartee_cluster_messages_total", "Messages of nodes by what became of them");
    let messages = IntCounterVec::new(help, &["outcome"])?;
    let own = [("taken", counts.taken), ("echo", counts.echoes), ("late", counts.late), ("ended", counts.of_ended)];
    let rest =
        [("superseded", counts.superseded), ("no_capacity", counts.no_capacity), ("tag_taken", counts.tag_taken)];
    for (outcome, count) in own.into_iter().chain(rest).chain(counts.refused()) {
        messages.with_label_values(&[outcome]).inc_by(count);
    }
    registry.register(Box::new(messages))
}

fn gauge(registry: &Registry, name: &str, help: &str, value: i64) -> Result<(), prometheus::Error> {
    let gauge = IntGauge::new(name, help)?;
    gauge.set(value);
    registry.register(Box::new(gauge))
}

fn gauges(registry: &Registry, name: &str, help: &str, label: &str) -> Result<IntGaugeVec, prometheus::Error> {
    let gauges = IntGaugeVec::new(Opts::new(name, help), &[label])?;
    registry.register(Box::new(gauges.clone()))?;
    Ok(gauges)
}
