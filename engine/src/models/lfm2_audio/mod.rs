//! LFM2.5-Audio: a FastConformer hears, LFM2 writes text and speech in turn, a small decoder makes the codes of a frame, and a
//! detokenizer the samples. Its older sibling LFM2-Audio has the codec Mimi in place of the detokenizer.
//!
//! The model files follow the reference, liquid-audio 1.3.0, and name its classes.

pub mod config;
pub mod script;
pub mod template;

use repartee_kernels::cpu::Cpu;
use repartee_kernels::{Ops, WeightLayout};

use self::config::{ARCHITECTURES, Config, DEPTH_EPS, DETOKENIZER, GenerationConfig, MIMI, OUTPUT_RATE};
use self::template::Template;
use super::family::{Family, FamilyVariant, claims_named};
use super::load_error::LoadError;
use super::parts::conformer::encoder::{Conformer, ConformerEncoder};
use super::parts::decoder::{Decoder, FeedForward};
use super::parts::depth::model::{DepthCodebook, DepthModel, HiddenInput};
use super::parts::interleaved::InterleavedPart;
use super::parts::language_model::{LanguageModel, LanguageModelShape};
use super::parts::pipeline::{Assembly, ModelFrame, Pipeline};
use super::parts::speech_codec::decoder::SpeechDecoder;
use super::parts::vocoder::frame_stage::{FrameVocoder, FrameVocoderPart};
use super::parts::vocoder::layered::LayeredVocoder;
use super::parts::weights::Weights;
use crate::audio::recording_mel::RecordingMel;
use crate::checkpoint::{Checkpoint, CheckpointError};
use crate::config::EngineConfig;
use crate::device::Device;
use crate::model::{AudioFrontEnd, Codec};
use crate::text::Tokenizer;
use crate::weight_policy::WeightPolicy;

/// Most text tokens of a response whose request has no limit.
const MAX_TOKENS: u32 = 1024;

/// Models of this family, one field for each part of the checkpoint.
pub struct Lfm2Audio<O: Ops> {
    /// Configuration from config.json.
    pub config: Config,
    /// Weights of `conformer` and `audio_adapter`.
    pub conformer: Conformer<O>,
    /// Weights of `lfm`.
    pub lfm: LanguageModel<O>,
    /// Weights of `audio_embedding`, a table for each codebook.
    pub tables: Vec<O::Weight>,
    /// Weights of `depthformer`, `depth_linear` and `depth_embeddings`.
    pub depth: DepthModel<O>,
    /// Weights of what makes samples of codes.
    pub detokenizer: Detokenizer<O>,
}

/// Part that makes samples of codes.
pub enum Detokenizer<O: Ops> {
    /// The folder `audio_detokenizer`.
    Layered(Box<LayeredVocoder<O>>),
    /// The codec of the older model.
    Mimi(Box<SpeechDecoder<O>>),
}

impl<O: Ops> Detokenizer<O> {
    /// Loads the folder, or the codec's file if there is no folder.
    fn load(ops: &O, checkpoint: &Checkpoint, policy: WeightPolicy, config: &Config) -> Result<Self, LoadError> {
        let folder = match checkpoint.part(DETOKENIZER) {
            Err(CheckpointError::FolderMissing { .. }) if checkpoint.has_file(MIMI) => {
                let (sizes, weights) = (config::mimi(checkpoint, config)?, checkpoint.weights_of(&[MIMI])?);
                let w = Weights::new(ops, &weights).with_policy(policy);
                return Ok(Self::Mimi(Box::new(SpeechDecoder::load(&w, sizes, config.codebooks)?)));
            }
            opened => opened?,
        };
        let sizes = config::detokenizer(&folder)?;
        if sizes.entries + 1 != config.entries {
            let message = format!("must be {}, one less than the model's", config.entries - 1);
            let file = folder.label("config.json");
            return Err(CheckpointError::WrongField { file, field: "codebook_size".to_owned(), message }.into());
        }
        let w = Weights::new(ops, &folder).with_policy(policy);
        Ok(Self::Layered(Box::new(LayeredVocoder::load(&w, sizes, config.codebooks)?)))
    }
}

impl<O: Ops> Lfm2Audio<O> {
    /// Loads all parts, with weights in the formats of `policy`.
    pub fn load(ops: &O, checkpoint: &Checkpoint, policy: WeightPolicy) -> Result<Self, LoadError> {
        let config = Config::load(checkpoint)?;
        let w = Weights::new(ops, checkpoint).with_policy(policy);
        let shape = LanguageModelShape {
            vocabulary: config.lfm.vocab_size,
            tied: true,
            decoder: config.lfm.decoder,
            handed: None,
        };
        let lfm = w.at("lfm");
        let (entries, codebooks, hidden) = (config.entries, config.codebooks, config.lfm.decoder.hidden);
        let table = |at: usize| {
            let all = [codebooks * entries, hidden];
            w.rows("audio_embedding.embedding.weight", WeightLayout::Table, all, at * entries..(at + 1) * entries)
        };
        Ok(Self {
            conformer: Conformer::load(&w.at("conformer"), &w.at("audio_adapter.model"), config.encoder.clone())?,
            lfm: LanguageModel::load_parts(&lfm, &lfm, shape, |_| FeedForward::Dense(config.lfm.inner))?,
            tables: (0..codebooks).map(table).collect::<Result<_, _>>()?,
            depth: depth(&w, &config)?,
            detokenizer: Detokenizer::load(ops, checkpoint, policy, &config)?,
            config,
        })
    }
}

