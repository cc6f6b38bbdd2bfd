//! Ming-omni-tts, and the talker of Ming-flash-omni: a text read aloud, clause by clause. In each step of a language model a
//! flow head solves a patch of latents, an aggregator makes the next row of it, and a decoder makes samples of the latents.
//!
//! The model files follow the published code, `modeling_bailingmm.py`, `fm/` and `audio_tokenizer/` of Ming-omni-tts, and name
//! its classes. The thinker of Ming-flash-omni is not read.

pub mod config;
pub mod prompt;
pub mod template;

use std::time::Duration;

use repartee_kernels::Ops;
use repartee_kernels::cpu::Cpu;
use repartee_spoken::{ClauseBounds, WordBounds};

use self::config::{Config, FolderForm, LLM, TALKER, VAE};
use self::prompt::PromptIds;
use self::template::Template;
use super::family::{Family, FamilyVariant};
use super::load_error::LoadError;
use super::parts::clause_reader::ClauseReaderPart;
use super::parts::patch_speech::limits::StepLimits;
use super::parts::patch_speech::model::{PatchSpeechModel, PatchSpeechWeights};
use super::parts::patch_speech::stage::{MOST_PATCHES, PatchSpeechPart, STAGE};
use super::parts::pipeline::{Assembly, ModelFrame, Pipeline};
use super::parts::vocoder::latent_codec::LatentCodec;
use super::parts::vocoder::latent_codec::stage::LatentCodecPart;
use super::parts::weights::Weights;
use crate::checkpoint::{Checkpoint, CheckpointError};
use crate::config::EngineConfig;
use crate::device::Device;
use crate::model::Codec;
use crate::text::Tokenizer;
use crate::weight_policy::WeightPolicy;

/// Name of the family in messages.
const NAME: &str = "Ming";
/// Name of the voice without a recording.
const VOICE: &str = "default";
/// Patches before which an utterance does not end, less one: of Ming-omni-tts, and of the talker.
const LEAST_PATCHES: [usize; 2] = [3, 10];
/// Most patches of an utterance, if no setting says otherwise.
const DEFAULT_PATCHES: usize = 200;
/// Largest value of that setting: an hour of sound.
const MOST_OF_SETTING: usize = 11_250;
/// Longest sound of a text that the talker speaks: at least so many seconds, and so many a character.
const SECONDS_OF_TEXT: (f32, f32) = (2.0, 5818.0 / 16_000.0);
/// Clauses of some seconds: no utterance is shorter than its least number of patches.
const CLAUSES: ClauseBounds =
    ClauseBounds { first: WordBounds { min: 8, max: 20 }, later: WordBounds { min: 16, max: 40 } };

/// Models of this family, one field for each part.
pub struct Ming<O: Ops> {
    /// Configuration of all parts.
    pub config: Config,
    /// The language model with its flow head.
    pub speech: PatchSpeechModel<O>,
    /// The decoder of latents.
    pub codec: LatentCodec<O>,
}

impl<O: Ops> Ming<O> {
    /// Loads all parts, with matrices in the formats of `policy`. `once` runs the computations of load time.
    pub fn load<E: Ops>(
        (ops, once): (&O, &E),
        checkpoint: &Checkpoint,
        policy: WeightPolicy,
        form: FolderForm,
    ) -> Result<Self, LoadError> {
        let weights = |checkpoint| Weights::new(ops, checkpoint).with_policy(policy);
        if form == FolderForm::Tts {
            let (config, all, once) = (Config::tts(checkpoint)?, weights(checkpoint), Weights::new(once, checkpoint));
            let flow = "flowloss.cfm.model";
            let names = PatchSpeechWeights {
                llm: all.at("model.model"),
                flow: (all.at(flow), once.at(flow)),
                aggregator: all.at("linear_proj_audio"),
                stop: all.at("stop_head"),
            };
            let codec = LatentCodec::load(&all.at("audio.decoder"), config.sound.clone())?;
            return Ok(Self { speech: PatchSpeechModel::load(&names, &config.speech)?, codec, config });
        }
        let talker = if form == FolderForm::Flash { &checkpoint.part(TALKER)? } else { checkpoint };
        let (config, all, once) = (Config::talker(talker)?, weights(talker), Weights::new(once, talker));
        let names = PatchSpeechWeights {
            llm: all.at("model"),
            flow: (all.at("cfm.model"), once.at("cfm.model")),
            aggregator: all.at("aggregator"),
            stop: all.at("stop_head"),
        };
        let sound = talker.part(VAE)?;
        let codec = LatentCodec::load(&weights(&sound).at("decoder"), config.sound.clone())?;
        Ok(Self { speech: PatchSpeechModel::load(&names, &config.speech)?, codec, config })
    }
}

