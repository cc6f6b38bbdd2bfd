//! State that all exchanges with a server share.

use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{
    ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue, PROXY_AUTHORIZATION, USER_AGENT,
};
use hyper::{Method, Request};

use crate::connection::Connector;
use crate::limits::{Limits, TimeLimits};
use crate::pool::ConnectionPool;
use crate::quote::Quoter;
use crate::request::{MaxTokensField, RequestError};
use crate::retry::RetryPolicy;

const PRODUCT: &str = concat!("repartee/", env!("CARGO_PKG_VERSION"));

/// State that all exchanges share.
pub(crate) struct ClientCore {
    pub connector: Connector,
    pub pool: ConnectionPool,
    /// Value of `Authorization`.
    pub authorization: Option<HeaderValue>,
    /// Model of requests that name none.
    pub model: Option<String>,
    /// The only model that the server listed.
    pub listed_model: Mutex<Option<String>>,
    pub max_tokens_field: MaxTokensField,
    pub times: TimeLimits,
    pub limits: Limits,
    pub retry: RetryPolicy,
    pub quoter: Quoter,
}

impl ClientCore {
    /// Creates a request to an endpoint: POST with a body, GET without.
    pub fn request(&self, endpoint: &str, body: Option<Bytes>) -> Result<Request<Full<Bytes>>, RequestError> {
        let url = &self.connector.url;
        let target = if self.connector.is_forwarded() { url.absolute_target(endpoint) } else { url.target(endpoint) };
        let mut request = Request::builder()
            .uri(target)
            .header(HOST, url.authority())
            .header(USER_AGENT, PRODUCT)
            .header(ACCEPT_ENCODING, "identity");
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        if let Some(proxy) = self.connector.proxy.as_ref().filter(|_| self.connector.is_forwarded()) {
            request = match proxy.authorization() {
                Some(authorization) => request.header(PROXY_AUTHORIZATION, authorization),
                None => request,
            };
        }
        let request = match body {
            Some(body) => request
                .method(Method::POST)
                .header(CONTENT_TYPE, "application/json")
                .header(ACCEPT, "text/event-stream, application/json")
                .body(Full::new(body)),
            None => request.header(ACCEPT, "application/json").body(Full::default()),
        };
        request.map_err(|error| RequestError::Unwritable(error.to_string()))
    }

    /// Returns the model that the server listed.
    pub fn listed_model(&self) -> Option<String> {
        self.listed_model.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Keeps the model that the server listed; `None` to ask again.
    pub fn set_listed_model(&self, model: Option<String>) {
        *self.listed_model.lock().unwrap_or_else(PoisonError::into_inner) = model;
    }
}
