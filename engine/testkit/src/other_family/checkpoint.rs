//! Checkpoint of the family: weights drawn from a fixed seed, in a safetensors file in memory.

use std::sync::OnceLock;

use repartee_engine::Source;
use repartee_engine::internals::Checkpoint;
use repartee_kernels::random::uniform;
use safetensors::{Dtype, tensor::TensorView};

use super::front_end;
use super::sizes::{BOOK, CODES, HIDDEN, INNER, KV_WIDTH, LATENT, LAYERS, PIECE_CODES, SAMPLES, VOCABULARY};

/// Seed of the weights.
const SEED: u64 = 41;

struct Draw {
    tensors: Vec<(String, Vec<usize>, Vec<u8>)>,
}

impl Draw {
    /// Adds a tensor with values uniform in `-limit..limit`.
    fn even(&mut self, name: &str, shape: &[usize], limit: f32) {
        let tensor = self.tensors.len() as u64;
        let count = shape.iter().product::<usize>() as u64;
        let number = |i| (2.0 * uniform(SEED, tensor, i, 0) - 1.0) * limit;
        let bytes = (0..count).flat_map(|i| number(i).to_le_bytes()).collect();
        self.tensors.push((name.to_owned(), shape.to_vec(), bytes));
    }

    /// Adds a matrix `[out, input]` whose output has the magnitude of its input times `gain`.
    fn matrix(&mut self, name: &str, out: usize, input: usize, gain: f32) {
        self.even(name, &[out, input], gain * (3.0 / input as f32).sqrt());
    }

    fn ones(&mut self, name: &str, n: usize) {
        let bytes = std::iter::repeat_n(1.0f32.to_le_bytes(), n).flatten().collect();
        self.tensors.push((name.to_owned(), vec![n], bytes));
    }

    fn decoder(&mut self, prefix: &str) {
        for layer in 0..LAYERS {
            let at = |name: &str| format!("{prefix}.layers.{layer}.{name}.weight");
            self.ones(&at("input_layernorm"), HIDDEN);
            self.matrix(&at("self_attn.q_proj"), HIDDEN, HIDDEN, 2.0);
            self.matrix(&at("self_attn.k_proj"), KV_WIDTH, HIDDEN, 2.0);
            self.matrix(&at("self_attn.v_proj"), KV_WIDTH, HIDDEN, 2.0);
            self.matrix(&at("self_attn.o_proj"), HIDDEN, HIDDEN, 2.0);
            self.ones(&at("post_attention_layernorm"), HIDDEN);
            self.matrix(&at("mlp.gate_proj"), INNER, HIDDEN, 1.5);
            self.matrix(&at("mlp.up_proj"), INNER, HIDDEN, 1.5);
            self.matrix(&at("mlp.down_proj"), HIDDEN, INNER, 1.5);
        }
        self.ones(&format!("{prefix}.norm.weight"), HIDDEN);
    }
}

fn file() -> Vec<u8> {
    let mut draw = Draw { tensors: Vec::new() };
    draw.matrix("ear.rows", HIDDEN, front_end::PAIR * front_end::FEATURES, 1.5);
    draw.even("ear.places", &[front_end::PLACES, HIDDEN], 0.5);
    draw.decoder("writer");
    draw.even("writer.tokens", &[VOCABULARY, HIDDEN], 1.0);
    draw.even("writer.codes", &[CODES * BOOK, HIDDEN], 1.0);
    draw.matrix("writer.head", VOCABULARY, HIDDEN, 3.0);
    draw.decoder("speaker");
    draw.matrix("speaker.context", HIDDEN, HIDDEN, 1.0);
    draw.even("speaker.tokens", &[VOCABULARY, HIDDEN], 1.0);
    draw.even("speaker.codes", &[PIECE_CODES * BOOK, HIDDEN], 0.7);
    draw.matrix("speaker.heads", PIECE_CODES * BOOK, HIDDEN, 3.0);
    draw.even("refiner.codes", &[CODES * BOOK, HIDDEN], 1.0);
    draw.matrix("refiner.latent", HIDDEN, LATENT, 1.0);
    draw.matrix("refiner.qkv", 3 * HIDDEN, HIDDEN, 1.0);
    draw.matrix("refiner.out", LATENT, HIDDEN, 1.0);
    draw.matrix("vocoder.frame", SAMPLES, 2 * LATENT, 0.2);
    let views = draw
        .tensors
        .iter()
        .map(|(name, shape, bytes)| (name.as_str(), TensorView::new(Dtype::F32, shape.clone(), bytes).unwrap()));
    safetensors::serialize(views, None).unwrap()
}

/// Opens the checkpoint. Its bytes are made once and live as long as the process.
pub fn open() -> Checkpoint {
    static FILES: OnceLock<[(&str, &[u8]); 1]> = OnceLock::new();
    let files = FILES.get_or_init(|| [("model.safetensors", Vec::leak(file()))]);
    Checkpoint::open(Source::Embedded { name: "other family", files }).unwrap()
}
