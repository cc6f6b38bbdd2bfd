//! Families that are known by name and not served yet. Loading one says so, instead of naming an unknown architecture.

use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::checkpoint::Checkpoint;

/// Beginnings of `architectures`, in lower case, and the families.
const ARCHITECTURES: [(&str, &str); 4] =
    [("covoaudio", "Covo-Audio"), ("dynin", "Dynin-Omni"), ("bailingmm", "Ming"), ("mingflashomni", "Ming")];

/// Fields of Ming-omni-tts, whose config.json names no architecture.
#[derive(Deserialize)]
struct MingFields {
    #[serde(rename = "ditar_config")]
    _ditar: IgnoredAny,
    #[serde(rename = "aggregator_config")]
    _aggregator: IgnoredAny,
}

/// Name of a checkpoint's family, if it is one of these.
pub fn name(checkpoint: &Checkpoint) -> Option<&'static str> {
    let architecture = checkpoint.architectures().into_iter().next().unwrap_or_default().to_lowercase();
    let named = ARCHITECTURES.iter().find(|(begins, _)| architecture.starts_with(begins));
    let by_fields = || checkpoint.config::<MingFields>().is_ok().then_some("Ming");
    named.map(|(_, name)| *name).or_else(by_fields)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::Source;

    fn open(files: &'static [(&'static str, &'static [u8])]) -> Checkpoint {
        Checkpoint::open(Source::Embedded { name: "test", files }).unwrap()
    }

    #[test]
    fn unserved_families_are_known_by_name() {
        let named = |json: &'static [u8]| name(&open(vec![("config.json", json)].leak()));
        assert_eq!(named(br#"{"architectures": ["CovoAudioForConditionalGeneration"]}"#), Some("Covo-Audio"));
        assert_eq!(named(br#"{"architectures": ["DyninOmniModel"]}"#), Some("Dynin-Omni"));
        assert_eq!(named(br#"{"architectures": ["BailingMM2NativeForConditionalGeneration"]}"#), Some("Ming"));
        assert_eq!(named(br#"{"model_type": "dense", "ditar_config": {}, "aggregator_config": {}}"#), Some("Ming"));
        assert_eq!(named(br#"{"model_type": "dense"}"#), None);
    }
}
