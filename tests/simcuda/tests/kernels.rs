//! The kernels of `kernels/cuda` against twins in plain Rust that round to bf16 where the kernel does.
//!
//! They need the CUDA compiler, so that `make test-cuda` runs them and `make test` lists them as ignored.
#![allow(clippy::unwrap_used, reason = "a test ends where something is missing")]

#[path = "support/nvcc.rs"]
mod nvcc;
#[path = "../../../kernels/src/random.rs"]
mod random;
mod support;

use nvcc::{compile, replace};
use repartee_simcuda::decode::half::{bf16, of_bf16};
use repartee_simcuda::fault::{Fault, FaultKind};
use support::Device;

/// Numbers in `[-1, 1)` of a place, as bf16.
fn numbers(stream: u64, count: usize) -> Vec<f32> {
    (0..count as u64).map(|i| of_bf16(bf16(random::uniform(7, stream, i, 0) * 2.0 - 1.0))).collect()
}

impl Device {
    fn bf16s(&mut self, values: &[f32]) -> u64 {
        self.bytes(&values.iter().flat_map(|value| bf16(*value).to_le_bytes()).collect::<Vec<_>>())
    }

    fn f32s(&mut self, values: &[f32]) -> u64 {
        self.bytes(&values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<_>>())
    }

    fn read_bf16s(&mut self, address: u64, count: usize) -> Vec<f32> {
        let mut bytes = vec![0; count * 2];
        self.memory.read(address, &mut bytes).unwrap();
        bytes.chunks_exact(2).map(|pair| of_bf16(u16::from_le_bytes([pair[0], pair[1]]))).collect()
    }
}

/// A sum in double precision and the sum of its terms' sizes.
fn sum(terms: impl Iterator<Item = f64>) -> (f64, f64) {
    terms.fold((0.0, 0.0), |(sum, size), term| (sum + term, size + term.abs()))
}

/// Whether a bf16 is a sum of `count` products that was made in f32 and rounded once: half a unit of bf16, and half a unit of
/// f32 for each addition.
fn near(found: f32, (wanted, size): (f64, f64), count: usize) -> bool {
    let bound = wanted.abs() * 2f64.powi(-8) + size * count as f64 * 2f64.powi(-24) + 1e-30;
    (f64::from(found) - wanted).abs() <= bound || (found.is_nan() && wanted.is_nan())
}

/// The scale of a row, in the kernel's order: 8 columns a thread at a time, lanes by halves, then warps.
fn row_scale(row: &[f32], threads: usize, epsilon: f32) -> f32 {
    let mut sums = vec![0.0f32; threads];
    for (chunk, values) in row.chunks(8).enumerate() {
        let sum = &mut sums[chunk % threads];
        values.iter().for_each(|value| *sum = value.mul_add(*value, *sum));
    }
    let warp = |lanes: &[f32]| {
        let mut lanes = lanes.to_vec();
        for distance in [16, 8, 4, 2, 1] {
            lanes = (0..32).map(|lane| lanes[lane] + lanes[lane ^ distance]).collect();
        }
        lanes[0]
    };
    let square = sums.chunks(32).map(warp).fold(0.0, |sum, warp| sum + warp);
    (1.0 / f64::from(square / row.len() as f32 + epsilon).sqrt()) as f32
}

