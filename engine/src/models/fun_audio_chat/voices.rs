//! Voices of a folder: speakers' vectors in `new_spk2info.pt`, the reference's file.

use super::config::SOUND;
use crate::checkpoint::{Checkpoint, CheckpointError};
use crate::models::parts::flow_matching::chunked::config::ChunkDitConfig;
use crate::models::parts::flow_matching::chunked::voice::FlowVoice;
use crate::models::parts::pickle_fields;

/// Published file, in the folder of the model or in that of its sound.
const FILE: &str = "new_spk2info.pt";

/// Reads the voices in the order of their names. `project` makes rows of the flow of speakers' vectors. Recordings are not
/// read: the reference speaks without.
pub fn load(
    checkpoint: &Checkpoint,
    config: &ChunkDitConfig,
    project: impl Fn(&[f32]) -> Vec<f32>,
) -> Result<Vec<(String, FlowVoice)>, CheckpointError> {
    let inner = format!("{SOUND}/{FILE}");
    let file = if checkpoint.has_file(&inner) { &inner } else { FILE };
    if let Some(seed) = checkpoint.drawn()
        && !checkpoint.has_file(file)
    {
        return Ok(vec![("drawn".to_owned(), FlowVoice::drawn(seed, config, project))]);
    }
    let (label, bytes) = (checkpoint.label(file), checkpoint.bytes(file)?);
    let voice = |(name, parts)| {
        let vector = pickle_fields::numbers(&parts, "embedding", &bytes).unwrap_or_default();
        if vector.len() == config.spk_embed_dim && vector.iter().all(|number| number.is_finite()) {
            return Ok((name, FlowVoice { speaker: project(&vector), ..FlowVoice::default() }));
        }
        let message = format!("must have {} finite numbers", config.spk_embed_dim);
        Err(CheckpointError::WrongField { file: label.clone(), field: format!("{name}.embedding"), message })
    };
    pickle_fields::named_entries(&label, &bytes)?.into_iter().map(voice).collect()
}
