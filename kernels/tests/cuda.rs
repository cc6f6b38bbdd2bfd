//! Compares the CUDA device with the processor: every operation gives the same numbers within a bound and the same ids, and a row's bits do
//! not depend on its neighbours. `make test-cuda` runs these tests on a simulated device.
#![cfg(feature = "cuda")]
#![allow(clippy::unwrap_used)] // Helpers of tests: a panic is their report.

use half::bf16;
use repartee_kernels::cpu::Cpu;
use repartee_kernels::cpu::quantised::{IntegerFormat, QuantisedWeight};
use repartee_kernels::cuda::{Cuda, CudaError};
use repartee_kernels::random::uniform;
use repartee_kernels::{
    Activation, AttentionShape, DType, FILTER_TAPS, KernelError, NO_ROW, Ops, RandomDraw, RandomTensor, RawTensor,
    ReadBack, RouterShape, SampleParams, SegmentShape, SequenceRows, SpecLayout, StateSpec, StepKey, StepOutputs,
    StreamLevel, StreamRows, WeightFormat, WeightLayout, WeightPart,
};
use repartee_kernels_testkit::host::HostOps;
use repartee_kernels_testkit::stored::{KINDS, StoredMatrix};

/// Largest difference that counts as equal, relative to the largest number: some units of single precision for each term of the longest sum
/// here.
const BOUND: f32 = 2e-5;

fn cuda() -> Cuda {
    Cuda::open(0).expect("`make test-cuda` says where the simulated driver is")
}

fn numbers(count: usize, seed: u64) -> Vec<f32> {
    (0..count).map(|i| uniform(seed, i as u64, 0, 0) * 2.0 - 1.0).collect()
}

fn bytes(dtype: DType, values: &[f32]) -> Vec<u8> {
    match dtype {
        DType::Bf16 => values.iter().flat_map(|&value| bf16::from_f32(value).to_le_bytes()).collect(),
        _ => values.iter().flat_map(|value| value.to_le_bytes()).collect(),
    }
}

/// Prepares a weight of several parts of one shape.
fn weight<O: Ops>(ops: &O, layout: WeightLayout, dtype: DType, shape: &[usize], parts: usize, seed: u64) -> O::Weight {
    let bytes: Vec<Vec<u8>> =
        (0..parts).map(|part| bytes(dtype, &numbers(shape.iter().product(), seed + 1000 * part as u64))).collect();
    let parts: Vec<_> = bytes.iter().map(|bytes| RawTensor { name: "w", bytes, dtype, shape }).collect();
    ops.stored_weight(layout, &parts).unwrap()
}

/// Results of operations, by name.
type Found = Vec<(String, Vec<f32>)>;

/// Runs every operation that takes numbers from the host, with weights of one format. With `odd`, widths are no multiple of four.
fn operations<O: Ops>(ops: &O, dtype: DType, odd: bool) -> Found {
    let mut found = Found::new();
    let wide = if odd { 45 } else { 48 };
    let mut note = |name: &str, x: &O::T| found.push((name.to_owned(), ops.read(x)));
    let vector = |len, seed| weight(ops, WeightLayout::Vector, dtype, &[len], 1, seed);
    let tensor = |rows: usize, columns: usize, seed| ops.tensor(numbers(rows * columns, seed), columns);

    for rows in [1, 3, 9] {
        let x = tensor(rows, wide, 1);
        for outputs in [1, 6, 70] {
            let w = weight(ops, WeightLayout::Linear, dtype, &[outputs, wide], 2, 2);
            note(&format!("linear {rows} {outputs}"), &ops.linear(&x, &w, None));
            note(&format!("linear {rows} {outputs} with bias"), &ops.linear(&x, &w, Some(&vector(2 * outputs, 3))));
        }
        note("copy", &ops.copy(&x));
        note("concat", &ops.concat(&[&x, &tensor(2, wide, 4), &x]));
        note("gather", &ops.gather(&x, &[rows - 1, 0, 0]));
        note("narrow", &ops.narrow(&x, 5, 11));
        note("add", &ops.add(ops.copy(&x), &tensor(rows, wide, 5)));
        note("mul", &ops.mul(ops.copy(&x), &tensor(rows, wide, 25)));
        note("scale", &ops.scale(ops.copy(&x), &vector(wide / 3, 6)));
        note("scale all", &ops.scale_all(ops.copy(&x), -1.7));
        let (sum, normed) = ops.add_norm(ops.copy(&x), &tensor(rows, wide, 27), &vector(wide, 28), 1e-6);
        note("sum", &sum);
        note("norm of a sum", &normed);
        note("rms norm", &ops.rms_norm(&x, &vector(wide / 3, 7), 1e-6));
        note("layer norm", &ops.layer_norm(&x, &vector(wide, 8), &vector(wide, 9), 1e-5));
        note("clamp", &ops.clamp(ops.copy(&x), -0.3, 0.4));
        let large = |seed| ops.scale_all(tensor(rows, 2 * wide, seed), 9.0);
        let leaky = Activation::LeakyRelu { slope: 0.1 };
        for function in [Activation::Silu, Activation::Gelu, Activation::Relu, leaky, Activation::Elu, Activation::Mish]
        {
            note(&format!("{function:?}"), &ops.activation(large(10), function));
        }
        for function in [Activation::GeluTanh, Activation::Exp, Activation::Tanh, Activation::Abs] {
            let x = ops.scale_all(tensor(rows, 2 * wide, 26), 4.5);
            note(&format!("{function:?}"), &ops.activation(x, function));
        }
        note("silu mul", &ops.silu_mul(&large(11)));
        note("sigmoid mul", &ops.sigmoid_mul(&large(12)));
        note("snake", &ops.snake(large(13), &vector(2 * wide, 14), &vector(2 * wide, 15)));
        note("sigmoid gate", &ops.sigmoid_gate(large(16), &tensor(rows, 1, 17)));
        note("reshape", &ops.reshape(ops.copy(&x), 3));
        let table = weight(ops, WeightLayout::Table, dtype, &[7, wide], 2, 18);
        note("embed", &ops.embed_at(&table, &ops.list(&[13, 0, u32::MAX, 5])));
        let matrix = weight(ops, WeightLayout::Linear, dtype, &[7, wide], 2, 18);
        note("embed rows of a matrix", &ops.embed_at(&matrix, &ops.list(&[13, 0, u32::MAX, 5])));

        let router = weight(ops, WeightLayout::Linear, dtype, &[9, wide], 1, 19);
        let gate_up = weight(ops, WeightLayout::Experts { per_expert: 2 }, dtype, &[10, wide], 18, 20);
        let down = weight(ops, WeightLayout::Experts { per_expert: 1 }, dtype, &[wide, 10], 9, 21);
        for (top_k, normalise) in [(1, true), (3, false), (9, true)] {
            let spec = RouterShape { top_k, normalise };
            note(&format!("experts {rows} {top_k}"), &ops.experts(&x, &router, &gate_up, &down, spec));
        }
    }
    for (channels, outputs, stride) in [(1, 6, 1), (1, 5, 2), (8, 4, 2)] {
        let w = weight(ops, WeightLayout::Conv2d { stride }, dtype, &[outputs, channels, 3, 3], 1, 22);
        let x = tensor(2 * 7 * 5, channels, 23);
        note(&format!("conv2d {channels} {stride}"), &ops.conv2d(&x, 2, 7, 5, &w, &vector(outputs, 24)));
    }
    found
}

