//! Recorded voices of all nodes: each node lists its own to the others, and enrols theirs.

use std::net::Ipv4Addr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use axum::extract::{Extension, Path, Request, State};
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use bytes::Bytes;
use futures_util::future::join_all;
use repartee_cluster::{Hop, NodeHome, NodeTag, Owner, Target, VoiceSource};
use serde_json::Value;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::super::api_error::ApiError;
use super::super::app::AppState;
use super::super::caller::Caller;
use super::super::voices::MAX_RECORDING;
use super::ask::{NoAnswer, ask};
use crate::cluster::membership::Membership;
use crate::voices::{Voice, VoiceError, VoiceListing};

/// Path of a node's list; a recording is below it, at the voice's id.
const VOICES: &str = "/v1/cluster/voices";
/// Path at which a node is told that the sender's voices have changed.
const CHANGES: &str = "/v1/cluster/voice_changes";
/// Interval of looks for nodes whose voices have changed.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Longest wait of a request for voices to be enrolled on other nodes, or of another node here.
const ENROLLED_TIMEOUT: Duration = Duration::from_secs(8);
/// Maximum size of a list, in bytes.
const MAX_LISTING: usize = 4 << 20;
/// Maximum number of ids that are looked for in one request.
const MAX_NAMED: usize = 4;
/// Begins the id of a voice.
const PREFIX: &str = "voice_";
/// Length of the id of a voice with a home.
const ID: usize = PREFIX.len() + 8 + 1 + 32;

