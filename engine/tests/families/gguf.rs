//! GGUF files of text decoders against transformers with the weights dequantised by the package gguf; refusals.

use std::path::Path;

use repartee_checkpoint::gguf::Gguf;
use repartee_engine::internals::text_decoder::{Config, TextDecoder, named};
use repartee_engine::internals::{Checkpoint, DType, TensorData, load_model};
use repartee_engine::{EngineConfig, Source, WeightPolicy};
use repartee_engine_api::{FinishReason, Respond};
use repartee_engine_testkit::driven::serve;
use repartee_engine_testkit::speech::copy;
use repartee_engine_testkit::{Expected, folder};
use repartee_kernels::cpu::Cpu;

use crate::text_decoder::{TOLERANCE, converse, difference_of_logits};

/// Files with plain numbers, which are served exactly.
const PLAIN: [&str; 3] = ["gguf_llama_plain", "gguf_qwen3", "gguf_gemma3"];
/// Files with blocks of integers.
const QUANTISED: [&str; 2] = ["gguf_llama", "gguf_qwen2"];
/// Largest relative difference of logits with the file's scales rounded to half precision.
const ROUNDED: f32 = 5e-3;
/// Largest relative difference with activations of eight bits, too.
const SERVED: f32 = 0.15;

fn open(path: &Path) -> Checkpoint {
    Checkpoint::open(Source::Folder(path.to_owned())).unwrap()
}

/// Loads the weights of `source` in the configuration of `checkpoint`; returns the difference of the logits.
fn compare(checkpoint: &Checkpoint, source: &Checkpoint, expected: &Expected) -> f32 {
    let ops = Cpu::default();
    let architecture = named(&checkpoint.architecture().unwrap()).unwrap();
    let config = Config::load(checkpoint, architecture).unwrap();
    let TextDecoder { model, .. } = TextDecoder::load(&ops, source, config, WeightPolicy::default()).unwrap();
    difference_of_logits(&ops, &model, expected)
}

/// The same weights in single precision.
fn dequantised(checkpoint: &Checkpoint) -> Checkpoint {
    let tensors = checkpoint.tensor_names().map(|name| {
        let shape = checkpoint.shape(name).unwrap();
        let numbers = match checkpoint.numbers(name, shape).unwrap() {
            TensorData::Stored(view) => view.dtype.widen(&view.bytes),
            TensorData::Repacked(matrix) => matrix.numbers(),
            TensorData::Packed(_) | TensorData::Drawn(_) => panic!("{name} is of another form"),
        };
        (name.to_owned(), shape.to_vec(), numbers)
    });
    Checkpoint::converted(Path::new("dequantised"), tensors.collect::<Vec<_>>())
}

#[test]
fn logits_equal_the_reference() {
    for name in [&PLAIN[..], &QUANTISED].concat() {
        let (checkpoint, expected) = (open(&folder(name).join("checkpoint")), Expected::load(name));
        let (exact, served) = (dequantised(&checkpoint), compare(&checkpoint, &checkpoint, &expected));
        let off = compare(&checkpoint, &exact, &expected);
        println!("{name:18} dequantised {off:.1e}, served {served:.1e}");
        let most = if PLAIN.contains(&name) { [TOLERANCE; 2] } else { [ROUNDED, SERVED] };
        assert!(off <= most[0] && served <= most[1], "{name}: {off} {served}");
    }
}

#[test]
fn zeroing_any_tensor_is_noticed() {
    for name in [&PLAIN[..], &["gguf_qwen2"]].concat() {
        let (from, expected) = (folder(name).join("checkpoint"), Expected::load(name));
        let bytes = std::fs::read(from.join("model.gguf")).unwrap();
        let header = Gguf::read("model.gguf", &bytes).unwrap();
        let whole = compare(&open(&from), &open(&from), &expected);
        for (tensor, place) in header.tensors() {
            let copy = copy(&from);
            let mut zeroed = bytes.clone();
            zeroed[place.bytes.clone()].fill(0);
            std::fs::write(copy.path().join("model.gguf"), zeroed).unwrap();
            let checkpoint = open(copy.path());
            let off = compare(&checkpoint, &checkpoint, &expected);
            assert!(off.is_nan() || off > 2.0 * whole + TOLERANCE, "{name}: {off} although {tensor} is zero");
        }
    }
}

