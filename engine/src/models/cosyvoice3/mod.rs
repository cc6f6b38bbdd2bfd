//! CosyVoice3: reads text aloud. A language model turns text into codes, a flow codes into mel frames, HiFT frames into
//! samples; all three are causal and stream.
//!
//! The model files follow the reference, FunAudioLLM's CosyVoice, and name its classes. The folder is the published one:
//! `cosyvoice3.yaml`, `llm.pt` or `llm.rl.pt`, `flow.pt`, `hift.pt`, `CosyVoice-BlankEN`, and the voices of `spk2info.pt`. With
//! `speech_tokenizer_v3.onnx` and `campplus.onnx` recordings become voices while it is served ([`cloning`]).

pub mod cloning;
pub mod config;
pub mod template;
pub mod voices;

use repartee_kernels::Ops;
use repartee_kernels::cpu::Cpu;

use self::cloning::{Cloner, Encoders};
use self::config::{BASE, Config, FILE};
use self::template::Template;
use super::family::{Family, FamilyVariant};
use super::load_error::LoadError;
use super::parts::flow_matching::chunked::stage::recording_chunks;
use super::parts::flow_matching::chunked::voice::FlowVoice;
use super::parts::flow_sound::{FLOW, FlowSound};
use super::parts::given_text_stage::GivenTextPart;
use super::parts::pipeline::{Assembly, ModelFrame, Pipeline};
use super::parts::shared_voices::SharedVoices;
use super::parts::special_tokens::TokenReader;
use super::parts::speech_lm::{SpeechLmPart, SpeechModel};
use super::parts::speech_order::{SpeechRules, SpokenPrompt};
use super::parts::weights::Weights;
use crate::checkpoint::{BadValue, Checkpoint, CheckpointError};
use crate::config::EngineConfig;
use crate::device::Device;
use crate::model::Voices;
use crate::text::Tokenizer;
use crate::weight_policy::WeightPolicy;

/// Name of the family in messages.
const NAME: &str = "CosyVoice3";
/// Files of the language model, the published names first.
const LLM: [&str; 3] = ["llm.pt", "llm.safetensors", "llm.rl.pt"];
/// Instructions of the reference's examples, before [`END_OF_PROMPT`].
const INSTRUCTIONS: &str = "You are a helpful assistant.";
const END_OF_PROMPT: &str = "<|endofprompt|>";
/// Most codes of a response: four minutes.
const MOST_CODES: usize = 6000;

/// Models of this family, one field for each part.
pub struct CosyVoice3<O: Ops> {
    /// Configuration of all parts.
    pub config: Config,
    /// Weights of `llm.pt`.
    pub llm: SpeechModel<O>,
    /// Weights of `flow.pt` and `hift.pt`.
    pub sound: FlowSound<O>,
    /// Voices of `spk2info.pt`.
    pub voices: Vec<(String, SpokenPrompt, FlowVoice)>,
}

impl<O: Ops> CosyVoice3<O> {
    /// Loads all parts, with matrices in the formats of `policy`. `once` runs the computations of load time.
    pub fn load<E: Ops>(
        (ops, once): (&O, &E),
        checkpoint: &Checkpoint,
        policy: WeightPolicy,
    ) -> Result<Self, LoadError> {
        let config = Config::load(checkpoint, &checkpoint.part(BASE)?)?;
        let llm = checkpoint.weights_of(&LLM)?;
        let (sound, projection) = FlowSound::load((ops, once), checkpoint, &config.sound, policy)?;
        let voices = voices::load(checkpoint, &config, |vector| projection.row(once, vector))?;
        Ok(Self {
            llm: SpeechModel::load(&Weights::new(ops, &llm).with_policy(policy), &config.text, config.speech_ids())?,
            sound,
            voices,
            config,
        })
    }
}

/// Entry of this family in [`FAMILIES`](crate::models::FAMILIES).
pub const FAMILY: Family = Family {
    name: NAME,
    claims: |checkpoint| checkpoint.has_file(FILE).then_some(FamilyVariant("tts")),
    assemble_cpu: assemble::<Cpu>,
    #[cfg(feature = "cuda")]
    assemble_cuda: assemble::<repartee_kernels::cuda::Cuda>,
};

/// Id of the mark after instructions. The published vocabulary lacks it; the reference adds it behind the last token.
fn end_of_prompt(base: &Checkpoint, tokenizer: &Tokenizer, rows: usize) -> Result<u32, CheckpointError> {
    let id = tokenizer.token_id(END_OF_PROMPT).unwrap_or(u32::try_from(tokenizer.vocab_size()).unwrap_or(u32::MAX));
    if (id as usize) < rows {
        return Ok(id);
    }
    let allowed = format!("below the model's vocab_size, which is {rows}");
    let value = BadValue { field: format!("id of `{END_OF_PROMPT}`"), value: id.to_string(), allowed };
    Err(CheckpointError::BadValue { file: base.label("tokenizer_config.json"), value })
}

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
    let model = CosyVoice3::load((&ops, &Cpu::default()), checkpoint, settings.weights)?;
    let CosyVoice3 { config, llm, sound, voices } = model;
    let base = checkpoint.part(BASE)?;
    let tokenizer = Tokenizer::load(&base, config.text.vocab_size)?;
    let end_of_prompt = end_of_prompt(&base, &tokenizer, config.text.vocab_size)?;
    let mut instructions = TokenReader::new(&base, &tokenizer).text(INSTRUCTIONS)?;
    instructions.push(end_of_prompt);
    let codec = config.sound.codec();
    let (prompts, heard): (Vec<_>, Vec<_>) =
        voices.into_iter().map(|(name, prompt, heard)| ((name.clone(), prompt), (name, heard))).unzip();
    let (prompts, heard) = (SharedVoices::new(prompts), SharedVoices::new(heard));
    let clones = config.prompt_mel.is_some();
    let names: Box<dyn Voices> = match config.prompt_mel.clone() {
        // On one thread of its own: a recording is encoded while others speak.
        Some(mel) => Box::new(Cloner {
            encoders: Encoders::load(Cpu::default(), (checkpoint, &checkpoint.weights_of(&FLOW)?), &config, mel)?,
            tokenizer: tokenizer.clone(),
            instructions: instructions.clone(),
            most_chunks: recording_chunks(settings),
            prompts: prompts.clone(),
            heard: heard.clone(),
        }),
        None => Box::new(heard.names()),
    };
    let rules = SpeechRules {
        ids: config.ids(),
        mix: config.mix_ratio,
        sampling: config.sampling,
        most_per_token: config.max_token_text_ratio,
        end_of_prompt,
    };
    let speech_lm = SpeechLmPart {
        model: llm,
        vocabulary: config.speech_ids(),
        rules,
        most_enrolled: if clones { instructions.len() + cloning::MOST_IDS + cloning::MOST_CODES } else { 0 },
        voices: prompts,
        instructions,
        most_positions: config.text.max_position_embeddings,
        most_codes: MOST_CODES,
        code: codec.frame(),
    };
    let (flow, vocoder) = sound.parts(codec, (heard, clones), MOST_CODES, settings);
    let pipeline = Pipeline::new(&ops).stage(GivenTextPart).stage(speech_lm).stage(flow).stage(vocoder);
    Ok(pipeline.with(ModelFrame {
        tokenizer,
        template: Box::new(Template { end_of_prompt }),
        voices: names,
        codec: Some(codec),
        max_tokens: None,
    }))
}
