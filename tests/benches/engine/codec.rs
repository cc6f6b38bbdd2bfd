//! Code2wav with carried state, compared with decoding each chunk again with 25 frames of left context: same kernels,
//! same frames.

use std::path::Path;
use std::time::Instant;

use anyhow::Result;
use repartee_engine::Source;
use repartee_engine::internals::Checkpoint;
use repartee_engine::internals::qwen3_omni_moe::Qwen3Omni;
use repartee_kernels::StreamRows;
use repartee_kernels::cpu::Cpu;
use repartee_report::ReportRow;

use crate::bed::median;
use repartee_engine_testkit::eager;

/// Frames of left context before each chunk, as in vLLM-Omni.
const LEFT_CONTEXT: usize = 25;
/// Frames timed in each repetition, after a full context.
const FRAMES: usize = 50;
/// Number of timed repetitions.
const REPEATS: usize = 7;

pub fn rows(folder: &Path) -> Result<Vec<ReportRow>> {
    let ops = Cpu::default();
    let model = Qwen3Omni::load(&ops, &Checkpoint::open(Source::Folder(folder.to_owned()))?)?;
    let codec = &model.config.code2wav;
    let frames = |from: usize, count: usize| -> Vec<Vec<u32>> {
        let code = |q: usize, t: usize| ((q * 37 + t * 101) % codec.codebook_size) as u32;
        (0..codec.num_quantizers).map(|q| (from..from + count).map(|t| code(q, t)).collect()).collect()
    };
    let mut state = model.code2wav.state_for(&ops, 1, 2 * LEFT_CONTEXT);
    let mut decode = |from: usize, count: usize, first: bool| {
        let chunk = StreamRows { slot: 0, position: if first { 0 } else { from }, rows: count };
        eager::decode(&ops, &model.code2wav, &frames(from, count), &mut state, &[chunk]);
    };
    let mut time = |chunk: usize, again: bool| {
        let runs = (0..=REPEATS).map(|_| {
            decode(0, LEFT_CONTEXT, true);
            let begun = Instant::now();
            for at in (LEFT_CONTEXT..LEFT_CONTEXT + FRAMES).step_by(chunk) {
                if again {
                    decode(at - LEFT_CONTEXT, LEFT_CONTEXT + chunk, true);
                } else {
                    decode(at, chunk, false);
                }
            }
            begun.elapsed().as_secs_f64() * 1e3 / FRAMES as f64
        });
        median(runs.skip(1).collect())
    };
    let row = |name: &str, chunk: usize, time: &mut dyn FnMut(usize, bool) -> f64| {
        let note = format!("a frame of 80 ms, {chunk} at a time; peer: {LEFT_CONTEXT} frames of left context");
        ReportRow::lower_is_better(name, time(chunk, false), time(chunk, true), "ms", note)
    };
    Ok(vec![
        row("code2wav_state_vs_recompute", 1, &mut time),
        row("code2wav_state_vs_recompute_25", LEFT_CONTEXT, &mut time),
    ])
}
