//! Refused checkpoints: each error names the file and the field, or what is missing.

use serde_json::{Value, json};

use super::*;

/// Error of a folder.
fn error(folder: &Path) -> String {
    load_model(&open(folder), &EngineConfig::default()).map(|_| ()).unwrap_err().to_string()
}

#[test]
fn unsupported_settings_are_named() {
    for (section, field, value) in [
        ("text_config", "model_type", json!("qwen2")),
        ("text_config", "audio_bos_index", json!(310)),
        ("text_config", "attention_bias", json!(true)),
        ("text_config", "num_hidden_layers", json!(0)),
        ("audio_config", "codebook_size", json!(66)),
        ("audio_config", "eos_token_id", json!(63)),
        ("audio_config", "bos_token_id", json!(68)),
        ("audio_config", "group_size", json!(3)),
        ("audio_config", "group_size", json!(0)),
        ("audio_config", "output_dim", json!(16)),
        ("audio_config", "continuous_features_mode", json!("add")),
        ("audio_config", "enable_audio_invert_tower", json!(false)),
    ] {
        let copy = copy(&checkpoint());
        let path = copy.path().join("config.json");
        let mut config: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        config[section][field] = value.clone();
        std::fs::write(&path, config.to_string()).unwrap();
        let error = error(copy.path());
        // A group of another size has other windows.
        let field = if value == json!(3) { "n_window" } else { field };
        assert!(error.contains("config.json") && error.contains(field), "{field} {value}: {error}");
    }
}

#[test]
fn missing_parts_are_named() {
    for part in [SOUND, "new_spk2info.pt", "preprocessor_config.json"] {
        let copy = copy(&checkpoint());
        let path = copy.path().join(part);
        if path.is_dir() { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) }.unwrap();
        let error = error(copy.path());
        assert!(error.contains(part), "{part}: {error}");
    }
}

#[test]
fn voices_without_a_vector_are_refused() {
    let copy = copy(&checkpoint());
    let voices = folder("cosyvoice3").join("checkpoint").join("spk2info.pt");
    std::fs::copy(voices, copy.path().join("new_spk2info.pt")).unwrap();
    let error = error(copy.path());
    assert!(error.contains("new_spk2info.pt") && error.contains("recorded.embedding"), "{error}");
}
