//! Fun-Audio-Chat: hears by an audio tower whose rows become five a second, thinks in Qwen3, and speaks by a second stack of
//! layers with a cache of its own, five codes a position. A flow and a vocoder of another family make the sound.
//!
//! The model files follow the reference, FunAudioLLM's Fun-Audio-Chat, and name its classes. The folder is the published one,
//! with that of the sound, `Fun-CosyVoice3-0.5B-2512`, in it, and the reference's `new_spk2info.pt`.
//!
//! | file | content |
//! |---|---|
//! | [`config`] | config.json, and the sound's file |
//! | [`hearing`] | the audio tower, and the means of its rows |
//! | [`template`] | the prompt |
//! | [`voices`] | speakers' vectors |

pub mod config;
pub mod hearing;
pub mod template;
pub mod voices;

use repartee_kernels::cpu::Cpu;
use repartee_kernels::{Ops, WeightLayout};

use self::config::{ARCHITECTURES, Config, GenerationConfig, SOUND, layers};
use self::hearing::{GroupHearing, GroupTower};
use self::template::Template;
use super::family::{Family, FamilyVariant, claims_named};
use super::load_error::LoadError;
use super::parts::decoder::FeedForward;
use super::parts::flow_matching::chunked::voice::FlowVoice;
use super::parts::flow_sound::FlowSound;
use super::parts::group_speech::head::SpeechHead;
use super::parts::group_speech::stage::{ResponseIds, SpeakerPart};
use super::parts::language_model::LanguageModel;
use super::parts::pipeline::{Assembly, ModelFrame, Pipeline};
use super::parts::shared_voices::SharedVoices;
use super::parts::weights::Weights;
use crate::audio::log_mel::{LogMel, LogMelConfig};
use crate::checkpoint::Checkpoint;
use crate::config::EngineConfig;
use crate::device::Device;
use crate::model::{AudioFrontEnd, PromptTemplate, ToolTemplate};
use crate::text::Tokenizer;
use crate::weight_policy::WeightPolicy;

/// Most text tokens of a response whose request has no limit.
const MAX_TOKENS: u32 = 1024;
/// Most codes of a response: four minutes.
const MOST_CODES: usize = 6000;

/// Models of this family, one field for each part of the checkpoint.
pub struct FunAudioChat<O: Ops> {
    /// Configuration of all parts.
    pub config: Config,
    /// Weights of `continuous_audio_tower`.
    pub tower: GroupTower<O>,
    /// Weights of `language_model`.
    pub text: LanguageModel<O>,
    /// Weights of `audio_invert_tower`.
    pub head: SpeechHead<O>,
    /// Weights of the sound.
    pub sound: FlowSound<O>,
    /// Voices of `new_spk2info.pt`.
    pub voices: Vec<(String, FlowVoice)>,
}

impl<O: Ops> FunAudioChat<O> {
    /// Loads all parts, with matrices in the formats of `policy`. `once` runs the computations of load time.
    pub fn load<E: Ops>(
        (ops, once): (&O, &E),
        checkpoint: &Checkpoint,
        policy: WeightPolicy,
    ) -> Result<Self, LoadError> {
        let folder = checkpoint.part(SOUND)?;
        let config = Config::load(checkpoint, &folder)?;
        let w = Weights::new(ops, checkpoint).with_policy(policy);
        let (sound, projection) = FlowSound::load((ops, once), &folder, &config.sound, policy)?;
        let voices = voices::load(checkpoint, &config.sound.flow, |vector| projection.row(once, vector))?;
        let inner = config.text.layers.intermediate_size;
        let dense = |_| FeedForward::Dense(inner);
        Ok(Self {
            tower: GroupTower::load(&w, config.encoder(), config.codes.group)?,
            text: LanguageModel::load(&w.at("language_model"), config.language_model(), dense)?,
            head: SpeechHead::load(
                (&w.at("audio_invert_tower"), &w.at("audio_tower")),
                (config.codes, config.text.layers.hidden_size),
                ("crq_transformer", layers(&config.head), config.head.intermediate_size),
            )?,
            sound,
            voices,
            config,
        })
    }
}

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
    let FunAudioChat { config, tower, text, head, sound, voices } =
        FunAudioChat::load((&ops, &Cpu::default()), checkpoint, settings.weights)?;
    let GenerationConfig { text: text_sampling, codes: code_sampling } = GenerationConfig::load(checkpoint)?;
    let vocabulary = config.text.vocab_size;
    let tokenizer = Tokenizer::load(checkpoint, vocabulary)?;
    let template = Template::load(checkpoint, &tokenizer, config.ids)?;
    let calls = template.tools().and_then(ToolTemplate::call_tokens).map(|marks| (marks.open.0, marks.close.0));
    let ids = ResponseIds { text: config.ids, stop: template.end_of_message(), call: calls };
    // Marks are never said, but for those that end or fill the text.
    let mut allowed = tokenizer.allowed(vocabulary).unwrap_or_else(|| vec![1.0; vocabulary]);
    let says = [Some(ids.text.end), Some(ids.text.silent), Some(ids.stop)];
    for id in (0..vocabulary as u32).filter(|id| tokenizer.is_special(*id) && !says.contains(&Some(*id))) {
        allowed[id as usize] = 0.0;
    }
    let allowed = Weights::new(&ops, checkpoint).made("allowed", WeightLayout::Vector, &allowed, &[vocabulary])?;
    let shape = tower.tower.shape();
    let mel = LogMelConfig::load(checkpoint, shape.bins)?;
    let log_mel = LogMel::new(&mel, shape.window)
        .map_err(|value| LoadError::Mel { file: checkpoint.label("preprocessor_config.json"), value })?;
    let hearing = GroupHearing::new(&ops, tower);
    let audio = AudioFrontEnd { front_end: Box::new(log_mel), encoder: Box::new(hearing) };
    let codec = config.sound.codec();
    let voices = SharedVoices::new(voices);
    let names = voices.names();
    let (flow, vocoder) = sound.parts(codec, (voices, false), MOST_CODES, settings);
    let width = text.width();
    let speaker = SpeakerPart {
        model: text,
        layers: config.text.layers.num_hidden_layers,
        head,
        most_positions: config.text.max_position_embeddings,
        most_groups: MOST_CODES / config.codes.group,
        allowed,
        ids,
        text_sampling,
        code_sampling,
    };
    Ok(Pipeline::new(&ops).audio_input(audio, width).stage(speaker).stage(flow).stage(vocoder).with(ModelFrame {
        tokenizer,
        template: Box::new(template),
        voices: Box::new(names),
        codec: Some(codec),
        max_tokens: Some(MAX_TOKENS),
    }))
}