/// Runs attention of several sequences in several steps: rings, windows, grouped heads, and a copied block.
fn attention<O: Ops>(ops: &O) -> Found {
    let mut found = Found::new();
    for (heads, kv_heads, head_dim, window, chunk) in [
        (4, 2, 8, None, None),
        (3, 3, 64, Some(5), None),
        (6, 1, 6, Some(40), None),
        (2, 2, 130, None, None),
        (4, 2, 8, None, Some(4)),
        (2, 1, 6, Some(7), Some(12)),
    ] {
        let shape = AttentionShape { heads, kv_heads, head_dim, window, chunk };
        let width = kv_heads * head_dim;
        let mut cache = ops.state(StateSpec::KeyValue { blocks: 40, block_len: 7, width });
        let tables: [Vec<u32>; 2] = [(0..20).rev().collect(), (20..39).collect()];
        let mut positions = [0, 0];
        for (step, rows) in [[50, 1], [1, 0], [3, 9], [1, 1]].into_iter().enumerate() {
            let sequences: Vec<_> = (0..2)
                .map(|s| SequenceRows { table: &tables[s], position: positions[s], rows: rows[s] })
                .filter(|sequence| sequence.rows > 0)
                .collect();
            let count = rows[0] + rows[1];
            let tensor =
                |columns: usize, salt: u64| ops.tensor(numbers(count * columns, 100 * step as u64 + salt), columns);
            let batch = ops.batch(&sequences);
            let frequencies = ops.rotary_weight(head_dim, 1e4).unwrap();
            let q = ops.rotary(tensor(heads * head_dim, 1), &batch, &frequencies);
            let k = ops.rotary(tensor(width, 2), &batch, &frequencies);
            found.push((format!("rotary {head_dim} {step}"), ops.read(&q)));
            let joined = tensor((heads + 2 * kv_heads) * head_dim, 4);
            let norm = |seed| weight(ops, WeightLayout::Vector, DType::F32, &[head_dim], 1, seed);
            let parts = ops.split_heads(&joined, Some((&norm(5), &norm(6))), 1e-6, &batch, Some(&frequencies), shape);
            found.extend(parts.iter().map(|part| (format!("split heads {head_dim} {step}"), ops.read(part))));
            let out = ops.attention(&q, &k, &tensor(width, 3), &mut cache, &batch, shape);
            found.push((format!("attention {shape:?} {step}"), ops.read(&out)));
            let again = ops.stored_attention(&q, &mut cache, &batch, shape);
            found.push((format!("stored attention {shape:?} {step}"), ops.read(&again)));
            if step == 1 {
                // The other sequence continues with a copy of the first one's newest block.
                ops.copy_block(&mut cache, tables[0][7], tables[1][0]);
            }
            positions = [positions[0] + rows[0], positions[1] + rows[1]];
        }
    }
    let segments = segments(ops, 30, &[5, 1, 20]);
    for width in [48, 4 * 576] {
        let [q, k, v] = [1, 2, 3].map(|seed| ops.tensor(numbers(30 * width, seed), width));
        for (left, right) in [(None, None), (None, Some(0)), (Some(3), Some(7))] {
            let shape = SegmentShape { heads: 4, left, right };
            let attended = ops.segment_attention_at(&q, &k, &v, &segments, shape);
            found.push((format!("{width}, {shape:?}"), ops.read(&attended)));
        }
    }
    found
}

