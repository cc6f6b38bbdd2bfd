//! Model families: one folder each, named and structured like its published checkpoint.
//!
//! A family is one entry of [`FAMILIES`]: which checkpoints it claims and how it loads them into a
//! [`Model`]. Nothing outside its folder knows its sizes, ids or stages.

pub mod qwen3_omni_moe;
pub mod weights;

use repartee_kernels::KernelError;
use repartee_kernels::cpu::{Cpu, Tensor};
use thiserror::Error;

use crate::checkpoint::{BadValue, Checkpoint, CheckpointError};
use crate::config::{ConfigError, EngineConfig};
use crate::stage::{Lanes, Model};

/// A kind of checkpoint that can be served.
pub struct Family {
    /// The `architectures` entry that it claims.
    pub architecture: &'static str,
    /// Loads it for the processor.
    pub load_cpu: fn(Cpu, &Checkpoint, &EngineConfig) -> Result<Model<Tensor>, LoadError>,
}

/// All families.
pub const FAMILIES: &[Family] =
    &[Family { architecture: qwen3_omni_moe::config::ARCHITECTURE, load_cpu: qwen3_omni_moe::load::<Cpu> }];

/// How many conversations the settings leave room for, each with all the memory that it may come to need: `context` positions
/// (the model's, at most), of `position_bytes` each in all stages together. Fewer sessions than were asked for is no
/// error; none is.
pub fn lanes(config: &EngineConfig, context: usize, position_bytes: usize) -> Result<Lanes, ConfigError> {
    let context = context.min(config.session_tokens);
    let each = context * position_bytes;
    let affordable = (config.cache_mib << 20) / each.max(1);
    if affordable == 0 {
        let needed = each.div_ceil(1 << 20);
        let allowed =
            format!("one session of {context} tokens takes {needed} MiB: allow more, or lower session_tokens");
        return Err(ConfigError::new("cache_mib", config.cache_mib, allowed));
    }
    // Answers beside the conversations are a convenience: a third of what there is, at most.
    let beside = config.beside.min(affordable / 3);
    let sessions = config.sessions.min(affordable - beside);
    if sessions < config.sessions {
        tracing::warn!(
            sessions,
            asked = config.sessions,
            "engine.cache_mib has room for fewer sessions of {context} tokens ({} KiB each)",
            each >> 10
        );
    }
    Ok(Lanes { sessions, beside, context })
}

/// Why a checkpoint could not be loaded. Every message names the file and the field or tensor.
#[derive(Debug, Error)]
pub enum LoadError {
    /// A file, field or tensor.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// A setting that this model cannot follow.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A tensor that the device cannot take.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// preprocessor_config.json.
    #[error("{file}: {value}")]
    Mel {
        /// The file.
        file: String,
        /// The field.
        value: BadValue,
    },
}

/// Loads a checkpoint for the processor.
pub fn load(checkpoint: &Checkpoint, config: &EngineConfig) -> Result<Model<Tensor>, LoadError> {
    let found = checkpoint.architecture()?;
    let known = || FAMILIES.iter().map(|family| family.architecture).collect::<Vec<_>>().join(", ");
    let family = FAMILIES.iter().find(|family| family.architecture == found).ok_or_else(|| {
        CheckpointError::UnknownArchitecture { file: checkpoint.label("config.json"), known: known(), found }
    })?;
    (family.load_cpu)(Cpu::default(), checkpoint, config)
}