/// Loads the model of a frame's codes.
fn depth<O: Ops>(w: &Weights<'_, O>, config: &Config) -> Result<DepthModel<O>, LoadError> {
    let (width, input, entries) = (config.depth.decoder.hidden, config.lfm.decoder.hidden, config.entries);
    let linear = w.at("depth_linear");
    let biases = linear.values("bias", &[config.codebooks * width])?;
    let projection = |at: usize| -> Result<_, LoadError> {
        let (rows, all) = (at * width..(at + 1) * width, [config.codebooks * width, input]);
        let bias = w.made("depth_linear.bias", WeightLayout::Vector, &biases[rows.clone()], &[width])?;
        Ok((linear.rows("weight", WeightLayout::Linear, all, rows)?, Some(bias)))
    };
    let codebook = |delay: usize| -> Result<_, LoadError> {
        let w = w.at("depth_embeddings").at(delay);
        let head = if config.depth.tied { "embedding.weight" } else { "to_logits.weight" };
        // Only the first code ends the speech.
        let allowed: Vec<f32> = (0..entries).map(|code| if code + 1 < entries { 1.0 } else { 0.0 }).collect();
        let masked = (delay > 0).then(|| w.made("allowed codes", WeightLayout::Vector, &allowed, &[entries]));
        Ok(DepthCodebook {
            delay,
            table: w.table("embedding.weight", entries, width)?,
            norm: Some((w.vector("embedding_norm.weight", width)?, DEPTH_EPS)),
            head: w.linear(head, entries, width)?,
            allowed: masked.transpose()?,
        })
    };
    let feed_forward = |_| FeedForward::Dense(config.depth.inner);
    Ok(DepthModel {
        frames: 1,
        codebooks: (0..config.codebooks).map(codebook).collect::<Result<_, _>>()?,
        layers: vec![Decoder::load(&w.at("depthformer"), config.depth.decoder, feed_forward)?],
        input,
        width,
        hidden: HiddenInput::Added,
        hidden_projections: (0..config.codebooks).map(projection).collect::<Result<_, _>>()?,
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
    let Lfm2Audio { config, conformer, lfm, tables, depth, detokenizer } =
        Lfm2Audio::load(&ops, checkpoint, settings.weights)?;
    let generation = GenerationConfig::load(checkpoint)?;
    let vocabulary = config.lfm.vocab_size;
    let tokenizer = Tokenizer::load(checkpoint, vocabulary)?;
    let speech_end = (config.entries - 1) as u32;
    let template = Template::load(checkpoint, &tokenizer, (config.turns, speech_end, config.codebooks))?;
    let allowed = tokenizer.allowed(vocabulary).unwrap_or_else(|| vec![1.0; vocabulary]);
    let allowed_text = Weights::new(&ops, checkpoint).made("allowed", WeightLayout::Vector, &allowed, &[vocabulary])?;
    let frame = match &detokenizer {
        Detokenizer::Layered(layered) => FrameVocoder::<O>::samples_per_frame(layered.as_ref()),
        Detokenizer::Mimi(mimi) => FrameVocoder::<O>::samples_per_frame(mimi.as_ref()),
    } as u32;
    let codec = Codec { sample_rate: OUTPUT_RATE, frame_samples: (frame, 1) };
    let width = conformer.output();
    let audio = AudioFrontEnd {
        front_end: Box::new(RecordingMel::new(config.mel.clone())),
        encoder: Box::new(ConformerEncoder::new(&ops, conformer, config.mel.frames(config.mel.most_samples))),
    };
    let speaker = InterleavedPart {
        model: lfm,
        most_positions: config.lfm.max_position_embeddings,
        allowed_text,
        tables,
        patch: None,
        depth,
        script: template.script().clone(),
        text_sampling: generation.text,
        code_sampling: generation.codes,
    };
    let pipeline = Pipeline::new(&ops).audio_input(audio, width).stage(speaker);
    let pipeline = match detokenizer {
        Detokenizer::Layered(layered) => pipeline.stage(FrameVocoderPart::new(*layered, codec.frame())),
        Detokenizer::Mimi(mimi) => pipeline.stage(FrameVocoderPart::new(*mimi, codec.frame())),
    };
    Ok(pipeline.with(ModelFrame {
        tokenizer,
        template: Box::new(template),
        voices: Box::new(vec!["default".to_owned()]),
        codec: Some(codec),
        max_tokens: Some(MAX_TOKENS),
    }))
}