/// Entry of this family in [`FAMILIES`](crate::models::FAMILIES).
pub const FAMILY: Family = Family {
    name: NAME,
    claims: |checkpoint| {
        let form = FolderForm::of(checkpoint)?;
        FolderForm::ALL.iter().find(|(known, _)| *known == form).map(|(_, name)| FamilyVariant(name))
    },
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
    FamilyVariant(variant): FamilyVariant,
    settings: &EngineConfig,
) -> Result<Assembly<O>, LoadError> {
    let form = FolderForm::ALL.iter().find(|(_, name)| *name == variant).map_or(FolderForm::Tts, |(form, _)| *form);
    let model = Ming::load((&ops, &Cpu::default()), checkpoint, settings.weights, form)?;
    let Ming { config, speech, codec } = model;
    let inner = match form {
        FolderForm::Tts => None,
        FolderForm::Flash => Some(checkpoint.part(TALKER)?.part(LLM)?),
        FolderForm::Talker => Some(checkpoint.part(LLM)?),
    };
    let folder = inner.as_ref().unwrap_or(checkpoint);
    let own = Tokenizer::load(folder, config.speech.text.vocab_size)?;
    let reader = Tokenizer::of_bytes().map_err(|error| CheckpointError::WrongField {
        file: checkpoint.name().to_owned(),
        field: "tokenizer of bytes".to_owned(),
        message: error.to_string(),
    })?;
    let samples = u32::try_from(config.sound.samples()).unwrap_or(u32::MAX);
    let made = Codec { sample_rate: config.sound.sample_rate, frame_samples: (samples, 1) };
    let (latent, patch) = (made.frame(), config.speech.flow.patch);
    let is_tts = form == FolderForm::Tts;
    let limits = StepLimits {
        least: LEAST_PATCHES[usize::from(!is_tts)],
        most: settings.stage_option(STAGE, MOST_PATCHES).unwrap_or(DEFAULT_PATCHES).clamp(1, MOST_OF_SETTING),
        of_text: (!is_tts).then_some(SECONDS_OF_TEXT),
        patch: duration(latent, patch),
    };
    let speech_lm = PatchSpeechPart {
        model: speech,
        prompt: Box::new(PromptIds::load(folder, &own, form)?),
        tokenizer: own,
        reader: reader.clone(),
        limits,
        most_positions: config.speech.text.max_position_embeddings,
    };
    let pipeline = Pipeline::new(&ops)
        .stage(ClauseReaderPart::new(&reader, settings).with_bounds(CLAUSES))
        .stage(speech_lm)
        .stage(LatentCodecPart { codec, latent, most_latents: limits.most * patch });
    Ok(pipeline.with(ModelFrame {
        tokenizer: reader,
        template: Box::new(Template),
        voices: Box::new(vec![VOICE.to_owned()]),
        codec: Some(made),
        max_tokens: None,
    }))
}

/// Duration of so many latents.
fn duration(latent: Duration, count: usize) -> Duration {
    latent * u32::try_from(count).unwrap_or(u32::MAX)
}
