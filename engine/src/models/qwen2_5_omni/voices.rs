//! The speakers of a checkpoint. They are published as spk_dict.pt, a Python pickle, which is a program: nothing here reads it.
//! `scripts/convert-speakers` writes the same numbers as spk_dict.safetensors.

use std::collections::BTreeSet;

use repartee_kernels::DType;
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};

use crate::checkpoint::{Checkpoint, CheckpointError};

/// The speakers as they are published.
const PUBLISHED: &str = "spk_dict.pt";
/// The speakers as they are read.
const FILE: &str = "spk_dict.safetensors";
/// What makes the one of the other.
const SCRIPT: &str = "scripts/convert-speakers";
/// The reference's default, which stands first.
const DEFAULT: &str = "Chelsie";

/// A speaker.
#[derive(Debug, Clone, PartialEq)]
pub struct Speaker {
    /// Its name.
    pub name: String,
    /// Thinker token whose embedding stands before what it says.
    pub bos_token: u32,
    /// `cond`: what token2wav is told of the voice.
    pub conditioning: Vec<f32>,
    /// `ref_mel`: the mel spectrogram of a recording, frame after frame.
    pub reference_mel: Vec<f32>,
}

/// Reads the speakers, the default one first. `vocabulary` is the thinker's, `conditioning` the numbers of `cond`, `bins` those of a frame.
pub fn load(
    checkpoint: &Checkpoint,
    vocabulary: usize,
    conditioning: usize,
    bins: usize,
) -> Result<Vec<Speaker>, CheckpointError> {
    if !checkpoint.has_file(FILE) && checkpoint.has_file(PUBLISHED) {
        let (file, from) = (checkpoint.label(FILE), PUBLISHED.to_owned());
        return Err(CheckpointError::NotConverted { file, from, script: SCRIPT.to_owned() });
    }
    let bytes = checkpoint.bytes(FILE)?;
    let corrupt = |message: String| CheckpointError::CorruptWeights { file: checkpoint.label(FILE), message };
    let tensors = SafeTensors::deserialize(&bytes).map_err(|error| corrupt(error.to_string()))?;
    let get = |name: &str, dtype: Dtype| -> Result<TensorView<'_>, CheckpointError> {
        let missing = || CheckpointError::MissingTensor { file: checkpoint.label(FILE), tensor: name.to_owned() };
        let tensor = tensors.tensor(name).map_err(|_| missing())?;
        if tensor.dtype() != dtype {
            return Err(corrupt(format!("{name} is {:?}, not {dtype:?}", tensor.dtype())));
        }
        Ok(tensor)
    };
    let shaped = |name: String, holds: &dyn Fn(&[usize]) -> bool, wanted: &[usize]| {
        let tensor = get(&name, Dtype::F32)?;
        if !holds(tensor.shape()) {
            return Err(CheckpointError::WrongShape {
                file: checkpoint.label(FILE),
                tensor: name,
                expected: wanted.to_vec(),
                found: tensor.shape().to_vec(),
            });
        }
        let numbers = DType::F32.widen(tensor.data());
        if numbers.iter().any(|number| !number.is_finite()) {
            return Err(corrupt(format!("{name} holds numbers that are NaN or infinite")));
        }
        Ok(numbers)
    };
    // A speaker's name may have dots.
    let names = tensors.names().into_iter().filter_map(|name| name.rsplit_once('.')).map(|(name, _)| name.to_owned());
    let names: BTreeSet<String> = names.collect();
    let mut speakers = Vec::with_capacity(names.len());
    for name in names {
        let bos = get(&format!("{name}.bos_token"), Dtype::I32)?;
        let bos = bos.data().as_chunks().0.first().map(|bytes| i32::from_le_bytes(*bytes));
        let known = bos.and_then(|id| u32::try_from(id).ok()).filter(|&id| (id as usize) < vocabulary);
        let bos_token = known.ok_or_else(|| corrupt(format!("{name}.bos_token is no id of the thinker: {bos:?}")))?;
        let own: &dyn Fn(&[usize]) -> bool = &|shape| shape == [1, conditioning];
        let mel: &dyn Fn(&[usize]) -> bool =
            &|shape| matches!(shape, [1, frames, width] if *frames > 0 && *width == bins);
        speakers.push(Speaker {
            conditioning: shaped(format!("{name}.cond"), own, &[1, conditioning])?,
            reference_mel: shaped(format!("{name}.ref_mel"), mel, &[1, 1, bins])?,
            bos_token,
            name,
        });
    }
    if speakers.is_empty() {
        return Err(corrupt("it has no speaker".to_owned()));
    }
    speakers.sort_by_key(|speaker| speaker.name != DEFAULT);
    Ok(speakers)
}
