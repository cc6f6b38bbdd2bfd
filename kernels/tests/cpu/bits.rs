//! One set of bits for plain code and one for fused code, whatever the processor: ARM and x86-64 give equal results.

use std::fmt::Write as _;
use std::fs;

use repartee_kernels::cpu::gemm::{PackedWeight, StridedRows, multiply};
use repartee_kernels::cpu::quantised::QuantisedWeight;
use repartee_kernels::cpu::simd::SimdLevel;
use repartee_kernels::cpu::{Cpu, Tensor};
use repartee_kernels::{Activation, Ops, RawTensor, SampleParams, SpecLayout, WeightFormat, WeightLayout};
use repartee_kernels_testkit::host::HostOps;
use repartee_kernels_testkit::stored::{KINDS, StoredMatrix};

use crate::threads::{numbers, results, weight, weight_as};

/// Digests by operation, of plain code and of fused code, computed on x86-64.
const FROZEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/bits.txt");

/// The hash FNV-1a of the numbers' bits.
fn digest(numbers: &[f32]) -> u64 {
    let bytes = numbers.iter().flat_map(|number| number.to_bits().to_le_bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

/// Results of the operations that are not split over threads.
fn more_results(level: SimdLevel) -> Vec<(String, Vec<f32>)> {
    const ROWS: usize = 40;
    const WIDTH: usize = 48;
    let ops = &Cpu::with_level(level);
    let mut found: Vec<(String, Vec<f32>)> = Vec::new();
    let tensor = |width: usize, seed| ops.tensor(numbers(ROWS * width, seed), width);
    let mut add = |name: &str, result: Tensor| found.push((name.to_owned(), ops.read(&result)));
    let functions = [
        ("gelu_tanh", Activation::GeluTanh),
        ("leaky_relu", Activation::LeakyRelu { slope: 0.1 }),
        ("elu", Activation::Elu),
        ("tanh", Activation::Tanh),
        ("exp", Activation::Exp),
    ];
    for (name, function) in functions {
        add(name, ops.activation(ops.scale_all(tensor(WIDTH, 7), 9.0), function));
    }
    let vector = weight(ops, WeightLayout::Vector, &[WIDTH]);
    add("sigmoid_gate", ops.sigmoid_gate(tensor(WIDTH, 8), &tensor(1, 9)));
    let mut layout = SpecLayout::default();
    let (at, samples) = (layout.segments(ROWS, 2), layout.samples(ROWS));
    let mut spec = layout.spec();
    spec.set_segments(at, &[ROWS - 3, 3]);
    let drawn = |row: usize| SampleParams {
        slot: row,
        repetition_penalty: 1.0,
        temperature: 0.7,
        top_k: 30,
        top_p: 0.9,
        uniform: row as f32 / ROWS as f32,
    };
    spec.set_samples(samples, (0..ROWS).map(drawn));
    let uploaded = ops.upload(&spec);
    let segments = ops.index(&uploaded, at.words());
    add("segment_norm", ops.segment_norm_at(&tensor(WIDTH, 10), &vector, &vector, 1e-5, &segments));
    let style = ops.tensor(numbers(2 * 2 * WIDTH, 11), 2 * WIDTH);
    add("instance_norm", ops.segment_instance_norm_at(&tensor(WIDTH, 12), &style, 1e-5, &segments));
    let hidden = weight(ops, WeightLayout::Linear, &[4 * WIDTH, WIDTH]);
    add("lstm", ops.segment_lstm_at(&tensor(4 * WIDTH, 13), &hidden, &segments, false));
    let conv = weight_as(ops, WeightLayout::Conv1d { dilation: 2 }, WeightFormat::Int8, &[WIDTH, WIDTH, 5]);
    add("segment_conv1d, int8", ops.segment_conv1d_at(&tensor(WIDTH, 14), &conv, &vector, &segments));
    let ids = ops.sample_at(&tensor(WIDTH, 15), &ops.index(&uploaded, samples.words()), None, None);
    found.push(("sample".to_owned(), ops.read_list(&ids).into_iter().map(|id| id as f32).collect()));
    for (number, kind) in KINDS.into_iter().enumerate() {
        // One row, which has tiles of its own, and several.
        for rows in [1, 7] {
            let (columns, k) = (70, 300);
            let matrix = StoredMatrix::drawn(kind, [columns, k], number as u64);
            let packed = PackedWeight::quantised(QuantisedWeight::packed(None, k, &[matrix.tensor()]), k);
            let mut out = vec![0.0; rows * columns];
            multiply(level, StridedRows::dense(&numbers(rows * k, 16), k), &packed, None, &mut out);
            found.push((format!("integers of kind {number}, {rows} rows"), out));
        }
    }
    let bits: Vec<u8> = numbers(70 * 300, 17).iter().flat_map(|number| number.to_le_bytes()[2..].to_vec()).collect();
    let raw = RawTensor { name: "w", bytes: &bits, dtype: repartee_kernels::DType::Bf16, shape: &[70, 300] };
    let linear = ops.stored_weight(WeightLayout::Linear, &[raw]).unwrap();
    for rows in [1, 2, 3, 13] {
        let product = ops.linear(&ops.tensor(numbers(rows * 300, 18), 300), &linear, None);
        found.push((format!("bfloat16, {rows} rows"), ops.read(&product)));
    }
    found
}

fn digests(level: SimdLevel) -> Vec<(String, u64)> {
    let ops = Cpu::with_level(level);
    let split = results(&ops, || true).into_iter().map(|(name, result)| (name.to_owned(), ops.read(&result)));
    split.chain(more_results(level)).map(|(name, numbers)| (name, digest(&numbers))).collect()
}

/// `REPARTEE_WRITE_BITS=1` writes the file instead, on x86-64 with AVX2 alone.
#[test]
fn every_processor_gives_the_frozen_bits() {
    let levels: Vec<SimdLevel> = SimdLevel::available().collect();
    let found: Vec<_> = levels.iter().map(|&level| digests(level)).collect();
    if std::env::var_os("REPARTEE_WRITE_BITS").is_some() {
        let mut text = String::new();
        for ((name, plain), (_, fused)) in found[0].iter().zip(&found[1]) {
            writeln!(text, "{plain:016x} {fused:016x} {name}").unwrap();
        }
        return fs::write(FROZEN, text).unwrap();
    }
    let frozen = fs::read_to_string(FROZEN).unwrap();
    assert_eq!(frozen.lines().count(), found[0].len(), "another number of operations");
    let mut differing = Vec::new();
    for (level, found) in levels.iter().zip(&found) {
        for (line, (name, digest)) in frozen.lines().zip(found) {
            let mut words = line.splitn(3, ' ');
            let [plain, fused, frozen_name] = std::array::from_fn(|_| words.next().unwrap());
            assert_eq!(frozen_name, name);
            let expected = if *level == SimdLevel::BASELINE { plain } else { fused };
            if format!("{digest:016x}") != expected {
                differing.push(format!("{name} at {level:?}"));
            }
        }
    }
    assert!(differing.is_empty(), "other bits: {differing:?}");
}
