//! Settings: the example holds all of them, later sources win, errors name the path, and old names still work.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use repartee::config::{Config, ConfigError, EXAMPLE, load};
use repartee_engine::StageConfig;
use repartee_engine::{EngineConfig, KvCacheFormat};
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
    let mut config = load(Some(&file(EXAMPLE).path), nothing, &[]).unwrap().config;
    // An empty table of a stage, like none, leaves every choice to the model.
    assert_eq!(config.engine.stages.remove("code2wav"), Some(StageConfig::default()));
    assert_eq!(config, Config::default());
}

#[test]
fn the_example_has_every_setting_with_its_default() {
    let example: BTreeMap<_, _> = leaves(serde_json::to_value(uncommented().parse::<toml::Table>().unwrap()).unwrap());
    let mut defaults = leaves(serde_json::to_value(Config::default()).unwrap());
    // The example shows one stage; the model names the others.
    let stage = leaves(serde_json::to_value(StageConfig::default()).unwrap());
    defaults.extend(stage.into_iter().map(|(name, value)| (format!("engine.stages.code2wav.{name}"), value)));
    // An option that only this stage of one family has.
    defaults.insert("engine.stages.code2wav.left_context".to_owned(), Value::Null);
    // A list without addresses by default: the example gives one.
    assert_eq!(defaults.insert("sip.listen".to_owned(), Value::Null), Some(Value::Array(Vec::new())));
    let names = |settings: &BTreeMap<String, Value>| settings.keys().cloned().collect::<BTreeSet<_>>();
    assert_eq!(names(&example), names(&defaults));
    for (path, default) in &defaults {
        // The example gives a value to each setting that is unset by default.
        assert!(default.is_null() || example[path] == *default, "{path}: {} is not {default}", example[path]);
    }
    // The example's values are valid.
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
    let config = load(Some(&file.path), environment, &set).unwrap().config;
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
        ("[webrtc.turn]\nttl_s = 1e300", vec!["webrtc.turn.ttl_s", "a year"]),
        ("[limits]\ncall_s = 31536001", vec!["limits.call_s", "a year"]),
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
    assert_eq!(load(None, nothing, &of_a_stage).unwrap().config.engine.stage("talker").batch_rows, Some(7));
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
    let config = load(Some(&settings.path), environment, &[]).unwrap().config;
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
    let config = load(Some(&file(text).path), nothing, &[]).unwrap().config;
    assert_eq!(load(Some(&file(&config.to_string()).path), nothing, &[]).unwrap().config, config);
}

