//! Voices of a folder, in `spk2info.pt`, as `add_zero_shot_spk` and `save_spkinfo` of the reference write it: for each name
//! a speaker's vector, and a recording as codes, mel frames and its transcript's ids. Older entries have a vector alone.

use repartee_checkpoint::pickle::PickleValue;

use super::config::Config;
use crate::checkpoint::{Checkpoint, CheckpointError};
use crate::models::parts::flow_matching::chunked::voice::FlowVoice;
use crate::models::parts::pickle_fields;
use crate::models::parts::speech_order::SpokenPrompt;

/// Published file of the voices.
const FILE: &str = "spk2info.pt";
/// Most codes of a recording: 30 s, as in the reference.
const MOST_CODES: usize = 30 * 25;
/// Most ids of a transcript.
const MOST_TEXT: usize = 4096;

/// Reads the voices in the order of their names.
/// `project` makes rows of the flow of speakers' vectors.
pub fn load(
    checkpoint: &Checkpoint,
    config: &Config,
    project: impl Fn(&[f32]) -> Vec<f32>,
) -> Result<Vec<(String, SpokenPrompt, FlowVoice)>, CheckpointError> {
    if let Some(seed) = checkpoint.drawn()
        && !checkpoint.has_file(FILE)
    {
        let voice = FlowVoice::drawn(seed, &config.sound.flow, project);
        return Ok(vec![("drawn".to_owned(), SpokenPrompt::default(), voice)]);
    }
    let (label, bytes) = (checkpoint.label(FILE), checkpoint.bytes(FILE)?);
    let wrong = |field: &str, message: &str| CheckpointError::WrongField {
        file: label.clone(),
        field: field.to_owned(),
        message: message.to_owned(),
    };
    let voice = |(name, parts): (String, PickleValue)| {
        let numbers = |part: &str| {
            let numbers = pickle_fields::numbers(&parts, part, &bytes);
            numbers.filter(|numbers| numbers.iter().all(|number| number.is_finite()))
        };
        let field = |part: &str| format!("{name}.{part}");
        let flow = &config.sound.flow;
        let vector = ["flow_embedding", "embedding"].into_iter().find_map(numbers);
        let vector = vector.filter(|vector| vector.len() == flow.spk_embed_dim).ok_or_else(|| {
            wrong(&field("flow_embedding"), &format!("must have {} finite numbers", flow.spk_embed_dim))
        })?;
        let ids = |part: &str, most: usize, below: usize| match pickle_fields::ids(&parts, part, &bytes, (most, below))
        {
            Some(ids) => Ok(ids),
            None => Err(wrong(&field(part), &format!("must have at most {most} ids, each below {below}"))),
        };
        let codes = ids("flow_prompt_speech_token", MOST_CODES, config.speech_token_size)?;
        let mel = numbers("prompt_speech_feat").unwrap_or_default();
        let wanted = codes.len() * flow.token_mel_ratio * flow.mel;
        if mel.len() < wanted {
            let message = format!("must have {} frames a code of {} finite numbers", flow.token_mel_ratio, flow.mel);
            return Err(wrong(&field("prompt_speech_feat"), &message));
        }
        let prompt = SpokenPrompt {
            text: ids("prompt_text", MOST_TEXT, config.text.vocab_size)?,
            codes: ids("llm_prompt_speech_token", MOST_CODES, config.speech_token_size)?,
        };
        let voice = FlowVoice { speaker: project(&vector), codes, mel: mel[..wanted].to_vec() };
        Ok((name.clone(), prompt, voice.in_chunks(flow, usize::MAX)))
    };
    pickle_fields::named_entries(&label, &bytes)?.into_iter().map(voice).collect()
}