/// Operations in one pass give the bits of those that they consist of, for narrow rows and wide ones.
#[test]
fn joined_operations_have_the_bits_of_their_parts() {
    let ops = cuda();
    let vector = |len, seed| weight(&ops, WeightLayout::Vector, DType::F32, &[len], 1, seed);
    let bits = |x: &_| ops.read(x).into_iter().map(f32::to_bits).collect::<Vec<_>>();
    for columns in [48, 600] {
        let [x, y] = [1, 2].map(|seed| ops.tensor(numbers(5 * columns, seed), columns));
        let norm = vector(columns, 3);
        let (sum, normed) = ops.add_norm(ops.copy(&x), &y, &norm, 1e-6);
        let wanted = ops.add(x, &y);
        assert_eq!(bits(&normed), bits(&ops.rms_norm(&wanted, &norm, 1e-6)), "{columns} columns");
        assert_eq!(bits(&sum), bits(&wanted), "{columns} columns");
    }
    for head_dim in [6, 128] {
        let shape = AttentionShape { heads: 4, kv_heads: 2, head_dim, window: None, chunk: None };
        let (q, kv) = (4 * head_dim, 2 * head_dim);
        let table: Vec<u32> = (0..9).collect();
        let batch = ops.batch(&[SequenceRows { table: &table, position: 7, rows: 5 }]);
        let joined = ops.tensor(numbers(5 * (q + 2 * kv), 4), q + 2 * kv);
        let (norms, frequencies) =
            ((vector(head_dim, 5), vector(head_dim, 6)), ops.rotary_weight(head_dim, 1e4).unwrap());
        let normed = |x: &_, norm, is_normed| if is_normed { ops.rms_norm(x, norm, 1e-6) } else { ops.copy(x) };
        for (is_normed, is_rotated) in [(true, true), (true, false), (false, true), (false, false)] {
            let rotated = |x| if is_rotated { ops.rotary(x, &batch, &frequencies) } else { x };
            let found = ops.split_heads(
                &joined,
                is_normed.then_some((&norms.0, &norms.1)),
                1e-6,
                &batch,
                is_rotated.then_some(&frequencies),
                shape,
            );
            let wanted = [
                rotated(normed(&ops.narrow(&joined, 0, q), &norms.0, is_normed)),
                rotated(normed(&ops.narrow(&joined, q, kv), &norms.1, is_normed)),
                ops.narrow(&joined, q + kv, kv),
            ];
            assert_eq!(
                found.each_ref().map(bits),
                wanted.each_ref().map(bits),
                "{head_dim}, {is_normed}, {is_rotated}"
            );
        }
    }
}

/// Uploads segment lengths, with the remaining rows of `rows` as one more segment.
fn segments<O: Ops>(ops: &O, rows: usize, lengths: &[usize]) -> O::Index {
    let mut layout = SpecLayout::default();
    let at = layout.segments(rows, lengths.len() + 1);
    let mut spec = layout.spec();
    spec.set_segments(at, lengths);
    ops.index(&ops.upload(&spec), at.words())
}

