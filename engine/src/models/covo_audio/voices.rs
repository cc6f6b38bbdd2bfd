//! The voice of a folder: the recording that its speech continues, in files of NumPy.

use repartee_kernels::random::normal;

use super::config::SOUND;
use crate::checkpoint::{Checkpoint, CheckpointError};
use crate::models::parts::flow_matching::windowed::config::WindowDitConfig;
use crate::models::parts::flow_matching::windowed::stage::{LatentScale, RecordedVoice};
use crate::models::parts::npy::NpyArray;

/// Name of the voice, which the reference's prompt says.
pub const VOICE: &str = "default_female";
/// Codes of a drawn recording: three seconds.
const DRAWN_CODES: usize = 75;
/// Most codes of a recording: half a minute.
const MOST_CODES: usize = 750;

/// Reads an array of the folder of the sound; `at` is a folder in it, or the same if it has none.
fn array(checkpoint: &Checkpoint, at: &str, name: &str) -> Result<NpyArray, CheckpointError> {
    let inner = format!("{SOUND}/{at}/{name}");
    let file = if at.is_empty() || !checkpoint.has_file(&inner) { format!("{SOUND}/{name}") } else { inner };
    NpyArray::read(checkpoint.label(&file), &checkpoint.bytes(&file)?)
}

/// Reads `prompt_token.npy`, `prompt_latent.npy` and `speaker_embed.npy`. A recording whose latents and codes are not equally long
/// ends with the shorter.
pub fn load(checkpoint: &Checkpoint, config: &WindowDitConfig) -> Result<RecordedVoice, CheckpointError> {
    let width = config.ratio * config.latents;
    if let Some(seed) = checkpoint.drawn() {
        let numbers = |part, count: usize| (0..count as u64).map(|at| normal(seed, part, at, 0)).collect();
        let codes = (0..DRAWN_CODES).map(|at| (at * 7919 % config.codes.0) as u32).collect();
        return Ok(RecordedVoice {
            codes,
            latents: numbers(0, DRAWN_CODES * width),
            speaker: numbers(1, config.speaker),
        });
    }
    let [codes, latents, speaker] =
        ["prompt_token.npy", "prompt_latent.npy", "speaker_embed.npy"].map(|name| array(checkpoint, "prompt", name));
    let (codes, latents, speaker) = (codes?, latents?, speaker?);
    let ids = codes.integers(config.codes.0)?;
    let count = ids.len().min(latents.numbers.len() / width).min(MOST_CODES);
    let last = latents.shape.last().copied().unwrap_or_default();
    latents.check(last == config.latents, &format!("rows of {} numbers", config.latents))?;
    speaker.check(speaker.numbers.len() == config.speaker, &format!("{} numbers", config.speaker))?;
    Ok(RecordedVoice {
        codes: ids[..count].to_vec(),
        latents: latents.numbers[..count * width].to_vec(),
        speaker: speaker.numbers,
    })
}

/// Reads `global_mean_var.npy`: means of a latent's numbers, then their variances.
pub fn scale(checkpoint: &Checkpoint, config: &WindowDitConfig) -> Result<LatentScale, CheckpointError> {
    if checkpoint.drawn().is_some() {
        return Ok(LatentScale { factors: vec![1.0; config.latents], addends: vec![0.0; config.latents] });
    }
    let both = array(checkpoint, "", "global_mean_var.npy")?;
    let holds = both.numbers.len() == 2 * config.latents && both.numbers[config.latents..].iter().all(|it| *it >= 0.0);
    both.check(holds, &format!("{0} means and {0} variances, none below 0", config.latents))?;
    let (means, variances) = both.numbers.split_at(config.latents);
    Ok(LatentScale { factors: variances.iter().map(|it| it.sqrt()).collect(), addends: means.to_vec() })
}
