//! Streaming decode: any split of a stream, batched with any other stream, gives the samples of one decode.

#![allow(clippy::unwrap_used)] // Helpers of tests: a panic is their report.

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use repartee_engine::Source;
use repartee_engine::internals::Checkpoint;
use repartee_engine::internals::qwen3_omni_moe::MAX_FRAMES;
use repartee_engine::internals::qwen3_omni_moe::Qwen3Omni;
use repartee_engine_testkit::device::{Device, device};
use repartee_engine_testkit::{CONVERSATIONS, eager, folder, property};
use repartee_kernels::StreamRows;

/// Number of cases for each fixture: a simulated device is slow.
const CASES: u32 = if cfg!(feature = "cuda") { 1 } else { 12 };

/// A stream: its frames, column by column.
type Codes = Vec<Vec<u32>>;

/// Decodes streams in one batch, stream `i` in slot `i`; `steps` holds the number of frames of each stream in each
/// call.
fn decode(ops: &Device, model: &Qwen3Omni<Device>, streams: &[Codes], steps: &[Vec<usize>]) -> Vec<Vec<f32>> {
    let groups = model.config.code2wav.num_quantizers;
    let mut state = model.code2wav.state(ops, streams.len());
    let mut samples = vec![Vec::new(); streams.len()];
    let mut from = vec![0; streams.len()];
    for step in steps {
        let mut codes = vec![Vec::new(); groups];
        let mut chunks = Vec::new();
        for (slot, stream) in streams.iter().enumerate() {
            let rows = step[slot].min(stream.len() - from[slot]);
            if rows == 0 {
                continue;
            }
            for frame in &stream[from[slot]..from[slot] + rows] {
                codes.iter_mut().zip(frame).for_each(|(codes, &code)| codes.push(code));
            }
            chunks.push(StreamRows { slot, position: from[slot], rows });
            from[slot] += rows;
        }
        if chunks.is_empty() {
            continue;
        }
        let made = eager::decode(ops, &model.code2wav, &codes, &mut state, &chunks);
        for (chunk, mine) in chunks.iter().zip(made) {
            samples[chunk.slot].extend(mine);
        }
    }
    samples
}

#[test]
fn any_split_equals_one_decode() {
    for name in CONVERSATIONS {
        let ops = device();
        let checkpoint = Checkpoint::open(Source::Folder(folder(name).join("checkpoint"))).unwrap();
        let model = Qwen3Omni::load(&ops, &checkpoint).unwrap();
        let codec = &model.config.code2wav;
        let frame = prop::collection::vec(0..codec.codebook_size as u32, codec.num_quantizers);
        let stream = || prop::collection::vec(frame.clone(), 1..=MAX_FRAMES);
        // Up to four frames of each stream a call, half of the time one.
        let step = prop::collection::vec(prop_oneof![Just(1usize), 0usize..5], 2);
        let cases = (stream(), stream(), prop::collection::vec(step, 2 * MAX_FRAMES));
        let mut runner = TestRunner::new(property(CASES, file!()));
        runner
            .run(&cases, |(one, other, mut steps)| {
                // The rest of the frames comes at the end.
                steps.push(vec![MAX_FRAMES, MAX_FRAMES]);
                let split = decode(&ops, &model, &[one.clone(), other.clone()], &steps);
                for (stream, split) in [one, other].into_iter().zip(split) {
                    let frames = stream.len();
                    let whole = decode(&ops, &model, &[stream], &[vec![MAX_FRAMES]]).remove(0);
                    prop_assert_eq!(whole.len(), frames * codec.samples_per_frame() - model.code2wav.look_ahead());
                    prop_assert!(whole == split, "{}: other samples than in one decode", name);
                }
                Ok(())
            })
            .unwrap();
    }
}
