//! Qwen3-TTS with the 12 Hz codec: reads text aloud. It has a reader, a talker with code predictor, and the codec's
//! decoder, code2wav.
//!
//! Voices are listed, described by instructions or, in a third kind of checkpoint, cloned from recordings
//! ([`cloning`]).
//!
//! The model files follow the reference, qwen-tts 0.1.1 `core/models` and `core/tokenizer_12hz`, and name its classes.
//! The codec is a checkpoint of its own, in the folder `speech_tokenizer`.

pub mod cloning;
pub mod config;
pub mod prompt;
pub mod talker;
pub mod voices;

use repartee_kernels::Ops;
use repartee_kernels::cpu::Cpu;

use self::cloning::{Cloner, Encoders, most_frames};
use self::config::{ARCHITECTURE, Config, GenerationConfig};
use self::prompt::Template;
use self::voices::VoiceList;
use super::family::{Family, FamilyVariant, claims_named};
use super::load_error::LoadError;
use super::parts::given_text_stage::GivenTextPart;
use super::parts::pipeline::{Assembly, ModelFrame, Pipeline};
use super::parts::talker::frame_talker::FrameTalkerWeights;
use super::parts::talker::frames::FrameSampling;
use super::parts::talker::stage::{TalkerPart, TalkerSizes};
use super::parts::talker::utterance::HEADER_ROWS;
use super::parts::vocoder::code2wav::Code2Wav;
use super::parts::vocoder::frame_stage::FrameVocoderPart;
use super::parts::weights::Weights;
use crate::checkpoint::Checkpoint;
use crate::config::EngineConfig;
use crate::device::Device;
use crate::model::Voices;
use crate::text::Tokenizer;
use crate::weight_policy::WeightPolicy;

/// Folder of the codec.
const CODEC: &str = "speech_tokenizer";

/// Models of this family, one field for each part.
pub struct Qwen3Tts<O: Ops> {
    /// Configuration from config.json and the codec's.
    pub config: Config,
    /// Weights of `talker`.
    pub talker: FrameTalkerWeights<O>,
    /// Weights of `decoder` of the codec.
    pub code2wav: Code2Wav<O>,
    /// Encoders of recordings; `None` if voices are not cloned.
    pub encoders: Option<Encoders<O>>,
}

impl<O: Ops> Qwen3Tts<O> {
    /// Loads all parts, with weights as in the checkpoint.
    pub fn load(ops: &O, checkpoint: &Checkpoint) -> Result<Self, LoadError> {
        Self::load_as(ops, checkpoint, WeightPolicy::default())
    }

    /// Loads all parts, with the stages' weights in the formats of `policy`.
    pub fn load_as(ops: &O, checkpoint: &Checkpoint, policy: WeightPolicy) -> Result<Self, LoadError> {
        let codec = checkpoint.part(CODEC)?;
        let config = Config::load(checkpoint, &codec)?;
        let encoders = config.cloning.as_ref();
        let encoders = encoders
            .map(|cloning| Encoders::load(ops, (checkpoint, &codec), cloning, config.talker.num_code_groups))
            .transpose()?;
        Ok(Self {
            encoders,
            talker: talker::load(&Weights::new(ops, checkpoint).with_policy(policy).at("talker"), &config.talker)?,
            code2wav: Code2Wav::load(&Weights::new(ops, &codec).with_policy(policy).at("decoder"), &config.code2wav)?,
            config,
        })
    }
}

/// Entry of this family in [`FAMILIES`](crate::models::FAMILIES).
pub const FAMILY: Family = Family {
    name: ARCHITECTURE,
    claims: |checkpoint| claims_named(checkpoint, &[ARCHITECTURE], FamilyVariant("tts")),
    assemble_cpu: assemble::<Cpu>,
    #[cfg(feature = "cuda")]
    assemble_cuda: assemble::<repartee_kernels::cuda::Cuda>,
};

/// Loads the parts of a checkpoint of this family.
pub fn assemble<O: Device>(
    ops: O,
    checkpoint: &Checkpoint,
    _: FamilyVariant,
    settings: &EngineConfig,
) -> Result<Assembly<O>, LoadError> {
    let Qwen3Tts { config, talker, code2wav, encoders } = Qwen3Tts::load_as(&ops, checkpoint, settings.weights)?;
    let generation = GenerationConfig::load(checkpoint)?;
    let tokenizer = Tokenizer::load(checkpoint, config.talker.text_vocab_size)?;
    let template = Template::new(checkpoint, &config, &tokenizer)?;
    let voices = VoiceList::new(&config);
    let geometry = config.code2wav.geometry(config.output_sample_rate);
    // A recording's frames precede the text, each with a text id.
    let recorded = config.cloning.as_ref().map_or(0, |cloning| most_frames(cloning.encode_downsample_rate));
    let names: Box<dyn Voices> = match (encoders, &config.cloning) {
        (Some(encoders), Some(cloning)) => {
            let (tokenizer, frame) = (tokenizer.clone(), cloning.encode_downsample_rate);
            Box::new(Cloner { ops: ops.with_own_buffers(), encoders, tokenizer, frame, voices: voices.clone() })
        }
        _ => Box::new(voices.clone()),
    };
    let pipeline = Pipeline::new(&ops)
        .stage(GivenTextPart)
        .stage(TalkerPart {
            talker: talker::talker(talker, &config, template.response_header(), voices),
            sizes: TalkerSizes {
                model_positions: config.talker.model.max_position_embeddings,
                head: HEADER_ROWS + recorded,
                max_codes: generation.max_new_tokens as usize,
                frame: geometry.frame(),
            },
            sampling: FrameSampling { first: generation.talker, rest: generation.code_predictor },
        })
        .stage(FrameVocoderPart::new(code2wav, geometry.frame()));
    Ok(pipeline.with(ModelFrame {
        tokenizer,
        template: Box::new(template),
        voices: names,
        codec: Some(geometry),
        max_tokens: None,
    }))
}