/// Runs a centred convolution and the snake at twice the rate, within segments longer and shorter than their reach.
fn within_segments<O: Ops>(ops: &O, dtype: DType, channels: usize) -> Found {
    let mut found = Found::new();
    let vector = |len, seed| weight(ops, WeightLayout::Vector, dtype, &[len], 1, seed);
    let segments = segments(ops, 45, &[5, 1, 2, 30]);
    for (taps, dilation, outputs) in [(1, 1, 3), (3, 5, 6), (7, 1, 8)] {
        let w = weight(ops, WeightLayout::Conv1d { dilation }, dtype, &[outputs, channels, taps], 1, 1);
        let x = ops.tensor(numbers(45 * channels, 2), channels);
        let out = ops.segment_conv1d_at(&x, &w, &vector(outputs, 3), &segments);
        found.push((format!("centred convolution of {taps} taps"), ops.read(&out)));
        let rows = |out, rows| Some(ops.segment_conv1d_rows(out, &x, &w, &vector(outputs, 3), rows));
        let out = rows(rows(rows(None, 20..45), 0..7), 7..20);
        found.push((format!("its rows in ranges, {taps} taps"), out.map_or(Vec::new(), |out| ops.read(&out))));
    }
    for (taps, dilation, outputs) in [(1, 1, 2), (5, 2, 1)] {
        let layout = WeightLayout::GroupedConv1d { dilation, groups: channels };
        let w = weight(ops, layout, dtype, &[outputs * channels, 1, taps], 1, 8);
        let x = ops.tensor(numbers(45 * channels, 9), channels);
        let out = ops.segment_conv1d_at(&x, &w, &vector(outputs * channels, 10), &segments);
        found.push((format!("grouped convolution of {taps} taps"), ops.read(&out)));
    }
    let x = ops.scale_all(ops.tensor(numbers(45 * channels, 4), channels), 3.0);
    let normed = ops.segment_norm_at(&x, &vector(channels, 11), &vector(channels, 12), 1e-5, &segments);
    found.push(("norm".to_owned(), ops.read(&normed)));
    let style = ops.tensor(numbers(5 * 2 * channels, 13), 2 * channels);
    let joined = ops.concat_columns(&[&x, &ops.tensor(numbers(45, 16), 1), &normed]);
    found.push(("columns side by side".to_owned(), ops.read(&joined)));
    found.push(("instance norm".to_owned(), ops.read(&ops.segment_instance_norm_at(&x, &style, 1e-2, &segments))));
    let hidden = weight(ops, WeightLayout::Linear, DType::F32, &[4 * channels, channels], 1, 14);
    let gates = ops.tensor(numbers(45 * 4 * channels, 15), 4 * channels);
    for reverse in [false, true] {
        let out = ops.segment_lstm_at(&gates, &hidden, &segments, reverse);
        found.push((format!("lstm, reverse {reverse}"), ops.read(&out)));
    }
    let (alpha, beta, filter) = (vector(channels, 5), vector(channels, 6), vector(FILTER_TAPS, 7));
    found.push(("snake".to_owned(), ops.read(&ops.segment_snake_at(&x, &alpha, &beta, &filter, &segments))));
    found
}

/// Runs streams through convolutions of every kind, in steps of uneven size.
fn convolutions<O: Ops>(ops: &O, dtype: DType, channels: usize) -> Found {
    let mut found = Found::new();
    let vector = |len, seed| weight(ops, WeightLayout::Vector, dtype, &[len], 1, seed);
    let up = weight(ops, WeightLayout::ConvTranspose1d { stride: 3, cut: true }, dtype, &[channels, 6, 6], 1, 1);
    let whole = weight(ops, WeightLayout::ConvTranspose1d { stride: 2, cut: false }, dtype, &[6, 8, 4], 1, 2);
    let conv = weight(ops, WeightLayout::Conv1d { dilation: 3 }, dtype, &[5, 8, 3], 1, 3);
    let grouped = WeightLayout::GroupedConv1d { dilation: 2, groups: 2 };
    let grouped = weight(ops, grouped, dtype, &[6, 4, 4], 1, 6);
    let depthwise = weight(ops, WeightLayout::Depthwise, dtype, &[5, 1, 7], 1, 4);
    let point = weight(ops, WeightLayout::Conv1d { dilation: 1 }, dtype, &[2, 5, 1], 1, 5);
    let tail = |rows, columns| ops.state(StateSpec::Tail { slots: 3, rows, columns });
    let mut tails = [tail(1, channels), tail(1, 6), tail(6, 8), tail(6, 5), tail(0, 5), tail(6, 8)];
    let mut layout = SpecLayout::default();
    let at = layout.streams(9, 3);
    let mut positions = [0, 0, 0];
    for (step, rows) in [[1, 0, 3], [4, 0, 1], [0, 5, 2], [1, 1, 1]].into_iter().enumerate() {
        if step == 3 {
            // A new stream in a slot that had one before.
            positions[2] = 0;
        }
        let chunks: Vec<_> = (0..3)
            .filter(|&slot| rows[slot] > 0)
            .map(|slot| StreamRows { slot, position: positions[slot], rows: rows[slot] })
            .collect();
        let mut spec = layout.spec();
        spec.set_streams(at, &chunks);
        let streams = StreamLevel::new(ops.index(&ops.upload(&spec), at.words()));
        let mut x = ops.tensor(numbers(9 * channels, 10 + step as u64), channels);
        let mut note = |name: &str, x: &O::T| found.push((format!("{name} {step}"), ops.read(x)));
        x = ops.conv_transpose1d_at(&x, &up, &vector(6, 20), &mut tails[0], &streams);
        note("transposed", &x);
        let streams = streams.upsampled(3, true);
        x = ops.conv_transpose1d_at(&x, &whole, &vector(8, 21), &mut tails[1], &streams);
        note("transposed, uncut", &x);
        let streams = streams.upsampled(2, false);
        note("in groups", &ops.conv1d_at(&x, &grouped, &vector(6, 25), &mut tails[5], &streams));
        x = ops.conv1d_at(&x, &conv, &vector(5, 22), &mut tails[2], &streams);
        note("convolution", &x);
        x = ops.conv1d_at(&x, &depthwise, &vector(5, 23), &mut tails[3], &streams);
        note("depthwise", &x);
        note("one tap", &ops.conv1d_at(&x, &point, &vector(2, 24), &mut tails[4], &streams));
        (0..3).for_each(|slot| positions[slot] += rows[slot]);
    }
    found
}

