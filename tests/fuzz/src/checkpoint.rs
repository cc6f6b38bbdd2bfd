//! Weight files: every reader gets every file.

use std::ops::Range;

use repartee_checkpoint::form::FileForm;
use repartee_checkpoint::gguf::Gguf;
use repartee_checkpoint::onnx::OnnxGraph;
use repartee_checkpoint::pickle::PickleValue;
use repartee_checkpoint::{FormatError, ctranslate2};
use repartee_engine::internals::safetensors_header;

/// Name of the file in errors.
const FILE: &str = "file";
/// Largest text of an error, in bytes: it is for a person.
const MAX_ERROR: usize = 4_000;

pub(crate) fn run(input: &[u8]) {
    FileForm::of(input);
    if let Some(gguf) = checked(Gguf::read(FILE, input)) {
        gguf.tensors().values().for_each(|tensor| is_inside(&tensor.bytes, input));
    }
    if let Some(value) = checked(PickleValue::read(FILE, input)) {
        for (_, tensor) in value.tensors() {
            if let Some(place) = tensor.place() {
                is_inside(&place, input);
                assert_eq!(place.len(), tensor.length());
            }
        }
    }
    if let Some(tensors) = checked(ctranslate2::read_whisper(FILE, input)) {
        tensors.values().for_each(|tensor| is_inside(&tensor.place, input));
    }
    if let Ok((start, header)) = safetensors_header(FILE, input) {
        for tensor in header.tensors().values() {
            is_inside(&(start + tensor.data_offsets.0..start + tensor.data_offsets.1), input);
        }
    }
    if let Some(graph) = OnnxGraph::read(input) {
        graph.initializers();
    }
}

/// Returns the result of a reader, or checks that its error is short.
fn checked<T>(read: Result<T, FormatError>) -> Option<T> {
    read.inspect_err(|error| {
        let text = error.to_string();
        assert!(text.len() < MAX_ERROR, "an error of {} bytes", text.len());
    })
    .ok()
}

fn is_inside(place: &Range<usize>, file: &[u8]) {
    assert!(place.start <= place.end && place.end <= file.len(), "{place:?} of {} bytes", file.len());
}
