//! Speakers of a checkpoint, in the published spk_dict.pt.

use std::collections::BTreeMap;

use repartee_checkpoint::pickle::PickleValue;
use repartee_kernels::random::normal;

use crate::checkpoint::{Checkpoint, CheckpointError};
use crate::models::parts::flow_matching::config::DitConfig;
use crate::models::parts::flow_matching::voice::Voice;
use crate::models::parts::pickle_fields;

/// Published file of the speakers: a dictionary of dictionaries by name.
const FILE: &str = "spk_dict.pt";
/// Mel frames of a drawn voice: two seconds.
const DRAWN_FRAMES: usize = 200;
/// The reference's default voice, listed first.
const DEFAULT: &str = "Chelsie";

/// Reads the speakers, the default one first. Each has the thinker token before its text (`bos_token`) and its voice
/// (`cond`, `ref_mel`). `vocabulary` is the thinker's.
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
    let file = checkpoint.bytes(FILE)?;
    let wrong = |field: &str, message: String| CheckpointError::WrongField {
        file: checkpoint.label(FILE),
        field: field.to_owned(),
        message,
    };
    let PickleValue::Dict(entries) = PickleValue::read(&checkpoint.label(FILE), &file)? else {
        return Err(wrong("top level", "it is no dictionary of speakers".to_owned()));
    };
    // A dictionary has no order; errors name the first speaker at fault.
    let named = entries.into_iter().filter_map(|(name, parts)| match name {
        PickleValue::Text(name) => Some((name, parts)),
        _ => None,
    });
    let entries: BTreeMap<String, PickleValue> = named.collect();
    let mut speakers = Vec::with_capacity(entries.len());
    for (name, parts) in entries {
        let bos = match parts.get("bos_token") {
            Some(PickleValue::Integer(id)) => u32::try_from(*id).ok().filter(|&id| (id as usize) < vocabulary),
            _ => None,
        };
        let bos_token =
            bos.ok_or_else(|| wrong(&format!("{name}.bos_token"), "it is no id of the thinker".to_owned()))?;
        let numbers = |part: &str| pickle_fields::numbers(&parts, part, &file);
        let missing =
            |part: &str| wrong(&format!("{name}.{part}"), "it is no tensor of floating-point numbers".to_owned());
        let conditioning = numbers("cond").ok_or_else(|| missing("cond"))?;
        let reference_mel = numbers("ref_mel").ok_or_else(|| missing("ref_mel"))?;
        let voice = Voice { conditioning, reference_mel, name };
        if !voice.fits(config) {
            let (own, mel) = (config.enc_emb_dim, config.mel_dim);
            let wanted = format!("{own} numbers of cond and enough frames of {mel} numbers of ref_mel, all finite");
            return Err(wrong(&voice.name, format!("it does not have {wanted}")));
        }
        speakers.push((bos_token, voice));
    }
    if speakers.is_empty() {
        return Err(wrong("top level", "it has no speaker".to_owned()));
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
