//! Refused checkpoints, voices, texts and recordings: each error names the remedy.

use repartee_engine::EngineConfig;
use repartee_engine::internals::load_model;
use repartee_engine_api::{Command, EnrolError, FinishReason, Recording, Respond, Role, SessionError};
use serde_json::{Value, json};

use super::open;
use repartee_engine_testkit::Expected;
use repartee_engine_testkit::driven::{serve, submit};
use repartee_engine_testkit::speech::greedy_copy;

fn config() -> EngineConfig {
    EngineConfig { session_tokens: 512, ..EngineConfig::default() }
}

#[test]
fn odd_recordings_are_refused() {
    let (expected, copy) = (Expected::load("tts_clone"), greedy_copy("tts_clone"));
    let mut engine = serve(copy.path(), &config());
    let voices = engine.scheduler.voices();
    let samples = expected.tensor("run2.voice.audio").0;
    let recording = |samples: &[f32], text: &str| Recording { samples: samples.to_vec(), text: text.to_owned() };
    for (samples, text, says) in [
        (&samples[..400], "", "too short"),
        (&[], "", "too short"),
        (&vec![0.0; 24_000 * 21], "", "cut it to 20 s"),
        (&vec![f32::NAN; 24_000], "", "from -1 to 1"),
        (&vec![1.5; 24_000], "", "from -1 to 1"),
        (&samples, &*"spoken ".repeat(400), "512 are allowed"),
    ] {
        let error = voices.enrol("mine", &recording(samples, text)).unwrap_err();
        assert!(matches!(error, EnrolError::Recording { .. }) && error.to_string().contains(says), "{error}");
    }
    voices.enrol("mine", &recording(&samples, "")).unwrap();
    let again = voices.enrol("mine", &recording(&samples, ""));
    assert!(matches!(again, Err(EnrolError::Taken { .. })), "{again:?}");
    let session = engine.open();
    submit(&session, Command::text(0, Role::User, "the sea"));
    let mut say = |number: u64, voice: &str| {
        engine.respond(&session, Respond { voice: Some(voice.to_owned()), ..Respond::new(number, 10 + number) })
    };
    for (number, voice) in (0..).zip(["default", "mine", "mine/english"]) {
        assert!(!say(number, voice).unwrap().samples.is_empty(), "{voice}");
    }
    assert!(voices.remove_voice("mine") && !voices.remove_voice("mine"));
    assert!(matches!(say(9, "mine"), Err(SessionError::UnknownVoice { .. })));
    let fixed = serve(greedy_copy("tts_custom").path(), &config()).scheduler.voices();
    let refused = fixed.enrol("mine", &recording(&samples, ""));
    assert!(matches!(refused, Err(EnrolError::Fixed { .. })), "{refused:?}");
}

#[test]
fn unknown_voices_are_refused() {
    let copy = greedy_copy("tts_custom");
    let mut engine = serve(copy.path(), &config());
    let session = engine.open();
    submit(&session, Command::text(0, Role::User, "the sea"));
    for (number, voice) in ["nobody", "ada/klingon", "ada/", "mine", ""].into_iter().enumerate() {
        let respond = Respond { voice: Some(voice.to_owned()), ..Respond::new(number as u64, 10 + number as u64) };
        let error = engine.respond(&session, respond).unwrap_err();
        assert!(matches!(error, SessionError::UnknownVoice { .. }), "{voice}: {error}");
        assert!(error.to_string().contains("ada/english"), "{error}");
    }
    let known = Respond { voice: Some("ada/english".to_owned()), ..Respond::new(9, 19) };
    assert!(!engine.respond(&session, known).unwrap().samples.is_empty());
}

