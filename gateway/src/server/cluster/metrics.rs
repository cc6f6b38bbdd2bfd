//! Metrics of a cluster, as this node knows it, at a scrape.

use repartee_cluster::{Liveness, NodeLoad};

use super::super::app::AppState;
use super::nodes::state;
use crate::cluster::metrics::ClusterState;

/// Writes the metrics as Prometheus text; none on a server without a cluster.
pub(in crate::server) fn render(app: &AppState) -> Result<String, prometheus::Error> {
    let Some(cluster) = app.cluster.get() else { return Ok(String::new()) };
    // One scrape at a time sets them: the table is locked.
    cluster.directory.with(|table, now| {
        let (mut loads, mut nodes) = (vec![table.own().load], vec![("own", 1)]);
        for (record, liveness) in table.nodes(now) {
            nodes.push((state(liveness), 1));
            if liveness == Liveness::Fresh {
                loads.push(record.load);
            }
        }
        let sum = |of: fn(&NodeLoad) -> u32| loads.iter().map(|load| i64::from(of(load))).sum();
        let slots = (sum(|load| load.slots), sum(|load| load.free));
        cluster.metrics.set(&ClusterState { nodes, slots, feed: table.feed(now), counts: table.counts() });
        cluster.metrics.render()
    })
}
