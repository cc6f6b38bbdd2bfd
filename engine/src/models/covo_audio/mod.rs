//! Covo-Audio-Chat: Whisper's encoder hears, Qwen2.5 says text and codes out of one vocabulary in turn, a flow makes latents of the codes
//! and a vocoder samples of the latents. Its weights may be used for academic purposes alone.
//!
//! The folder is the published one: the language model with the encoder, and in `token2wav` the sound, with the recording that the
//! voice continues. Names of tensors are those of the reference's classes, as its description gives them.
//!
//! | file | content |
//! |---|---|
//! | [`config`] | config.json, and that of the sound |
//! | [`template`] | the prompt |
//! | [`voices`] | the voice, and the scale of latents |

pub mod config;
pub mod template;
pub mod voices;

use std::sync::Arc;

use repartee_kernels::cpu::Cpu;
use repartee_kernels::{Ops, WeightLayout};

use self::config::{ADAPTER, ARCHITECTURES, Config, SOUND};
use self::template::Template;
use self::voices::VOICE;
use super::family::{Family, FamilyVariant, claims_named};
use super::licence::RestrictedLicence;
use super::load_error::LoadError;
use super::parts::audio_encoder::tower::AudioTower;
use super::parts::decoder::FeedForward;
use super::parts::flow_matching::windowed::dit::WindowDit;
use super::parts::flow_matching::windowed::stage::{LatentScale, RecordedVoice, STAGE, WindowFlowPart, solver};
use super::parts::flow_matching::windowed::window::FlowWindows;
use super::parts::language_model::LanguageModel;
use super::parts::padded_hearing::{PaddedFrontEnd, PaddedHearing, PaddedTower};
use super::parts::pipeline::{Assembly, ModelFrame, Pipeline};
use super::parts::shared_vocabulary::{SharedIds, SharedVocabularyPart};
use super::parts::vocoder::bigvgan::BigVgan;
use super::parts::vocoder::bigvgan_stage::BigVganPart;
use super::parts::weights::Weights;
use crate::audio::log_mel::{LogMel, LogMelConfig};
use crate::checkpoint::Checkpoint;
use crate::config::EngineConfig;
use crate::device::Device;
use crate::model::AudioFrontEnd;
use crate::text::Tokenizer;
use crate::weight_policy::WeightPolicy;

/// Most text tokens of a response whose request has no limit.
const MAX_TOKENS: u32 = 1024;
/// Most codes of a response for each of its tokens, of which the model has learnt to say three, and those of a response of any length.
const MOST_CODES: (usize, usize) = (6, 128);
/// Codes of the flow's windows: the first of fifteen is solved with all of them.
const WINDOWS: FlowWindows = FlowWindows { left: 48, new: 12, ahead: 3 };
/// Files of the sound, the published name first.
const MODEL: [&str; 2] = ["model.pt", "model.safetensors"];
/// Prefixes of the tensors in them: training kept the model inside of others.
const PREFIXES: [&str; 4] = ["", "model.", "module.", "model.module."];

/// Models of this family, one field for each part of the checkpoint.
pub struct CovoAudio<O: Ops> {
    /// Configuration of all parts.
    pub config: Config,
    /// Weights of `encoder` and `audio_adapter`.
    pub tower: PaddedTower<O>,
    /// Weights of `llm`.
    pub text: LanguageModel<O>,
    /// Weights of `token2latent`.
    pub flow: WindowDit<O>,
    /// Weights of `wavegan`.
    pub vocoder: BigVgan<O>,
    /// The voice, and the scale of latents.
    pub voice: RecordedVoice,
    /// Scale of the latents that the vocoder takes.
    pub scale: LatentScale,
}

