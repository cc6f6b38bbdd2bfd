//! A model family: its claim on checkpoints and its loaders.

use repartee_kernels::cpu::Cpu;

use super::load_error::LoadError;
use crate::checkpoint::Checkpoint;
use crate::config::EngineConfig;
use crate::model::Model;

/// Variant of a family that a checkpoint is; each family has its own names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FamilyVariant(pub &'static str);

/// Function that loads a claimed checkpoint onto a device.
pub type LoadFn<D> = fn(D, &Checkpoint, FamilyVariant, &EngineConfig) -> Result<Model, LoadError>;

/// A model family: its claim on checkpoints and its loaders.
pub struct Family {
    /// Name for messages: the `architectures` entry of its config.json, or the published name.
    pub name: &'static str,
    /// Returns the variant if the checkpoint is of this family: by config.json's `architectures`, else by the files'
    /// contents.
    pub claims: fn(&Checkpoint) -> Option<FamilyVariant>,
    /// Loads a claimed checkpoint on the CPU.
    pub load_cpu: LoadFn<Cpu>,
    /// Loads a claimed checkpoint on a CUDA device.
    #[cfg(feature = "cuda")]
    pub load_cuda: LoadFn<repartee_kernels::cuda::Cuda>,
}

/// Claims a checkpoint by the first of config.json's `architectures`.
pub fn claims_named(checkpoint: &Checkpoint, names: &[&str], variant: FamilyVariant) -> Option<FamilyVariant> {
    let first = checkpoint.architectures().into_iter().next()?;
    names.contains(&&first[..]).then_some(variant)
}
