//! Bodies of HTTP requests: JSON, and forms.

use std::sync::LazyLock;

use bytes::Bytes;
use repartee::server::fuzzing;
use repartee_engine_api::{ModelInfo, SpeechEngine as _};
use repartee_protocol::ErrorBody;
use repartee_testkit::scripted::{Script, ScriptedEngine};

/// Largest text of an error, in bytes: it is for a person.
const MAX_ERROR: usize = 1_000;
/// Content type of an input without one.
const FORM: &[u8] = b"multipart/form-data; boundary=x";

static INFO: LazyLock<ModelInfo> = LazyLock::new(|| ScriptedEngine::new(Script::default()).info().clone());

fn is_short(error: &ErrorBody) {
    assert!(error.message.len() < MAX_ERROR, "an error of {} bytes", error.message.len());
}

pub(crate) fn run_chat(input: &[u8]) {
    match fuzzing::read_completion(input, &INFO) {
        Ok(commands) => assert!(!commands.is_empty(), "a completion is a response at least"),
        Err(error) => is_short(&error),
    }
    match fuzzing::read_speech(input, &INFO) {
        Ok(text) => assert!(text.len() <= input.len(), "a text longer than its request"),
        Err(error) => is_short(&error),
    }
}

pub(crate) fn run_multipart(input: &[u8]) {
    let end = input.iter().position(|byte| *byte == b'\n');
    let (content_type, body) = end.map_or((FORM, input), |end| (&input[..end], &input[end + 1..]));
    let body = Bytes::copy_from_slice(body);
    match fuzzing::read_offer(content_type, body.clone()) {
        Ok((offer, _)) => assert!(offer.len() <= body.len(), "an offer longer than its body"),
        Err(error) => error.iter().for_each(is_short),
    }
    match fuzzing::read_voice(content_type, body.clone()) {
        Ok(bytes) => assert!(bytes <= body.len(), "fields longer than their form"),
        Err(error) => error.iter().for_each(is_short),
    }
}
