//! MiMo-Audio: a language model whose positions are text or a patch of four codec frames. A patch encoder reads a patch, a
//! small decoder draws its codes with delays, and the tokenizer's decoder makes samples of them, in windows.
//!
//! The model files follow the reference, XiaomiMiMo's MiMo-Audio, and name its classes. The folder is the published one, with
//! the repository of the tokenizer of sound in its subfolder `MiMo-Audio-Tokenizer`.

pub mod config;
pub mod script;
pub mod template;

use std::sync::Arc;

use repartee_kernels::cpu::Cpu;
use repartee_kernels::{Ops, WeightLayout};

use self::config::{ARCHITECTURES, Config, GenerationConfig, TOKENIZER, TokenizerConfig};
use self::script::most_patches;
use self::template::Template;
use super::family::{Family, FamilyVariant, claims_named};
use super::load_error::LoadError;
use super::parts::code_encoder::CodeEncoder;
use super::parts::decoder::{Decoder, FeedForward};
use super::parts::depth::model::{DepthCodebook, DepthModel, HiddenInput};
use super::parts::interleaved::InterleavedPart;
use super::parts::language_model::{LanguageModel, LanguageModelShape};
use super::parts::patch_encoder::PatchEncoder;
use super::parts::patch_hearing::PatchHearing;
use super::parts::pipeline::{Assembly, ModelFrame, Pipeline};
use super::parts::vocoder::window_codec::WindowCodec;
use super::parts::vocoder::window_codec::config::WindowSizes;
use super::parts::vocoder::window_codec::stage::WindowCodecPart;
use super::parts::weights::Weights;
use crate::audio::log_mel::LogMel;
use crate::checkpoint::{Checkpoint, CheckpointError};
use crate::config::EngineConfig;
use crate::device::Device;
use crate::model::{AudioFrontEnd, Codec};
use crate::text::Tokenizer;
use crate::weight_policy::WeightPolicy;

/// Most text tokens of a response whose request has no limit.
const MAX_TOKENS: u32 = 1024;
/// Windows of the codec: the reference's contexts. New codes are those of five patches, which the model says in turn.
const WINDOWS: WindowSizes = WindowSizes { left: 250, right: 40, new: 20 };

/// Models of this family, one field for each part of the checkpoints.
pub struct MiMoAudio<O: Ops> {
    /// Configuration from config.json.
    pub config: Config,
    /// Configuration of the tokenizer.
    pub tokenizer: TokenizerConfig,
    /// Weights of `model` and `lm_head`.
    pub text: LanguageModel<O>,
    /// Weights of `speech_embeddings`, `input_local_transformer` and `speech_group_downcast`.
    pub patch: Arc<PatchEncoder<O>>,
    /// Weights of `local_transformer`, its heads and `hidden_states_downcast`.
    pub depth: DepthModel<O>,
    /// Weights of the tokenizer's `encoder`.
    pub encoder: CodeEncoder<O>,
    /// Weights of the tokenizer's `decoder`.
    pub codec: WindowCodec<O>,
}

impl<O: Ops> MiMoAudio<O> {
    /// Loads all parts, with matrices in the formats of `policy`.
    pub fn load(ops: &O, checkpoint: &Checkpoint, policy: WeightPolicy) -> Result<Self, LoadError> {
        let config = Config::load(checkpoint)?;
        let folder = checkpoint.part(TOKENIZER)?;
        let tokenizer = TokenizerConfig::load(&folder, &config.codebooks)?;
        let w = Weights::new(ops, checkpoint).with_policy(policy);
        let sound = Weights::new(ops, &folder).with_policy(policy);
        let encoder = sound.at("encoder");
        let shape = LanguageModelShape {
            vocabulary: config.text.vocab_size,
            tied: config.tied,
            decoder: config.decoder,
            handed: None,
        };
        let inner = config.text.layers.intermediate_size;
        Ok(Self {
            text: LanguageModel::load(&w, shape, |_| FeedForward::Dense(inner))?,
            patch: Arc::new(patch(&w, &config)?),
            depth: depth(&w, &config)?,
            codec: WindowCodec::load(&encoder.at("quantizer"), &sound.at("decoder"), tokenizer.codec.clone())?,
            encoder: CodeEncoder::load(&encoder, tokenizer.encoder.clone(), &tokenizer.codec.entries)?,
            config,
            tokenizer,
        })
    }
}

/// Loads the embeddings of codes.
fn embedding<O: Ops>(w: &Weights<'_, O>, config: &Config, at: usize) -> Result<O::Weight, LoadError> {
    w.at("speech_embeddings").at(at).table("weight", config.codebooks[at], config.local.0.hidden)
}

/// Loads the encoder of a patch.
fn patch<O: Ops>(w: &Weights<'_, O>, config: &Config) -> Result<PatchEncoder<O>, LoadError> {
    let (shape, inner) = config.input_local;
    let tables = (0..config.codebooks.len()).map(|at| embedding(w, config, at));
    let (hidden, columns) = (config.decoder.hidden, config.frames * shape.hidden);
    Ok(PatchEncoder {
        frames: config.frames,
        tables: tables.collect::<Result<_, _>>()?,
        width: shape.hidden,
        layers: Decoder::load(&w.at("input_local_transformer"), shape, |_| FeedForward::Dense(inner))?,
        causal: config.input_causal,
        projection: w.linear("speech_group_downcast.weight", hidden, columns)?,
    })
}

