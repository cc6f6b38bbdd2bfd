//! Operations split over threads: the bits do not depend on the number of threads.
#![allow(clippy::unwrap_used)] // Helpers of tests: a panic is their report.

use std::cell::Cell;
use std::sync::Arc;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use repartee_kernels::cpu::gemm::{PackedWeight, StridedRows, multiply, multiply_on};
use repartee_kernels::cpu::pool::Pool;
use repartee_kernels::cpu::quantised::{IntegerFormat, QuantisedWeight};
use repartee_kernels::cpu::simd::SimdLevel;
use repartee_kernels::cpu::{Cpu, KvFormat, Tensor, Weight};
use repartee_kernels::random::uniform;
use repartee_kernels::{
    Activation, AttentionShape, DType, FILTER_TAPS, Ops, RawTensor, RouterShape, SegmentShape, SequenceRows,
    SpecLayout, StateSpec, StreamLevel, StreamRows, WeightFormat, WeightLayout,
};
use repartee_kernels_testkit::host::HostOps;
use repartee_kernels_testkit::stored::{KINDS, StoredMatrix};

const THREADS: [usize; 4] = [1, 2, 3, 7];

pub fn numbers(count: usize, seed: u64) -> Vec<f32> {
    (0..count).map(|i| uniform(seed, i as u64, 0, 0) - 0.5).collect()
}

fn pools() -> [Arc<Pool>; 4] {
    THREADS.map(|threads| Arc::new(Pool::new(threads).unwrap()))
}

/// Rows, inputs and columns of products that are large enough to be split.
fn sizes() -> impl Strategy<Value = (usize, usize, usize)> {
    prop_oneof![
        (1usize..9, 300usize..1500, 300usize..900),
        (9usize..70, 100usize..600, 20usize..300),
        (100usize..900, 20usize..150, 1usize..60),
    ]
}

#[test]
fn products_are_equal_for_any_thread_count() {
    let pools = pools();
    let mut runner =
        TestRunner::new(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() });
    let inputs = (sizes(), 0usize..5, any::<bool>(), 0u64..1000);
    let check = |((rows, k, columns), format, biased, seed): ((usize, usize, usize), usize, bool, u64)| {
        let (x, w) = (numbers(rows * k, seed), numbers(columns * k, seed + 1));
        let bias = biased.then(|| numbers(columns, seed + 2));
        let quantised = |bits| {
            let mut rows = w.chunks_exact(k);
            let weight = QuantisedWeight::new(bits, columns, k, |row| row.copy_from_slice(rows.next().unwrap()));
            PackedWeight::quantised(weight.unwrap(), k)
        };
        let weight = match format {
            0 => PackedWeight::new_bf16(columns, k, |column, i| (w[column * k + i].to_bits() >> 16) as u16),
            1 => PackedWeight::new(columns, k, |column, i| w[column * k + i]),
            2 => quantised(IntegerFormat::Eight),
            3 => quantised(IntegerFormat::Four),
            // Two kinds of stored integers.
            _ => {
                let first = columns / 2;
                let part = |columns, seed: u64| {
                    let kind = KINDS[seed as usize % KINDS.len()];
                    QuantisedWeight::packed(None, k, &[StoredMatrix::drawn(kind, [columns, k], seed).tensor()])
                };
                PackedWeight::joined(vec![part(first, seed), part(columns - first, seed + 1)], k)
            }
        };
        for level in SimdLevel::available() {
            let mut alone = vec![0.0; rows * columns];
            multiply(level, StridedRows::dense(&x, k), &weight, bias.as_deref(), &mut alone);
            for pool in &pools {
                let mut split = vec![f32::NAN; rows * columns];
                multiply_on(
                    Some(pool),
                    level,
                    StridedRows::dense(&x, k),
                    &weight,
                    bias.as_deref(),
                    &mut Vec::new(),
                    &mut split,
                );
                prop_assert!(split == alone, "{} threads", pool.threads());
            }
        }
        Ok(())
    };
    runner.run(&inputs, check).unwrap();
}

#[test]
fn stored_integers_pack_equally_on_threads() {
    let (columns, k) = (70, 512);
    for kind in KINDS {
        let tensors = [StoredMatrix::drawn(kind, [columns / 2, k], 1), StoredMatrix::drawn(kind, [columns / 2, k], 2)];
        let tensors = tensors.each_ref().map(StoredMatrix::tensor);
        let numbers = |pool: Option<&Pool>| {
            let weight = QuantisedWeight::packed(pool, k, &tensors);
            let mut numbers = vec![0.0; columns * k];
            numbers.chunks_exact_mut(k).enumerate().for_each(|(column, to)| weight.look_up(column, to));
            numbers
        };
        let alone = numbers(None);
        assert!(alone == tensors.iter().flat_map(|tensor| tensor.numbers()).collect::<Vec<_>>(), "{kind:?}");
        for pool in &pools() {
            assert!(numbers(Some(pool)) == alone, "{kind:?}, {} threads", pool.threads());
        }
    }
}

