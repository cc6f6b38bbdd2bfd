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
use crate::stage::Model;

/// A kind of checkpoint that can be served.
pub struct Family {
    /// The `architectures` entry that it claims.
    pub architecture: &'static str,
    /// Loads it for the processor.
    pub load_cpu: fn(Cpu, &Checkpoint, Limits) -> Result<Model<Tensor>, LoadError>,
}

/// All families.
pub const FAMILIES: &[Family] =
    &[Family { architecture: qwen3_omni_moe::config::ARCHITECTURE, load_cpu: qwen3_omni_moe::load::<Cpu> }];

/// How much a loaded model may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Sessions at once.
    pub sessions: usize,
    /// Bytes of cached keys and values in each stage.
    pub cache_bytes: usize,
}

impl Limits {
    /// Positions that a stage caches for all its sessions: a full context for each, or what the budget allows.
    pub fn positions(&self, context: usize, position_bytes: usize) -> usize {
        (self.sessions * context).min(self.cache_bytes / position_bytes.max(1)).max(context)
    }
}

/// Why a checkpoint could not be loaded. Every message names the file and the field or tensor.
#[derive(Debug, Error)]
pub enum LoadError {
    /// A file, field or tensor.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
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
pub fn load(checkpoint: &Checkpoint, limits: Limits) -> Result<Model<Tensor>, LoadError> {
    let found = checkpoint.architecture()?;
    let known = || FAMILIES.iter().map(|family| family.architecture).collect::<Vec<_>>().join(", ");
    let family = FAMILIES.iter().find(|family| family.architecture == found).ok_or_else(|| {
        CheckpointError::UnknownArchitecture { file: checkpoint.label("config.json"), known: known(), found }
    })?;
    (family.load_cpu)(Cpu::default(), checkpoint, limits)
}
