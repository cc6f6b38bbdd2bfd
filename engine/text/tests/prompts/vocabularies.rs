//! Tokenizers of every kind against their references, on 10,000 lines of many alphabets.

use std::collections::BTreeMap;

use repartee_text::tokenizer::{GgufVocabulary, TextTokenizer};
use serde::Deserialize;

use super::{checksum, fixture, lines::lines};

#[derive(Deserialize)]
struct Facts {
    seed: u64,
    count: usize,
    group: usize,
    /// Checksums of the lines; the tokenizers' fixture has them.
    #[serde(default)]
    lines: Vec<String>,
    vocabularies: BTreeMap<String, Expected>,
}

#[derive(Deserialize)]
struct Expected {
    ids: Vec<String>,
    shown: Vec<Vec<u32>>,
    decoded: Option<Vec<String>>,
}

/// Fields of a GGUF file in the fixture.
#[derive(Deserialize)]
struct GgufFields {
    model: String,
    tokens: Vec<String>,
    #[serde(default)]
    scores: Vec<f32>,
    types: Vec<i32>,
    #[serde(default)]
    merges: Vec<String>,
    add_space_prefix: Option<bool>,
}

fn grouped(texts: &[String], group: usize) -> Vec<String> {
    texts.chunks(group).map(|texts| checksum(texts.join("\0").as_bytes())).collect()
}

/// Reads the vocabulary of a GGUF file out of the fixture.
fn gguf(name: &str) -> GgufVocabulary {
    let fields: GgufFields = serde_json::from_slice(&fixture(&format!("gguf_{name}.json"))).unwrap();
    GgufVocabulary {
        model: fields.model,
        tokens: fields.tokens,
        scores: fields.scores,
        types: fields.types,
        merges: fields.merges,
        add_space_prefix: fields.add_space_prefix,
        ..GgufVocabulary::default()
    }
}

fn model(name: &str) -> TextTokenizer {
    TextTokenizer::from_sentencepiece(&fixture(&format!("{name}.model")), &BTreeMap::new()).unwrap()
}

/// Compares a tokenizer with the reference on all lines.
fn equals_reference(name: &str, tokenizer: &TextTokenizer) {
    equals_fixture("vocabularies.json", name, tokenizer);
}

/// Compares a tokenizer with a reference of a file on all lines.
fn equals_fixture(file: &str, name: &str, tokenizer: &TextTokenizer) {
    let facts: Facts = serde_json::from_slice(&fixture(file)).unwrap();
    let texts = lines(facts.seed, facts.count);
    if !facts.lines.is_empty() {
        assert_eq!(grouped(&texts, facts.group), facts.lines, "the lines are others than the reference's");
    }
    let expected = &facts.vocabularies[name];
    let ids: Vec<Vec<u32>> = texts.iter().map(|text| tokenizer.encode(text).unwrap()).collect();
    for (at, shown) in expected.shown.iter().enumerate() {
        assert_eq!(&ids[at], shown, "{name}, line {at}: {:?}", texts[at]);
    }
    let written: Vec<String> =
        ids.iter().map(|ids| ids.iter().map(u32::to_string).collect::<Vec<_>>().join(" ")).collect();
    let differs = |ours: &[String], theirs: &[String]| {
        let groups = ours.iter().zip(theirs).enumerate().filter(|(_, (a, b))| a != b);
        groups.map(|(group, _)| group * facts.group).collect::<Vec<_>>()
    };
    let groups = differs(&grouped(&written, facts.group), &expected.ids);
    assert!(groups.is_empty(), "{name}: ids differ in the hundreds of lines from {groups:?}");
    if let Some(decoded) = &expected.decoded {
        let ours: Vec<String> = ids.iter().map(|ids| tokenizer.decode(ids)).collect();
        let groups = differs(&grouped(&ours, facts.group), decoded);
        assert!(groups.is_empty(), "{name}: texts differ in the hundreds of lines from {groups:?}");
    }
}

#[test]
fn sentencepiece_unigram_equals_the_reference() {
    for name in ["unigram", "unigram_bytes", "suffix"] {
        equals_reference(name, &model(name));
    }
}

#[test]
fn sentencepiece_bpe_equals_the_reference() {
    for name in ["bpe", "bpe_plain", "bpe_replaced"] {
        equals_reference(name, &model(name));
    }
}

#[test]
fn gguf_bytes_equal_the_reference() {
    for pre in ["gpt-2", "smollm", "qwen2", "llama-bpe", "tekken", "gpt-4o"] {
        let vocabulary = GgufVocabulary { pre: Some(pre.to_owned()), ..gguf("bytes") };
        equals_reference(&format!("gguf {pre}"), &TextTokenizer::from_gguf(vocabulary).unwrap());
    }
}

#[test]
fn other_cuts_equal_llama_cpp() {
    for pre in ["default", "falcon", "qwen35"] {
        let vocabulary = GgufVocabulary { pre: Some(pre.to_owned()), ..gguf("bytes") };
        equals_fixture("llama_cpp.json", &format!("gguf {pre}"), &TextTokenizer::from_gguf(vocabulary).unwrap());
    }
}

#[test]
fn gguf_pieces_equal_the_reference() {
    for name in ["pieces", "pieces_plain"] {
        equals_reference(&format!("gguf {name}"), &TextTokenizer::from_gguf(gguf(name)).unwrap());
    }
}

