//! Errors of loading a checkpoint.

use repartee_kernels::KernelError;
use thiserror::Error;

use crate::cascade::error::CascadeError;
use crate::checkpoint::{BadValue, CheckpointError};
use crate::config::ConfigError;
use crate::device::DeviceError;
use crate::model::TopologyError;
use crate::models::licence::LicenceError;
use crate::text::TextError;

/// Reasons why a checkpoint cannot be loaded. Every message names the file and the field or tensor.
#[derive(Debug, Error)]
pub enum LoadError {
    /// A file, field or tensor is missing or wrong.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The model does not support a setting.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The licence of the weights is not accepted.
    #[error(transparent)]
    Licence(#[from] LicenceError),
    /// The device cannot take a tensor.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// The device cannot be opened, or lacks memory.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The models of a cascade do not join.
    #[error(transparent)]
    Cascade(#[from] CascadeError),
    /// The text of a language model behind a server cannot be written as ids.
    #[error("the language model's text: {0}")]
    Text(#[from] TextError),
    /// The family's stages do not form a chain.
    #[error("this family is defective: {0}")]
    Topology(#[from] TopologyError),
    /// preprocessor_config.json has a wrong field.
    #[error("{file}: {value}")]
    Mel {
        /// Name of the file.
        file: String,
        /// The field, its value and the allowed values.
        value: BadValue,
    },
}
