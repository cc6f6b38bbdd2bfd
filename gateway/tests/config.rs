//! Settings: the example holds all of them, later sources win, and what is wrong is said by its path.
#![allow(clippy::unwrap_used, reason = "a test ends where something is missing")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use repartee::config::{Config, ConfigError, EXAMPLE, load};
use repartee_engine::StageConfig;
use serde_json::Value;

fn nothing(_: &str) -> Option<String> {
    None
}

/// Every setting of `value` by its path.
fn leaves(value: Value) -> BTreeMap<String, Value> {
    match value {
        Value::Object(fields) => fields
            .into_iter()
            .flat_map(|(name, value)| match value {
                Value::Object(_) => leaves(value).into_iter().map(|(path, v)| (format!("{name}.{path}"), v)).collect(),
                value => vec![(name, value)],
            })
            .collect(),
        other => panic!("{other} is no table"),
    }
}

struct File {
    _folder: tempfile::TempDir,
    path: PathBuf,
}

fn file(text: &str) -> File {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("repartee.toml");
    std::fs::write(&path, text).unwrap();
    File { _folder: folder, path }
}

/// The example with every setting active.
fn uncommented() -> String {
    let lines = EXAMPLE.lines().map(|line| match line.strip_prefix('#') {
        Some(setting) if setting.starts_with(|first: char| first.is_ascii_lowercase()) => setting,
        _ => line,
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn the_example_changes_nothing() {
    let mut config = load(Some(&file(EXAMPLE).path), nothing, &[]).unwrap();
    // An empty table of a stage leaves every choice to the model, as none does.
    assert_eq!(config.engine.stages.remove("code2wav"), Some(StageConfig::default()));
    assert_eq!(config, Config::default());
}

#[test]
fn the_example_has_every_setting_with_its_default() {
    let example: BTreeMap<_, _> = leaves(serde_json::to_value(uncommented().parse::<toml::Table>().unwrap()).unwrap());
    let mut defaults = leaves(serde_json::to_value(Config::default()).unwrap());
    // The example shows one stage; which there are, the model says.
    let stage = leaves(serde_json::to_value(StageConfig::default()).unwrap());
    defaults.extend(stage.into_iter().map(|(name, value)| (format!("engine.stages.code2wav.{name}"), value)));
    let names = |settings: &BTreeMap<String, Value>| settings.keys().cloned().collect::<BTreeSet<_>>();
    assert_eq!(names(&example), names(&defaults));
    for (path, default) in &defaults {
        // What is unset by default is shown by an example.
        assert!(default.is_null() || example[path] == *default, "{path}: {} is not {default}", example[path]);
    }
    // The examples are values that fit.
    let text = uncommented().replace("file = \"/etc/repartee/keys\"", "");
    load(Some(&file(&text).path), nothing, &[]).unwrap();
}

#[test]
fn environment_overrides_file_and_arguments_override_both() {
    let file = file("drain_s = 1\nping_every_s = 1\nstalled_after_s = 1\n[limits]\ncalls_per_key = 1\n");
    let environment = |name: &str| match name {
        "REPARTEE_PING_EVERY_S" => Some("2.5".into()),
        "REPARTEE_STALLED_AFTER_S" | "REPARTEE_LIMITS_CALLS_PER_KEY" => Some("2".into()),
        "REPARTEE_BROWSER_ORIGINS" => Some("https://a.example, https://b.example".into()),
        "REPARTEE_KEYS_METRICS" => Some("false".into()),
        "REPARTEE_MODEL" => Some("/model".into()),
        _ => None,
    };
    let set = [("stalled_after_s".to_owned(), "3".to_owned()), ("webrtc.turn.ttl_s".to_owned(), "60".to_owned())];
    let config = load(Some(&file.path), environment, &set).unwrap();
    assert_eq!(config.drain, Duration::from_secs(1));
    assert_eq!(config.ping_every, Duration::from_millis(2_500));
    assert_eq!(config.stalled_after, Duration::from_secs(3));
    assert_eq!(config.limits.calls_per_key, 2);
    assert_eq!(config.browser.origins, ["https://a.example", "https://b.example"]);
    assert_eq!(config.webrtc.turn.ttl, Duration::from_secs(60));
    assert_eq!(config.model.as_deref(), Some(Path::new("/model")));
    assert!(!config.keys.metrics);
}

#[test]
fn bad_settings_name_path_and_source() {
    let wrong = |text: &str| load(Some(&file(text).path), nothing, &[]).unwrap_err().to_string();
    for (text, words) in [
        ("lisen = \"127.0.0.1:1\"", vec!["repartee.toml", "lisen"]),
        ("[limits]\ncalls = 3", vec!["limits", "calls"]),
        ("[limits]\ncalls_per_key = \"many\"", vec!["limits.calls_per_key", "many"]),
        ("[webrtc.turn]\nttl_s = -1", vec!["webrtc.turn.ttl_s", "-1"]),
        ("listen = \"somewhere\"", vec!["listen", "address"]),
        ("[proxy]\ntrusted = [\"10.0.0.1\"]", vec!["proxy.trusted[0]"]),
        ("drain_s = ", vec!["repartee.toml", "TOML", "line 1"]),
    ] {
        let said = wrong(text);
        assert!(words.iter().all(|word| said.contains(word)), "{words:?} in {said}");
    }
    let environment = |name: &str| (name == "REPARTEE_DRAIN_S").then(|| "soon".into());
    let said = load(None, environment, &[]).unwrap_err().to_string();
    assert!(said.contains("REPARTEE_DRAIN_S") && said.contains("drain_s"), "{said}");
    let environment = |name: &str| (name == "REPARTEE_LISTEN").then(|| "nowhere".into());
    let said = load(None, environment, &[]).unwrap_err().to_string();
    assert!(said.contains("REPARTEE_LISTEN: listen"), "{said}");
    let of_a_stage = [("engine.stages.talker.batch_rows".to_owned(), "7".to_owned())];
    assert_eq!(load(None, nothing, &of_a_stage).unwrap().engine.stage("talker").batch_rows, Some(7));
    load(None, nothing, &[("engine.stages.talker.rows".into(), "7".into())]).unwrap_err();
    let said = load(None, nothing, &[("limits.cals".into(), "1".into())]).unwrap_err().to_string();
    assert!(said.contains("limits.cals") && said.contains("repartee.example.toml"), "{said}");
    let said = load(Some(Path::new("/no/such.toml")), nothing, &[]).unwrap_err().to_string();
    assert!(said.contains("/no/such.toml"), "{said}");
}

#[test]
fn keys_are_loaded_and_never_printed() {
    let keys = file("# ours\nphone key-of-the-phone-1\n");
    let settings = file(&format!("[keys]\nfile = {:?}\n", keys.path));
    let environment = |name: &str| match name {
        "REPARTEE_API_KEYS" => Some("key-of-the-laptop-2,key-of-the-tablet-3".into()),
        "REPARTEE_WEBRTC_TURN_SECRET" => Some("turn-secret".into()),
        "REPARTEE_WEBRTC_TURN_URLS" => Some("turn:turn.example".into()),
        _ => None,
    };
    let config = load(Some(&settings.path), environment, &[]).unwrap();
    assert_eq!(config.api_keys.len(), 3);
    assert!(config.api_keys.find("key-of-the-phone-1").is_some());
    let printed = format!("{config}\n{config:?}");
    assert!(printed.contains("API keys: 3 set") && printed.contains("secret = \"(set)\""), "{printed}");
    for secret in ["key-of", "turn-secret"] {
        assert!(!printed.contains(secret), "{secret} in {printed}");
    }
    let short = load(None, |name| (name == "REPARTEE_API_KEYS").then(|| "hunter2".into()), &[]).unwrap_err();
    assert!(short.to_string().contains("REPARTEE_API_KEYS") && !short.to_string().contains("hunter2"), "{short}");
}

#[test]
fn printed_settings_load_again() {
    let text =
        "[limits]\ncalls_per_key = 9\n[browser]\norigins = [\"https://a.example\"]\n[webrtc]\nreceiver_buffer_s = 0.08";
    let config = load(Some(&file(text).path), nothing, &[]).unwrap();
    assert_eq!(load(Some(&file(&config.to_string()).path), nothing, &[]).unwrap(), config);
}

#[test]
fn contradictory_settings_are_refused() {
    let refused = |text: &str| load(Some(&file(text).path), nothing, &[]).unwrap().check().unwrap_err();
    for (text, path) in [
        ("ping_every_s = 0", "ping_every_s"),
        ("[limits]\nconnections = 0", "limits.connections"),
        ("[engine]\nsessions = 0", "engine.sessions"),
        ("[tls]\ncertificate = \"a.pem\"", "tls.key"),
        ("[tls]\nkey = \"a.pem\"", "tls.certificate"),
        ("[tls]\ncertificate = \"a.pem\"\nkey = \"b.pem\"\ndevelopment = true", "tls.development"),
        ("[browser]\norigins = [\"app.example\"]", "browser.origins"),
        ("[browser]\norigins = [\"*\"]", "browser.origins"),
        ("[browser]\norigins = [\"https://app.example/page\"]", "browser.origins"),
        ("[webrtc]\nmax_message_bytes = 1000000", "webrtc.max_message_bytes"),
        ("[webrtc.turn]\nurls = [\"turn:a\"]", "webrtc.turn"),
    ] {
        let error = refused(text);
        assert!(error.to_string().starts_with(path), "{path}: {error}");
    }
    assert!(matches!(refused("listen = \"0.0.0.0:8080\""), ConfigError::Public(_)));
}
