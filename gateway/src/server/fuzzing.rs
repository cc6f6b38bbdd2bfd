//! Readers of requests, for the fuzz targets of this workspace. Nothing else may use them: they change at any time.
#![doc(hidden)]

use std::sync::LazyLock;

use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderValue};
use bytes::Bytes;
use repartee_engine_api::{Command, ModelInfo};
use repartee_protocol::{ErrorBody, ErrorKind};
use serde_json::Value;
use tokio::runtime::{Builder, Runtime};

use super::{chat, form, offer, speech, voices};
use crate::long_work::WorkPermit;

/// Runtime without a thread; `None` if the system has no room for one.
static RUNTIME: LazyLock<Option<Runtime>> = LazyLock::new(|| Builder::new_current_thread().build().ok());

/// Reads the body of a chat completion; returns the commands for the engine.
///
/// # Errors
/// The error of the response.
pub fn read_completion(body: &[u8], info: &ModelInfo) -> Result<Vec<Command>, ErrorBody> {
    // Long sound is decoded in pieces, and each one ends within a runtime.
    let _entered = RUNTIME.as_ref().map(Runtime::enter);
    chat::read_commands(body, info, &mut WorkPermit::alone())
}

/// Reads the JSON body of a speech request; returns the text.
///
/// # Errors
/// The error of the response.
pub fn read_speech(body: &[u8], info: &ModelInfo) -> Result<String, ErrorBody> {
    speech::read_text_of(body, info)
}

/// Reads the body of a call; returns the offer and the session's configuration.
///
/// # Errors
/// The error of the response; `None` for a content type that is no header's value.
pub fn read_offer(content_type: &[u8], body: Bytes) -> Result<(String, Option<Value>), Option<ErrorBody>> {
    let headers = headers(content_type).ok_or(None)?;
    offer::read_offer(&headers, body).map(|offer| (offer.sdp, offer.session)).map_err(|error| Some(error.into_error()))
}

/// Reads the form of a new voice; returns the bytes of its fields.
///
/// # Errors
/// As [`read_offer`].
pub fn read_voice(content_type: &[u8], body: Bytes) -> Result<usize, Option<ErrorBody>> {
    let headers = headers(content_type).ok_or(None)?;
    let read = form::read(&headers, body, &voices::VOICE, ErrorKind::InvalidValue);
    read.map(|fields| fields.values().map(Bytes::len).sum()).map_err(|error| Some(error.into_error()))
}

fn headers(content_type: &[u8]) -> Option<HeaderMap> {
    let value = HeaderValue::from_bytes(content_type).ok()?;
    Some(HeaderMap::from_iter([(CONTENT_TYPE, value)]))
}