pub fn weight(ops: &Cpu, layout: WeightLayout, shape: &[usize]) -> Weight {
    weight_as(ops, layout, WeightFormat::Float, shape)
}

pub fn weight_as(ops: &Cpu, layout: WeightLayout, format: WeightFormat, shape: &[usize]) -> Weight {
    let experts = if let WeightLayout::Experts { per_expert } = layout { 3 * per_expert } else { 1 };
    let values = numbers(shape.iter().product(), shape.len() as u64);
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let part = RawTensor { name: "w", bytes: &bytes, dtype: DType::F32, shape };
    ops.weight_in_format(layout, format, &vec![part; experts]).unwrap()
}

/// Results of every operation that is split, at sizes that are split. Calls `split` after each.
pub fn results(ops: &Cpu, split: impl Fn() -> bool) -> Vec<(&'static str, Tensor)> {
    const ROWS: usize = 700;
    const WIDTH: usize = 48;
    let x = || ops.tensor(numbers(ROWS * WIDTH, 3), WIDTH);
    let vector = weight(ops, WeightLayout::Vector, &[WIDTH]);
    let mut layout = SpecLayout::default();
    let at = layout.streams(ROWS, 3);
    let mut spec = layout.spec();
    let chunks = [(1, 0, 400), (0, 0, 1), (2, 7, 299)];
    spec.set_streams(at, &chunks.map(|(slot, position, rows)| StreamRows { slot, position, rows }));
    let streams = StreamLevel::new(ops.index(&ops.upload(&spec), at.words()));
    let tail = |rows| ops.state(StateSpec::Tail { slots: 3, rows, columns: WIDTH });
    let linear = weight(ops, WeightLayout::Linear, &[200, WIDTH]);
    let causal = weight(ops, WeightLayout::Conv1d { dilation: 3 }, &[WIDTH, WIDTH, 7]);
    let grouped = weight(ops, WeightLayout::GroupedConv1d { dilation: 3, groups: 2 }, &[WIDTH, WIDTH / 2, 7]);
    let up = weight(ops, WeightLayout::ConvTranspose1d { stride: 4, cut: true }, &[WIDTH, WIDTH, 8]);
    let pictures = ops.tensor(numbers(2 * 40 * 50 * 3, 4), 3);
    let conv2d = weight(ops, WeightLayout::Conv2d { stride: 2 }, &[WIDTH, 3, 3, 3]);
    let router = weight(ops, WeightLayout::Linear, &[3, WIDTH]);
    let gate_up = weight(ops, WeightLayout::Experts { per_expert: 2 }, &[80, WIDTH]);
    let down = weight(ops, WeightLayout::Experts { per_expert: 1 }, &[WIDTH, 80]);
    let routed = RouterShape { top_k: 2, normalise: true };
    let mut results = Vec::new();
    let mut add = |name, result| {
        assert!(split(), "{name} is not split");
        results.push((name, result));
    };
    add("linear", ops.linear(&x(), &linear, None));
    add("conv1d", ops.conv1d_at(&x(), &causal, &vector, &mut tail(18), &streams));
    add("grouped conv1d", ops.conv1d_at(&x(), &grouped, &vector, &mut tail(18), &streams));
    add("conv_transpose1d", ops.conv_transpose1d_at(&x(), &up, &vector, &mut tail(1), &streams));
    add("conv2d", ops.conv2d(&pictures, 2, 40, 50, &conv2d, &vector));
    add("experts", ops.experts(&x(), &router, &gate_up, &down, routed));
    for (name, format) in [("experts, int8", WeightFormat::Int8), ("experts, int4", WeightFormat::Int4)] {
        let gate_up = weight_as(ops, WeightLayout::Experts { per_expert: 2 }, format, &[80, WIDTH]);
        let down = weight_as(ops, WeightLayout::Experts { per_expert: 1 }, format, &[WIDTH, 80]);
        add(name, ops.experts(&x(), &router, &gate_up, &down, routed));
    }
    // One row, whose experts are computed in one region.
    let row = || ops.tensor(numbers(WIDTH, 5), WIDTH);
    for (name, format) in [
        ("experts of a row", WeightFormat::Float),
        ("of a row, int8", WeightFormat::Int8),
        ("of a row, int4", WeightFormat::Int4),
    ] {
        let gate_up = weight_as(ops, WeightLayout::Experts { per_expert: 2 }, format, &[700, WIDTH]);
        let down = weight_as(ops, WeightLayout::Experts { per_expert: 1 }, format, &[WIDTH, 700]);
        add(name, ops.experts(&row(), &router, &gate_up, &down, routed));
    }
    add("snake", ops.snake(x(), &vector, &vector));
    let wide = || ops.tensor(numbers(3 * ROWS * WIDTH, 6), 3 * WIDTH);
    add("rms_norm", ops.rms_norm(&wide(), &vector, 1e-5));
    add("layer_norm", ops.layer_norm(&wide(), &vector, &vector, 1e-5));
    add("silu", ops.activation(x(), Activation::Silu));
    add("silu_mul", ops.silu_mul(&wide()));
    add("sigmoid_mul", ops.sigmoid_mul(&wide()));
    add("gelu", ops.activation(x(), Activation::Gelu));
    add("mish", ops.activation(x(), Activation::Mish));
    let at = layout.segments(ROWS, 2);
    let mut spec = layout.spec();
    spec.set_segments(at, &[ROWS - 1, 1]);
    let segments = ops.index(&ops.upload(&spec), at.words());
    let filter = weight(ops, WeightLayout::Vector, &[FILTER_TAPS]);
    add("segment_conv1d", ops.segment_conv1d_at(&x(), &causal, &vector, &segments));
    add("segment_snake", ops.segment_snake_at(&x(), &vector, &vector, &filter, &segments));
    add("segment_attention", ops.segment_attention_at(&x(), &x(), &x(), &segments, SegmentShape::whole(3)));
    let reach = SegmentShape { heads: 3, left: Some(200), right: Some(50) };
    add("segment_attention, reach", ops.segment_attention_at(&x(), &x(), &x(), &segments, reach));
    for (name, kv, window, chunk) in [
        ("attention", KvFormat::F32, None, None),
        ("attention, bf16, window", KvFormat::Bf16, Some(100), None),
        ("attention, chunks", KvFormat::F32, None, Some(50)),
    ] {
        // One row and many rows, with two query heads for each key head.
        let mut cache = ops.clone().with_kv(kv).state(StateSpec::KeyValue { blocks: 70, block_len: 12, width: WIDTH });
        let tables: [Vec<u32>; 2] = [(0..60).collect(), (60..70).collect()];
        let shape = AttentionShape { heads: 6, kv_heads: 3, head_dim: 16, window, chunk };
        let [q, k] = [2 * WIDTH, WIDTH].map(|width| ops.tensor(numbers(ROWS * width, width as u64), width));
        let rows = |table: usize, position, rows| SequenceRows { table: &tables[table], position, rows };
        let batch = ops.batch(&[rows(1, 0, 30), rows(0, 0, ROWS - 30)]);
        add(name, ops.attention(&q, &k, &x(), &mut cache, &batch, shape));
    }
    results
}

