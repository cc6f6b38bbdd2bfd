//! Client of a request, as the auth middleware identifies it.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use serde_json::Value;

use super::api_error::ApiError;
use super::request_log::RequestId;
use crate::admission::ClientIdentity;
use crate::auth::KeyId;

/// Client of a request; an extractor for every route behind this middleware.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    /// Key and address for the limits.
    pub client: ClientIdentity,
    /// Identity of the ephemeral key; `None` for an API key or none.
    pub ephemeral: Option<KeyId>,
    /// Session configuration of the ephemeral key: a `session.update` patch.
    pub session: Option<Arc<Value>>,
    /// Id of the request, for the log.
    pub request_id: RequestId,
}

impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let missing = || ApiError::internal("a route without the auth middleware extracts the caller");
        parts.extensions.get::<Self>().cloned().ok_or_else(missing)
    }
}