/// Runs `norm_linear_bf16`; the worst place that its twin does not confirm, if any.
fn norm_linear(
    ptx: &str,
    rows: usize,
    columns: usize,
    outputs: usize,
    threads: usize,
    nan: bool,
) -> Result<Option<String>, Fault> {
    let mut device = Device::load(ptx);
    let mut x = numbers(1, rows * columns);
    if nan {
        x[columns / 2] = f32::NAN;
    }
    let (gain, weight) = (numbers(2, columns), numbers(3, outputs * columns));
    let epsilon = 1e-6f32;
    let params = [
        device.bf16s(&x),
        device.bf16s(&gain),
        device.bf16s(&weight),
        device.memory.alloc(rows * outputs * 2).unwrap(),
        columns as u64,
        outputs as u64,
        u64::from(epsilon.to_bits()),
    ];
    let grid = [outputs.div_ceil(threads / 32) as u32, rows as u32, 1];
    device.launch("norm_linear_bf16", grid, [threads as u32, 1, 1], columns * 2, &params)?;
    let found = device.read_bf16s(params[3], rows * outputs);
    for row in 0..rows {
        let own = &x[row * columns..][..columns];
        let scale = row_scale(own, threads, epsilon);
        let rounded = |value: f32| of_bf16(bf16(value));
        let normed: Vec<f32> = own.iter().zip(&gain).map(|(x, gain)| rounded(gain * rounded(x * scale))).collect();
        for output in 0..outputs {
            let weights = &weight[output * columns..][..columns];
            let wanted = sum(normed.iter().zip(weights).map(|(a, b)| f64::from(*a) * f64::from(*b)));
            let found = found[row * outputs + output];
            if !near(found, wanted, columns) {
                return Ok(Some(format!("row {row} output {output}: {found} for {wanted:?}")));
            }
        }
    }
    Ok(None)
}

#[test]
#[ignore = "needs the CUDA compiler: make test-cuda"]
fn norm_linear_matches_twin() {
    let ptx = compile("norm_linear.cu", |text| text);
    for (rows, columns, outputs, threads) in
        [(1, 8, 1, 32), (2, 64, 5, 64), (1, 264, 33, 128), (5, 2048, 9, 256), (3, 1000, 40, 1024)]
    {
        assert_eq!(
            norm_linear(&ptx, rows, columns, outputs, threads, false),
            Ok(None),
            "{rows} {columns} {outputs} {threads}"
        );
    }
    // A row with NaN leaves the others alone.
    assert_eq!(norm_linear(&ptx, 3, 264, 7, 64, true), Ok(None));
}

#[test]
#[ignore = "needs the CUDA compiler: make test-cuda"]
fn planted_faults_of_norm_linear_are_found() {
    for (from, to) in [
        ("__bfloat162float(gain[k])", "__bfloat162float(gain[k ^ 1])"),
        ("(size_t)output * columns", "(size_t)(output ^ 1) * columns"),
        ("(size_t)blockIdx.y * columns;", "(size_t)(blockIdx.y / 2) * columns;"),
        ("start < columns; start += 32 * WIDTH", "start < columns - 8; start += 32 * WIDTH"),
    ] {
        let ptx = compile("norm_linear.cu", replace(from, to));
        assert!(matches!(norm_linear(&ptx, 4, 264, 8, 64, false), Ok(Some(_))), "{to}");
    }
    let fault =
        |from, to| norm_linear(&compile("norm_linear.cu", replace(from, to)), 2, 264, 5, 64, false).unwrap_err().kind;
    assert_eq!(fault("if (output >= outputs) return;", ""), FaultKind::OutOfBounds);
    // Without the barrier between writing and reading the normed row.
    assert!(
        [FaultKind::Race, FaultKind::Fresh]
            .contains(&fault("  }\n  __syncthreads();\n\n  const int output", "  }\n  const int output"))
    );
}

/// A row of `sample_rows`.
#[derive(Clone, Copy)]
struct Row {
    counters: [u64; 4],
    temperature: f32,
}

/// Runs `sample_rows`.
fn sample(ptx: &str, logits: &[f32], rows: &[Row], threads: usize) -> Vec<u32> {
    let mut device = Device::load(ptx);
    let vocabulary = logits.len() / rows.len();
    let bytes = rows.iter().flat_map(|row| {
        let counters = row.counters.iter().flat_map(|counter| counter.to_le_bytes());
        counters.chain(row.temperature.to_le_bytes()).chain([0; 4]).collect::<Vec<_>>()
    });
    let bytes: Vec<u8> = bytes.collect();
    let params = [
        device.f32s(logits),
        device.bytes(&bytes),
        device.memory.alloc(rows.len().div_ceil(2) * 8).unwrap(),
        vocabulary as u64,
    ];
    // The last id of an odd number is read back too.
    device.memory.write(params[2], &vec![0; rows.len().div_ceil(2) * 8]).unwrap();
    device.launch("sample_rows", [rows.len() as u32, 1, 1], [threads as u32, 1, 1], threads * 4, &params).unwrap();
    let words = device.read(params[2], rows.len().div_ceil(2));
    words.iter().flat_map(|word| [*word as u32, (word >> 32) as u32]).take(rows.len()).collect()
}