fn compare(processor: &Found, device: &Found) {
    assert_eq!(processor.len(), device.len());
    for ((name, expected), (_, found)) in processor.iter().zip(device) {
        assert_eq!(expected.len(), found.len(), "{name}");
        let size = expected.iter().fold(1e-6f32, |most, value| most.max(value.abs()));
        for (at, (expected, found)) in expected.iter().zip(found).enumerate() {
            assert!((expected - found).abs() <= BOUND * size, "{name} at {at}: {found} for {expected}");
        }
    }
}

#[test]
fn operations_equal_the_processors() {
    let (cpu, cuda) = (Cpu::default(), cuda());
    for dtype in [DType::F32, DType::Bf16] {
        for odd in [false, true] {
            compare(&operations(&cpu, dtype, odd), &operations(&cuda, dtype, odd));
        }
    }
}

#[test]
fn attention_equals_the_processors() {
    compare(&attention(&Cpu::default()), &attention(&cuda()));
}

#[test]
fn convolutions_equal_the_processors() {
    for dtype in [DType::F32, DType::Bf16] {
        for channels in [4, 5] {
            let (cpu, cuda) = (Cpu::default(), cuda());
            compare(&convolutions(&cpu, dtype, channels), &convolutions(&cuda, dtype, channels));
        }
    }
}

#[test]
fn operations_within_segments_equal_the_processors() {
    for dtype in [DType::F32, DType::Bf16] {
        // The last ones are more than a block has threads for.
        for channels in [4, 5, 70] {
            let (cpu, cuda) = (Cpu::default(), cuda());
            compare(&within_segments(&cpu, dtype, channels), &within_segments(&cuda, dtype, channels));
        }
    }
}

/// Samples ids of several rows with every combination of parameters, and with the penalty's history.
fn choices<O: Ops>(ops: &O, vocabulary: usize) -> Vec<u32> {
    const ROWS: usize = 12;
    let allowed: Vec<f32> = (0..vocabulary).map(|id| f32::from(id % 5 != 3)).collect();
    let allowed = bytes(DType::F32, &allowed);
    let shape = &[vocabulary];
    let allowed = ops
        .stored_weight(WeightLayout::Vector, &[RawTensor { name: "a", bytes: &allowed, dtype: DType::F32, shape }])
        .unwrap();
    let mut history = ops.state(StateSpec::TokenMask { slots: ROWS, vocabulary });
    let mut ids = Vec::new();
    for step in 0..6 {
        let params: Vec<_> = (0..ROWS)
            .map(|row| SampleParams {
                slot: ROWS - 1 - row,
                repetition_penalty: if row % 2 == 0 { 1.3 } else { 1.0 },
                temperature: if row % 4 == 0 { 0.0 } else { 0.4 + row as f32 / 8.0 },
                top_k: [0, 1, 5, 50][row % 4],
                top_p: [1.0, 0.9, 0.3][row % 3],
                uniform: uniform(9, row as u64, step, 0),
            })
            .collect();
        let mut logits: Vec<f32> = numbers(ROWS * vocabulary, 50 + step).iter().map(|logit| logit * 5.0).collect();
        // Ties, and one row that is not finite.
        logits[..vocabulary].fill(0.5);
        logits[5 * vocabulary..6 * vocabulary].iter_mut().for_each(|logit| *logit = logit.round());
        if step == 2 {
            logits[7 * vocabulary + vocabulary / 2] = f32::NAN;
        }
        let logits = ops.tensor(logits, vocabulary);
        let mask = (step % 2 == 0).then_some(&allowed);
        ids.extend(ops.sample(&logits, &params, mask, Some(&mut history)));
        if step == 3 {
            ops.reset(&mut history, 4);
        }
    }
    ids
}

#[test]
fn choices_equal_the_processors() {
    for vocabulary in [7, 300, 1500] {
        let [expected, found] = [choices(&Cpu::default(), vocabulary), choices(&cuda(), vocabulary)];
        assert!(expected.contains(&NO_ROW) && expected.iter().any(|&id| id > 0));
        assert_eq!(found, expected, "{vocabulary}");
    }
}

