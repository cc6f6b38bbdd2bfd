//! Checkpoints, voices, texts and recordings that cannot be served: each has an error that says what to do.

use repartee_engine::EngineConfig;
use repartee_engine::internals::load;
use repartee_engine::internals::qwen3_tts::VoiceList;
use repartee_engine_api::{Command, FinishReason, Respond, Role, SessionError};
use serde_json::{Value, json};

use crate::common::Expected;
use crate::common::driven::{Driven, serve, submit};
use crate::common::speech::greedy_copy;
use crate::open;

fn config() -> EngineConfig {
    EngineConfig { session_tokens: 512, ..EngineConfig::default() }
}

#[test]
fn cloned_voices_are_listed_and_bounded() {
    let (expected, copy) = (Expected::load("tts_clone"), greedy_copy("tts_clone"));
    let mut engine = serve(copy.path(), &config());
    let samples = expected.tensor("run2.voice.audio").0;
    let refused = |samples: &[f32], rate, text: &str, engine: &mut Driven| {
        engine.scheduler.enrol(samples, rate, text).unwrap_err().to_string()
    };
    assert!(refused(&samples, 16_000, "", &mut engine).contains("resample it to 24000 Hz"));
    assert!(refused(&samples[..400], 24_000, "", &mut engine).contains("too short"));
    assert!(refused(&vec![0.0; 24_000 * 21], 24_000, "", &mut engine).contains("cut it to 20 s"));
    assert!(refused(&vec![f32::NAN; 24_000], 24_000, "", &mut engine).contains("from -1 to 1"));
    assert!(refused(&samples, 24_000, &"spoken ".repeat(400), &mut engine).contains("512 are allowed"));
    for number in 1..=VoiceList::MOST_CLONED {
        assert_eq!(engine.scheduler.enrol(&samples, 24_000, "").unwrap(), format!("cloned-{number}"));
    }
    assert!(refused(&samples, 24_000, "", &mut engine).contains("the most that are kept"));
    let session = engine.open();
    submit(&session, Command::text(0, Role::User, "the sea"));
    for (number, voice) in ["default", "cloned-1", "cloned-64/english"].into_iter().enumerate() {
        let respond = Respond { voice: Some(voice.to_owned()), ..Respond::new(number as u64, 10 + number as u64) };
        assert!(!engine.respond(&session, respond).unwrap().samples.is_empty(), "{voice}");
    }
    let unknown = Respond { voice: Some("cloned-65".to_owned()), ..Respond::new(9, 19) };
    assert!(engine.respond(&session, unknown).is_err());
}

#[test]
fn unknown_voices_are_refused() {
    let copy = greedy_copy("tts_custom");
    let mut engine = serve(copy.path(), &config());
    let session = engine.open();
    submit(&session, Command::text(0, Role::User, "the sea"));
    for (number, voice) in ["nobody", "ada/klingon", "ada/", "cloned-1", ""].into_iter().enumerate() {
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
    // What streams in is cut at the most tokens of a response.
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

/// A field of config.json or of the codec's, a value that it may not have, and what the error says.
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
        let Err(error) = load(&open(copy.path()), &config()) else { panic!("{field} {value} was accepted") };
        let error = error.to_string();
        let name = field.rsplit('/').next().unwrap();
        assert!(error.contains(name) && error.contains(says), "{field}: {error}");
    }
}

#[test]
fn a_missing_codec_is_named() {
    let copy = greedy_copy("tts_custom");
    std::fs::remove_dir_all(copy.path().join("speech_tokenizer")).unwrap();
    let Err(error) = load(&open(copy.path()), &config()) else { panic!("it was accepted") };
    assert!(error.to_string().contains("speech_tokenizer"), "{error}");
}