impl<O: Ops> CovoAudio<O> {
    /// Loads all parts, with matrices in the formats of `policy`. `once` runs the computations of load time.
    pub fn load<E: Ops>(
        (ops, once): (&O, &E),
        checkpoint: &Checkpoint,
        policy: WeightPolicy,
    ) -> Result<Self, LoadError> {
        let folder = checkpoint.part(SOUND)?;
        let config = Config::load(checkpoint, &folder)?;
        let w = Weights::new(ops, checkpoint).with_policy(policy);
        let inner = checkpoint.shape("audio_adapter.downsample_layers.0.linear1.weight");
        let inner = inner.and_then(|shape| shape.first()).copied().unwrap_or(ADAPTER);
        let tower = AudioTower::load(&w.at("encoder"), config.encoder.clone())?;
        let adapter = (config.halvings, inner, config.text.layers.hidden_size);
        let sound = folder.weights_of(&MODEL)?;
        let has = |prefix: &&str| sound.has_tensor(&format!("{prefix}token2latent.cond_proj.bias"));
        let prefix = PREFIXES.into_iter().find(has).unwrap_or_default();
        let (latent, wavegan) = (format!("{prefix}token2latent"), format!("{prefix}wavegan"));
        let (of_sound, once) = (Weights::new(ops, &sound), Weights::new(once, &sound));
        let voice = voices::load(checkpoint, &config.flow)?;
        let times = solver(config.flow.points).times();
        Ok(Self {
            tower: PaddedTower::load(&w.at("audio_adapter"), tower, adapter)?,
            text: LanguageModel::load(&w.at("llm"), config.language_model(), |_| {
                FeedForward::Dense(config.text.layers.intermediate_size)
            })?,
            flow: WindowDit::load(
                &of_sound.at(&latent).with_policy(policy),
                &once.at(&latent),
                &config.flow,
                (&[&voice.speaker[..]], &times),
            )?,
            // Errors of a vocoder's convolutions are heard.
            vocoder: BigVgan::load(&of_sound.at(&wavegan), &config.vocoder)?,
            scale: voices::scale(checkpoint, &config.flow)?,
            voice,
            config,
        })
    }
}

/// Licence of the published weights.
pub const LICENCE: RestrictedLicence = RestrictedLicence {
    name: "covo-audio",
    family: ARCHITECTURES[0],
    terms: "The License Terms of Covo-Audio allow academic purposes only, and no commercial or production use.",
};

/// Entry of this family in [`FAMILIES`](crate::models::FAMILIES).
pub const FAMILY: Family = Family {
    name: ARCHITECTURES[0],
    claims: |checkpoint| claims_named(checkpoint, &ARCHITECTURES, FamilyVariant("chat")),
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
    let windows = FlowWindows::read(settings, STAGE, WINDOWS)?;
    let CovoAudio { config, tower, text, flow, vocoder, voice, scale } =
        CovoAudio::load((&ops, &Cpu::default()), checkpoint, settings.weights)?;
    let (vocabulary, first) = (config.text.vocab_size, config.first_code);
    let tokenizer = Tokenizer::load(checkpoint, vocabulary)?;
    let template = Template::load(checkpoint, &tokenizer, VOICE)?;
    let ids = SharedIds { codes: (first, config.flow.codes.0), ends: template.ends.clone(), most_codes: MOST_CODES };
    // Text below the codes, without marks but those that end it, and the codes.
    let speakable = tokenizer.allowed(first as usize).unwrap_or_else(|| vec![1.0; first as usize]);
    let mut allowed = vec![0.0; vocabulary];
    for (id, speakable) in speakable.into_iter().enumerate() {
        let id_is_said = !tokenizer.is_special(id as u32) || ids.ends.contains(&(id as u32));
        allowed[id] = if id_is_said { speakable } else { 0.0 };
    }
    allowed[first as usize..first as usize + ids.codes.1].fill(1.0);
    let allowed = Weights::new(&ops, checkpoint).made("allowed", WeightLayout::Vector, &allowed, &[vocabulary])?;
    let shape = tower.tower.shape();
    let mel = LogMelConfig::load(checkpoint, shape.bins)?;
    let log_mel = LogMel::new(&mel, shape.window)
        .map_err(|value| LoadError::Mel { file: checkpoint.label("preprocessor_config.json"), value })?;
    let hearing = PaddedHearing::new(&ops, tower);
    let audio = AudioFrontEnd { front_end: Box::new(PaddedFrontEnd(log_mel)), encoder: Box::new(hearing) };
    let most_positions = config.text.max_position_embeddings;
    let most_codes = ids.most_codes(settings.session_tokens.min(most_positions));
    let (code, width) = (config.codec.frame(), text.width());
    let sampling = config::sampling(checkpoint)?;
    let speaker = SharedVocabularyPart { model: text, most_positions, allowed, ids, sampling };
    let flow = WindowFlowPart {
        solver: solver(config.flow.points),
        dit: flow,
        voices: Arc::from([(VOICE.to_owned(), voice)]),
        windows,
        scale,
        code,
        most_codes,
    };
    let vocoder = BigVganPart { bigvgan: vocoder, piece: config.flow.ratio, duration: code, most_pieces: most_codes };
    Ok(Pipeline::new(&ops).audio_input(audio, width).stage(speaker).stage(flow).stage(vocoder).with(ModelFrame {
        tokenizer,
        template: Box::new(template),
        voices: Box::new(vec![VOICE.to_owned()]),
        codec: Some(config.codec),
        max_tokens: Some(MAX_TOKENS),
    }))
}