/// Whether an id is what the row's random number chooses, where f32 sums leave room for both.
fn chosen(id: u32, logits: &[f32], row: &Row) -> bool {
    let greatest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let size = |logit: &f32| (f64::from(logit - greatest) / f64::from(row.temperature)).exp();
    let total: f64 = logits.iter().map(size).sum();
    let [seed, response, step, codebook] = row.counters;
    let wanted = f64::from(random::uniform(seed, response, step, codebook)) * total;
    let before: f64 = logits[..id as usize].iter().map(size).sum();
    let slack = total * logits.len() as f64 * 2f64.powi(-23);
    before <= wanted + slack && before + size(&logits[id as usize]) >= wanted - slack
}

fn rows_of(count: u64, temperature: f32) -> Vec<Row> {
    // Large counters, so that all of their bits count.
    let counters = |i: u64| [i << 40 | 5, u64::MAX - i, i * i, i % 16];
    (0..count).map(|i| Row { counters: counters(i), temperature }).collect()
}

#[test]
#[ignore = "needs the CUDA compiler: make test-cuda"]
fn sampled_ids_follow_counters() {
    let ptx = compile("sample.cu", |text| text);
    for (vocabulary, threads, temperature) in [(1, 32, 1.0), (50, 64, 0.7), (3072, 256, 1.3), (3001, 1024, 0.9)] {
        let rows = rows_of(9, temperature);
        let logits: Vec<f32> = numbers(4, vocabulary * rows.len()).iter().map(|logit| logit * 6.0).collect();
        let ids = sample(&ptx, &logits, &rows, threads);
        for ((id, row), logits) in ids.iter().zip(&rows).zip(logits.chunks(vocabulary)) {
            assert!(chosen(*id, logits, row), "{vocabulary} {threads}: {id}");
        }
    }
    // Equal logits: the id is the random number itself.
    let rows = rows_of(40, 1.0);
    let ids = sample(&ptx, &vec![0.5; 4096 * rows.len()], &rows, 128);
    for (id, row) in ids.iter().zip(&rows) {
        let [seed, response, step, codebook] = row.counters;
        assert_eq!(*id, (random::uniform(seed, response, step, codebook) * 4096.0) as u32);
    }
}

#[test]
#[ignore = "needs the CUDA compiler: make test-cuda"]
fn sampling_edges_have_their_ids() {
    let ptx = compile("sample.cu", |text| text);
    let greedy = rows_of(1, 0.0);
    assert_eq!(sample(&ptx, &[1.0, 3.0, 2.0, 3.0], &greedy, 32), [1]);
    let any = rows_of(1, 1.0);
    assert_eq!(sample(&ptx, &[1.0, f32::NAN, 2.0, 3.0], &any, 32), [u32::MAX]);
    assert_eq!(sample(&ptx, &[1.0, f32::INFINITY, 2.0, 3.0], &any, 64), [u32::MAX]);
    // Only one id is possible.
    assert_eq!(sample(&ptx, &[-400.0, -300.0, 200.0, -300.0], &any, 64), [2]);
}

#[test]
#[ignore = "needs the CUDA compiler: make test-cuda"]
fn planted_faults_of_sampling_are_found() {
    for (file, from, to) in [
        ("sample.cu", "running > wanted", "running > wanted * 0.9f"),
        ("sample.cu", "params.response, params.step,", "params.step, params.response,"),
        ("sample.cu", "float running = sums[threadIdx.x];", "float running = sums[threadIdx.x ^ 1];"),
    ] {
        let ptx = compile(file, replace(from, to));
        let rows = rows_of(9, 1.0);
        let logits = numbers(4, 900);
        let ids = sample(&ptx, &logits, &rows, 64);
        let confirmed = ids
            .iter()
            .zip(&rows)
            .zip(logits.chunks(100))
            .all(|((id, row), logits)| *id < 100 && chosen(*id, logits, row));
        assert!(!confirmed, "{to}");
    }
}