/// A row alone has the same bits as among others.
#[test]
fn rows_are_independent_of_their_neighbours() {
    let ops = cuda();
    for (dtype, columns) in [(DType::F32, 45), (DType::Bf16, 264)] {
        let x = ops.tensor(numbers(9 * columns, 1), columns);
        let alone = ops.gather(&x, &[7]);
        let w = weight(&ops, WeightLayout::Linear, dtype, &[20, columns], 1, 2);
        let router = weight(&ops, WeightLayout::Linear, dtype, &[4, columns], 1, 3);
        let gate_up = weight(&ops, WeightLayout::Experts { per_expert: 2 }, dtype, &[8, columns], 8, 4);
        let down = weight(&ops, WeightLayout::Experts { per_expert: 1 }, dtype, &[20, 8], 4, 5);
        let spec = RouterShape { top_k: 2, normalise: true };
        let bits = |x: &<Cuda as Ops>::T| ops.read(x).iter().map(|v| v.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&ops.linear(&x, &w, None))[7 * 20..8 * 20], bits(&ops.linear(&alone, &w, None)));
        let mixture = |x| bits(&ops.experts(x, &router, &gate_up, &down, spec));
        assert_eq!(mixture(&x)[7 * 20..8 * 20], mixture(&alone));
    }
    // A segment alone has the same bits as behind another.
    let x = numbers(30 * 5, 6);
    let w = weight(&ops, WeightLayout::Conv1d { dilation: 2 }, DType::F32, &[6, 5, 3], 1, 7);
    let vector = |len, seed| weight(&ops, WeightLayout::Vector, DType::F32, &[len], 1, seed);
    let run = |x: &[f32], lengths: &[usize]| {
        let (x, at) = (ops.tensor(x.to_vec(), 5), segments(&ops, x.len() / 5, lengths));
        let snaked = ops.segment_snake_at(&x, &vector(5, 8), &vector(5, 9), &vector(FILTER_TAPS, 10), &at);
        let normed = ops.segment_norm_at(&snaked, &vector(5, 12), &vector(5, 13), 1e-5, &at);
        ops.read(&ops.segment_conv1d_at(&normed, &w, &vector(6, 11), &at))
    };
    assert_eq!(run(&x, &[3, 20])[3 * 6..23 * 6], run(&x[3 * 5..23 * 5], &[20]));
}

/// Steps on two devices: each reads back its own results, in any order of collection.
#[test]
fn steps_of_two_streams_are_read_back_apart() {
    let ops = cuda();
    let devices = [ops.with_own_buffers(), ops.with_own_buffers()];
    let mut layout = SpecLayout::default();
    let (list, floats) = (layout.list(3), layout.list(6));
    let launch = |device: &Cuda, by: f32| {
        let mut spec = layout.spec();
        spec.set(list, &[2, by as u32]);
        spec.set_floats(floats, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        let key = StepKey { stage: "test", rows: 3, variant: 0 };
        device.launch(key, &spec, &mut |ops, spec, outputs: &mut StepOutputs<Cuda>| {
            outputs.rows.push(ops.scale_all(ops.floats(spec, floats, 2), by));
            outputs.ids.push(ops.index(spec, list));
            outputs.rows.push(ops.floats(spec, floats, 3));
        })
    };
    for round in 1..4 {
        let (first, second) = (launch(&devices[0], round as f32), launch(&devices[1], -1.0));
        let mut back = ReadBack::default();
        devices[1].collect(second, &mut back);
        assert_eq!(back.numbers[..6], [-1.0, -2.0, -3.0, -4.0, -5.0, -6.0]);
        devices[0].collect(first, &mut back);
        assert_eq!(back.ids, [2, round, NO_ROW]);
        assert_eq!(
            back.numbers[2..8],
            [3.0, 4.0, 5.0, 6.0, 1.0, 2.0].map(|n| if n > 2.0 { n * round as f32 } else { n })
        );
    }
    // A step that is never collected leaves nothing behind.
    drop(launch(&devices[0], 1.0));
}

/// Parts of a checkpoint's integers.
fn stored(matrices: &[StoredMatrix]) -> Vec<WeightPart<'_>> {
    matrices.iter().map(|matrix| WeightPart::Packed(matrix.tensor())).collect()
}

/// Numbers of stored integers, as bytes of f32.
fn dequantised(matrices: &[StoredMatrix]) -> Vec<Vec<u8>> {
    matrices.iter().map(|matrix| bytes(DType::F32, &matrix.tensor().numbers())).collect()
}

fn floats<'a>(numbers: &'a [Vec<u8>], shape: &'a [usize]) -> Vec<WeightPart<'a>> {
    let part = |bytes: &'a Vec<u8>| WeightPart::Stored(RawTensor { name: "w", bytes, dtype: DType::F32, shape });
    numbers.iter().map(part).collect()
}

/// A checkpoint's integers: their products equal those of the dequantised numbers, alone and as experts, and a row's bits do not depend on
/// its neighbours.
#[test]
fn stored_integers_are_their_numbers() {
    let ops = cuda();
    for (at, kind) in KINDS.into_iter().enumerate() {
        let inputs = [45, 96, 1152][at % 3];
        let shape = [20, inputs];
        let matrices: Vec<_> = (0..6).map(|seed| StoredMatrix::drawn(kind, shape, seed)).collect();
        let numbers_of = dequantised(&matrices);
        let x = numbers(6 * inputs, 9);
        let run = |parts: &[WeightPart<'_>]| {
            let linear = ops.weight_from_parts(WeightLayout::Linear, WeightFormat::Float, &parts[..2]).unwrap();
            let experts = |parts| {
                ops.weight_from_parts(WeightLayout::Experts { per_expert: 2 }, WeightFormat::Float, parts).unwrap()
            };
            let down = weight(&ops, WeightLayout::Experts { per_expert: 1 }, DType::Bf16, &[7, 20], 3, 3);
            let router = weight(&ops, WeightLayout::Linear, DType::F32, &[3, inputs], 1, 4);
            let routed = RouterShape { top_k: 2, normalise: true };
            let rows = |x: &[f32]| ops.tensor(x.to_vec(), inputs);
            vec![
                ("linear".to_owned(), ops.read(&ops.linear(&rows(&x), &linear, None))),
                ("row".to_owned(), ops.read(&ops.linear(&rows(&x[..inputs]), &linear, None))),
                ("experts".to_owned(), ops.read(&ops.experts(&rows(&x), &router, &experts(parts), &down, routed))),
            ]
        };
        let found = run(&stored(&matrices));
        compare(&run(&floats(&numbers_of, &shape)), &found);
        assert_eq!(found[0].1[..40], found[1].1[..], "{kind:?}");
    }
}

