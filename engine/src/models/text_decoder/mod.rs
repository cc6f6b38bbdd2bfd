//! Dense text decoders: Llama, Mistral, Qwen2, Qwen3 and Gemma 3, which answer with text. The prompt is the checkpoint's own chat
//! template.
//!
//! The names of the weights are those of `LlamaForCausalLM` and its kin in transformers 5.23; GGUF files are read under
//! these names, too.

pub mod config;

use std::sync::Arc;

use repartee_kernels::cpu::Cpu;
use repartee_kernels::{Ops, WeightLayout};

use self::config::{ARCHITECTURES, Architecture, Config};
use super::family::{Family, FamilyVariant};
use super::load_error::LoadError;
use super::parts::decoder::FeedForward;
use super::parts::jinja_template::JinjaTemplate;
use super::parts::language_model::{LanguageModel, LanguageModelShape};
use super::parts::pipeline::{Assembly, ModelFrame, Pipeline};
use super::parts::thinker_stage::{HiddenRows, ThinkerPart};
use super::parts::weights::Weights;
use crate::checkpoint::{Checkpoint, CheckpointError};
use crate::config::EngineConfig;
use crate::device::Device;
use crate::text::Tokenizer;
use crate::weight_policy::WeightPolicy;

/// A text decoder and its configuration.
pub struct TextDecoder<O: Ops> {
    /// Configuration from the files.
    pub config: Config,
    /// Weights of the whole model.
    pub model: LanguageModel<O>,
}

impl<O: Ops> TextDecoder<O> {
    /// Loads a checkpoint of `architecture`, with matrices in the formats of `policy`.
    pub fn load_as(
        ops: &O,
        checkpoint: &Checkpoint,
        architecture: Architecture,
        policy: WeightPolicy,
    ) -> Result<Self, LoadError> {
        let config = Config::load(checkpoint, architecture)?;
        Self::load(ops, checkpoint, config, policy)
    }

    /// Loads the weights of a model of this configuration, with matrices in the formats of `policy`.
    pub fn load(ops: &O, checkpoint: &Checkpoint, config: Config, policy: WeightPolicy) -> Result<Self, LoadError> {
        let shape = LanguageModelShape {
            vocabulary: config.model.vocab_size,
            tied: config.tie_word_embeddings,
            decoder: config.decoder,
            handed: None,
        };
        let weights = Weights::new(ops, checkpoint).with_policy(policy);
        let dense = FeedForward::Dense(config.model.layers.intermediate_size);
        Ok(Self { model: LanguageModel::load(&weights, shape, |_| dense)?, config })
    }
}

/// Entry of this family in [`FAMILIES`](crate::models::FAMILIES).
pub const FAMILY: Family = Family {
    name: "Llama, Mistral, Qwen2, Qwen3, Gemma 3 (text)",
    claims: |checkpoint| named(&checkpoint.architectures().into_iter().next()?).map(|of| FamilyVariant(of.name)),
    assemble_cpu: assemble::<Cpu>,
    #[cfg(feature = "cuda")]
    assemble_cuda: assemble::<repartee_kernels::cuda::Cuda>,
};

/// Finds an architecture by its name.
pub fn named(name: &str) -> Option<Architecture> {
    ARCHITECTURES.into_iter().find(|architecture| architecture.name == name)
}

/// Loads the parts of a checkpoint of this family.
pub fn assemble<O: Device>(
    ops: O,
    checkpoint: &Checkpoint,
    FamilyVariant(variant): FamilyVariant,
    settings: &EngineConfig,
) -> Result<Assembly<O>, LoadError> {
    let architecture = named(variant).unwrap_or(ARCHITECTURES[0]);
    let config = Config::load(checkpoint, architecture)?;
    // Before the weights, which take longer: a template that cannot be used is told at once.
    let tokenizer = Tokenizer::load(checkpoint, config.model.vocab_size)?;
    let template = JinjaTemplate::load(checkpoint, &tokenizer)?.ok_or_else(|| no_template(checkpoint))?;
    let TextDecoder { config, model } = TextDecoder::load(&ops, checkpoint, config, settings.weights)?;
    let allowed = tokenizer.allowed(config.model.vocab_size);
    let mask = |allowed: Vec<f32>| {
        let rows = [allowed.len()];
        Weights::new(&ops, checkpoint).made("ids with a token", WeightLayout::Vector, &allowed, &rows)
    };
    let thinker = ThinkerPart {
        thinker: Arc::new(model),
        most_positions: config.model.max_position_embeddings,
        stop: config.stop,
        sampling: config.sampling,
        handed_over: HiddenRows::None,
        allowed: allowed.map(mask).transpose()?,
    };
    Ok(Pipeline::new(&ops).stage(thinker).with(ModelFrame {
        tokenizer,
        template: Box::new(template),
        voices: Box::new(Vec::new()),
        codec: None,
        max_tokens: None,
    }))
}

/// Error of a base model, which has no chat template.
fn no_template(checkpoint: &Checkpoint) -> CheckpointError {
    let (field, problem) = match checkpoint.gguf() {
        Some(_) => ("tokenizer.chat_template", "absent"),
        None => ("chat_template", "absent, and there is no chat_template.jinja"),
    };
    CheckpointError::WrongField {
        file: checkpoint.label("tokenizer_config.json"),
        field: field.to_owned(),
        message: format!("{problem}: choose a model trained for conversations"),
    }
}
