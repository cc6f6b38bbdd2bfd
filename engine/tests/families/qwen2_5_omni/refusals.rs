//! Refused checkpoints: each error names the file and the remedy.

use repartee_checkpoint::pickle::PickleValue;
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

/// Replaces bytes of a file, which must be there once, by as many others.
fn patched(file: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    assert_eq!(from.len(), to.len());
    let places: Vec<usize> =
        file.windows(from.len()).enumerate().filter(|(_, found)| *found == from).map(|(at, _)| at).collect();
    let &[at] = &places[..] else { panic!("{} places", places.len()) };
    let mut patched = file.to_vec();
    patched[at..at + to.len()].copy_from_slice(to);
    patched
}

#[test]
fn odd_speakers_are_named() {
    let file = "spk_dict.pt";
    let missing = refusal(|folder| std::fs::remove_file(folder.join(file)).unwrap());
    assert!(missing.starts_with("spk_dict.pt: file missing"), "{missing}");
    let speakers = std::fs::read(folder(NAME).join("checkpoint").join(file)).unwrap();
    let with = |bytes: &[u8]| refusal(|folder| std::fs::write(folder.join(file), bytes).unwrap());
    for (bytes, expected) in [
        (b"no tensors at all".to_vec(), "its archive: this is no file of PyTorch"),
        (speakers[..1000].to_vec(), "its archive: is truncated or corrupt"),
        (patched(&speakers, b"cond", b"cons"), "ada.cond: it is no tensor"),
        (patched(&speakers, b"bos_token", b"bos_tokeN"), "ada.bos_token: it is no id of the thinker"),
        (
            patched(&speakers, b"torch\nFloatStorage", b"torch\nFloatStorag_"),
            "ada.cond: has numbers of the type FloatStorag_",
        ),
    ] {
        let message = with(&bytes);
        assert!(message.starts_with(&format!("{file}: {expected}")), "{message}");
    }
    let numbers = PickleValue::read(file, &speakers).unwrap().get("ada").unwrap().tensors()[0].1.place().unwrap();
    let mut infinite = speakers;
    infinite[numbers.start..numbers.start + 4].copy_from_slice(&f32::INFINITY.to_le_bytes());
    let message = with(&infinite);
    assert!(message.contains("ada: it does not have") && message.contains("all finite"), "{message}");
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