/// Parts of different kinds keep them in one weight, with a bias; experts and tables of different kinds are refused.
#[test]
fn joined_kinds_are_their_numbers() {
    let ops = cuda();
    let shape = [9, 160];
    for first in 0..KINDS.len() {
        let kind = |part: usize| KINDS[(first + 3 * part) % KINDS.len()];
        let matrices: Vec<_> = (0..3).map(|part| StoredMatrix::drawn(kind(part), shape, part as u64)).collect();
        let numbers_of = dequantised(&matrices);
        let bias = weight(&ops, WeightLayout::Vector, DType::F32, &[27], 1, 8);
        let run = |parts: &[WeightPart<'_>]| {
            let linear = ops.weight_from_parts(WeightLayout::Linear, WeightFormat::Float, parts).unwrap();
            let product = |rows: usize| ops.linear(&ops.tensor(numbers(rows * 160, 7), 160), &linear, Some(&bias));
            [1, 5].map(|rows| (format!("{rows} rows"), ops.read(&product(rows)))).to_vec()
        };
        compare(&run(&floats(&numbers_of, &shape)), &run(&stored(&matrices)));
    }
    let matrices = [KINDS[0], KINDS[7]].map(|kind| StoredMatrix::drawn(kind, shape, 1));
    for layout in [WeightLayout::Table, WeightLayout::Experts { per_expert: 2 }] {
        let refused = ops.weight_from_parts(layout, WeightFormat::Float, &stored(&matrices)).map(|_| ());
        assert_eq!(refused.unwrap_err(), KernelError::Packed { name: "w".to_owned(), layout });
    }
}

/// Entries of stored integers equal the processor's, bit for bit.
#[test]
fn stored_tables_are_the_processors() {
    fn entries<O: Ops>(ops: &O, layout: WeightLayout, matrices: &[StoredMatrix]) -> Vec<u32> {
        let table = ops.weight_from_parts(layout, WeightFormat::Float, &stored(matrices)).unwrap();
        ops.read(&ops.embed_at(&table, &ops.list(&[6, 0, NO_ROW, 5, 2])))
            .iter()
            .map(|number| number.to_bits())
            .collect()
    }
    let ops = cuda();
    for kind in KINDS {
        for width in [45, 160] {
            let matrices = [[4, width], [3, width]].map(|shape| StoredMatrix::drawn(kind, shape, width as u64));
            for layout in [WeightLayout::Table, WeightLayout::Linear] {
                let expected = entries(&Cpu::default(), layout, &matrices);
                assert_eq!(entries(&ops, layout, &matrices), expected, "{layout:?} {kind:?} {width}");
            }
        }
    }
}

/// The device quantises to the same integers and scales as the processor.
#[test]
fn quantised_weights_are_the_processors() {
    let ops = cuda();
    for (format, kind) in [(WeightFormat::Int8, IntegerFormat::Eight), (WeightFormat::Int4, IntegerFormat::Four)] {
        for inputs in [45, 320] {
            // More than a staging buffer holds.
            let outputs = 250;
            let shape = [outputs, inputs];
            let values = numbers(outputs * inputs, 1);
            let mut rows = values.chunks(inputs);
            let expected = QuantisedWeight::new(kind, outputs, inputs, |row| {
                row.copy_from_slice(rows.next().unwrap());
            })
            .unwrap();
            let stand_for: Vec<f32> = (0..outputs * inputs).map(|i| expected.number(i / inputs, i % inputs)).collect();
            let weight = |format, values: &[f32]| {
                let bytes = bytes(DType::F32, values);
                let part = RawTensor { name: "w", bytes: &bytes, dtype: DType::F32, shape: &shape };
                ops.weight_in_format(WeightLayout::Linear, format, &[part]).unwrap()
            };
            let x = ops.tensor(numbers(2 * inputs, 2), inputs);
            let run = |weight| vec![("product".to_owned(), ops.read(&ops.linear(&x, &weight, None)))];
            compare(&run(weight(WeightFormat::Float, &stand_for)), &run(weight(format, &values)));
        }
    }
}