#[test]
fn contradictory_settings_are_refused() {
    let refused = |text: &str| load(Some(&file(text).path), nothing, &[]).unwrap().config.check().unwrap_err();
    for (text, path) in [
        ("ping_every_s = 0", "ping_every_s"),
        ("[limits]\nconnections = 0", "limits.connections"),
        ("[telemetry]\notlp_endpoint = \"https://a.example:4318\"", "telemetry.otlp_endpoint"),
        ("[telemetry]\notlp_endpoint = \"http://a.example/v1/traces\"", "telemetry.otlp_endpoint"),
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

/// Settings by their old names.
const RENAMED: &str = "[engine]\nbeside = 3\n[engine.waits]\nstage_s = 7\ndecision_s = 9\n";

fn renamed_engine() -> EngineConfig {
    let mut engine = EngineConfig { out_of_band: 3, ..EngineConfig::default() };
    (engine.timeouts.stage_s, engine.timeouts.speculation_s) = (7, 9);
    engine
}

#[test]
fn old_names_in_files_work_and_are_reported() {
    let file = file(RENAMED);
    let loaded = load(Some(&file.path), nothing, &[]).unwrap();
    assert_eq!(loaded.config.engine, renamed_engine());
    let said: Vec<_> = loaded.old_names.iter().map(ToString::to_string).collect();
    let path = file.path.display();
    assert_eq!(
        said,
        [
            format!("{path}: engine.beside is now engine.out_of_band; the old name still works"),
            format!("{path}: engine.waits is now engine.timeouts; the old name still works"),
            format!(
                "{path}: engine.timeouts.decision_s is now engine.timeouts.speculation_s; the old name still works"
            ),
        ]
    );
    // The output has the new names, so that nothing is old any more.
    let again = load(Some(&self::file(&loaded.config.to_string()).path), nothing, &[]).unwrap();
    assert_eq!((again.config, again.old_names), (loaded.config, Vec::new()));
}

#[test]
fn threads_are_set_by_environment_and_arguments() {
    let environment = |name: &str| (name == "REPARTEE_ENGINE_THREADS").then(|| "3".to_owned());
    assert_eq!(load(None, environment, &[]).unwrap().config.engine.threads, Some(3));
    let set = [("engine.threads".to_owned(), "2".to_owned()), ("engine.kv_cache".to_owned(), "bf16".to_owned())];
    let engine = load(None, environment, &set).unwrap().config.engine;
    assert_eq!((engine.threads, engine.kv_cache), (Some(2), KvCacheFormat::Bf16));
}

#[test]
fn old_names_in_environment_and_arguments_work() {
    let environment = |name: &str| match name {
        "REPARTEE_ENGINE_BESIDE" => Some("3".into()),
        "REPARTEE_ENGINE_WAITS_DECISION_S" => Some("9".into()),
        _ => None,
    };
    let set = [("engine.waits.stage_s".to_owned(), "7".to_owned())];
    let loaded = load(None, environment, &set).unwrap();
    assert_eq!(loaded.config.engine, renamed_engine());
    let mut said: Vec<_> = loaded.old_names.iter().map(ToString::to_string).collect();
    said.sort();
    assert_eq!(
        said,
        [
            "command line: engine.waits.stage_s is now engine.timeouts.stage_s; the old name still works",
            "environment: REPARTEE_ENGINE_BESIDE is now REPARTEE_ENGINE_OUT_OF_BAND; the old name still works",
            "environment: REPARTEE_ENGINE_WAITS_DECISION_S is now REPARTEE_ENGINE_TIMEOUTS_SPECULATION_S; the old name \
             still works",
        ]
    );
}

#[test]
fn old_and_new_names_override_each_other() {
    let (old, new) = (file("[engine]\nbeside = 1\n"), file("[engine]\nout_of_band = 1\n"));
    for (file, variable) in [(&old, "REPARTEE_ENGINE_OUT_OF_BAND"), (&new, "REPARTEE_ENGINE_BESIDE")] {
        let environment = |name: &str| (name == variable).then(|| "2".to_owned());
        assert_eq!(load(Some(&file.path), environment, &[]).unwrap().config.engine.out_of_band, 2, "{variable}");
        for path in ["engine.beside", "engine.out_of_band"] {
            let set = [(path.to_owned(), "3".to_owned())];
            assert_eq!(load(Some(&file.path), environment, &set).unwrap().config.engine.out_of_band, 3, "{path}");
        }
    }
}

#[test]
fn both_names_in_one_source_are_refused() {
    for (text, old, new) in [
        ("[engine]\nbeside = 1\nout_of_band = 1\n", "engine.beside", "engine.out_of_band"),
        ("[engine.waits]\nstage_s = 1\n[engine.timeouts]\nunread_s = 1\n", "engine.waits", "engine.timeouts"),
        (
            "[engine.waits]\ndecision_s = 1\nspeculation_s = 1\n",
            "engine.timeouts.decision_s",
            "engine.timeouts.speculation_s",
        ),
    ] {
        let file = file(text);
        let said = load(Some(&file.path), nothing, &[]).unwrap_err().to_string();
        let path = file.path.display();
        assert_eq!(said, format!("{path}: {old} is the old name of {new}, and both are set: remove {old}"));
    }
    let both =
        |name: &str| matches!(name, "REPARTEE_ENGINE_BESIDE" | "REPARTEE_ENGINE_OUT_OF_BAND").then(|| "1".to_owned());
    let said = load(None, both, &[]).unwrap_err().to_string();
    assert_eq!(
        said,
        "environment: REPARTEE_ENGINE_BESIDE is the old name of REPARTEE_ENGINE_OUT_OF_BAND, and both are set: remove \
         REPARTEE_ENGINE_BESIDE"
    );
    for order in [["engine.beside", "engine.out_of_band"], ["engine.out_of_band", "engine.beside"]] {
        let set = order.map(|path| (path.to_owned(), "1".to_owned()));
        let said = load(None, nothing, &set).unwrap_err().to_string();
        assert!(said.contains("engine.beside is the old name of engine.out_of_band"), "{said}");
    }
    // Setting one name twice is allowed: the later value wins.
    let set = [1, 2].map(|value| ("engine.beside".to_owned(), value.to_string()));
    assert_eq!(load(None, nothing, &set).unwrap().config.engine.out_of_band, 2);
}
