//! Folders of families that are not served yet are refused by the family's name.
#![allow(clippy::unwrap_used)] // Helpers of tests: a panic is their report.

use repartee_engine::internals::{Checkpoint, load_model};
use repartee_engine::{EngineConfig, Source};

/// Error of a folder with one file.
fn refused(file: &str, contents: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join(file), contents).unwrap();
    let checkpoint = Checkpoint::open(Source::Folder(folder.path().to_path_buf())).unwrap();
    load_model(&checkpoint, &EngineConfig::default()).map(|_| ()).unwrap_err().to_string()
}

#[test]
fn unserved_families_are_refused_by_name() {
    for (name, file, contents) in [
        ("Ming-lite-omni", "config.json", r#"{"architectures": ["BailingMMNativeForConditionalGeneration"]}"#),
        (
            "Ming-omni-tts-16.8B-A3B",
            "config.json",
            r#"{"model_type": "bailingmm", "ditar_config": {}, "aggregator_config": {}}"#,
        ),
    ] {
        let error = refused(file, contents);
        assert!(error.contains(&format!("{name} is not served yet")), "{name}: {error}");
    }
    let other = refused("config.json", r#"{"architectures": ["OtherModel"]}"#);
    assert!(other.contains("`OtherModel` is not supported"), "{other}");
}