/// Drawn numbers equal the processor's in every layout, and drawn integers have their size.
#[test]
fn drawn_weights_are_the_processors() {
    fn drawn<O: Ops>(ops: &O, layout: WeightLayout, format: WeightFormat, shape: &[usize], parts: u64) -> O::Weight {
        let part = |seed| {
            WeightPart::Drawn(RandomTensor { name: "w", shape, draw: RandomDraw { seed, mean: 0.1, spread: 0.3 } })
        };
        ops.weight_from_parts(layout, format, &(0..parts).map(part).collect::<Vec<_>>()).unwrap()
    }
    fn run<O: Ops>(ops: &O) -> Found {
        let x = |columns| ops.tensor(numbers(5 * columns, 1), columns);
        let linear = drawn(ops, WeightLayout::Linear, WeightFormat::Float, &[9, 45], 2);
        let table = drawn(ops, WeightLayout::Table, WeightFormat::Float, &[7, 5], 2);
        let norm = drawn(ops, WeightLayout::Vector, WeightFormat::Float, &[45], 1);
        let conv = drawn(ops, WeightLayout::Conv2d { stride: 1 }, WeightFormat::Float, &[4, 1, 3, 3], 1);
        let bias = drawn(ops, WeightLayout::Vector, WeightFormat::Float, &[4], 1);
        vec![
            ("linear".to_owned(), ops.read(&ops.linear(&x(45), &linear, None))),
            ("table".to_owned(), ops.read(&ops.embed_at(&table, &ops.list(&[13, 2, 0])))),
            ("vector".to_owned(), ops.read(&ops.rms_norm(&x(45), &norm, 1e-6))),
            ("convolution".to_owned(), ops.read(&ops.conv2d(&x(1), 1, 5, 1, &conv, &bias))),
        ]
    }
    let ops = cuda();
    compare(&run(&Cpu::default()), &run(&ops));
    for format in [WeightFormat::Int8, WeightFormat::Int4] {
        let x = numbers(4 * 256, 1);
        let size = |numbers: &[f32]| numbers.iter().map(|n| n * n).sum::<f32>();
        let part = |seed| {
            let draw = RandomDraw { seed, mean: 0.0, spread: (3.0f32 / 256.0).sqrt() };
            WeightPart::Drawn(RandomTensor { name: "w", shape: &[128, 256], draw })
        };
        let weight = ops.weight_from_parts(WeightLayout::Linear, format, &[part(1), part(2)]).unwrap();
        let y = ops.read(&ops.linear(&ops.tensor(x.clone(), 256), &weight, None));
        let ratio = (size(&y) / size(&x)).sqrt();
        assert!(y.len() == x.len() && (0.8..1.3).contains(&ratio), "{format:?}: {ratio}");
    }
}

#[test]
fn bad_weights_are_refused_by_name() {
    let (ops, shape) = (cuda(), &[2, 4][..]);
    let part = [RawTensor { name: "w", bytes: &[0; 32], dtype: DType::F32, shape }];
    let format = WeightFormat::Int8;
    let refused =
        |layout, format, parts: &[RawTensor<'_>]| ops.weight_in_format(layout, format, parts).map(|_| ()).unwrap_err();
    let vector = [RawTensor { shape: &[8], ..part[0] }];
    let error = refused(WeightLayout::Vector, format, &vector);
    assert_eq!(error, KernelError::Format { name: "w".to_owned(), layout: WeightLayout::Vector, format });
    assert!(ops.weight_in_format(WeightLayout::Table, format, &part).is_ok(), "tables stay as they are");
    let short = [RawTensor { bytes: &[0; 28], ..part[0] }];
    let error = refused(WeightLayout::Linear, WeightFormat::Float, &short);
    assert_eq!(error, KernelError::Bytes { name: "w".to_owned(), expected: 32, found: 28 });
    let error = refused(WeightLayout::Vector, WeightFormat::Float, &part);
    assert!(matches!(error, KernelError::Shape { .. }), "{error}");
    let bad = [RawTensor { bytes: &[0xff; 32], ..part[0] }];
    assert_eq!(refused(WeightLayout::Linear, format, &bad), KernelError::NotFinite { name: "w".to_owned() });
    // More memory than the device has.
    let shape = &[1 << 24, 1 << 20];
    let huge =
        WeightPart::Drawn(RandomTensor { name: "h", shape, draw: RandomDraw { seed: 1, mean: 0.0, spread: 1.0 } });
    let error = ops.weight_from_parts(WeightLayout::Linear, WeightFormat::Float, &[huge]).map(|_| ()).unwrap_err();
    assert!(matches!(&error, KernelError::Memory { name, needed, .. } if name == "h" && *needed == 1 << 25), "{error}");
}

#[test]
fn devices_and_memory_that_are_missing_are_errors() {
    let error = Cuda::open(7).unwrap_err();
    assert_eq!(error, CudaError::NoDevice { ordinal: 7, count: 1 });
    assert!(error.to_string().contains("cuda:7") && error.to_string().contains("`cpu`"), "{error}");
    let ops = cuda();
    let info = ops.info().unwrap();
    assert!(info.free > 0 && info.free <= info.total);
    ops.check_memory(info.free / 2).unwrap();
    let error = ops.check_memory(info.total + 1).unwrap_err();
    assert!(matches!(error, CudaError::Memory { .. }), "{error}");
}
