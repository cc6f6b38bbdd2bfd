//! Recorded voices of all nodes: each node lists its own to the others, and enrols theirs.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use axum::extract::{Extension, Path, State};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use axum::{Json, Router};
use repartee_cluster::{Hop, NodeTag, VoiceSource};
use tokio::time::{MissedTickBehavior, interval};

use super::super::api_error::ApiError;
use super::super::app::AppState;
use super::super::voices::MAX_RECORDING;
use super::ask::{NoAnswer, ask};
use crate::cluster::membership::Membership;
use crate::voices::{Voice, VoiceError, VoiceListing};

/// Path of a node's list; a recording is below it, at the voice's id.
const VOICES: &str = "/v1/cluster/voices";
/// Interval of looks for nodes whose voices have changed.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Maximum size of a list, in bytes.
const MAX_LISTING: usize = 4 << 20;

/// Routes for other nodes, which sign their requests and send no key.
pub(in crate::server) fn routes() -> Router<Arc<AppState>> {
    Router::new().route(VOICES, get(list)).route(&format!("{VOICES}/{{id}}"), get(recording))
}

async fn list(State(app): State<Arc<AppState>>, hop: Option<Extension<Hop>>) -> Response {
    match hop {
        Some(_) => Json(app.voices.listing()).into_response(),
        None => ApiError::not_found("this list is for nodes").into_response(),
    }
}

async fn recording(State(app): State<Arc<AppState>>, hop: Option<Extension<Hop>>, Path(id): Path<String>) -> Response {
    let unknown = || ApiError::not_found("there is no such recording").into_response();
    if hop.is_none() {
        return unknown();
    }
    let read = tokio::task::spawn_blocking(move || app.voices.recording(&id)).await;
    read.ok().and_then(Result::ok).map_or_else(unknown, |bytes| bytes.into_response())
}

/// Keeps the copies of the other nodes' voices as their beats say, until the server ends.
pub(super) async fn keep_copies(app: Weak<AppState>) {
    let mut looks = interval(LOOK_EVERY);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // Run of each node, and the changes that its list had.
    let mut seen = HashMap::new();
    loop {
        looks.tick().await;
        let Some(app) = app.upgrade() else { return };
        let Some(cluster) = app.cluster.get() else { return };
        look(&app, cluster, &mut seen).await;
    }
}

/// Compares the voices of all nodes that are there with their beats.
async fn look(app: &Arc<AppState>, cluster: &Membership, seen: &mut HashMap<String, (NodeTag, u32)>) {
    let sources = cluster.directory.with(|table, now| table.voice_sources(now));
    if sources.is_empty() && seen.is_empty() {
        return;
    }
    seen.retain(|name, _| cluster.directory.with(|table, _| table.has_name(name)));
    let known: Vec<&String> = seen.keys().collect();
    app.voices.keep_nodes(|name| known.iter().any(|known| **known == name));
    for source in sources {
        let present = (source.target.tag, source.changes);
        let before = seen.get(&source.name);
        if before == Some(&present) || (before.is_none() && source.changes == 0) {
            continue;
        }
        // It is known from now on: what a part of its list adds has to go with it.
        seen.entry(source.name.clone()).or_insert((source.target.tag, 0));
        if fetch(app, cluster, &source).await.is_ok() {
            seen.insert(source.name, present);
        }
    }
}

/// Takes the list of a node, and the recordings of the voices that are new.
async fn fetch(app: &Arc<AppState>, cluster: &Membership, source: &VoiceSource) -> Result<(), NoAnswer> {
    let client = Ipv4Addr::LOCALHOST.into();
    let listing = if source.changes == 0 {
        VoiceListing::default()
    } else {
        let body = ask(app, cluster, &source.target, (VOICES.to_owned(), client), MAX_LISTING).await?;
        serde_json::from_slice(&body.unwrap_or_default()).map_err(|_| NoAnswer)?
    };
    let (store, node) = (app.clone(), source.name.clone());
    let missing = blocking(move || store.voices.set_listing(&node, listing)).await?;
    for voice in missing {
        let path = format!("{VOICES}/{}", voice.id);
        // It may have been deleted since the list was made.
        let Some(recording) = ask(app, cluster, &source.target, (path, client), MAX_RECORDING).await? else { continue };
        let (id, node) = (voice.id.clone(), source.name.clone());
        if let Err(error) = enrol(app, node, voice, recording).await? {
            tracing::warn!(voice = id, node = source.name, %error, "a voice of another node cannot be enrolled here");
        }
    }
    Ok(())
}

async fn enrol(
    app: &Arc<AppState>,
    node: String,
    voice: Voice,
    recording: bytes::Bytes,
) -> Result<Result<(), VoiceError>, NoAnswer> {
    let app = app.clone();
    // The model may take seconds.
    blocking(move || app.voices.add_copy(&node, voice, &recording)).await
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, NoAnswer> {
    tokio::task::spawn_blocking(work).await.map_err(|_| NoAnswer)
}
