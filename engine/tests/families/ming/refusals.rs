//! Refused folders: each error names the file and the field, or what is missing.

use serde_json::{Value, json};

use super::*;

/// Error of a copy of a fixture after a change.
fn refused(fixture: &Fixture, change: impl FnOnce(&Path)) -> String {
    let copy = copy(&fixture.checkpoint());
    change(copy.path());
    load_model(&open(copy.path()), &EngineConfig::default()).map(|_| ()).unwrap_err().to_string()
}

/// Changes a field, by its path in a file.
fn set(folder: &Path, file: &str, path: &str, value: &Value) {
    let file = folder.join(file);
    let mut config: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    *path.split('.').fold(&mut config, |at, field| &mut at[field]) = value.clone();
    std::fs::write(file, config.to_string()).unwrap();
}

#[test]
fn unsupported_settings_are_named() {
    let [tts, flash] = &FIXTURES;
    let (config, talker, vae) = ("config.json", "talker/config.json", "talker/vae/config.json");
    for (fixture, file, path, value) in [
        (tts, config, "ditar_config.num_heads", json!(3)),
        (tts, config, "ditar_config.history_patch_size", json!(30)),
        (tts, config, "ditar_config.mlp_ratio", json!(0)),
        (tts, config, "aggregator_config.qk_norm", json!("layer_norm")),
        (tts, config, "audio_tokenizer_config.sample_rate", json!(1)),
        (tts, config, "audio_tokenizer_config.patch_size", json!(0)),
        (tts, config, "audio_tokenizer_config.dec_kwargs.output_dim", json!(63)),
        (tts, config, "audio_tokenizer_config.dec_kwargs.backbone.max_window_layers", json!(1)),
        (tts, config, "audio_tokenizer_config.dec_kwargs.backbone.sliding_window", json!(0)),
        (flash, talker, "flowmodel.pe_attn_head", json!(1)),
        (flash, talker, "flowmodel.in_channels", json!(64)),
        (flash, talker, "steps", json!(0)),
        (flash, talker, "latent_dim", json!(64)),
        (flash, vae, "dec_kwargs.latent_dim", json!(0)),
    ] {
        let error = refused(fixture, |folder| set(folder, file, path, &value));
        let field = path.rsplit('.').next().unwrap();
        assert!(error.contains(file) && error.contains(field), "{path} {value}: {error}");
    }
}

#[test]
fn missing_files_are_named() {
    let [tts, flash] = &FIXTURES;
    for (fixture, file) in [
        (tts, "tokenizer.json"),
        (flash, "talker/config.json"),
        (flash, "talker/llm/config.json"),
        (flash, "talker/llm/tokenizer.json"),
        (flash, "talker/vae/config.json"),
    ] {
        let error = refused(fixture, |folder| std::fs::remove_file(folder.join(file)).unwrap());
        assert!(error.contains(file), "{file}: {error}");
    }
    let error = refused(flash, |folder| std::fs::remove_dir_all(folder.join("talker")).unwrap());
    assert!(error.contains("talker"), "{error}");
}

#[test]
fn another_decoder_of_latents_is_refused() {
    let [_, flash] = &FIXTURES;
    let error = refused(flash, |folder| {
        let (from, to) = (folder.join("talker/model.safetensors"), folder.join("talker/vae/model.safetensors"));
        std::fs::write(to, std::fs::read(from).unwrap()).unwrap();
    });
    assert!(error.contains("talker/vae") && error.contains("decoder."), "{error}");
}

#[test]
fn the_talker_alone_is_served() {
    let [_, flash] = &FIXTURES;
    load_model(&open(&flash.checkpoint().join("talker")), &EngineConfig::default()).unwrap();
}

#[test]
fn a_thinker_in_the_folder_is_not_read() {
    let [_, flash] = &FIXTURES;
    let copy = copy(&flash.checkpoint());
    // A shard of the thinker, with a tensor of vision.
    let header = br#"{"vision.patch_embed.weight":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]}}"#;
    let file = [&(header.len() as u64).to_le_bytes()[..], header, &[0; 4]].concat();
    std::fs::write(copy.path().join("model.safetensors"), file).unwrap();
    load_model(&open(copy.path()), &EngineConfig::default()).unwrap();
}
