//! Runs a model of text alone, without sessions, for comparisons with other programs (`tests/peers/text_models.py`).
//!
//!     text_model decode FILE THREADS PROMPT TOKENS      milliseconds a token
//!     text_model top FILE THREADS LENGTH COUNT < TEXT   windows of LENGTH ids of the text, COUNT ids in all, and the most
//!                                                       likely id after each
//!     text_model exact FILE THREADS LENGTH COUNT < TEXT the same with the weights in single precision (eight bytes a
//!                                                       number while they are loaded)
//!
//! The result is one line of JSON.
#![allow(clippy::unwrap_used)] // A panic is this program's report.

use std::io::Read as _;
use std::path::Path;
use std::time::Instant;

use repartee_engine::internals::text_decoder::Config;
use repartee_engine::internals::text_decoder::{TextDecoder, named};
use repartee_engine::internals::{Checkpoint, TensorData, Tokenizer, worker_pool};
use repartee_engine::{Source, WeightPolicy};
use repartee_engine_testkit::eager::{batch, index};
use repartee_kernels::Ops;
use repartee_kernels::cpu::Cpu;
use serde_json::json;

/// Rows of a step of a prompt.
const CHUNK: usize = 128;
/// Tokens that are decoded before the clock starts.
const WARM: usize = 4;

struct Loaded {
    ops: Cpu,
    checkpoint: Checkpoint,
    decoder: TextDecoder<Cpu>,
    loading: f64,
}

impl Loaded {
    fn new(file: &str, threads: usize, is_exact: bool) -> Self {
        let begun = Instant::now();
        let ops = Cpu::default().on(worker_pool(threads));
        let checkpoint = Checkpoint::open(Source::Folder(Path::new(file).to_owned())).unwrap();
        let architecture = named(&checkpoint.architecture().unwrap()).unwrap();
        let config = Config::load(&checkpoint, architecture).unwrap();
        let dequantised = is_exact.then(|| dequantised(&checkpoint));
        let source = dequantised.as_ref().unwrap_or(&checkpoint);
        let decoder = TextDecoder::load(&ops, source, config, WeightPolicy::default()).unwrap();
        Self { loading: begun.elapsed().as_secs_f64(), ops, checkpoint, decoder }
    }

    fn vocabulary(&self) -> usize {
        self.decoder.config.model.vocab_size
    }

    /// Logits of the last `rows` of `ids`, which follow `position` others in the cache.
    fn step(&self, ids: &[u32], position: usize, rows: usize, cache: &mut [<Cpu as Ops>::State]) -> Vec<f32> {
        let (ops, model) = (&self.ops, &self.decoder.model);
        let ids = index(ops, ids);
        let x = model.embed(ops, &ids, None);
        let count = ops.rows(&x);
        let (x, _) = model.forward(ops, x, &ids, cache, &batch(ops, position, count));
        let last: Vec<u32> = (count - rows..count).map(|row| row as u32).collect();
        ops.read(&model.logits(ops, &x, &index(ops, &last)))
    }
}

/// The same weights in single precision.
fn dequantised(checkpoint: &Checkpoint) -> Checkpoint {
    let tensors = checkpoint.tensor_names().map(|name| {
        let shape = checkpoint.shape(name).unwrap();
        let numbers = match checkpoint.numbers(name, shape).unwrap() {
            TensorData::Stored(view) => view.dtype.widen(&view.bytes),
            TensorData::Repacked(matrix) => matrix.numbers(),
            TensorData::Packed(tensor) => tensor.numbers(),
            TensorData::Drawn(_) => panic!("{name} is drawn"),
        };
        (name.to_owned(), shape.to_vec(), numbers)
    });
    Checkpoint::converted(Path::new("dequantised"), tensors)
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| arguments[at].parse::<usize>().unwrap();
    let loaded = Loaded::new(&arguments[1], number(2), arguments[0] == "exact");
    match &arguments[0][..] {
        "decode" => decode(&loaded, number(3), number(4)),
        "top" | "exact" => top(&loaded, number(3), number(4)),
        other => panic!("{other} is neither decode, top nor exact"),
    }
}

fn decode(loaded: &Loaded, prompt: usize, tokens: usize) {
    // Any ids do.
    let id = |i: usize| ((i * 7919 + 13) % loaded.vocabulary()) as u32;
    let mut cache = loaded.decoder.model.model.cache(&loaded.ops, 1, prompt + WARM + tokens);
    let begun = Instant::now();
    let mut position = 0;
    while position < prompt {
        let ids: Vec<u32> = (position..prompt.min(position + CHUNK)).map(id).collect();
        loaded.step(&ids, position, 1, &mut cache);
        position += ids.len();
    }
    let prefill = begun.elapsed();
    let mut times: Vec<f64> = Vec::new();
    for i in 0..WARM + tokens {
        let begun = Instant::now();
        loaded.step(&[id(prompt + i)], prompt + i, 1, &mut cache);
        if i >= WARM {
            times.push(1e3 * begun.elapsed().as_secs_f64());
        }
    }
    times.sort_by(f64::total_cmp);
    let result = json!({
        "ms_per_token": times.iter().sum::<f64>() / times.len() as f64,
        "median_ms_per_token": times[times.len() / 2],
        "prefill_ms_per_token": 1e3 * prefill.as_secs_f64() / prompt as f64,
        "loading_s": loaded.loading,
    });
    println!("{result}");
}

fn top(loaded: &Loaded, length: usize, count: usize) {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).unwrap();
    let tokenizer = Tokenizer::load(&loaded.checkpoint, loaded.vocabulary()).unwrap();
    let mut ids = tokenizer.encode(&text).unwrap();
    ids.truncate(count);
    let vocabulary = loaded.checkpoint.gguf_vocabulary().unwrap();
    let begins = vocabulary.filter(|vocabulary| vocabulary.adds_bos()).and_then(|vocabulary| vocabulary.bos_id);
    let windows: Vec<Vec<u32>> =
        ids.chunks(length).map(|ids| begins.into_iter().chain(ids.iter().copied()).collect()).collect();
    let best = |logits: &[f32]| (0..logits.len()).max_by(|a, b| logits[*a].total_cmp(&logits[*b])).unwrap();
    let mut all = Vec::new();
    for window in &windows {
        let mut cache = loaded.decoder.model.model.cache(&loaded.ops, 1, window.len());
        let mut top = Vec::new();
        for (chunk, ids) in window.chunks(CHUNK).enumerate() {
            let logits = loaded.step(ids, chunk * CHUNK, ids.len(), &mut cache);
            top.extend(logits.chunks(loaded.vocabulary()).map(best));
        }
        all.push(top);
    }
    println!("{}", json!({"windows": windows, "top": all, "text": text.len()}));
}
