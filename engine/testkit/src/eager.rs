//! Calls parts of a model one by one, outside of a launched step, which the CPU allows.

use repartee_engine::internals::WindowInput;
use repartee_engine::internals::audio_encoder::tower::AudioTower;
use repartee_engine::internals::depth::model::DepthModel;
use repartee_engine::internals::qwen3_omni_moe::{Code2Wav, Code2WavState};
use repartee_kernels::{Ops, ReadBack, RowSpec, SampleParams, SpecLayout, StepKey, StreamRows};
use repartee_kernels_testkit::host::HostOps;

/// Uploads ids or row numbers to the device.
pub fn index<O: Ops>(ops: &O, numbers: &[u32]) -> O::Index {
    ops.list(numbers)
}

/// Rows of one sequence whose cache is one block.
pub fn batch<O: Ops>(ops: &O, position: usize, rows: usize) -> O::Batch {
    ops.batch(&[repartee_kernels::SequenceRows { table: &[0], position, rows }])
}

/// A completed frame of each row: codes and raw logits, codebook 1 first, and the sum of the embeddings of all codes.
pub type Completed<O> = (Vec<<O as Ops>::Index>, Vec<<O as Ops>::T>, <O as Ops>::T);

/// Completes one frame for each row.
pub fn complete<O: Ops>(
    ops: &O,
    predictor: &DepthModel<O>,
    hidden: &O::T,
    first: O::T,
    cache: &mut [O::State],
    params: &[SampleParams],
) -> Completed<O> {
    let mut layout = SpecLayout::default();
    let places = predictor.layout(&mut layout, ops.rows(hidden));
    let mut spec = layout.spec();
    predictor.fill(&mut spec, &places, |_| params);
    let (mut codes, mut logits) = (Vec::new(), Vec::new());
    let spec = ops.upload(&spec);
    let embedding = predictor.draw(ops, (&spec, &places), hidden, Some(first), cache, |ids, raw| {
        codes.push(ids);
        logits.push(raw);
    });
    (codes, logits, embedding.expect("the sum is wanted"))
}

/// Decodes the next frames of several streams: `codes[codebook]` has one id a row. Returns the samples of each chunk
/// that has any.
pub fn decode<O: Ops>(
    ops: &O,
    code2wav: &Code2Wav<O>,
    codes: &[Vec<u32>],
    state: &mut Code2WavState<O>,
    chunks: &[StreamRows],
) -> Vec<Vec<f32>> {
    let mut layout = SpecLayout::default();
    let rows: usize = chunks.iter().map(|chunk| chunk.rows).sum();
    let places = code2wav.layout(state, &mut layout, ops.bucket(rows));
    let mut spec = layout.spec();
    code2wav.fill(&mut spec, &places, state, codes, chunks);
    let key = StepKey { stage: "code2wav", rows: ops.bucket(rows), variant: 0 };
    let ticket = ops.launch(key, &spec, &mut |ops, spec, outputs| {
        outputs.rows.push(code2wav.forward(ops, (spec, &places), state));
    });
    let mut back = ReadBack::default();
    ops.collect(ticket, &mut back);
    let frame = back.numbers.len() / ops.bucket(rows);
    let mut from = 0;
    let samples = |chunk: &StreamRows| {
        let mine = &back.numbers[from..from + chunk.rows * frame];
        from += chunk.rows * frame;
        mine[code2wav.valid_samples(*chunk)].to_vec()
    };
    chunks.iter().map(samples).collect()
}

/// Encodes several windows; returns their rows, one window after the other.
pub fn encode<O: Ops>(ops: &O, tower: &AudioTower<O>, windows: &[WindowInput<'_>]) -> Vec<f32> {
    tower.encode(ops, windows, &mut RowSpec::default(), &mut ReadBack::default()).concat()
}
