//! Turn detection by a model: the probability that a speaker has finished, judged from the last seconds of sound.
//!
//! Two models: the project's own network, with its weights in the binary, and smart-turn v3 from its published file. That
//! file is read as it is. Its graph is not executed: the model is written with the engine's parts, in single precision on
//! the calling thread. The file also quantises activations to 8 bits with fixed scales, for integer hardware; here weights
//! are widened and activations are not quantised.

use std::fmt;
use std::path::Path;

use repartee_kernels::cpu::Cpu;

use crate::models::smart_turn::{SmartTurn, TurnModelError, open};
use crate::models::turn_net::TurnNet;

/// Turn-detection model. Loaded once, shared by any number of threads.
pub struct TurnModel(Network);

/// The networks.
enum Network {
    Embedded(Box<TurnNet<Cpu>>),
    SmartTurn(Box<SmartTurn<Cpu>>),
}

impl fmt::Debug for TurnModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TurnModel").finish_non_exhaustive()
    }
}

impl TurnModel {
    /// Loads the project's own network, whose weights are in the binary.
    pub fn embedded() -> Result<Self, TurnModelError> {
        TurnNet::load(&Cpu::default()).map(|network| Self(Network::Embedded(Box::new(network))))
    }

    /// Loads the published ONNX file of smart-turn v3. Takes some tenths of a second.
    pub fn load(path: &Path) -> Result<Self, TurnModelError> {
        SmartTurn::load(&Cpu::default(), &open(path)?).map(|network| Self(Network::SmartTurn(Box::new(network))))
    }

    /// Returns the probability (0 to 1) that the speaker of `turn` (16 kHz, -1..1) has finished. Only the last 3.2 s
    /// (8 s with smart-turn) count, with the pause at their end; a shorter turn is padded with silence before it.
    pub fn probability(&self, turn: &[f32]) -> f32 {
        // Each call has its own buffers, so that threads may run in parallel.
        match &self.0 {
            Network::Embedded(network) => network.probability(&Cpu::default(), turn),
            Network::SmartTurn(network) => network.probability(&Cpu::default(), turn),
        }
    }
}
