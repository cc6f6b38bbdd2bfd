//! Text decoders against transformers: logits, answers through the checkpoint's own template, refusals.

use std::path::Path;

use repartee_engine::internals::language_model::LanguageModel;
use repartee_engine::internals::text_decoder::{TextDecoder, named};
use repartee_engine::internals::{Checkpoint, load_model};
use repartee_engine::{EngineConfig, Source, WeightPolicy};
use repartee_engine_api::{Command, FinishReason, Respond, Role};
use repartee_engine_testkit::driven::{serve, submit};
use repartee_engine_testkit::eager::{batch, index};
use repartee_engine_testkit::speech::{copy, zero};
use repartee_engine_testkit::{Expected, difference, folder};
use repartee_kernels::Ops;
use repartee_kernels::cpu::Cpu;
use safetensors::SafeTensors;
use serde_json::{Value, json};

const FIXTURES: [&str; 8] = [
    "text_llama",
    "text_mistral",
    "text_qwen2",
    "text_qwen3",
    "text_llama3",
    "text_yarn",
    "text_linear",
    "text_gemma3",
];
/// Largest relative difference that counts as equal.
pub const TOLERANCE: f32 = 1e-4;

fn open(folder: &Path) -> Checkpoint {
    Checkpoint::open(Source::Folder(folder.to_path_buf())).unwrap()
}

/// Loads the model; returns the difference of its logits.
fn compare(checkpoint: &Checkpoint, expected: &Expected) -> f32 {
    let ops = Cpu::default();
    let architecture = named(&checkpoint.architecture().unwrap()).unwrap();
    let TextDecoder { model, .. } =
        TextDecoder::load_as(&ops, checkpoint, architecture, WeightPolicy::default()).unwrap();
    difference_of_logits(&ops, &model, expected)
}

/// Runs the reference's prompt and answer through the model; returns the difference of the logits.
pub fn difference_of_logits(ops: &Cpu, model: &LanguageModel<Cpu>, expected: &Expected) -> f32 {
    let (prompt, answer) = (expected.ids("prompt").0, expected.ids("answer").0);
    let mut cache = model.model.cache(ops, 1, prompt.len() + answer.len());
    let (mut logits, mut position, mut ids) = (Vec::new(), 0, index(ops, &prompt));
    for &next in &answer {
        let x = model.embed(ops, &ids, None);
        let rows = ops.rows(&x);
        let (out, handed) = model.forward(ops, x, &ids, &mut cache, &batch(ops, position, rows));
        assert!(handed.is_none(), "there is no talker");
        logits.extend(ops.read(&model.logits(ops, &out, &index(ops, &[rows as u32 - 1]))));
        position += rows;
        ids = index(ops, &[next]);
    }
    difference(&logits, &expected.tensor("logits").0)
}

#[test]
fn logits_equal_the_reference() {
    for name in FIXTURES {
        let off = compare(&open(&folder(name).join("checkpoint")), &Expected::load(name));
        println!("{name:14} {off:.1e}");
        assert!(off <= TOLERANCE, "{name}: {off}");
    }
}

#[test]
fn zeroing_any_tensor_is_noticed() {
    for name in FIXTURES {
        let (from, expected) = (folder(name).join("checkpoint"), Expected::load(name));
        let bytes = std::fs::read(from.join("model.safetensors")).unwrap();
        let names: Vec<String> =
            SafeTensors::deserialize(&bytes).unwrap().names().into_iter().map(str::to_owned).collect();
        for tensor in names {
            let copy = copy(&from);
            zero(&copy.path().join("model.safetensors"), |other| other == tensor);
            let off = compare(&open(copy.path()), &expected);
            assert!(off.is_nan() || off > TOLERANCE, "{name}: nothing differs although {tensor} is zero");
        }
    }
}

/// Submits the fixture's conversation.
pub fn converse(session: &repartee_engine_api::SessionHandle, messages: &Value) {
    for (item, message) in messages.as_array().unwrap().iter().enumerate() {
        let text = message["content"].as_str().unwrap().to_owned();
        let command = match message["role"].as_str().unwrap() {
            "system" => Command::SetInstructions(text),
            "user" => Command::text(item as u64, Role::User, text),
            _ => Command::text(item as u64, Role::Assistant, text),
        };
        submit(session, command);
    }
}

#[test]
fn answers_equal_the_reference() {
    let config = EngineConfig { sessions: 2, session_tokens: 512, ..EngineConfig::default() };
    for name in FIXTURES {
        let expected = Expected::load(name);
        let mut engine = serve(&folder(name).join("checkpoint"), &config);
        let session = engine.open();
        converse(&session, &expected.facts["messages"]);
        let (prompt, answer) = (expected.ids("prompt").0, expected.ids("answer").0);
        let limit = Some(answer.len() as u32);
        let respond = Respond { audio: false, max_tokens: limit, ..Respond::new(50, 51) };
        let response = engine.respond(&session, respond).unwrap();
        assert_eq!(response.usage.input_text_tokens as usize, prompt.len(), "{name}");
        assert_eq!(response.text, expected.cut_text(), "{name}");
        assert_eq!(response.reason, Some(FinishReason::Length), "{name}");
    }
}

#[test]
fn unserved_settings_are_named() {
    let refusal = |change: &dyn Fn(&mut Value), file: &str| {
        let copy = copy(&folder("text_llama").join("checkpoint"));
        let path = copy.path().join(file);
        let mut json: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        change(&mut json);
        std::fs::write(&path, json.to_string()).unwrap();
        load_model(&open(copy.path()), &EngineConfig::default()).err().map(|error| error.to_string())
    };
    for (change, file, field) in [
        (
            (&|config: &mut Value| config["rope_parameters"]["rope_type"] = json!("longrope")) as &dyn Fn(&mut Value),
            "config.json",
            "rope_type",
        ),
        (&|config: &mut Value| config["mlp_bias"] = json!(true), "config.json", "mlp_bias"),
        (&|config: &mut Value| config["attention_bias"] = json!(true), "config.json", "attention_bias"),
        (&|config: &mut Value| config["hidden_act"] = json!("gelu"), "config.json", "hidden_act"),
        (
            &|config: &mut Value| drop(config.as_object_mut().unwrap().remove("chat_template")),
            "tokenizer_config.json",
            "chat_template",
        ),
        (&|config: &mut Value| config["eos_token_id"] = json!(300), "generation_config.json", "eos_token_id"),
    ] {
        let error = refusal(change, file).unwrap_or_else(|| panic!("{field} is served"));
        assert!(error.contains(file) && error.contains(field), "{error}");
    }
    assert_eq!(refusal(&|_| {}, "config.json"), None);
}