/// The kernel's snake, and how far it may be from the true one.
fn snake(x: f32, frequency: f32, magnitude: f32) -> f32 {
    let angle = x * frequency;
    let turns = (angle * 0.318_309_87_f32).round_ties_even();
    let reduced = turns.mul_add(-9.676_536e-4, turns.mul_add(-3.140_625, angle));
    let s = f64::from(reduced).sin() as f32;
    let value = magnitude.mul_add(s * s, x);
    let exact = f64::from(x) + f64::from(magnitude) * (f64::from(x) * f64::from(frequency)).sin().powi(2);
    let bound = f64::from(magnitude.abs()) * 1e-6 * (2.0 + f64::from(angle.abs())) + exact.abs() * 1e-6;
    assert!((f64::from(value) - exact).abs() <= bound, "{x} {frequency} {magnitude}: {value} for {exact}");
    value
}

/// Runs `snake_conv_bf16`; a place that its twin does not confirm, if any.
fn snake_conv(
    ptx: &str,
    time: usize,
    channels: usize,
    outputs: usize,
    kernel: usize,
    dilation: usize,
) -> Option<String> {
    let mut device = Device::load(ptx);
    let before = (kernel - 1) * dilation;
    let wide = |stream, count| numbers(stream, count).iter().map(|v| of_bf16(bf16(v * 8.0))).collect::<Vec<_>>();
    let (tail, x) = (wide(5, before * channels), wide(6, time * channels));
    let frequency: Vec<f32> = numbers(7, channels).iter().map(|v| (v * 2.0).exp()).collect();
    let magnitude: Vec<f32> = numbers(8, channels).iter().map(|v| (v * 1.5).exp()).collect();
    let (weight, bias) = (numbers(9, outputs * kernel * channels), numbers(10, outputs));
    let params = [
        device.bf16s(&[&tail[..], &[0.0; 8]].concat()),
        device.bf16s(&x),
        device.f32s(&frequency),
        device.f32s(&magnitude),
        device.bf16s(&weight),
        device.bf16s(&bias),
        device.memory.alloc(time * outputs * 2).unwrap(),
        channels as u64,
        outputs as u64,
        kernel as u64,
        dilation as u64,
    ];
    let grid = [time as u32, outputs.div_ceil(32) as u32, 1];
    device.launch("snake_conv_bf16", grid, [32, 1, 1], kernel * channels * 4, &params).unwrap();
    let found = device.read_bf16s(params[6], time * outputs);
    let input = [tail, x].concat();
    let activate = |(i, v): (usize, &f32)| of_bf16(bf16(snake(*v, frequency[i % channels], magnitude[i % channels])));
    let input: Vec<f32> = input.iter().enumerate().map(activate).collect();
    for t in 0..time {
        for output in 0..outputs {
            let term = |i: usize| {
                let (tap, channel) = (i / channels, i % channels);
                f64::from(weight[output * kernel * channels + i])
                    * f64::from(input[(t + tap * dilation) * channels + channel])
            };
            let wanted = sum((0..kernel * channels).map(term).chain([f64::from(bias[output])]));
            let found = found[t * outputs + output];
            if !near(found, wanted, kernel * channels + 1) {
                return Some(format!("time {t} output {output}: {found} for {wanted:?}"));
            }
        }
    }
    None
}

