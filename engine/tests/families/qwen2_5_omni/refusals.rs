//! Refused checkpoints: each error names the file and the remedy.

use repartee_engine::EngineConfig;
use repartee_engine::internals::load_model;
use serde_json::json;

use super::{NAME, open};
use repartee_engine_testkit::folder;
use repartee_engine_testkit::speech::copy;

fn refusal(change: impl Fn(&std::path::Path)) -> String {
    let copy = copy(&folder(NAME).join("checkpoint"));
    change(copy.path());
    let error =
        load_model(&open(copy.path()), &EngineConfig::default()).err().expect("this checkpoint must be refused");
    error.to_string().replace(&format!("{}/", copy.path().display()), "")
}

fn with_config(change: impl Fn(&mut serde_json::Value)) -> String {
    refusal(|folder| {
        let path = folder.join("config.json");
        let mut config = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        change(&mut config);
        std::fs::write(&path, config.to_string()).unwrap();
    })
}

#[test]
fn speakers_in_a_pickle_name_the_script() {
    let message = refusal(|folder| std::fs::remove_file(folder.join("spk_dict.safetensors")).unwrap());
    let expected = "spk_dict.safetensors: file missing: make it of spk_dict.pt: type `scripts/convert-speakers FOLDER`";
    assert!(message.starts_with(expected), "{message}");
}

#[test]
fn odd_speakers_are_named() {
    let with = |bytes: &[u8]| refusal(|folder| std::fs::write(folder.join("spk_dict.safetensors"), bytes).unwrap());
    for bytes in [&b""[..], b"no tensors at all", &[255; 64]] {
        let message = with(bytes);
        assert!(message.starts_with("spk_dict.safetensors: truncated or corrupt safetensors"), "{message}");
    }
    let speakers = std::fs::read(folder(NAME).join("checkpoint/spk_dict.safetensors")).unwrap();
    let renamed = String::from_utf8_lossy(&speakers[..500]).replace("ada.cond", "ada.conx").into_bytes();
    let renamed = [&renamed[..renamed.len().min(500)], &speakers[500..]].concat();
    let message = with(&renamed);
    assert!(message.contains("spk_dict.safetensors"), "{message}");
    // The first speaker's mark is the first number after the header.
    let start = 8 + u64::from_le_bytes(speakers[..8].try_into().unwrap()) as usize;
    let mut marked = speakers.clone();
    marked[start..start + 4].copy_from_slice(&(-1i32).to_le_bytes());
    let message = with(&marked);
    assert!(message.contains("ada.bos_token is no id of the thinker"), "{message}");
    let mut infinite = speakers;
    infinite[start + 4..start + 8].copy_from_slice(&f32::INFINITY.to_le_bytes());
    let message = with(&infinite);
    assert!(message.contains("spk_dict.safetensors") && message.contains("ada"), "{message}");
}

#[test]
fn missing_special_tokens_are_named() {
    let message = |change: Change| {
        refusal(|folder| {
            let path = folder.join("tokenizer.json");
            let mut tokenizer = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
            change(&mut tokenizer);
            std::fs::write(&path, tokenizer.to_string()).unwrap();
        })
    };
    let renamed = message(|tokenizer| {
        let vocabulary = tokenizer["model"]["vocab"].as_object_mut().unwrap();
        let id = vocabulary.remove("<|im_start|>").unwrap();
        vocabulary.insert("<|begin|>".to_owned(), id);
        tokenizer["added_tokens"][1]["content"] = "<|begin|>".into();
    });
    assert!(renamed.starts_with("tokenizer.json: added_tokens: `<|im_start|>` is missing"), "{renamed}");
    let split = message(|tokenizer| {
        tokenizer["model"]["merges"].as_array_mut().unwrap().retain(|merge| *merge != json!(["sy", "stem"]));
    });
    assert!(split.starts_with("tokenizer.json: model: \"system\" must be one token"), "{split}");
}

/// Edit of a configuration.
type Change = fn(&mut serde_json::Value);

#[test]
fn configurations_that_are_not_built_are_named() {
    let cases: [(&str, Change); 5] = [
        ("enable_audio_output: false", |config| config["enable_audio_output"] = false.into()),
        ("thinker_config.audio_config.n_window: 41", |config| {
            config["thinker_config"]["audio_config"]["n_window"] = 41.into();
        }),
        ("talker_config.embedding_size: 40", |config| config["talker_config"]["embedding_size"] = 40.into()),
        ("talker_config.use_sliding_window: true", |config| {
            config["talker_config"]["use_sliding_window"] = true.into()
        }),
        // A mark that equals a code.
        ("talker_config.tts_codec_end_token_id: 3", |config| {
            config["talker_config"]["tts_codec_end_token_id"] = 3.into()
        }),
    ];
    for (expected, change) in cases {
        let message = with_config(change);
        assert!(message.starts_with(&format!("config.json: {expected} is not allowed")), "{message}");
    }
}