/// Routes for other nodes, which sign their requests and send no key.
pub(in crate::server) fn routes() -> Router<Arc<AppState>> {
    Router::new()
        .route(VOICES, get(list))
        .route(&format!("{VOICES}/{{id}}"), get(recording))
        .route(CHANGES, post(take_changes))
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

/// Takes the voices of the node that sends this; answers once they are enrolled here.
async fn take_changes(State(app): State<Arc<AppState>>, hop: Option<Extension<Hop>>) -> Response {
    let Some(Extension(Hop { from, .. })) = hop else {
        return ApiError::not_found("only nodes tell of changes").into_response();
    };
    catch_up(&app, from).await;
    StatusCode::NO_CONTENT.into_response()
}

/// Serves a request that may change the voices of this node. The nodes that hear this one have the change, or have failed to
/// take it in time, before the client has its answer.
pub(super) async fn serve_change(app: &Arc<AppState>, cluster: &Membership, request: Request, next: Next) -> Response {
    let before = app.voices.changes();
    let response = next.run(request).await;
    if app.voices.changes() != before {
        let nodes = cluster.directory.with(|table, now| table.hearing(now));
        let tell = |target: Target| async move {
            let question = (Method::POST, CHANGES.to_owned(), Ipv4Addr::LOCALHOST.into());
            // A node that does not answer hears of it by a beat.
            let _ = ask(app, cluster, &target, question, 0).await;
        };
        let _ = timeout(ENROLLED_TIMEOUT, join_all(nodes.into_iter().map(tell))).await;
    }
    response
}

/// Waits for the recorded voices of other nodes that a request names and this one has not enrolled yet.
pub(in crate::server) async fn find_named(app: &Arc<AppState>, caller: &Caller, request: &Bytes) {
    if app.cluster.get().is_none() {
        return;
    }
    let Ok(named) = app.parse_body(caller, request.clone(), |bytes| named_voices(&bytes)).await else { return };
    find(app, named).await;
}

/// Waits for the voices that a session names, as [`find_named`] does.
pub(in crate::server) async fn find_in_session(app: &Arc<AppState>, session: Option<&Value>) {
    if let Some(session) = session.filter(|_| app.cluster.get().is_some()) {
        let mut named = Vec::new();
        named_in(session, &mut named);
        find(app, named).await;
    }
}

async fn find(app: &Arc<AppState>, mut named: Vec<String>) {
    let Some(cluster) = app.cluster.get() else { return };
    let known = if named.is_empty() { Vec::new() } else { app.engine.voices() };
    named.retain(|id| !known.contains(id));
    for home in named.iter().filter_map(|id| NodeHome::of_id(id)) {
        if let Owner::Other(target, _) = cluster.directory.with(|table, now| table.home(home, now)) {
            let _ = timeout(ENROLLED_TIMEOUT, catch_up(app, target.tag)).await;
        }
    }
}

/// Ids of voices in a text of any form.
fn named_voices(text: &[u8]) -> Vec<String> {
    let Ok(text) = std::str::from_utf8(text) else { return Vec::new() };
    let id = |(at, _)| text.get(at..at + ID).filter(|id| NodeHome::of_id(id).is_some()).map(str::to_owned);
    text.match_indices(PREFIX).filter_map(id).take(MAX_NAMED).collect()
}

/// Adds the ids of voices in the texts of a value, which has a bounded nesting.
fn named_in(value: &Value, named: &mut Vec<String>) {
    let left = MAX_NAMED.saturating_sub(named.len());
    match value {
        Value::String(text) => named.extend(named_voices(text.as_bytes()).into_iter().take(left)),
        _ if left == 0 => {}
        Value::Array(values) => values.iter().for_each(|value| named_in(value, named)),
        Value::Object(fields) => fields.values().for_each(|value| named_in(value, named)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Takes the voices of a node as they are now, also if nobody waits for them any more. A node that does not answer is left to
/// [`keep_copies`].
async fn catch_up(app: &Arc<AppState>, node: NodeTag) {
    let app = app.clone();
    let task = tokio::spawn(async move {
        let cluster = app.cluster.get().ok_or(NoAnswer)?;
        let mut copied = cluster.copied.lock().await;
        let sources = cluster.directory.with(|table, now| table.voice_sources(now));
        let source = sources.into_iter().find(|source| source.target.tag == node).ok_or(NoAnswer)?;
        copied.entry(source.name.clone()).or_insert((node, 0));
        take(&app, cluster, &source).await
    });
    let _ = task.await;
}

/// Keeps the copies of the other nodes' voices as their beats say, until the server ends.
pub(super) async fn keep_copies(app: Weak<AppState>) {
    let mut looks = interval(LOOK_EVERY);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        looks.tick().await;
        let Some(app) = app.upgrade() else { return };
        let Some(cluster) = app.cluster.get() else { return };
        look(&app, cluster).await;
    }
}

/// Compares the voices of all nodes that are there with their beats.
async fn look(app: &Arc<AppState>, cluster: &Membership) {
    let mut copied = cluster.copied.lock().await;
    let sources = cluster.directory.with(|table, now| table.voice_sources(now));
    if sources.is_empty() && copied.is_empty() {
        return;
    }
    copied.retain(|name, _| cluster.directory.with(|table, _| table.has_name(name)));
    let known: Vec<&String> = copied.keys().collect();
    app.voices.keep_nodes(|name| known.iter().any(|known| **known == name));
    for source in sources {
        let present = (source.target.tag, source.changes);
        let before = copied.get(&source.name);
        if before == Some(&present) || (before.is_none() && source.changes == 0) {
            continue;
        }
        // It is known from now on: what a part of its list adds has to go with it.
        copied.entry(source.name.clone()).or_insert((source.target.tag, 0));
        let taken = match source.changes {
            0 => set_listing(app, &source, VoiceListing::default()).await.map(|_| ()),
            _ => take(app, cluster, &source).await,
        };
        if taken.is_ok() {
            copied.insert(source.name, present);
        }
    }
}

/// Takes the list of a node, and the recordings of the voices that are new.
async fn take(app: &Arc<AppState>, cluster: &Membership, source: &VoiceSource) -> Result<(), NoAnswer> {
    let client = Ipv4Addr::LOCALHOST.into();
    let body = ask(app, cluster, &source.target, (Method::GET, VOICES.to_owned(), client), MAX_LISTING).await?;
    let listing = serde_json::from_slice(&body.unwrap_or_default()).map_err(|_| NoAnswer)?;
    for voice in set_listing(app, source, listing).await? {
        let question = (Method::GET, format!("{VOICES}/{}", voice.id), client);
        // It may have been deleted since the list was made.
        let Some(recording) = ask(app, cluster, &source.target, question, MAX_RECORDING).await? else { continue };
        let (id, node) = (voice.id.clone(), source.name.clone());
        if let Err(error) = enrol(app, node, voice, recording).await? {
            tracing::warn!(voice = id, node = source.name, %error, "a voice of another node cannot be enrolled here");
        }
    }
    Ok(())
}

/// Stores the list of a node; returns the voices that are new.
async fn set_listing(app: &Arc<AppState>, source: &VoiceSource, listing: VoiceListing) -> Result<Vec<Voice>, NoAnswer> {
    let (app, node) = (app.clone(), source.name.clone());
    blocking(move || app.voices.set_listing(&node, listing)).await
}

async fn enrol(
    app: &Arc<AppState>,
    node: String,
    voice: Voice,
    recording: Bytes,
) -> Result<Result<(), VoiceError>, NoAnswer> {
    let app = app.clone();
    // The model may take seconds.
    blocking(move || app.voices.add_copy(&node, voice, &recording)).await
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, NoAnswer> {
    tokio::task::spawn_blocking(work).await.map_err(|_| NoAnswer)
}
