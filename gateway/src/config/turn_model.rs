//! Turn-detection model of `semantic_vad`: one in the binary, none, or a file.

use std::path::{Path, PathBuf};

use repartee_protocol::merge::merge;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Setting that names the network in the binary.
const EMBEDDED: &str = "embedded";
/// Setting for no model.
const SILENCE: &str = "silence";

/// Turn-detection model of sessions with `semantic_vad`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(from = "PathBuf", into = "PathBuf")]
pub enum TurnModelSource {
    /// The project's own network, whose weights are in the binary.
    Embedded,
    /// No model: fixed silences.
    #[default]
    Silence,
    /// ONNX file of smart-turn v3.
    File(PathBuf),
}

impl From<PathBuf> for TurnModelSource {
    /// Reads `embedded`, `silence`, or a path.
    fn from(path: PathBuf) -> Self {
        match path.to_str() {
            Some(EMBEDDED) => Self::Embedded,
            Some(SILENCE) => Self::Silence,
            _ => Self::File(path),
        }
    }
}

impl From<TurnModelSource> for PathBuf {
    fn from(source: TurnModelSource) -> Self {
        match source {
            TurnModelSource::Embedded => EMBEDDED.into(),
            TurnModelSource::Silence => SILENCE.into(),
            TurnModelSource::File(path) => path,
        }
    }
}

impl TurnModelSource {
    /// Returns the model's file; `None` if it needs none.
    pub fn file(&self) -> Option<&Path> {
        match self {
            Self::File(path) => Some(path),
            Self::Embedded | Self::Silence => None,
        }
    }

    /// Returns the session configuration `patch` with `semantic_vad` where it sets no turn detection; `None` if there is
    /// nothing to add. Only the embedded network is meant for every session.
    pub fn configure(&self, patch: Option<&Value>) -> Option<Value> {
        // Clients of the beta wire set it beside the audio.
        let places = ["/audio/input/turn_detection", "/turn_detection"];
        let is_set = patch.is_some_and(|patch| places.iter().any(|place| patch.pointer(place).is_some()));
        if is_set || *self != Self::Embedded {
            return None;
        }
        let mut whole = json!({"audio": {"input": {"turn_detection": {"type": "semantic_vad"}}}});
        if let Some(patch) = patch {
            merge(&mut whole, patch);
        }
        Some(whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_judges_sessions_that_set_no_detection() {
        let server_vad = json!({"audio": {"input": {"turn_detection": {"type": "server_vad"}}}});
        for set in [&server_vad, &json!({"turn_detection": null})] {
            assert_eq!(TurnModelSource::Embedded.configure(Some(set)), None);
        }
        let added = TurnModelSource::Embedded.configure(Some(&json!({"instructions": "Be brief."}))).unwrap();
        assert_eq!(added["instructions"], "Be brief.");
        assert_eq!(added["audio"]["input"]["turn_detection"]["type"], "semantic_vad");
        assert_eq!(TurnModelSource::Silence.configure(None), None);
    }

    #[test]
    fn names_are_told_from_paths() {
        for (text, source) in [
            ("embedded", TurnModelSource::Embedded),
            ("silence", TurnModelSource::Silence),
            ("/srv/smart-turn.onnx", TurnModelSource::File("/srv/smart-turn.onnx".into())),
        ] {
            let read: TurnModelSource = serde_json::from_value(text.into()).unwrap();
            assert_eq!(read, source);
            assert_eq!(serde_json::to_value(&read).unwrap(), text);
        }
    }
}
