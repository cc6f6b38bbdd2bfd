//! Refused checkpoints: each error names the file and the field, or what is missing.

use repartee_engine::EngineConfig;
use repartee_engine::internals::load_model;
use serde_json::{Value, json};

use super::*;

/// Error of a copy of the fixture with a changed file.
fn refused(file: &str, change: impl FnOnce(&mut Value)) -> String {
    let copy = copy(&checkpoint());
    let path = copy.path().join(file);
    let mut config: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    change(&mut config);
    std::fs::write(&path, config.to_string()).unwrap();
    load_model(&open(copy.path()), &EngineConfig::default()).map(|_| ()).unwrap_err().to_string()
}

#[test]
fn unsupported_settings_are_named() {
    type Change = fn(&mut Value);
    let changes: [(&str, &str, Change); 9] = [
        ("config.json", "encoder.subsampling", |config| config["encoder"]["subsampling"] = json!("striding")),
        ("config.json", "encoder.att_context_size", |config| config["encoder"]["att_context_size"] = json!([[70, 13]])),
        ("config.json", "encoder.conv_norm_type", |config| config["encoder"]["conv_norm_type"] = json!("layer_norm")),
        ("config.json", "preprocessor.normalize", |config| config["preprocessor"]["normalize"] = json!("all_features")),
        ("config.json", "lfm.layer_types", |config| {
            config["lfm"]["layer_types"] = json!(["conv", "linear", "conv", "conv"])
        }),
        ("config.json", "lfm.num_hidden_layers", |config| config["lfm"]["num_hidden_layers"] = json!(129)),
        ("config.json", "depthformer.dim", |config| config["depthformer"]["dim"] = json!(36)),
        ("config.json", "lfm.conv_L_cache", |config| config["lfm"]["conv_L_cache"] = json!(1)),
        ("audio_detokenizer/config.json", "output_size", |config| config["output_size"] = json!(67)),
    ];
    for (file, field, change) in changes {
        let error = refused(file, change);
        assert!(error.contains(file) && error.contains(field), "{field}: {error}");
    }
}

#[test]
fn codebooks_of_both_parts_agree() {
    let error = refused("audio_detokenizer/config.json", |config| config["codebook_size"] = json!(31));
    assert!(error.contains("codebook_size") && error.contains("must be 32"), "{error}");
}

#[test]
fn folders_without_a_detokenizer_are_refused() {
    let copy = copy(&checkpoint());
    std::fs::remove_dir_all(copy.path().join("audio_detokenizer")).unwrap();
    let error = load_model(&open(copy.path()), &EngineConfig::default()).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("audio_detokenizer"), "{error}");
}
