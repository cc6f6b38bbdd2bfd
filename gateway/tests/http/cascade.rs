//! A cascade of real models behind the server: a language model, and a model that speaks its text.

use std::path::PathBuf;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use repartee::config::{CascadeConfig, Config, ConfigError, Secret, ThinkSource};
use repartee_engine::{CascadeParts, Engine, EngineConfig, StartError};
use repartee_engine_api::SpeechEngine as _;
use repartee_gateway_testkit::http::send;
use repartee_gateway_testkit::{fixture, serve_engine};
use serde_json::json;

const JSON: (&str, &str) = ("content-type", "application/json");

fn cascade(think: &str, speak: &str) -> Result<Engine, StartError> {
    let parts = CascadeParts { hear: None, think: Some(fixture(think)), speak: Some(fixture(speak)) };
    Engine::start_cascade(parts, &EngineConfig::default(), |_| {})
}

#[tokio::test]
async fn a_cascade_speaks_what_it_writes() {
    let (address, _server) = serve_engine(cascade("text_qwen2", "tts_custom").unwrap()).await;
    let model = send(address, "GET", "/v1/models/checkpoint", &[], b"").await.json();
    let capabilities = &model["repartee"];
    assert_eq!((&capabilities["hears"], &capabilities["audio_output"]), (&json!(false), &json!(true)), "{model}");
    assert_eq!(capabilities["default_voice"], "ada", "the voices are those of the model that speaks");
    let ask = async |modalities: serde_json::Value| {
        let request = json!({"modalities": modalities, "audio": {"voice": "grace", "format": "pcm16"}, "max_tokens": 12,
            "temperature": 0, "messages": [{"role": "system", "content": "over"}, {"role": "user", "content": "the lazy dog"}]});
        let reply = send(address, "POST", "/v1/chat/completions", &[JSON], request.to_string().as_bytes()).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        reply.json()["choices"][0]["message"].clone()
    };
    let written = ask(json!(["text"])).await;
    let spoken = ask(json!(["text", "audio"])).await;
    assert_eq!(spoken["audio"]["transcript"], written["content"], "the text is the language model's");
    let sound = STANDARD.decode(spoken["audio"]["data"].as_str().unwrap()).unwrap();
    assert!(sound.len() > 480 && sound.iter().any(|&byte| byte != 0), "{} bytes", sound.len());
}

#[tokio::test]
async fn a_talker_speaks_for_another_model() {
    let (address, _server) = serve_engine(cascade("text_qwen2", "ming_flash").unwrap()).await;
    let request = json!({"modalities": ["text", "audio"], "audio": {"voice": "default", "format": "pcm16"}, "max_tokens": 12,
        "temperature": 0, "messages": [{"role": "system", "content": "over"}, {"role": "user", "content": "the lazy dog"}]});
    let reply = send(address, "POST", "/v1/chat/completions", &[JSON], request.to_string().as_bytes()).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    let audio = &reply.json()["choices"][0]["message"]["audio"];
    assert!(audio["transcript"].as_str().unwrap().contains(char::is_alphanumeric), "{audio}");
    // Twelve patches of 1024 samples at 44.1 kHz, at least, as 16-bit samples at 24 kHz.
    let sound = STANDARD.decode(audio["data"].as_str().unwrap()).unwrap();
    assert!(
        sound.len() >= 2 * 12 * 1024 * 24_000 / 44_100 && sound.iter().any(|&byte| byte != 0),
        "{} bytes",
        sound.len()
    );
}

#[tokio::test]
async fn spoken_answers_have_default_limit_and_instructions() {
    let mut config = EngineConfig::default();
    config.spoken_answers.tokens = 5;
    let start = |speak: Option<&str>| {
        let parts = CascadeParts { hear: None, think: Some(fixture("text_qwen2")), speak: speak.map(fixture) };
        Engine::start_cascade(parts, &config, |_| {}).unwrap()
    };
    assert_eq!(start(None).info().instructions, "", "a text may be of any kind");
    let engine = start(Some("tts_custom"));
    assert_eq!(engine.info().instructions, config.spoken_answers.instructions);
    let (address, _server) = serve_engine(engine).await;
    for (limit, expected) in [(json!(null), 5), (json!(9), 9)] {
        let request = json!({"modalities": ["text"], "temperature": 0, "max_tokens": limit,
            "messages": [{"role": "user", "content": "the lazy dog"}]});
        let reply = send(address, "POST", "/v1/chat/completions", &[JSON], request.to_string().as_bytes()).await.json();
        let found = (&reply["choices"][0]["finish_reason"], &reply["usage"]["completion_tokens"]);
        assert_eq!(found, (&json!("length"), &json!(expected)), "{reply}");
    }
}

#[test]
fn models_that_do_not_join_are_refused() {
    let alone = CascadeParts { hear: Some(fixture("text_qwen2")), think: None, speak: None };
    let error = Engine::start_cascade(alone, &EngineConfig::default(), |_| {}).unwrap_err().to_string();
    assert!(error.contains("cascade.hear: this model is no recogniser"), "{error}");
    for (think, speak, words) in [
        ("dense", "tts_custom", "cascade.think: this model speaks by itself"),
        ("text_llama", "text_qwen3", "cascade.speak: this model answers with text alone"),
    ] {
        let error = cascade(think, speak).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn half_a_cascade_is_refused_by_name() {
    let folder = || Some(PathBuf::from("/models"));
    let think = |source: &str| Some(ThinkSource::try_from(PathBuf::from(source)).unwrap());
    let refused = |change: &dyn Fn(&mut Config)| {
        let mut config = Config::default();
        change(&mut config);
        match config.check() {
            Err(ConfigError::Value { path, .. }) => path,
            other => panic!("{other:?}"),
        }
    };
    let ends = |config: &mut Config| (config.cascade.hear, config.cascade.speak) = (folder(), folder());
    assert_eq!(refused(&ends), "cascade.think");
    let parts: [fn(&mut CascadeConfig, &str); 3] = [
        |cascade, path| cascade.hear = Some(path.into()),
        |cascade, path| cascade.think = Some(ThinkSource::try_from(PathBuf::from(path)).unwrap()),
        |cascade, path| cascade.speak = Some(path.into()),
    ];
    for set in parts {
        let mut alone = Config::default();
        set(&mut alone.cascade, "/models");
        assert!(alone.check().is_ok());
        let beside = |config: &mut Config| {
            set(&mut config.cascade, "/models");
            config.model = folder();
        };
        assert_eq!(refused(&beside), "model");
    }
    let server = |change: fn(&mut CascadeConfig)| {
        refused(&move |config| {
            config.cascade.think = think("http://127.0.0.1:8000");
            change(&mut config.cascade);
        })
    };
    assert_eq!(server(|cascade| cascade.attempts = 0), "cascade.attempts");
    assert_eq!(server(|cascade| cascade.connect = Duration::ZERO), "cascade.connect_s");
    assert_eq!(server(|cascade| cascade.first_token = Duration::from_secs(50)), "cascade.first_token_s");
    assert_eq!(server(|cascade| cascade.between_tokens = Duration::from_secs(60)), "cascade.between_tokens_s");
    let two_keys = |cascade: &mut CascadeConfig| {
        (cascade.key, cascade.key_file) = (Some(Secret::new("key")), Some("/key".into()));
    };
    assert_eq!(server(two_keys), "cascade.key_file");
}