/// The fixture `gguf_qwen3` has rows beyond the vocabulary whose logits are the largest.
#[test]
fn answers_equal_the_reference() {
    let config = EngineConfig { sessions: 2, session_tokens: 512, ..EngineConfig::default() };
    for name in [&PLAIN[..], &QUANTISED].concat() {
        let expected = Expected::load(name);
        let checkpoint = folder(name).join("checkpoint");
        // A file is served as its folder is.
        let checkpoint = if name == PLAIN[0] { checkpoint.join("model.gguf") } else { checkpoint };
        let mut engine = serve(&checkpoint, &config);
        let session = engine.open();
        converse(&session, &expected.facts["messages"]);
        let (prompt, answer) = (expected.ids("prompt").0, expected.ids("answer").0);
        let limit = Some(answer.len() as u32);
        let response =
            engine.respond(&session, Respond { audio: false, max_tokens: limit, ..Respond::new(50, 51) }).unwrap();
        assert_eq!(response.usage.input_text_tokens as usize, prompt.len(), "{name}");
        if PLAIN.contains(&name) {
            assert_eq!(response.text, expected.cut_text(), "{name}");
            assert_eq!(response.reason, Some(FinishReason::Length), "{name}");
        }
    }
    let (logits, shape) = Expected::load("gguf_qwen3").tensor("logits");
    let tokens = 300;
    let best = |row: &[f32]| (0..row.len()).max_by(|a, b| row[*a].total_cmp(&row[*b])).unwrap();
    assert!(logits.chunks(shape[1]).any(|row| best(row) >= tokens), "no row beyond the vocabulary would win");
}

/// Position behind a metadata key, which stands in the file after its length.
fn behind(bytes: &[u8], key: &str) -> usize {
    let whole = [&(key.len() as u64).to_le_bytes()[..], key.as_bytes()].concat();
    bytes.windows(whole.len()).position(|window| window == whole).unwrap() + whole.len()
}

#[test]
fn unserved_metadata_are_named() {
    let from = folder("gguf_llama").join("checkpoint");
    let refusal = |change: &dyn Fn(&mut Vec<u8>)| {
        let copy = copy(&from);
        let path = copy.path().join("model.gguf");
        let mut bytes = std::fs::read(&path).unwrap();
        change(&mut bytes);
        std::fs::write(&path, bytes).unwrap();
        let checkpoint = match Checkpoint::open(Source::Folder(path)) {
            Ok(checkpoint) => checkpoint,
            Err(error) => return Some(error.to_string()),
        };
        load_model(&checkpoint, &EngineConfig::default()).err().map(|error| error.to_string())
    };
    assert_eq!(refusal(&|_| {}), None);
    // A key of another name is absent; a size is four bytes behind the number of its type.
    let renamed = |key: &'static str| {
        move |bytes: &mut Vec<u8>| {
            let end = behind(bytes, key);
            bytes[end - 1] = b'_';
        }
    };
    let resized = |key: &'static str, size: u32| {
        move |bytes: &mut Vec<u8>| {
            let at = behind(bytes, key) + 4;
            bytes[at..at + 4].copy_from_slice(&size.to_le_bytes());
        }
    };
    for (change, words) in [
        (&renamed("llama.block_count") as &dyn Fn(&mut Vec<u8>), "llama.block_count: absent"),
        (&renamed("llama.attention.layer_norm_rms_epsilon"), "llama.attention.layer_norm_rms_epsilon: absent"),
        (&renamed("tokenizer.chat_template"), "tokenizer.chat_template: absent: choose a model trained"),
        (&renamed("tokenizer.ggml.tokens"), "tokenizer.ggml.tokens: absent"),
        (&renamed("blk.1.ffn_up.weight"), "tensor blk.1.ffn_up.weigh_: is unknown in files of `llama`"),
        (&resized("llama.attention.head_count", 5), "llama.attention.head_count: 5 is not allowed"),
        (&resized("llama.block_count", 3), "tensor blk.2."),
        (&resized("llama.embedding_length", 32), "tensor token_embd.weight has shape"),
        (&resized("llama.rope.dimension_count", 16), "llama.rope.dimension_count: 16 is not allowed"),
        (&resized("llama.context_length", 0), "llama.context_length: 0 is not allowed"),
        (&resized("tokenizer.ggml.eos_token_id", 300), "tokenizer.ggml.eos_token_id: 300 is no token"),
    ] {
        let error = refusal(change).unwrap_or_else(|| panic!("served without: {words}"));
        assert!(error.contains("model.gguf") && error.contains(words), "{error}");
    }
}

#[test]
fn folders_of_several_files_are_refused() {
    let copy = copy(&folder("gguf_llama").join("checkpoint"));
    std::fs::copy(copy.path().join("model.gguf"), copy.path().join("second.gguf")).unwrap();
    let error = Checkpoint::open(Source::Folder(copy.path().to_owned())).unwrap_err().to_string();
    assert!(error.contains("holds 2 GGUF files: name one file"), "{error}");
}

#[test]
fn numbers_keep_their_format() {
    let checkpoint = open(&folder("gguf_qwen3").join("checkpoint"));
    let name = "model.layers.0.self_attn.q_proj.weight";
    let TensorData::Stored(view) = checkpoint.numbers(name, &[80, 32]).unwrap() else { panic!("no plain numbers") };
    assert_eq!(view.dtype, DType::F16);
}