#[test]
fn texts_beyond_the_context_are_bounded() {
    let copy = greedy_copy("tts_custom");
    let mut engine = serve(copy.path(), &config());
    let session = engine.open();
    let huge = "the sea ".repeat(600);
    submit(&session, Command::text(0, Role::User, &huge));
    let error = engine.respond(&session, Respond::new(0, 1)).unwrap_err();
    assert!(matches!(error, SessionError::ContextFull { .. }), "{error}");
    drop(session);
    // Streamed text is cut at the response's upper bound of tokens.
    let session = engine.open();
    submit(&session, Command::Respond(Respond { streamed: true, ..Respond::new(1, 2) }));
    submit(&session, Command::StreamText { response: 1, text: huge.clone() });
    submit(&session, Command::EndText { response: 1 });
    let cut = engine.listen(&session, 1).unwrap();
    assert_eq!((cut.reason, cut.usage.output_text_tokens), (Some(FinishReason::Length), 512));
    assert!(huge.starts_with(&cut.text) && !cut.samples.is_empty());
    drop(session);
    assert_eq!(engine.left_behind(), (0, 0));
}

/// A field of config.json or of the codec's, an invalid value, and the error's text.
type Wrong<'a> = (&'a str, &'a str, Value, &'a str);

#[test]
fn wrong_configurations_name_the_field() {
    let wrong: &[Wrong<'_>] = &[
        ("", "/tts_model_type", json!("opera"), "custom_voice, voice_design or base"),
        ("", "/tts_bos_token_id", json!(99_999), "below the vocabulary's size"),
        ("", "/talker_config/vocab_size", json!(1024), "above 1024"),
        ("", "/talker_config/codec_bos_id", json!(99_999), "below the vocabulary's size"),
        ("", "/talker_config/codec_language_id/english", json!(99_999), "below the vocabulary's size"),
        ("", "/talker_config/num_hidden_layers", json!(0), "at least 1"),
        ("", "/talker_config/hidden_act", json!("relu"), "silu"),
        ("", "/talker_config/num_key_value_heads", json!(2), "multiple of num_key_value_heads"),
        ("", "/talker_config/code_predictor_config/num_code_groups", json!(7), "talker_config.num_code_groups"),
        ("", "/speaker_encoder_config/enc_dim", json!(7), "talker_config.hidden_size"),
        ("", "/speaker_encoder_config/mel_dim", json!(80), "128"),
        ("", "/speaker_encoder_config/enc_dilations", json!([1]), "one of 1 to 64 for each of enc_channels"),
        ("speech_tokenizer", "/model_type", json!("qwen3_tts_tokenizer_25hz"), "qwen3_tts_tokenizer_12hz"),
        ("speech_tokenizer", "/decoder_config/num_quantizers", json!(2), "talker_config.num_code_groups"),
        ("speech_tokenizer", "/decoder_config/codebook_dim", json!(7), "even and positive"),
        ("speech_tokenizer", "/decoder_config/upsample_rates", json!([]), "at least one"),
        ("speech_tokenizer", "/encoder_config/use_causal_conv", json!(false), "true"),
        ("speech_tokenizer", "/encoder_config/num_quantizers", json!(1), "at least 3"),
        ("speech_tokenizer", "/encoder_config/codebook_size", json!(7), "decoder_config.codebook_size"),
    ];
    for (part, field, value, says) in wrong {
        let copy = greedy_copy("tts_clone");
        let path = copy.path().join(part).join("config.json");
        let mut json: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        *json.pointer_mut(field).unwrap_or_else(|| panic!("the fixture has no {field}")) = value.clone();
        std::fs::write(&path, json.to_string()).unwrap();
        let Err(error) = load_model(&open(copy.path()), &config()) else { panic!("{field} {value} was accepted") };
        let error = error.to_string();
        let name = field.rsplit('/').next().unwrap();
        assert!(error.contains(name) && error.contains(says), "{field}: {error}");
    }
}

#[test]
fn a_missing_codec_is_named() {
    let copy = greedy_copy("tts_custom");
    std::fs::remove_dir_all(copy.path().join("speech_tokenizer")).unwrap();
    let Err(error) = load_model(&open(copy.path()), &config()) else { panic!("it was accepted") };
    assert!(error.to_string().contains("speech_tokenizer"), "{error}");
}