/// Multiplications of the encoder of patches for one of them, and numbers of its row.
fn hearing_sizes(config: &Config) -> (usize, usize) {
    let ((shape, inner), output) = (config.input_local, config.decoder.hidden);
    let attention = (shape.attention.heads + shape.attention.kv_heads) * shape.attention.head_dim;
    let layer = shape.hidden * (2 * attention + 3 * inner);
    (config.frames * (shape.layers * layer + shape.hidden * output), output)
}

/// Loads the model of a patch's codes.
fn depth<O: Ops>(w: &Weights<'_, O>, config: &Config) -> Result<DepthModel<O>, LoadError> {
    let ((shape, inner), input) = (config.local, config.decoder.hidden);
    let codebook = |(at, &delay): (usize, &usize)| -> Result<_, LoadError> {
        let ids = config.codebooks[at];
        // The last id stands for no code.
        let allowed: Vec<f32> = (0..ids).map(|id| if id + 1 < ids { 1.0 } else { 0.0 }).collect();
        Ok(DepthCodebook {
            delay,
            table: embedding(w, config, at)?,
            norm: None,
            head: w.at("local_transformer_lm_heads").at(at).linear("weight", ids, shape.hidden)?,
            allowed: Some(w.made("allowed codes", WeightLayout::Vector, &allowed, &[ids])?),
        })
    };
    Ok(DepthModel {
        frames: config.frames,
        codebooks: config.delays.iter().enumerate().map(codebook).collect::<Result<_, _>>()?,
        layers: vec![Decoder::load(&w.at("local_transformer"), shape, |_| FeedForward::Dense(inner))?],
        input,
        width: shape.hidden,
        hidden: HiddenInput::Position,
        hidden_projections: vec![(w.linear("hidden_states_downcast.weight", shape.hidden, input)?, None)],
        projection: None,
        follows_code: false,
        summed: false,
    })
}

/// Entry of this family in [`FAMILIES`](crate::models::FAMILIES).
pub const FAMILY: Family = Family {
    name: ARCHITECTURES[0],
    claims: |checkpoint| claims_named(checkpoint, &ARCHITECTURES, FamilyVariant("audio")),
    assemble_cpu: assemble::<Cpu>,
    #[cfg(feature = "cuda")]
    assemble_cuda: assemble::<repartee_kernels::cuda::Cuda>,
};

/// Loads the parts of a checkpoint of this family.
///
/// # Errors
/// A file, field or tensor is missing or wrong.
pub fn assemble<O: Device>(
    ops: O,
    checkpoint: &Checkpoint,
    _: FamilyVariant,
    settings: &EngineConfig,
) -> Result<Assembly<O>, LoadError> {
    let sizes = WindowSizes::read(settings, WINDOWS)?;
    let MiMoAudio { config, tokenizer: sound, text, patch, depth, encoder, codec } =
        MiMoAudio::load(&ops, checkpoint, settings.weights)?;
    let generation = GenerationConfig::load(checkpoint)?;
    let vocabulary = config.text.vocab_size;
    let tokenizer = Tokenizer::load(checkpoint, vocabulary)?;
    let template = Template::load(checkpoint, &tokenizer, config.frames)?;
    let mut allowed = tokenizer.allowed(vocabulary).unwrap_or_else(|| vec![1.0; vocabulary]);
    for mark in template.marks() {
        allowed[mark as usize] = 0.0;
    }
    let allowed_text = Weights::new(&ops, checkpoint).made("allowed", WeightLayout::Vector, &allowed, &[vocabulary])?;
    let samples = codec.config().samples_per_code() as u32;
    let made = Codec { sample_rate: sound.mel.0.sampling_rate, frame_samples: (samples, 1) };
    let front_end = LogMel::new(&sound.mel.0, sound.mel.1).map_err(|value| {
        let file = format!("{TOKENIZER}/config.json");
        CheckpointError::BadValue { file: checkpoint.label(&file), value }
    })?;
    let audio = AudioFrontEnd {
        front_end: Box::new(front_end),
        encoder: Box::new(PatchHearing::new(&ops, encoder, Arc::clone(&patch), hearing_sizes(&config))),
    };
    let most_positions = config.text.max_position_embeddings;
    let context = settings.session_tokens.min(most_positions);
    let speaker = InterleavedPart {
        model: text,
        most_positions,
        allowed_text,
        tables: Vec::new(),
        patch: Some(patch),
        depth,
        script: template.script().clone(),
        text_sampling: generation.text,
        code_sampling: generation.codes,
    };
    let most_codes = most_patches(context) * config.frames;
    let vocoder = WindowCodecPart::new(codec, sizes, (made.frame(), most_codes));
    let pipeline = Pipeline::new(&ops).audio_input(audio, config.decoder.hidden).stage(speaker).stage(vocoder);
    Ok(pipeline.with(ModelFrame {
        tokenizer,
        template: Box::new(template),
        voices: Box::new(vec!["default".to_owned()]),
        codec: Some(made),
        max_tokens: Some(MAX_TOKENS),
    }))
}
