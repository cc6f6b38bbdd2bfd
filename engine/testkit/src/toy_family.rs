//! A toy family, which docs/families.md walks through: one language model says a token and two frames in turn, and an
//! inverse Fourier transform turns each frame into 20 ms of sound.

use std::sync::Arc;

use repartee_engine::internals::decoder::{Decoder, DecoderShape, FeedForward};
use repartee_engine::internals::depth::model::{DepthCodebook, DepthModel, HiddenInput};
use repartee_engine::internals::interleaved::{InterleavedPart, InterleavingScript, PositionKind, SampledPosition};
use repartee_engine::internals::language_model::{LanguageModel, LanguageModelShape};
use repartee_engine::internals::pipeline::{ModelFrame, Pipeline};
use repartee_engine::internals::vocoder::frame_stage::FrameVocoderPart;
use repartee_engine::internals::vocoder::spectral::SpectralVocoder;
use repartee_engine::internals::vocoder::stft::{InverseStft, hann};
use repartee_engine::internals::weights::Weights;
use repartee_engine::internals::{
    AudioRows, Checkpoint, Codec, Device, Element, Message, MessageKind, MessagePart, Model, PromptTemplate,
    ResponseParams, Tokenizer,
};
use repartee_engine::{EngineConfig, LoadError};
use repartee_engine_api::{Role, Sampling};
use repartee_kernels::{AttentionShape, WeightLayout};

/// Ids of the tokenizer; marks that end a message and begin the model's own.
const TEXT_IDS: usize = 300;
const END: u32 = TEXT_IDS as u32;
const BEGIN: u32 = END + 1;
/// Frames after each token; codebooks of a frame, and entries of each.
pub const FRAMES: usize = 2;
const CODEBOOKS: usize = 3;
const ENTRIES: usize = 32;
/// Width of all rows; sound as `SPECTRA` spectra a frame, `HOP` samples apart.
const WIDTH: usize = 32;
const CODEC: Codec = Codec { sample_rate: 16_000, frame_samples: (320, 1) };
const SPECTRA: usize = 4;
const HOP: usize = 80;
const SAMPLING: Sampling = Sampling { temperature: 0.8, top_k: 20, top_p: 1.0, repetition_penalty: 1.1 };

/// Order of text and frames: [`FRAMES`] frames after each token, until the end is said.
struct TokenThenFrames;

impl InterleavingScript for TokenThenFrames {
    /// Number of frames left before the next token.
    type Said = usize;

    fn first(&self) -> PositionKind {
        PositionKind::Text
    }

    fn text(&self, left: &mut usize, params: &ResponseParams, id: u32) -> SampledPosition {
        *left = FRAMES;
        match id {
            END => SampledPosition::End,
            _ if params.audio => SampledPosition::Said(PositionKind::Frame),
            _ => SampledPosition::Said(PositionKind::Text),
        }
    }

    fn frame(&self, left: &mut usize, _: &ResponseParams, _: &mut [u32]) -> SampledPosition {
        *left -= 1;
        SampledPosition::Said(if *left == 0 { PositionKind::Text } else { PositionKind::Frame })
    }

    fn positions(&self, max_tokens: usize, audio: bool) -> usize {
        if audio { max_tokens * (1 + FRAMES) } else { max_tokens }
    }
}

/// Prompt: each message with its text and the model's own speech, between marks.
struct Template;

impl PromptTemplate for Template {
    fn render(&self, history: &[Message], _: Option<&[Arc<AudioRows>]>, respond: bool) -> Vec<Element> {
        let begin = |speaks: bool| speaks.then(|| Element::token(Role::Assistant, BEGIN));
        let mut prompt = Vec::new();
        for message in history {
            let speaks = message.kind == MessageKind::Assistant;
            let role = if speaks { Role::Assistant } else { Role::User };
            prompt.extend(begin(speaks));
            for part in &message.parts {
                match part {
                    MessagePart::Text(ids) => prompt.extend(ids.iter().map(|&id| Element::token(role, id))),
                    MessagePart::Speech(frames) => prompt.extend(frames.iter().cloned().map(Element::codes)),
                    MessagePart::Audio(_) => {}
                }
            }
            prompt.push(Element::token(role, END));
        }
        prompt.extend(begin(respond));
        prompt
    }

    fn keeps_speech(&self) -> bool {
        true
    }
}

/// Loads the family's weights and assembles its model.
pub fn load(ops: &impl Device, checkpoint: &Checkpoint, settings: &EngineConfig) -> Result<Model, LoadError> {
    let w = Weights::new(ops, checkpoint).with_policy(settings.weights);
    let attention = AttentionShape { heads: 2, kv_heads: 1, head_dim: 16, window: None, chunk: None };
    let decoder = DecoderShape::plain(WIDTH, 2, attention);
    let shape = LanguageModelShape { vocabulary: TEXT_IDS + 2, tied: true, decoder, handed: None };
    let feed_forward = |_| FeedForward::Dense(2 * WIDTH);
    let model = LanguageModel::load(&w.at("lm"), shape, feed_forward)?;
    let table = |codebook: usize| w.at("frames").table(&codebook.to_string(), ENTRIES, WIDTH);
    let tables = (0..CODEBOOKS).map(table).collect::<Result<_, _>>()?;
    let tokenizer = Tokenizer::load(checkpoint, TEXT_IDS)?;
    let is_word = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_lowercase());
    let allowed = |id| id == END || is_word(tokenizer.decode(&[id]).trim_start_matches(' '));
    let allowed: Vec<f32> = (0..=BEGIN).map(|id| f32::from(allowed(id))).collect();
    let allowed_text = w.made("allowed", WeightLayout::Vector, &allowed, &[TEXT_IDS + 2])?;

    // Each code is drawn after the one before it.
    let codebook = |delay: usize| -> Result<_, LoadError> {
        let w = w.at("depth").at(delay);
        let (table, head) = (w.table("table", ENTRIES, WIDTH)?, w.linear("head", ENTRIES, WIDTH)?);
        Ok(DepthCodebook { delay, table, norm: None, head, allowed: None })
    };
    let depth = DepthModel {
        frames: 1,
        codebooks: (0..CODEBOOKS).map(codebook).collect::<Result<_, _>>()?,
        layers: vec![Decoder::load(&w.at("depth"), DecoderShape { theta: None, ..decoder }, feed_forward)?],
        input: WIDTH,
        width: WIDTH,
        hidden: HiddenInput::Added,
        hidden_projections: Vec::new(),
        projection: None,
        follows_code: false,
        summed: false,
    };

    let inverse = InverseStft::new(hann(4 * HOP), HOP, (4 * HOP - HOP) / 2);
    let vocoder = SpectralVocoder::load(&w.at("vocoder"), (CODEBOOKS, ENTRIES), WIDTH, (SPECTRA, inverse))?;

    let (script, most_positions) = (TokenThenFrames, 2048);
    let (text_sampling, code_sampling) = (SAMPLING, Sampling { repetition_penalty: 1.0, ..SAMPLING });
    let speaker = InterleavedPart {
        model,
        most_positions,
        allowed_text,
        tables,
        patch: None,
        depth,
        script,
        text_sampling,
        code_sampling,
    };
    let pipeline = Pipeline::new(ops).stage(speaker).stage(FrameVocoderPart::new(vocoder, CODEC.frame()));
    let frame = ModelFrame {
        tokenizer,
        template: Box::new(Template),
        voices: Box::new(vec!["own".to_owned()]),
        codec: Some(CODEC),
        max_tokens: Some(24),
    };
    pipeline.with(frame).build(settings)
}
