//! Summary of one file.

use std::path::Path;

use repartee_checkpoint::ctranslate2::read_whisper;
use repartee_checkpoint::form::FileForm;
use repartee_checkpoint::gguf::Gguf;
use repartee_checkpoint::onnx::OnnxGraph;
use repartee_checkpoint::pickle::PickleValue;
use repartee_checkpoint::{MappedFile, blocks};

use super::checkpoint_summary::{CheckpointSummary, totals};
use super::folder::described;
use crate::checkpoint::{Checkpoint, CheckpointError, Source, read_vocabulary, safetensors_header};
use crate::models::FAMILIES;
use crate::models::family::claimed;

/// Sizes of the layers in a GGUF file's metadata, behind the name of the architecture.
const SIZES: [(&str, &str); 5] = [
    ("block_count", "layers"),
    ("embedding_length", "width"),
    ("attention.head_count", "heads"),
    ("attention.head_count_kv", "heads of keys and values"),
    ("context_length", "context"),
];

/// Key of the template of conversations in a GGUF file.
const CHAT_TEMPLATE: &str = "tokenizer.chat_template";

pub(super) fn summarise(path: &Path) -> Result<CheckpointSummary, CheckpointError> {
    let file = path.display().to_string();
    let missing = || CheckpointError::FileMissing { file: file.clone() };
    let unknown = || CheckpointError::UnknownForm { file: file.clone() };
    let bytes = MappedFile::open(path)?.ok_or_else(missing)?;
    match FileForm::of(&bytes) {
        Some(FileForm::Gguf) => {
            let served = match Checkpoint::open(Source::Folder(path.to_owned())) {
                Ok(checkpoint) => claimed(FAMILIES, &checkpoint).map(|(family, _)| family.name.to_owned()),
                Err(error) => Err(error),
            };
            Ok(gguf(&Gguf::read(&file, &bytes)?, served.map_err(|error| error.to_string()))?)
        }
        Some(FileForm::Pickle) => {
            let value = PickleValue::read(&file, &bytes)?;
            let tensors = value.tensors();
            Ok(alone(
                "PyTorch",
                tensors.into_iter().map(|(_, tensor)| (format!("{:?}", tensor.dtype), tensor.length() as u64)),
            ))
        }
        Some(FileForm::Safetensors) => {
            let (_, metadata) = safetensors_header(&file, &bytes)?;
            let tensors = metadata
                .tensors()
                .into_values()
                .map(|info| (format!("{:?}", info.dtype), (info.data_offsets.1 - info.data_offsets.0) as u64));
            Ok(alone("safetensors", tensors))
        }
        Some(FileForm::Ctranslate2) => {
            let tensors = read_whisper(&file, &bytes)?.into_values();
            Ok(alone("CTranslate2", tensors.map(|tensor| (format!("{:?}", tensor.dtype), tensor.place.len() as u64))))
        }
        Some(FileForm::Onnx) => {
            let graph = OnnxGraph::read(&bytes).ok_or_else(unknown)?;
            let tensors = graph.initializers().into_iter().map(|one| (one.kind.to_owned(), one.bytes as u64));
            let turn_model = "an ONNX file is read as turn-detection model alone (turns.model), if it is smart-turn v3";
            Ok(CheckpointSummary { served: Err(turn_model.to_owned()), ..alone("ONNX", tensors) })
        }
        None => Err(unknown()),
    }
}

/// Summary of a file without a configuration.
fn alone(form: &str, tensors: impl Iterator<Item = (String, u64)>) -> CheckpointSummary {
    let tensors = totals(tensors);
    CheckpointSummary {
        form: form.to_owned(),
        architecture: None,
        stacks: Vec::new(),
        tokenizer: None,
        template: None,
        memory: tensors.iter().map(|total| total.bytes).sum(),
        tensors,
        served: Err("one file has no configuration: name the folder of its checkpoint".to_owned()),
    }
}

fn gguf(gguf: &Gguf, served: Result<String, String>) -> Result<CheckpointSummary, CheckpointError> {
    let architecture = gguf.architecture().unwrap_or_default().to_owned();
    let size = |key: &str| gguf.integer(&gguf.own_key(key));
    let vocabulary = read_vocabulary(gguf)?;
    let mut sizes: Vec<String> = SIZES.iter().filter_map(|(key, word)| Some(described(size(key)?, word))).collect();
    sizes.extend(vocabulary.as_ref().map(|vocabulary| described(vocabulary.tokens.len() as u64, "tokens")));
    let tensors = gguf.tensors().values();
    let memory = |shape: &[usize], kind, bytes: usize| match (shape, blocks::packed_length(kind, shape)) {
        // Matrices are repacked. A format without a packed form is dequantised.
        ([_, _], Some(packed)) => packed,
        _ if kind.block_size() == 1 => bytes as u64,
        _ => 4 * shape.iter().product::<usize>() as u64,
    };
    let form = format!(
        "GGUF, {}",
        gguf.text("general.license").map_or("no licence named".to_owned(), |name| format!("licence {name}"))
    );
    let name = gguf.text("general.name").map_or(String::new(), |name| format!(" ({name})"));
    let tokenizer = vocabulary.as_ref().map(|vocabulary| {
        let pre = vocabulary.pre.as_ref().map_or(String::new(), |pre| format!(", split as {pre}"));
        format!("{}{pre}, {} tokens, {} merges", vocabulary.model, vocabulary.tokens.len(), vocabulary.merges.len())
    });
    Ok(CheckpointSummary {
        form,
        stacks: if sizes.is_empty() { Vec::new() } else { vec![sizes.join(", ")] },
        memory: tensors.clone().map(|tensor| memory(&tensor.shape, tensor.kind, tensor.bytes.len())).sum(),
        tensors: totals(tensors.map(|tensor| (format!("{:?}", tensor.kind), tensor.bytes.len() as u64))),
        tokenizer,
        template: gguf.text(CHAT_TEMPLATE).map(|_| CHAT_TEMPLATE.to_owned()),
        served,
        architecture: Some(format!("{architecture}{name}")),
    })
}
