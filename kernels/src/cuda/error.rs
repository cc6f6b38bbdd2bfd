//! Errors of a CUDA device.

use thiserror::Error;

/// Reason for which a CUDA device cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CudaError {
    /// The driver library is missing.
    #[error("there is no NVIDIA driver on this machine (libcuda.so is not found): install it, or use the device `cpu`")]
    NoDriver,
    /// There is no device with this ordinal.
    #[error("there is no device cuda:{ordinal}; this machine has {count}: choose another, or use the device `cpu`")]
    NoDevice {
        /// Ordinal that was asked for.
        ordinal: usize,
        /// Number of devices.
        count: usize,
    },
    /// The device's compute capability is too low for the kernels.
    #[error("{name} has compute capability {major}.{minor}, and 8.0 is needed: use the device `cpu`")]
    TooOld {
        /// Name of the device.
        name: String,
        /// Major compute capability.
        major: i32,
        /// Minor compute capability.
        minor: i32,
    },
    /// The device has too little free memory; sizes in MiB.
    #[error(
        "{name} has {free} MiB free, and {needed} MiB are needed: use a smaller model or context, or the device `cpu`"
    )]
    Memory {
        /// Name of the device.
        name: String,
        /// MiB that are needed.
        needed: usize,
        /// MiB that are free.
        free: usize,
    },
    /// A driver call failed.
    #[error("the CUDA driver fails at {doing}: {error}")]
    Driver {
        /// Description of the call.
        doing: &'static str,
        /// Error text of the driver.
        error: String,
    },
}
