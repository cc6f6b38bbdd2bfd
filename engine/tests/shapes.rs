//! Shapes alone fix the sequence of operations of a step, and no model function reads back: what a device that
//! captures steps as graphs relies on.
#![allow(clippy::unwrap_used)] // Helpers of tests: a panic is their report.

#[allow(dead_code)] // Each test binary uses its part.
mod common;

use common::{CONVERSATIONS, folder};
use repartee_engine::Source;
use repartee_engine::internals::Checkpoint;
use repartee_engine::internals::qwen3_omni_moe::Qwen3Omni;
use repartee_engine::internals::qwen3_omni_moe::Window;
use repartee_kernels::cpu::Cpu;
use repartee_kernels::random::uniform;
use repartee_kernels::recording::RecordingOps;
use repartee_kernels::{Ops, SampleParams, SequenceRows, StateSpec, StreamChunk};

/// What each model function does with values that `seed` draws, for the same shapes.
fn operations(name: &str, seed: u64) -> Vec<(&'static str, Vec<String>)> {
    let checkpoint = Checkpoint::open(Source::Folder(folder(name).join("checkpoint"))).unwrap();
    let ops = RecordingOps::new(Cpu::default());
    let model = Qwen3Omni::load(&ops, &checkpoint).unwrap();
    let config = &model.config;
    let draw = |n: usize, below: usize| -> Vec<u32> {
        (0..n).map(|i| (uniform(seed, i as u64, n as u64, 0) * below as f32) as u32).collect()
    };
    let noise = |n: usize| (0..n).map(|i| uniform(seed, i as u64, 0, 1)).collect::<Vec<_>>();
    let params = |rows: usize| -> Vec<SampleParams> {
        let row = |slot| SampleParams {
            slot,
            repetition_penalty: 1.1,
            temperature: 0.9,
            top_k: 5,
            top_p: 0.9,
            uniform: uniform(seed, slot as u64, 0, 2),
        };
        (0..rows).map(row).collect()
    };
    // Two sessions, at positions that differ with the values: a prompt of four rows and one token.
    let at = draw(2, 20);
    let sequences = [
        SequenceRows { table: &[0], position: at[0] as usize, rows: 4 },
        SequenceRows { table: &[1], position: at[1] as usize, rows: 1 },
    ];
    let mut done = Vec::new();
    ops.take();

    let bins = config.thinker.audio.num_mel_bins;
    let mel = noise(130 * bins);
    model.audio_tower.forward(&ops, &[Window { mel: &mel, follows_full_chunk: false }]);
    done.push(("audio tower", ops.take()));

    let mut cache = model.thinker.model.cache(&ops, 2, 32);
    let mut output_mask = ops.state(StateSpec::TokenMask { slots: 2, vocabulary: config.thinker.text.vocab_size });
    let ids = ops.ids(&draw(5, config.thinker.text.vocab_size));
    let x = model.thinker.embed(&ops, &ids, &[], None);
    let (x, _) = model.thinker.forward(&ops, x, &mut cache, &ops.batch(&sequences));
    let logits = model.thinker.logits(&ops, &x, &[3, 4]);
    model.thinker.sample(&ops, &logits, &params(2), &mut output_mask);
    done.push(("thinker", ops.take()));

    let mut cache = model.talker.model.cache(&ops, 2, 32);
    let mut predictor_cache = model.talker.code_predictor.cache(&ops, 2);
    let mut output_mask = ops.state(StateSpec::TokenMask { slots: 2, vocabulary: config.talker.text.vocab_size });
    let x = model.talker.codec_rows(&ops, &ops.ids(&draw(5, config.code2wav.codebook_size)));
    let hidden = model.talker.forward(&ops, x, &mut cache, &ops.batch(&sequences), &[3, 4]);
    let logits = model.talker.logits(&ops, &hidden);
    let first = ops.sample(&logits, &params(2), Some(&model.talker.allowed_mask), Some(&mut output_mask));
    let embedded = model.talker.codec_rows(&ops, &first);
    model.talker.code_predictor.complete(&ops, &hidden, embedded, &mut predictor_cache, |_| params(2), false);
    done.push(("talker", ops.take()));

    let codes: Vec<Vec<u32>> =
        (0..config.code2wav.num_quantizers).map(|_| draw(3, config.code2wav.codebook_size)).collect();
    let mut state = model.code2wav.state(&ops, 2);
    let chunks = [StreamChunk { slot: 0, rows: 2, first: true }, StreamChunk { slot: 1, rows: 1, first: true }];
    model.code2wav.forward(&ops, &codes, &mut state, &chunks);
    done.push(("code2wav", ops.take()));
    done
}

#[test]
fn operations_depend_on_shapes_alone() {
    for name in CONVERSATIONS {
        let (one, other) = (operations(name, 1), operations(name, 2));
        assert_eq!(one, other, "{name}");
        for (model, operations) in one {
            assert!(operations.len() > 10, "{name}: only {} operations of the {model} were seen", operations.len());
            let reads = operations.iter().filter(|op| op.starts_with("read")).count();
            assert_eq!(reads, 0, "{name}: the {model} reads back");
        }
    }
}
