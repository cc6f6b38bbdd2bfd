//! Destinations: which node a request belongs to.

use axum::http::{Method, Uri};
use serde::Deserialize;

/// Node that a request belongs to.
#[derive(Debug, PartialEq)]
pub(super) enum Destination {
    /// This node.
    Own,
    /// A node with a free slot, for a call with this model.
    AnyNode(Option<String>),
    /// The node that owns this id.
    OwnerOf(String),
    /// A node that serves this model, for a question about it.
    NodeWith(String),
    /// The node that keeps the voice or the consent with this id.
    HomeOf(String),
    /// The node that keeps the consent in the form of a new voice.
    HomeOfConsent,
    /// This node, for a new consent.
    NewConsent,
}

/// Query parameters that name a model or a call.
#[derive(Debug, Default, Deserialize)]
struct RoutedQuery {
    call_id: Option<String>,
    model: Option<String>,
}

impl Destination {
    /// Destination of a request for `uri`, whose route has this name as its parameter.
    pub fn of(method: &Method, uri: &Uri, name: Option<String>) -> Self {
        let query = || axum::extract::Query::<RoutedQuery>::try_from_uri(uri).map(|query| query.0).unwrap_or_default();
        let path = uri.path();
        let Some(name) = name else {
            return match (method, path) {
                (&Method::POST, "/v1/realtime/calls") => Self::AnyNode(query().model),
                (&Method::GET, "/v1/realtime") => match query() {
                    RoutedQuery { call_id: Some(id), .. } => Self::OwnerOf(id),
                    RoutedQuery { model, .. } => Self::AnyNode(model),
                },
                (&Method::POST, "/v1/audio/voices") => Self::HomeOfConsent,
                (&Method::POST, "/v1/audio/voice_consents") => Self::NewConsent,
                _ => Self::Own,
            };
        };
        if path.starts_with("/v1/audio/voices/") || path.starts_with("/v1/audio/voice_consents/") {
            Self::HomeOf(name)
        } else if method == Method::GET && path.starts_with("/v1/models/") {
            Self::NodeWith(name)
        } else if method == Method::POST && path.starts_with("/v1/realtime/calls/") && path.ends_with("/hangup") {
            Self::OwnerOf(name)
        } else {
            Self::Own
        }
    }
}
