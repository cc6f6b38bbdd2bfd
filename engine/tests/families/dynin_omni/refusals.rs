//! Refused folders: each error names the file and the field, or what is missing.

use serde_json::{Value, json};

use super::*;

/// Error of a copy of the fixture after a change.
fn refused(change: impl FnOnce(&Path)) -> String {
    let copy = copy(&checkpoint());
    change(copy.path());
    load_model(&open(copy.path()), &EngineConfig::default()).map(|_| ()).unwrap_err().to_string()
}

/// Changes a field, by its path in a file.
fn set(file: &Path, path: &str, value: &Value) {
    let mut config: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    *path.split('.').fold(&mut config, |at, field| &mut at[field]) = value.clone();
    std::fs::write(file, config.to_string()).unwrap();
}

#[test]
fn unsupported_settings_are_named() {
    let (config, generation) = ("config.json", "generation_config.json");
    let (codec, uvits) = (format!("{CODEC}/config.json"), format!("{CODEC}/uvits.json"));
    for (file, path, value) in [
        (config, "n_kv_heads", json!(1)),
        (config, "d_model", json!(30)),
        (config, "block_type", json!("sequential")),
        (config, "weight_tying", json!(true)),
        (config, "new_vocab_size", json!(312)),
        (config, "mask_token_id", json!(304)),
        (config, "max_sequence_length", json!(183)),
        (generation, "block_length", json!(0)),
        (generation, "temperature", json!(0.0)),
        (generation, "cfg_scale", json!(-1.0)),
        (&codec, "u2s_num_styles", json!(3)),
        (&codec, "u2s_dim_styles", json!(13)),
        (&uvits, "model.resblock", json!("2")),
        (&uvits, "model.upsample_kernel_sizes", json!([16, 8])),
        (&uvits, "model.upsample_kernel_sizes", json!([16, 8, 3])),
        (&uvits, "model.resblock_kernel_sizes", json!([3, 4])),
        (&uvits, "model.resblock_dilation_sizes", json!([[1, 3, 5]])),
        (&uvits, "model.hidden_channels", json!(15)),
        (&uvits, "data.sampling_rate", json!(1)),
    ] {
        let error = refused(|folder| set(&folder.join(file), path, &value));
        let field = path.rsplit('.').next().unwrap();
        // A width of styles is refused beside the one that it has to equal.
        let named = error.contains(field) && error.contains(file.rsplit('/').next().unwrap());
        assert!(named || error.contains("u2s_dim_styles"), "{path} {value}: {error}");
    }
}

#[test]
fn missing_files_are_named() {
    for file in ["tokenizer.json", &format!("{CODEC}/config.json"), &format!("{CODEC}/uvits.json")] {
        let error = refused(|folder| std::fs::remove_file(folder.join(file)).unwrap());
        assert!(error.contains(file), "{file}: {error}");
    }
    let error = refused(|folder| std::fs::remove_dir_all(folder.join(CODEC)).unwrap());
    assert!(error.contains(CODEC), "{error}");
}

#[test]
fn published_marks_have_reserved_ids() {
    // A tokenizer that calls the marks otherwise, in a vocabulary too small for their ids.
    let error = refused(|folder| {
        let path = folder.join("tokenizer.json");
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(path, text.replace("<|soa|>", "<|reserved_token_13|>")).unwrap();
    });
    assert!(error.contains("<|soa|>"), "{error}");
}
