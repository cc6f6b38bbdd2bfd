//! A folder without tokenizer.json: vocab.json, merges.txt and tokenizer_config.json give the ids of the reference's
//! class. `tests/parity/tokenizer_files.py` makes the fixture.

#![expect(clippy::unwrap_used, reason = "a test and its helpers fail by panicking")]

use std::fs;
use std::path::{Path, PathBuf};

use repartee_engine::internals::jinja_template::JinjaTemplate;
use repartee_engine::internals::{Checkpoint, Element, Message, MessageKind, PromptTemplate, Tokenizer};
use repartee_engine::{CheckpointError, Source};
use serde_json::Value;
use tempfile::TempDir;

/// Rows of embedding of a model that fits the fixture's ids.
const ROWS: usize = 512;

fn fixture(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/parity/fixtures/tokenizer").join(file)
}

/// A folder that opens, with the fixture's tokenizer files.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("config.json"), r#"{"architectures": ["Any"]}"#).unwrap();
    let weights = safetensors::serialize(Vec::<(&str, safetensors::tensor::TensorView<'_>)>::new(), None).unwrap();
    fs::write(folder.path().join("model.safetensors"), weights).unwrap();
    for file in ["vocab.json", "merges.txt", "tokenizer_config.json"] {
        fs::copy(fixture(file), folder.path().join(file)).unwrap();
    }
    folder
}

fn load(folder: &Path) -> Result<Tokenizer, CheckpointError> {
    Tokenizer::load(&Checkpoint::open(Source::Folder(folder.to_owned()))?, ROWS)
}

/// Error of a folder in which `file` holds `contents`; without contents the file is removed.
fn refusal(file: &str, contents: Option<&str>) -> String {
    let folder = folder();
    let path = folder.path().join(file);
    match contents {
        Some(contents) => fs::write(path, contents).unwrap(),
        None => fs::remove_file(path).unwrap(),
    }
    load(folder.path()).unwrap_err().to_string()
}

#[test]
fn ids_and_text_equal_the_reference() {
    let folder = folder();
    let tokenizer = load(folder.path()).unwrap();
    let expected: Value = serde_json::from_slice(&fs::read(fixture("expected.json")).unwrap()).unwrap();
    for (token, id) in expected["special"].as_object().unwrap() {
        assert_eq!(tokenizer.token_id(token).map(u64::from), id.as_u64(), "{token}");
    }
    let cases = expected["cases"].as_array().unwrap();
    assert!(cases.len() > 10);
    for case in cases {
        let text = case["text"].as_str().unwrap();
        let ids: Vec<u32> = serde_json::from_value(case["ids"].clone()).unwrap();
        assert_eq!(tokenizer.encode(text).unwrap(), ids, "{text:?}");
        assert_eq!(tokenizer.decode(&ids), case["decoded"].as_str().unwrap(), "{text:?}");
    }
}

#[test]
fn tokenizer_json_comes_first() {
    let folder = folder();
    let file = r#"{"version": "1.0", "model": {"type": "BPE", "vocab": {"only": 7}, "merges": []}}"#;
    fs::write(folder.path().join("tokenizer.json"), file).unwrap();
    assert_eq!(load(folder.path()).unwrap().vocab_size(), 1);
}

#[test]
fn broken_tokenizer_files_are_named() {
    let named = |message: String, parts: &[&str]| {
        for part in parts {
            assert!(message.contains(part), "{message}\nlacks {part}");
        }
    };
    named(refusal("tokenizer_config.json", None), &["tokenizer_config.json: file missing"]);
    // Without either of the class's files the class does not apply, and the error names the usual file.
    named(refusal("merges.txt", None), &["tokenizer.json: file missing"]);
    named(refusal("merges.txt", Some("#version: 0.2\na b\na b c\n")), &["merges.txt: not a tokenizer (line 3"]);
    named(refusal("merges.txt", Some("a zz\n")), &["vocab.json: not a tokenizer ("]);
    named(refusal("vocab.json", Some(r#"{"a": "b"}"#)), &["vocab.json: a: invalid type"]);
    let other = r#"{"tokenizer_class": "LlamaTokenizer", "added_tokens_decoder": {}}"#;
    named(refusal("tokenizer_config.json", Some(other)), &["tokenizer_class: `LlamaTokenizer`", "Qwen2Tokenizer"]);
    let odd = r#"{"tokenizer_class": "Qwen2Tokenizer", "added_tokens_decoder": {"x": {}}}"#;
    named(refusal("tokenizer_config.json", Some(odd)), &["added_tokens_decoder: `x` is no id"]);
}

/// A folder with a SentencePiece model of the fixtures in place of the class's files.
fn model_folder() -> TempDir {
    let folder = folder();
    for file in ["vocab.json", "merges.txt", "tokenizer_config.json"] {
        fs::remove_file(folder.path().join(file)).unwrap();
    }
    let model = fixture("../prompts/bpe_plain.model");
    fs::copy(model, folder.path().join("tokenizer.model")).unwrap();
    folder
}

#[test]
fn sentencepiece_model_is_read_without_tokenizer_json() {
    let folder = model_folder();
    let load = |rows| Tokenizer::load(&Checkpoint::open(Source::Folder(folder.path().to_owned()))?, rows);
    let tokenizer = load(2000).unwrap();
    let ids = tokenizer.encode("the world <s>").unwrap();
    assert!(ids.len() > 2 && !ids.contains(&tokenizer.token_id("<s>").unwrap()));
    assert_eq!(tokenizer.decode(&ids), "the world <s>");
    let message = load(100).unwrap_err().to_string();
    assert!(
        message.contains("tokenizer.model: id of `") && message.contains("below the model's vocab_size"),
        "{message}"
    );
    for (bytes, words) in [
        ("no model\n", "tokenizer.model: not a tokenizer (not a SentencePiece model"),
        ("version https://git-lfs.github.com/spec/v1\n", "tokenizer.model: this is a Git LFS pointer"),
    ] {
        fs::write(folder.path().join("tokenizer.model"), bytes).unwrap();
        let message = load(2000).unwrap_err().to_string();
        assert!(message.contains(words), "{message}");
    }
}

#[test]
fn chat_templates_are_read_from_the_folder() {
    let folder = model_folder();
    let open = || Checkpoint::open(Source::Folder(folder.path().to_owned())).unwrap();
    let tokenizer = Tokenizer::load(&open(), 2000).unwrap();
    let load = || JinjaTemplate::load(&open(), &tokenizer);
    assert!(load().unwrap().is_none());
    let config = r#"{"chat_template": "{{ bos_token }}{{ messages[0].content }}", "bos_token": {"content": "<s>"}}"#;
    fs::write(folder.path().join("tokenizer_config.json"), config).unwrap();
    let template = load().unwrap().unwrap();
    let history = [Message::text(MessageKind::User, tokenizer.encode("the <s>").unwrap())];
    let prompt = template.render(&history, None, true);
    let begins = Element::token(prompt[0].role, tokenizer.token_id("<s>").unwrap());
    assert!(prompt[0] == begins && !prompt[1..].contains(&begins), "{prompt:?}");
    for (template, words) in [
        ("\n{% if %}", "line 2: the chat template is not valid"),
        ("{% for i in range(9**9) %}{{ i }}{% endfor %}", "line 1: the chat template fails on this conversation"),
        (
            "{% for i in range(9999) %}{% for j in range(9999) %}{% endfor %}{% endfor %}",
            "line 1: the chat template takes too much work",
        ),
        ("{{ raise_exception('Never.') }}", "line 1: the chat template refuses this conversation: Never."),
    ] {
        fs::write(folder.path().join("chat_template.jinja"), template).unwrap();
        let message = load().unwrap_err().to_string();
        assert!(message.contains(&format!("chat_template.jinja: chat_template: {words}")), "{message}");
    }
}
