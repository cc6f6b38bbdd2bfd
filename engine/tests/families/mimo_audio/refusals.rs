//! Refused checkpoints: each error names the file and the field, or what is missing.

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
    let (model, sound) = ("config.json", "MiMo-Audio-Tokenizer/config.json");
    for (file, field, value) in [
        (model, "speech_vocab_size", json!("33-33-17")),
        (model, "speech_vocab_size", json!("33-33-17-17-9-9-9-x")),
        (model, "speech_zeroemb_idx", json!(32)),
        (model, "delay_pattern", json!("0-1-2-3-4-5-6-11")),
        (model, "delay_pattern", json!("1-1-2-3-4-5-6-7")),
        (model, "local_dim", json!(18)),
        (model, "input_local_dim", json!(32)),
        (model, "group_size", json!(0)),
        (sound, "avg_pooler", json!(1)),
        (sound, "ln_type", json!("RMSNorm")),
        (sound, "nfft", json!(128)),
        (sound, "decoder_kernel_size", json!(4)),
        (sound, "codebook_size", json!([32, 32, 16, 16, 9])),
        (sound, "num_quantizers", json!(7)),
        (sound, "vocoder_attn_window_size", json!([40])),
        (sound, "encoder_skip_layer_id", json!(4)),
        (sound, "window_size", json!(121)),
        (sound, "fmax", json!(-1.0)),
    ] {
        let error = refused(file, |config| config[field] = value.clone());
        assert!(error.contains(file) && error.contains(field), "{field} {value}: {error}");
    }
}

#[test]
fn a_missing_tokenizer_is_named() {
    let copy = copy(&checkpoint());
    std::fs::remove_dir_all(copy.path().join(SOUND)).unwrap();
    let error = load_model(&open(copy.path()), &EngineConfig::default()).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains(SOUND), "{error}");
}

#[test]
fn windows_without_samples_are_refused() {
    let error = load_model(&open(&checkpoint()), &settings([3, 4, 5])).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("stages.codec.right_codes"), "{error}");
}
