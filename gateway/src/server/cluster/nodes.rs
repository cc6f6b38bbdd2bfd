//! `GET /v1/cluster/nodes`: the nodes as this one knows them, and its messages by what became of them.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use repartee_cluster::{Departure, Feed, Liveness, NodePhase, NodeRecord, TableCounts};
use serde_json::{Value, json};

use super::super::api_error::ApiError;
use super::super::app::AppState;

/// Lists the nodes, this one first; 404 on a server without a cluster.
pub(in crate::server) async fn list(State(app): State<Arc<AppState>>) -> Result<Json<Value>, ApiError> {
    let cluster = app.cluster.get().ok_or_else(|| ApiError::not_found("this server is no node of a cluster"))?;
    cluster.directory.measure();
    Ok(Json(cluster.directory.with(|table, now| {
        let own = node(table.own(), "own");
        let mut others: Vec<_> = table.nodes(now).collect();
        others.sort_by(|(one, _), (other, _)| one.name.cmp(&other.name));
        let others = others.into_iter().map(|(record, liveness)| node(record, state(liveness)));
        json!({
            "object": "list",
            "feed": match table.feed(now) {
                Feed::Live => "live",
                Feed::Stale => "stale",
            },
            "messages": messages(table.counts()),
            "data": std::iter::once(own).chain(others).collect::<Vec<_>>(),
        })
    })))
}

/// Name of a node's state in the list.
pub(super) fn state(liveness: Liveness) -> &'static str {
    match liveness {
        Liveness::Fresh => "fresh",
        Liveness::Silent => "silent",
        Liveness::Gone => "gone",
        Liveness::Ended(Departure::Bye) => "ended",
        Liveness::Ended(Departure::Restarted) => "restarted",
    }
}

/// Models that other nodes serve and this one does not, in order.
pub(in crate::server) fn other_models(app: &AppState) -> Vec<String> {
    let Some(cluster) = app.cluster.get() else { return Vec::new() };
    cluster.directory.with(|table, now| table.other_models(now).into_iter().map(str::to_owned).collect())
}

fn node(record: &NodeRecord, state: &str) -> Value {
    json!({
        "name": record.name,
        "tag": record.tag,
        "address": record.address,
        "zone": record.zone,
        "model": record.model,
        "version": record.version,
        "phase": match record.phase {
            NodePhase::Serving => "serving",
            NodePhase::Draining => "draining",
        },
        "slots": record.load.slots,
        "free": record.load.free,
        "state": state,
    })
}

/// Messages by what became of them.
fn messages(counts: &TableCounts) -> Value {
    let refused: serde_json::Map<String, Value> =
        counts.refused().map(|(label, count)| (label.to_owned(), count.into())).collect();
    json!({
        "taken": counts.taken,
        "echoes": counts.echoes,
        "late": counts.late,
        "of_ended": counts.of_ended,
        "superseded": counts.superseded,
        "no_capacity": counts.no_capacity,
        "tag_taken": counts.tag_taken,
        "refused": refused,
    })
}
