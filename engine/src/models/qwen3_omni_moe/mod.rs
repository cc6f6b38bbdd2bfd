//! Qwen3-Omni: audio tower, thinker, talker with code predictor, code2wav.
//!
//! The model files read like the reference, `transformers` 5.23 `models/qwen3_omni_moe`, and say where they follow which
//! class; [`stages`] runs them for many slots at once. Vision is not built: its weights are ignored.

pub mod audio_tower;
pub mod config;
mod encoder;
pub mod generation;
pub mod prompt;
mod raw_config;
pub mod stages;
pub mod talker;
pub mod thinker;
mod validate;

use std::sync::Arc;
use std::time::Duration;

use repartee_kernels::Ops;

use self::audio_tower::AudioTower;
use self::config::Config;
use self::encoder::AudioEncoder;
use self::generation::GenerationConfig;
use self::prompt::ChatTemplate;
use self::stages::{TalkerStage, ThinkerStage};
use self::talker::Talker;
use self::thinker::Thinker;
use super::parts::code2wav::Code2Wav;
use super::parts::code2wav_stage::Code2WavStage;
use super::parts::weights::Weights;
use super::{LoadError, slots};
use crate::audio::log_mel::{LogMel, LogMelConfig};
use crate::checkpoint::Checkpoint;
use crate::config::EngineConfig;
use crate::stage::{Codec, Model};
use crate::text::Tokenizer;

/// The stages, and whether each can decode with left context.
const STAGES: [(&str, bool); 3] = [("thinker", false), ("talker", false), ("code2wav", true)];

/// Samples a second of the family's codec; the reference hard-codes it where it writes files.
const SAMPLE_RATE: u32 = 24_000;

/// The models of this family, one field a part of the checkpoint.
pub struct Qwen3Omni<O: Ops> {
    /// config.json
    pub config: Config,
    /// `thinker.audio_tower`
    pub audio_tower: AudioTower<O>,
    /// `thinker`
    pub thinker: Thinker<O>,
    /// `talker`
    pub talker: Talker<O>,
    /// `code2wav`
    pub code2wav: Code2Wav<O>,
}

impl<O: Ops> Qwen3Omni<O> {
    /// Loads all parts.
    pub fn load(ops: &O, checkpoint: &Checkpoint) -> Result<Self, LoadError> {
        let config = Config::load(checkpoint)?;
        let weights = Weights::new(ops, checkpoint);
        let thinker = weights.at("thinker");
        Ok(Self {
            audio_tower: AudioTower::load(&thinker.at("audio_tower"), &config.thinker.audio)?,
            thinker: Thinker::load(&thinker, &config.thinker, config.talker.accept_hidden_layer)?,
            talker: Talker::load(&weights.at("talker"), &config.talker)?,
            code2wav: Code2Wav::load(&weights.at("code2wav"), &config.code2wav)?,
            config,
        })
    }
}

/// Loads a checkpoint of this family as stages.
pub fn load<O>(ops: O, checkpoint: &Checkpoint, settings: &EngineConfig) -> Result<Model<O::T>, LoadError>
where
    O: Ops + Clone + Send + 'static,
    O::T: Send + Sync,
    O::Weight: Send + Sync,
    O::State: Send,
{
    let Qwen3Omni { config, audio_tower, thinker, talker, code2wav } = Qwen3Omni::load(&ops, checkpoint)?;
    let generation = GenerationConfig::load(checkpoint, &config)?;
    let tokenizer = Tokenizer::load(checkpoint, config.thinker.text.vocab_size)?;
    let template = ChatTemplate::new(checkpoint, &config, &tokenizer)?;
    let bins = config.thinker.audio.num_mel_bins;
    let log_mel = LogMel::new(&LogMelConfig::load(checkpoint, bins)?, config.thinker.audio.n_window_infer)
        .map_err(|value| LoadError::Mel { file: checkpoint.label("preprocessor_config.json"), value })?;

    settings.check_stages(&STAGES)?;
    let context = config.thinker.text.max_position_embeddings.min(config.talker.text.max_position_embeddings);
    let slots = slots(settings, context, thinker.model.position_bytes() + talker.model.position_bytes())?;
    let thinker = Arc::new(thinker);
    let header = template.response_header();
    let codec = &config.code2wav;
    let samples_per_frame = codec.samples_per_frame();
    let left_context = settings.stage("code2wav").left_context;
    let sizes = (codec.num_quantizers, codec.codebook_size);
    let mut voices: Vec<String> = config.talker.speaker_id.keys().cloned().collect();
    voices.sort_by_key(|voice| config.talker.speaker_id[voice]);
    Ok(Model {
        stages: vec![
            Box::new(ThinkerStage::new(
                ops.clone(),
                Arc::clone(&thinker),
                slots,
                generation.eos_token_ids.clone(),
                generation.thinker,
                config.thinker.text.vocab_size,
            )),
            Box::new(TalkerStage::new(ops.clone(), thinker, talker, slots, header, (&config, &generation))),
            Box::new(Code2WavStage::new(ops.clone(), code2wav, slots.total(), sizes, samples_per_frame, left_context)),
        ],
        codec: Codec {
            sample_rate: SAMPLE_RATE,
            frame: Duration::from_secs(1) * samples_per_frame as u32 / SAMPLE_RATE,
        },
        encoder: Box::new(AudioEncoder::new(ops, audio_tower, bins)),
        prompt: Box::new(template),
        tokenizer,
        log_mel,
        voices,
        slots,
        max_tokens: generation.thinker_max_new_tokens,
    })
}