#[test]
fn operations_are_equal_for_any_thread_count() {
    for level in SimdLevel::available() {
        let alone = results(&Cpu::with_level(level), || true);
        for pool in pools() {
            let (threads, regions) = (pool.threads(), Cell::new(0));
            let ops = Cpu::with_level(level).on(Some(Arc::clone(&pool)));
            let split = || threads == 1 || pool.regions() > regions.replace(pool.regions());
            let found = results(&ops, split);
            let differing = alone.iter().zip(&found).filter(|(alone, found)| alone != found).map(|(alone, _)| alone.0);
            let differing: Vec<_> = differing.collect();
            assert!(differing.is_empty(), "{differing:?} on {threads} threads at {level:?}");
        }
    }
}

#[test]
fn devices_share_a_pool() {
    // Stages on threads of their own, with operations split over the same pool.
    let pool = Arc::new(Pool::new(3).unwrap());
    let ops = Cpu::default().on(Some(Arc::clone(&pool)));
    let alone = results(&Cpu::default(), || true);
    let mut devices = [(); 3].map(|()| ops.with_own_buffers());
    for _ in 0..5 {
        pool.for_each(&mut devices, |_, ops| {
            for ((name, expected), (_, found)) in alone.iter().zip(results(ops, || true)) {
                assert!(*expected == found, "{name}");
            }
        });
    }
}
