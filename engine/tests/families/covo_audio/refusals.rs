//! Refused checkpoints, licences and codes: each error names the file and the field, or what is missing.

use repartee_engine::LoadError;
use serde_json::{Value, json};

use super::*;

/// Error of a folder.
fn error(folder: &Path) -> String {
    load_model(&open(folder), &settings(WINDOWS)).map(|_| ()).unwrap_err().to_string()
}

#[test]
fn unsupported_settings_are_named() {
    for (file, path, value) in [
        ("config.json", "/audio_token_index", json!(401)),
        ("config.json", "/adapter_downsample", json!(6)),
        ("config.json", "/llm_config/num_hidden_layers", json!(0)),
        ("config.json", "/llm_config/use_sliding_window", json!(true)),
        ("config.json", "/encoder_config/scale_embedding", json!(true)),
        ("token2wav/config.json", "/model/token2latent/token_vocab_size", json!(65)),
        ("token2wav/config.json", "/model/token2latent/transformer/hidden_size", json!(36)),
        ("token2wav/config.json", "/model/token2latent/transformer/qk_norm", json!(true)),
        ("token2wav/config.json", "/model/token2latent/upsample_factor", json!(3)),
        ("token2wav/config.json", "/model/wavegan/causal", json!(false)),
        ("token2wav/config.json", "/model/wavegan/upsample_kernel_sizes", json!([10, 6, 4, 4, 4, 6])),
        ("token2wav/config.json", "/inference/s_steps", json!(1)),
    ] {
        let copy = copy(&checkpoint());
        let place = copy.path().join(file);
        let mut config: Value = serde_json::from_slice(&std::fs::read(&place).unwrap()).unwrap();
        let (section, leaf) = path.rsplit_once('/').unwrap();
        config.pointer_mut(section).unwrap()[leaf] = value.clone();
        std::fs::write(&place, config.to_string()).unwrap();
        let error = error(copy.path());
        // More codes than ids behind the text.
        let leaf = if leaf == "token_vocab_size" { "audio_token_index" } else { leaf };
        assert!(error.contains("config.json") && error.contains(leaf), "{path} {value}: {error}");
    }
}

#[test]
fn missing_parts_are_named() {
    for part in [
        "token2wav",
        "token2wav/model.pt",
        "token2wav/global_mean_var.npy",
        "token2wav/prompt/prompt_token.npy",
        "token2wav/prompt/prompt_latent.npy",
        "token2wav/prompt/speaker_embed.npy",
    ] {
        let copy = copy(&checkpoint());
        let path = copy.path().join(part);
        if path.is_dir() { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) }.unwrap();
        let (error, leaf) = (error(copy.path()), part.rsplit('/').next().unwrap());
        assert!(error.contains(leaf), "{part}: {error}");
    }
}

#[test]
fn wrong_arrays_are_refused() {
    let prompt = checkpoint().join("token2wav/prompt");
    for (file, by, wanted) in [
        ("prompt_token.npy", "speaker_embed.npy", "integers"),
        ("prompt_latent.npy", "speaker_embed.npy", "rows of 8"),
        ("speaker_embed.npy", "prompt_latent.npy", "10 numbers"),
    ] {
        let copy = copy(&checkpoint());
        std::fs::copy(prompt.join(by), copy.path().join("token2wav/prompt").join(file)).unwrap();
        let error = error(copy.path());
        assert!(error.contains(file) && error.contains(wanted), "{file}: {error}");
    }
}

#[test]
fn weights_load_only_with_their_licence() {
    let load = |fixture: &str, accepted: &[&str]| {
        let accept_licence = accepted.iter().map(|name| (*name).to_owned()).collect();
        let config = EngineConfig { accept_licence, ..EngineConfig::default() };
        load_model(&open(&folder(fixture).join("checkpoint")), &config).map(|_| ()).err()
    };
    for (fixture, accepted, words) in [
        (NAME, &[][..], &["academic", "--accept-licence covo-audio"][..]),
        (NAME, &["lfm"][..], &["\"lfm\"", "covo-audio"]),
        ("lfm2_audio", &[LICENCE][..], &["\"covo-audio\"", "leave the setting out"]),
    ] {
        let error = load(fixture, accepted).unwrap();
        assert!(matches!(error, LoadError::Licence(_)), "{error}");
        assert!(words.iter().all(|word| error.to_string().contains(word)), "{error}");
    }
    assert!(load(NAME, &[LICENCE]).is_none());
}

#[test]
fn codes_beyond_the_codebook_are_refused() {
    let mut model = model(&checkpoint(), WINDOWS);
    // The published example lets one code too many pass.
    for codes in [vec![64], vec![u32::MAX], vec![1, 2], Vec::new()] {
        let given = run(&mut model, 1, [StageItem::Codes(codes.clone())]);
        assert!(given.iter().any(|item| matches!(item, StageItem::Fail(_))), "{codes:?}: {given:?}");
    }
    assert!(
        run(&mut model, 1, [StageItem::Codes(vec![63])]).iter().any(|item| matches!(item, StageItem::Latents { .. }))
    );
}

#[test]
fn a_response_without_codes_has_no_sound() {
    let mut model = model(&checkpoint(), WINDOWS);
    let given = run(&mut model, 1, []);
    assert!(matches!(given[..], [StageItem::Begin(_), StageItem::End(StageEnd::Stop)]), "{given:?}");
}
