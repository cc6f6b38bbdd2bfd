//! Policy of interruptions, as the configuration names it.

use repartee_media::vad::BargeInPolicy;
use serde::{Deserialize, Serialize};

/// Policy by which a caller's voice interrupts an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BargeInSetting {
    /// By the length of the voice alone.
    #[default]
    Immediate,
    /// Soon, and now and then for a backchannel.
    Eager,
    /// Between eager and patient.
    Balanced,
    /// Later, with the fewest interruptions by mistake.
    Patient,
}

impl From<BargeInSetting> for BargeInPolicy {
    fn from(setting: BargeInSetting) -> Self {
        match setting {
            BargeInSetting::Immediate => Self::Immediate,
            BargeInSetting::Eager => Self::Eager,
            BargeInSetting::Balanced => Self::Balanced,
            BargeInSetting::Patient => Self::Patient,
        }
    }
}
