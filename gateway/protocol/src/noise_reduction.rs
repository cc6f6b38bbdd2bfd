//! Noise reduction of the caller's audio.

use serde::{Deserialize, Serialize};

/// Settings of noise reduction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NoiseReduction {
    /// Place of the microphone.
    #[serde(rename = "type")]
    pub kind: NoiseReductionKind,
}

/// Place of the microphone, by which noise is reduced.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NoiseReductionKind {
    /// Close to the caller, as of headphones and telephones.
    #[default]
    NearField,
    /// In the room, as of laptops and conference rooms.
    FarField,
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json, to_value};

    use super::*;

    #[test]
    fn both_published_kinds_are_read_and_written() {
        for (name, kind) in [("near_field", NoiseReductionKind::NearField), ("far_field", NoiseReductionKind::FarField)]
        {
            let sent = json!({"type": name});
            assert_eq!(from_value::<NoiseReduction>(sent.clone()).unwrap(), NoiseReduction { kind });
            assert_eq!(to_value(NoiseReduction { kind }).unwrap(), sent);
        }
        assert_eq!(from_value::<NoiseReduction>(json!({})).unwrap(), NoiseReduction::default());
        assert!(from_value::<NoiseReduction>(json!({"type": "mid_field"})).is_err());
    }
}
