//! Devices: trait bounds of the engine, and the setting `engine.device`.

use std::fmt;
use std::str::FromStr;

use repartee_kernels::Ops;
use repartee_kernels::cpu::simd::SimdLevel;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Device of stages and encoders, which move between threads.
pub trait Device: Ops<T: Send, Weight: Send + Sync, State: Send, Ticket: Send> + Send + 'static {}

impl<O: Ops<T: Send, Weight: Send + Sync, State: Send, Ticket: Send> + Send + 'static> Device for O {}

/// Returns the name of the processor's vector instructions that are in use, as [`SimdLevel::name`] has them.
pub fn vector_instructions() -> &'static str {
    SimdLevel::detect().name()
}

/// Choice of a device, as in `engine.device`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum DeviceChoice {
    /// The CPU of this machine.
    #[default]
    Cpu,
    /// The CUDA device with this number.
    Cuda(usize),
    /// The first CUDA device if one exists and this binary supports it, else the CPU.
    Auto,
}

/// Error of an unknown device name.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{0}` is no device: it may be `cpu`, `cuda:0` (or another number), or `auto`")]
pub struct UnknownDevice(String);

impl FromStr for DeviceChoice {
    type Err = UnknownDevice;

    fn from_str(text: &str) -> Result<Self, UnknownDevice> {
        match text {
            "cpu" => Ok(Self::Cpu),
            "auto" => Ok(Self::Auto),
            _ => {
                let number = text.strip_prefix("cuda:").and_then(|number| number.parse().ok());
                number.map(Self::Cuda).ok_or_else(|| UnknownDevice(text.to_owned()))
            }
        }
    }
}

impl TryFrom<String> for DeviceChoice {
    type Error = UnknownDevice;

    fn try_from(text: String) -> Result<Self, UnknownDevice> {
        text.parse()
    }
}

impl From<DeviceChoice> for String {
    fn from(choice: DeviceChoice) -> Self {
        choice.to_string()
    }
}

impl fmt::Display for DeviceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(number) => write!(f, "cuda:{number}"),
            Self::Auto => f.write_str("auto"),
        }
    }
}

/// Error of a device that cannot be used.
#[derive(Debug, Error)]
pub enum DeviceError {
    /// The binary is built without CUDA.
    #[error(
        "engine.device is {0}, and this binary is built without CUDA: build it with `cargo build --release -p repartee --features cuda` \
         (docs/cuda.md), or set it to cpu"
    )]
    NotBuilt(DeviceChoice),
    /// The driver or the device failed.
    #[cfg(feature = "cuda")]
    #[error("engine.device is {choice}: {error}")]
    Cuda {
        /// Device that was chosen.
        choice: DeviceChoice,
        /// Error of the driver or the device.
        error: repartee_kernels::cuda::CudaError,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for (name, choice) in [
            ("cpu", DeviceChoice::Cpu),
            ("auto", DeviceChoice::Auto),
            ("cuda:0", DeviceChoice::Cuda(0)),
            ("cuda:12", DeviceChoice::Cuda(12)),
        ] {
            assert_eq!((name.parse(), choice.to_string()), (Ok(choice), name.to_owned()));
        }
        for name in ["", "gpu", "cuda", "cuda:", "cuda:-1", "CPU"] {
            let error = name.parse::<DeviceChoice>().unwrap_err().to_string();
            assert!(error.contains(&format!("`{name}`")) && error.contains("cuda:0"), "{error}");
        }
    }
}
