//! Speakers of a checkpoint. They are published as spk_dict.pt, a Python pickle, which can run code, so it is never
//! read. `scripts/convert-speakers` writes the same numbers as spk_dict.safetensors.

use std::collections::BTreeSet;

use repartee_kernels::DType;
use repartee_kernels::random::normal;
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};

use crate::checkpoint::{Checkpoint, CheckpointError};
use crate::models::parts::flow_matching::config::DitConfig;
use crate::models::parts::flow_matching::voice::Voice;

/// Published file of the speakers.
const PUBLISHED: &str = "spk_dict.pt";
/// Converted file of the speakers, which is read.
const FILE: &str = "spk_dict.safetensors";
/// Mel frames of a drawn voice: two seconds.
const DRAWN_FRAMES: usize = 200;
/// Script that converts the published file.
const SCRIPT: &str = "scripts/convert-speakers";
/// The reference's default voice, listed first.
const DEFAULT: &str = "Chelsie";

/// Reads the speakers, the default one first. Each has the thinker token before its text (`bos_token`) and its voice.
/// `vocabulary` is the thinker's.
pub fn load_speakers(
    checkpoint: &Checkpoint,
    vocabulary: usize,
    config: &DitConfig,
) -> Result<Vec<(u32, Voice)>, CheckpointError> {
    if let Some(seed) = checkpoint.drawn()
        && !checkpoint.has_file(FILE)
    {
        return Ok(vec![drawn(seed, config)]);
    }
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
    let numbers = |name: String| Ok(DType::F32.widen(get(&name, Dtype::F32)?.data()));
    // A speaker's name may have dots.
    let names = tensors.names().into_iter().filter_map(|name| name.rsplit_once('.')).map(|(name, _)| name.to_owned());
    let names: BTreeSet<String> = names.collect();
    let mut speakers = Vec::with_capacity(names.len());
    for name in names {
        let bos = get(&format!("{name}.bos_token"), Dtype::I32)?;
        let bos = bos.data().as_chunks().0.first().map(|bytes| i32::from_le_bytes(*bytes));
        let known = bos.and_then(|id| u32::try_from(id).ok()).filter(|&id| (id as usize) < vocabulary);
        let bos_token = known.ok_or_else(|| corrupt(format!("{name}.bos_token is no id of the thinker: {bos:?}")))?;
        let conditioning = numbers(format!("{name}.cond"))?;
        let voice = Voice { conditioning, reference_mel: numbers(format!("{name}.ref_mel"))?, name };
        if !voice.fits(config) {
            let (own, mel) = (config.enc_emb_dim, config.mel_dim);
            let wanted = format!("{own} numbers of cond and enough frames of {mel} numbers of ref_mel, all finite");
            return Err(corrupt(format!("{} does not have {wanted}", voice.name)));
        }
        speakers.push((bos_token, voice));
    }
    if speakers.is_empty() {
        return Err(corrupt("it has no speaker".to_owned()));
    }
    speakers.sort_by_key(|(_, voice)| voice.name != DEFAULT);
    Ok(speakers)
}

/// Creates a random voice for drawn weights; its token is id 0.
fn drawn(seed: u64, config: &DitConfig) -> (u32, Voice) {
    let numbers = |part, count: usize| (0..count as u64).map(|at| normal(seed, part, at, 0)).collect();
    let conditioning = numbers(0, config.enc_emb_dim);
    (0, Voice { name: "drawn".to_owned(), conditioning, reference_mel: numbers(1, DRAWN_FRAMES * config.mel_dim) })
}
