//! Every integer of every configuration file, at values that no model has. The load ends in a sentence that names the
//! file and the field; an id of 0 and fields that nothing reads load.

use std::collections::BTreeMap;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use repartee_engine::internals::{Checkpoint, load_model};
use repartee_engine::{EngineConfig, Source};
use serde_json::{Value, json};

use repartee_engine_testkit::folder;
use repartee_engine_testkit::speech::copy;

/// Files with integers.
const FILES: [&str; 4] =
    ["config.json", "generation_config.json", "preprocessor_config.json", "speech_tokenizer/config.json"];
/// Fixtures, and the number of integers of their files that are read.
const FIXTURES: [Fixture; 3] = [
    Fixture {
        name: "moe",
        read: 95,
        more: r#"{
            "generation_config.json": {"top_k": 5, "max_new_tokens": 9, "talker_top_k": 5, "talker_max_new_tokens": 9},
            "config.json": {
                "thinker_config": {"text_config": {"shared_expert_intermediate_size": 9}},
                "quantization_config": {
                    "quant_method": "compressed-tensors", "format": "pack-quantized",
                    "config_groups":
                        {"group_0": {"weights": {"num_bits": 4, "strategy": "group", "group_size": 32}}}
                }
            }
        }"#,
    },
    Fixture {
        name: "omni25",
        read: 94,
        more: r#"{
            "generation_config.json":
                {"thinker_top_k": 5, "thinker_max_new_tokens": 9, "thinker_eos_token_id": 2, "eos_token_id": "none"}
        }"#,
    },
    Fixture {
        name: "tts_clone",
        read: 107,
        more: r#"{
            "generation_config.json": {"top_k": 5, "subtalker_top_k": 5},
            "config.json": {"talker_config": {
                "use_sliding_window": true, "sliding_window": 100, "spk_id": {"ada": 75},
                "code_predictor_config": {"use_sliding_window": true, "sliding_window": 100}
            }}
        }"#,
    },
];

struct Fixture {
    name: &'static str,
    read: usize,
    /// Fields that the fixture's files lack, by file.
    more: &'static str,
}

/// Result of a load with one changed integer.
enum Outcome {
    Loaded,
    Refused(String),
    Panicked,
}

/// Pointers of all integers below a value.
fn integers(value: &Value, at: &str, found: &mut Vec<String>) {
    match value {
        Value::Number(number) if !number.is_f64() => found.push(at.to_owned()),
        Value::Object(fields) => {
            fields.iter().for_each(|(name, value)| integers(value, &format!("{at}/{name}"), found))
        }
        Value::Array(values) => {
            values.iter().enumerate().for_each(|(i, value)| integers(value, &format!("{at}/{i}"), found));
        }
        _ => {}
    }
}

/// Path of a field in messages, without the index in a list.
fn field(pointer: &str) -> String {
    let names: Vec<&str> = pointer[1..].split('/').filter(|name| name.parse::<usize>().is_err()).collect();
    names.join(".")
}

fn load(folder: &Path) -> Outcome {
    let config = EngineConfig { session_tokens: 64, sessions: 1, out_of_band: 0, ..EngineConfig::default() };
    let loaded = catch_unwind(AssertUnwindSafe(|| {
        let checkpoint = Checkpoint::open(Source::Folder(folder.to_owned()));
        checkpoint
            .map_err(|error| error.to_string())
            .and_then(|checkpoint| load_model(&checkpoint, &config).map(|_| ()).map_err(|error| error.to_string()))
    }));
    match loaded {
        Ok(Ok(())) => Outcome::Loaded,
        Ok(Err(message)) => Outcome::Refused(message.replace(&format!("{}/", folder.display()), "")),
        Err(_) => Outcome::Panicked,
    }
}

fn read(path: &Path) -> Option<Value> {
    fs::read(path).ok().map(|bytes| serde_json::from_slice(&bytes).unwrap())
}

/// Adds fields to a section and the sections below it.
fn merge(json: &mut Value, more: Value) {
    match (json, more) {
        (Value::Object(json), Value::Object(more)) => {
            more.into_iter().for_each(|(field, value)| merge(json.entry(field).or_insert(Value::Null), value));
        }
        (json, more) => *json = more,
    }
}

/// Loads a fixture with each integer at each value. Returns the complaints and the number of integers that are read.
fn walk(fixture: &Fixture) -> (Vec<String>, usize) {
    let copy = copy(&folder(fixture.name).join("checkpoint"));
    let (mut complaints, mut count) = (Vec::new(), 0);
    let more: BTreeMap<String, Value> = serde_json::from_str(fixture.more).unwrap();
    for (file, fields) in more {
        let path = copy.path().join(file);
        let mut json = read(&path).unwrap();
        merge(&mut json, fields);
        fs::write(path, json.to_string()).unwrap();
    }
    assert!(matches!(load(copy.path()), Outcome::Loaded), "{}", fixture.name);
    for file in FILES {
        let path = copy.path().join(file);
        let Some(unchanged) = read(&path) else { continue };
        let mut pointers = Vec::new();
        integers(&unchanged, "", &mut pointers);
        for pointer in pointers {
            // What nothing reads may be a text.
            let mut is_read = true;
            for value in [json!("text"), json!(-1), json!(1_u64 << 63), json!(1_u64 << 31), json!(0)] {
                let mut json = unchanged.clone();
                *json.pointer_mut(&pointer).unwrap() = value.clone();
                fs::write(&path, json.to_string()).unwrap();
                let at = format!("{file}: {}", field(&pointer));
                let found = match load(copy.path()) {
                    Outcome::Loaded if value == "text" => {
                        is_read = false;
                        break;
                    }
                    Outcome::Loaded if value == 0 => continue,
                    Outcome::Loaded => "it loads".to_owned(),
                    Outcome::Panicked => "it panics".to_owned(),
                    Outcome::Refused(message) => match message.strip_prefix(&at) {
                        Some(rest) if rest.starts_with([':', '[', '.']) => continue,
                        _ if value == 0 && message.ends_with("the weights must belong to config.json") => continue,
                        _ => message,
                    },
                };
                complaints.push(format!("{} {at} = {value}: {found}", fixture.name));
            }
            count += usize::from(is_read);
        }
        fs::write(&path, unchanged.to_string()).unwrap();
    }
    (complaints, count)
}

#[test]
fn every_integer_is_bounded_by_name() {
    let walked: Vec<_> = FIXTURES.iter().map(walk).collect();
    let complaints: Vec<String> = walked.iter().flat_map(|(complaints, _)| complaints.clone()).collect();
    assert!(complaints.is_empty(), "{} complaints:\n{}", complaints.len(), complaints.join("\n"));
    let read: Vec<usize> = walked.into_iter().map(|(_, read)| read).collect();
    assert_eq!(read, FIXTURES.map(|fixture| fixture.read), "integers that are read");
}
