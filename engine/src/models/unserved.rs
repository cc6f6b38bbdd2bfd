//! Families that are known by name and not served yet. Loading one says so, instead of naming an unknown architecture.

use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::checkpoint::Checkpoint;

/// Beginnings of `architectures`, in lower case, and the families.
const ARCHITECTURES: [(&str, &str); 1] = [("bailingmm", "Ming-lite-omni")];

/// Fields of the sibling of Ming-omni-tts with experts, whose config.json names no architecture.
#[derive(Deserialize)]
struct ExpertsFields {
    model_type: String,
    #[serde(rename = "ditar_config")]
    _ditar: IgnoredAny,
    #[serde(rename = "aggregator_config")]
    _aggregator: IgnoredAny,
}

/// Name of a checkpoint's family, if it is one of these.
pub fn name(checkpoint: &Checkpoint) -> Option<&'static str> {
    let architecture = checkpoint.architectures().into_iter().next().unwrap_or_default().to_lowercase();
    let named = ARCHITECTURES.iter().find(|(begins, _)| architecture.starts_with(begins));
    let has_experts = |fields: ExpertsFields| fields.model_type == "bailingmm";
    let by_fields = || checkpoint.config().is_ok_and(has_experts).then_some("Ming-omni-tts-16.8B-A3B");
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
        assert_eq!(named(br#"{"architectures": ["BailingMMNativeForConditionalGeneration"]}"#), Some("Ming-lite-omni"));
        let experts = br#"{"model_type": "bailingmm", "ditar_config": {}, "aggregator_config": {}}"#;
        assert_eq!(named(experts), Some("Ming-omni-tts-16.8B-A3B"));
        assert_eq!(named(br#"{"model_type": "dense", "ditar_config": {}, "aggregator_config": {}}"#), None);
    }
}
