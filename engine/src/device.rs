//! Where models run: what a device must be for the engine, and the `engine.device` setting.

use std::fmt;
use std::str::FromStr;

use repartee_kernels::StepOps;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A device as stages and encoders have it, which pass from thread to thread.
pub trait Device: StepOps<Weight: Send + Sync, State: Send, Ticket: Send> + Send + 'static {}

impl<O: StepOps<Weight: Send + Sync, State: Send, Ticket: Send> + Send + 'static> Device for O {}

/// A device, as it is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum DeviceChoice {
    /// The processor.
    #[default]
    Cpu,
    /// The CUDA device with this number.
    Cuda(usize),
    /// The first CUDA device if there is one and this binary can use it, else the processor.
    Auto,
}

/// A device of another name.
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

/// Why a device cannot be used.
#[derive(Debug, Error)]
pub enum DeviceError {
    /// The binary lacks it.
    #[error(
        "engine.device is {0}, and this binary is built without CUDA: build it with `cargo build --release -p repartee --features cuda` \
         (docs/cuda.md), or set it to cpu"
    )]
    NotBuilt(DeviceChoice),
    /// The driver or the device refuses.
    #[cfg(feature = "cuda")]
    #[error("engine.device is {choice}: {error}")]
    Cuda {
        /// What was asked for.
        choice: DeviceChoice,
        /// What it says.
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