#[test]
#[ignore = "needs the CUDA compiler: make test-cuda"]
fn snake_convolution_matches_twin() {
    let ptx = compile("snake_conv.cu", |text| text);
    for (time, channels, outputs, kernel, dilation) in
        [(1, 1, 1, 1, 1), (5, 6, 3, 7, 1), (4, 32, 40, 7, 3), (2, 96, 33, 7, 9), (3, 5, 64, 2, 2)]
    {
        let wrong = snake_conv(&ptx, time, channels, outputs, kernel, dilation);
        assert_eq!(wrong, None, "{time} {channels} {outputs} {kernel} {dilation}");
    }
    for (from, to) in [
        ("time < before ?", "time <= before ?"),
        ("blockIdx.x + tap * dilation", "blockIdx.x + tap * (dilation - 1)"),
        ("frequency[channel], magnitude", "frequency[0], magnitude"),
        ("float sum = __bfloat162float(bias[output]);", "float sum = 0.0f;"),
    ] {
        let ptx = compile("snake_conv.cu", replace(from, to));
        // A tail that is read one row too far still lies in its memory.
        assert!(snake_conv(&ptx, 4, 8, 5, 3, 2).is_some(), "{to}");
    }
}

/// Runs `linear_rows_bf16`; a place that its twin does not confirm, if any.
fn linear_rows(ptx: &str, rows: usize, columns: usize, outputs: usize) -> Result<Option<String>, Fault> {
    let mut device = Device::load(ptx);
    let (x, weight) = (numbers(11, rows * columns), numbers(12, outputs * columns));
    let y = device.memory.alloc(rows * outputs * 2).unwrap();
    let params = [device.bf16s(&x), device.bf16s(&weight), y, rows as u64, columns as u64, outputs as u64];
    let grid = [outputs.div_ceil(32) as u32, rows.div_ceil(64) as u32, 1];
    device.launch("linear_rows_bf16", grid, [128, 1, 1], 0, &params)?;
    let found = device.read_bf16s(y, rows * outputs);
    for row in 0..rows {
        for output in 0..outputs {
            let (a, b) = (&x[row * columns..][..columns], &weight[output * columns..][..columns]);
            let wanted = sum(a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)));
            let found = found[row * outputs + output];
            if !near(found, wanted, columns) {
                return Ok(Some(format!("row {row} output {output}: {found} for {wanted:?}")));
            }
        }
    }
    Ok(None)
}

#[test]
#[ignore = "needs the CUDA compiler: make test-cuda"]
fn products_of_many_rows_match_twin() {
    let ptx = compile("linear_rows.cu", |text| text);
    for (rows, columns, outputs) in [(1, 8, 1), (64, 32, 32), (65, 40, 33), (17, 96, 70), (130, 264, 31)] {
        assert_eq!(linear_rows(&ptx, rows, columns, outputs), Ok(None), "{rows} {columns} {outputs}");
    }
}

#[test]
#[ignore = "needs the CUDA compiler: make test-cuda"]
fn planted_faults_of_products_are_found() {
    let planted = |from, to| linear_rows(&compile("linear_rows.cu", replace(from, to)), 65, 104, 33);
    for (from, to) in [
        ("lane / 16 * 8;", "(1 - lane / 16) * 8;"),
        ("i / 2 * 8;", "(1 - i / 2) * 8;"),
        ("k < DEPTH; k += 16", "k < DEPTH - 16; k += 16"),
    ] {
        assert!(matches!(planted(from, to), Ok(Some(_))), "{to}");
    }
    let fault = |from, to| planted(from, to).unwrap_err().kind;
    assert_eq!(fault("cp.async.wait_group 1;", "cp.async.wait_group 2;"), FaultKind::PendingCopy);
    // The barrier behind the wait, and the one before the tile is loaded again.
    let after = "    asm volatile(\"cp.async.wait_group 1;\" ::: \"memory\");\n    __syncthreads();";
    let without = "    asm volatile(\"cp.async.wait_group 1;\" ::: \"memory\");";
    assert!([FaultKind::Race, FaultKind::PendingCopy, FaultKind::Fresh].contains(&fault(after, without)));
    let again = "    // The next round loads into the tile that this one has read.\n    __syncthreads();";
    assert_eq!(fault(again, ""), FaultKind::Race);
}
