//! Questions of one node to another, beside the requests of clients.

use std::net::IpAddr;
use std::sync::Arc;

use axum::body::to_bytes;
use axum::http::{Method, Request, StatusCode};
use bytes::Bytes;
use repartee_cluster::{Hop, TableInput, Target};
use thiserror::Error;

use super::super::app::AppState;
use super::forward::forward;
use crate::cluster::membership::Membership;

/// A node that does not answer a question.
#[derive(Debug, Error)]
#[error("the node does not answer")]
pub(super) struct NoAnswer;

/// Sends a request without a body to a node on behalf of a client; returns at most `most` bytes, or `None` if there is no such
/// thing.
pub(super) async fn ask(
    app: &Arc<AppState>,
    cluster: &Membership,
    target: &Target,
    (method, path, client): (Method, String, IpAddr),
    most: usize,
) -> Result<Option<Bytes>, NoAnswer> {
    let (parts, ()) = Request::builder().method(method).uri(path).body(()).map_err(|_| NoAnswer)?.into_parts();
    let from = cluster.directory.with(|table, _| table.own().tag);
    let response = match forward(app, cluster, target, Hop { from, client }, &parts, Bytes::new()).await {
        Ok(response) => response,
        Err(error) => {
            tracing::warn!(node = %target.tag, %error, path = parts.uri.path(), "a node does not answer");
            cluster.directory.input(TableInput::Failed(target.tag));
            return Err(NoAnswer);
        }
    };
    match response.status() {
        StatusCode::NOT_FOUND => Ok(None),
        StatusCode::OK | StatusCode::NO_CONTENT => {
            to_bytes(response.into_body(), most).await.map(Some).map_err(|_| NoAnswer)
        }
        _ => Err(NoAnswer),
    }
}