#[test]
fn saved_truncation_and_padding_are_reset() {
    equals_reference("tokenizer.json", &TextTokenizer::from_json(&fixture("tokenizer.json")).unwrap());
}

#[test]
fn wrong_gguf_fields_are_refused_by_name() {
    let refused = |vocabulary: GgufVocabulary| TextTokenizer::from_gguf(vocabulary).unwrap_err().to_string();
    let with_pre = |pre: &str| GgufVocabulary { pre: Some(pre.to_owned()), ..gguf("bytes") };
    assert!(refused(with_pre("viking")).starts_with("`tokenizer.ggml.pre` is `viking`, which is not served"));
    let kind = |model: &str| GgufVocabulary { model: model.to_owned(), ..with_pre("qwen2") };
    for model in ["bert", "t5", "rwkv"] {
        let expected = format!("`tokenizer.ggml.model` is `{model}`, which is not served; served are: gpt2, llama");
        assert_eq!(refused(kind(model)), expected);
    }
    assert_eq!(refused(kind("llama")), "`tokenizer.ggml.scores`: a vocabulary of the kind `llama` needs them");
    let mut vocabulary = with_pre("qwen2");
    vocabulary.types.pop();
    let count = vocabulary.tokens.len();
    let message = format!("`tokenizer.ggml.token_type`: it has {} entries for {count} tokens", count - 1);
    assert_eq!(refused(vocabulary), message);
    let mut vocabulary = with_pre("qwen2");
    vocabulary.merges[3] = "ab".to_owned();
    assert_eq!(refused(vocabulary), "`tokenizer.ggml.merges[3]`: two tokens and one space are expected");
    let vocabulary = GgufVocabulary { eos_id: Some(1 << 20), ..with_pre("qwen2") };
    assert!(refused(vocabulary).starts_with("`tokenizer.ggml.eos_token_id`: 1048576 is no id of "));
    let vocabulary = GgufVocabulary { merges: vec!["zz qq".to_owned()], ..with_pre("qwen2") };
    assert!(refused(vocabulary).contains("zz"), "a merge of tokens that there are not");
}

#[test]
fn tokens_named_by_use_are_marks() {
    // A file that marks its end of turn as an ordinary token.
    let mut vocabulary = GgufVocabulary { pre: Some("qwen2".to_owned()), ..gguf("bytes") };
    let end = vocabulary.tokens.iter().position(|token| token == "<|im_end|>").unwrap();
    vocabulary.types[end] = 1;
    vocabulary.eos_id = Some(end as u32);
    let tokenizer = TextTokenizer::from_gguf(vocabulary).unwrap();
    assert!(tokenizer.special().any(|(id, text)| (id, text) == (end as u32, "<|im_end|>")));
    let ids = tokenizer.encode("<|im_end|>").unwrap();
    assert!(!ids.contains(&(end as u32)));
    assert_eq!((tokenizer.decode(&ids), tokenizer.decode(&[end as u32])), ("<|im_end|>".to_owned(), String::new()));
}

#[test]
fn torn_models_are_refused_or_read() {
    let bytes = fixture("unigram.model");
    for length in (0..bytes.len()).step_by(97) {
        if let Ok(tokenizer) = TextTokenizer::from_sentencepiece(&bytes[..length], &BTreeMap::new()) {
            // Whole pieces may be missing, and the tables with them: encoding still ends.
            let _ = tokenizer.encode("the world é 你好").unwrap();
        }
    }
    // Each byte of the table of replacements damaged.
    for at in (bytes.len().saturating_sub(4_000)..bytes.len()).step_by(7) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x55;
        if let Ok(tokenizer) = TextTokenizer::from_sentencepiece(&damaged, &BTreeMap::new()) {
            let _ = tokenizer.encode("ｆｕｌｌ ﬁ ①  é 你好 \u{3000}").unwrap();
        }
    }
}

#[test]
fn tokens_beside_the_pieces_are_found() {
    let added = r#"{"2000": {"content": "<|im_start|>", "special": true}, "2001": {"content": "<tool_call>", "special": false}}"#;
    let added = serde_json::from_str(added).unwrap();
    let tokenizer = TextTokenizer::from_sentencepiece(&fixture("bpe.model"), &added).unwrap();
    assert_eq!(tokenizer.highest(), Some((2001, "<tool_call>".to_owned())));
    assert_eq!(tokenizer.token_id("<|im_start|>"), Some(2000));
    let ids = tokenizer.encode("the<tool_call><|im_start|>the").unwrap();
    assert!(ids.contains(&2001) && !ids.contains(&2000));
    assert_eq!(tokenizer.decode(&ids), "the<tool_call><|im_start|>the");
    assert_eq!(tokenizer.decode(&[2000]), "");
}

#[test]
fn pieces_called_special_are_no_text() {
    let id = model("bpe_plain").token_id("<tool>").unwrap();
    assert!(model("bpe_plain").encode("a<tool>").unwrap().contains(&id));
    let added = format!(r#"{{"{id}": {{"content": "<tool>", "special": true}}}}"#);
    let added = serde_json::from_str(&added).unwrap();
    let tokenizer = TextTokenizer::from_sentencepiece(&fixture("bpe_plain.model"), &added).unwrap();
    let ids = tokenizer.encode("a<tool>").unwrap();
    assert!(!ids.contains(&id));
    assert_eq!((tokenizer.decode(&ids), tokenizer.decode(&[id])), ("a<tool>".to_owned(), String::new()));
}
