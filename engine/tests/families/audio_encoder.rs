//! The audio encoder's part on shapes that no family has, against a plain twin in double precision.

use std::iter::repeat_n;

use repartee_engine::internals::audio_encoder::layer::AudioLayerShape;
use repartee_engine::internals::audio_encoder::pieces::{EncoderWork, Piece, UNIT};
use repartee_engine::internals::audio_encoder::shape::{Convolutions, EncoderShape, Positions};
use repartee_engine::internals::audio_encoder::tower::AudioTower;
use repartee_engine::internals::conformer::shape::ConformerShape;
use repartee_engine::internals::{EncodingProgress, WindowInput};
use repartee_engine_testkit::audio_encoder::Tensors;
use repartee_engine_testkit::difference;
use repartee_kernels::cpu::Cpu;
use repartee_kernels::random::uniform;
use repartee_kernels::{ReadBack, RowSpec};

const TOLERANCE: f32 = 1e-5;
const CHANNELS: usize = 3;

/// Shapes that differ from each other, and from every family's, in each field.
fn shapes() -> [EncoderShape; 4] {
    let layer = AudioLayerShape { width: 16, heads: 2, inner: 24, key_bias: true };
    let first = EncoderShape {
        bins: 5,
        window: 36,
        chunk: 12,
        convolutions: Convolutions::Conv1d,
        positions: Positions::Table("places"),
        layers: 2,
        layer,
        reach: (None, None),
        skip: None,
        pairs: true,
        norm: "last",
        projection: Vec::new(),
    };
    let images = Convolutions::Conv2d { channels: CHANNELS };
    let projection = vec![("a", 10), ("b", 9), ("c", 8)];
    [
        EncoderShape {
            convolutions: images,
            chunk: 18,
            layer: AudioLayerShape { key_bias: false, ..layer },
            ..first.clone()
        },
        EncoderShape { positions: Positions::Sinusoids, pairs: false, projection, ..first.clone() },
        EncoderShape {
            bins: 9,
            window: 40,
            chunk: 20,
            convolutions: images,
            positions: Positions::Sinusoids,
            projection: vec![("out", 7)],
            ..first.clone()
        },
        first,
    ]
}

/// Rows of equal width.
type Rows = Vec<Vec<f64>>;

/// The encoder in double precision, each step after its definition.
struct Twin<'a> {
    shape: &'a EncoderShape,
    tensors: &'a Tensors,
}

impl Twin<'_> {
    fn numbers(&self, name: &str) -> Vec<f64> {
        self.tensors.0[name].1.iter().copied().map(f64::from).collect()
    }

    /// Numbers of a bias; zeros where there is none.
    fn bias(&self, name: &str, width: usize) -> Vec<f64> {
        let name = format!("{name}.bias");
        if self.tensors.0.contains_key(&name) { self.numbers(&name) } else { vec![0.0; width] }
    }

    fn linear(&self, name: &str, x: &Rows) -> Rows {
        let weight = self.numbers(&format!("{name}.weight"));
        let bias = self.bias(name, weight.len() / x[0].len());
        let row = |x: &Vec<f64>| {
            let outputs = weight.chunks_exact(x.len()).zip(&bias);
            outputs.map(|(weight, bias)| bias + dot(weight, x)).collect()
        };
        x.iter().map(row).collect()
    }

    fn norm(&self, name: &str, x: &Rows) -> Rows {
        let [weight, bias] = ["weight", "bias"].map(|part| self.numbers(&format!("{name}.{part}")));
        let row = |x: &Vec<f64>| {
            let mean = x.iter().sum::<f64>() / x.len() as f64;
            let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / x.len() as f64;
            let scale = 1.0 / (variance + 1e-5).sqrt();
            x.iter().zip(weight.iter().zip(&bias)).map(|(x, (w, b))| (x - mean) * scale * w + b).collect()
        };
        x.iter().map(row).collect()
    }

    /// Rows of a chunk of `x` over time, `[time][in]`, through a convolution of three taps.
    fn conv1d(&self, name: &str, x: &Rows, stride: usize) -> Rows {
        let weight = self.numbers(&format!("{name}.weight"));
        let bias = self.bias(name, 0);
        let input = x[0].len();
        let output = |at: usize, out: usize| {
            let seen = (0..3).flat_map(|tap| Some((tap, x.get((at + tap).checked_sub(1)?)?)));
            let taps = seen.map(|(tap, x)| (0..input).map(|i| weight[(out * input + i) * 3 + tap] * x[i]).sum::<f64>());
            gelu(bias[out] + taps.sum::<f64>())
        };
        (0..x.len()).step_by(stride).map(|at| (0..bias.len()).map(|out| output(at, out)).collect()).collect()
    }

    /// Image `[channel][bin][time]` through a convolution of three by three and stride 2.
    fn conv2d(&self, name: &str, x: &[Rows]) -> Vec<Rows> {
        let weight = self.numbers(&format!("{name}.weight"));
        let bias = self.bias(name, 0);
        let (inputs, bins, times) = (x.len(), x[0].len(), x[0][0].len());
        let output = |out: usize, bin: usize, time: usize| {
            let mut sum = bias[out];
            for (input, x) in x.iter().enumerate() {
                for (i, j) in (0..9).map(|tap| (tap / 3, tap % 3)) {
                    let at = (bin + i).checked_sub(1).zip((time + j).checked_sub(1));
                    let x = at.and_then(|(bin, time)| x.get(bin)?.get(time)).unwrap_or(&0.0);
                    sum += weight[((out * inputs + input) * 3 + i) * 3 + j] * x;
                }
            }
            gelu(sum)
        };
        let row = |out, bin| (0..times).step_by(2).map(|time| output(out, bin, time)).collect();
        (0..bias.len()).map(|out| (0..bins).step_by(2).map(|bin| row(out, bin)).collect()).collect()
    }

    /// Rows of a window.
    fn encode(&self, window: WindowInput<'_>) -> Rows {
        let shape = self.shape;
        let AudioLayerShape { width: d, heads, .. } = shape.layer;
        let frames: Rows =
            window.data.chunks(shape.bins).map(|frame| frame.iter().copied().map(f64::from).collect()).collect();
        let mut x = Rows::new();
        for chunk in frames.chunks(shape.chunk) {
            let mut rows = match shape.convolutions {
                Convolutions::Conv1d => self.conv1d("conv2", &self.conv1d("conv1", &chunk.to_vec(), 1), 2),
                Convolutions::Conv2d { .. } => {
                    let padded = if window.index > 0 || frames.len() > shape.chunk { shape.chunk } else { chunk.len() };
                    let zeros = repeat_n(0.0, padded - chunk.len());
                    let bin = |bin: usize| chunk.iter().map(|frame| frame[bin]).chain(zeros.clone()).collect();
                    let mut image = vec![(0..shape.bins).map(bin).collect::<Rows>()];
                    for name in ["conv2d1", "conv2d2", "conv2d3"] {
                        image = self.conv2d(name, &image);
                    }
                    let row = |time: usize| image.iter().flatten().map(|bins| bins[time]).collect();
                    self.linear("conv_out", &(0..chunk.len().div_ceil(8)).map(row).collect())
                }
            };
            for (at, row) in rows.iter_mut().enumerate() {
                let position = |i: usize| match shape.positions {
                    Positions::Rotary(_) => unreachable!("none of these shapes rotates"),
                    Positions::Table(name) => self.numbers(name)[at * d + i],
                    Positions::Sinusoids => {
                        let wave = at as f64 * 10_000_f64.powf(-((i % (d / 2)) as f64) / (d / 2 - 1) as f64);
                        if i < d / 2 { wave.sin() } else { wave.cos() }
                    }
                };
                row.iter_mut().enumerate().for_each(|(i, x)| *x += position(i));
            }
            x.extend(rows);
        }
        for layer in 0..shape.layers {
            let name = |part: &str| format!("layers.{layer}.{part}");
            let h = self.norm(&name("self_attn_layer_norm"), &x);
            let [q, k, v] = ["q", "k", "v"].map(|part| self.linear(&name(&format!("self_attn.{part}_proj")), &h));
            let attended = |q: &Vec<f64>| {
                let head = |head: usize| {
                    let at = head * d / heads..(head + 1) * d / heads;
                    let scale = ((d / heads) as f64).sqrt();
                    let shares: Vec<f64> =
                        k.iter().map(|k| (dot(&q[at.clone()], &k[at.clone()]) / scale).exp()).collect();
                    let total: f64 = shares.iter().sum();
                    let v = &v;
                    at.map(move |i| v.iter().zip(&shares).map(|(v, share)| v[i] * share / total).sum())
                        .collect::<Vec<f64>>()
                };
                (0..heads).flat_map(head).collect()
            };
            x = sum(&self.linear(&name("self_attn.out_proj"), &q.iter().map(attended).collect()), &x);
            let h = self.linear(&name("fc1"), &self.norm(&name("final_layer_norm"), &x));
            x = sum(&self.linear(&name("fc2"), &activated(h)), &x);
        }
        if shape.pairs {
            let mean = |pair: &[Vec<f64>]| pair[0].iter().zip(&pair[1]).map(|(a, b)| (a + b) / 2.0).collect();
            x = x.chunks_exact(2).map(mean).collect();
        }
        if x.is_empty() {
            return x;
        }
        x = self.norm(shape.norm, &x);
        for (i, (name, _)) in shape.projection.iter().enumerate() {
            x = self.linear(name, &if i > 0 { activated(x) } else { x });
        }
        x
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn gelu(x: f64) -> f64 {
    // The error function by its series, which converges everywhere.
    let z = x / std::f64::consts::SQRT_2;
    let terms = (0..200).scan(z, |power, n| {
        let term = *power / f64::from(2 * n + 1);
        *power *= -z * z / f64::from(n + 1);
        Some(term)
    });
    0.5 * x * (1.0 + 2.0 / std::f64::consts::PI.sqrt() * terms.sum::<f64>())
}

fn sum(a: &Rows, b: &Rows) -> Rows {
    a.iter().zip(b).map(|(a, b)| a.iter().zip(b).map(|(a, b)| a + b).collect()).collect()
}

fn activated(mut x: Rows) -> Rows {
    x.iter_mut().flatten().for_each(|x| *x = gelu(*x));
    x
}

/// Windows of every length, the first of their item and not.
fn windows<'a>(shape: &EncoderShape, mel: &'a [f32]) -> Vec<WindowInput<'a>> {
    let window = |at: usize| {
        let frames = at % shape.window + 1;
        let from = (at * 7 % (shape.window + 1)) * shape.bins;
        WindowInput { data: &mel[from..from + frames * shape.bins], index: at / shape.window }
    };
    (0..2 * shape.window).map(window).collect()
}

fn mel(shape: &EncoderShape) -> Vec<f32> {
    (0..2 * shape.window * shape.bins).map(|i| 2.0 * uniform(99, 0, i as u64, 0) - 1.0).collect()
}

fn encode(tower: &AudioTower<Cpu>, windows: &[WindowInput<'_>]) -> Vec<Vec<f32>> {
    tower.encode(&Cpu::default(), windows, &mut RowSpec::default(), &mut ReadBack::default())
}

#[test]
fn rows_equal_a_plain_twin() {
    for shape in shapes() {
        let (tensors, mel) = (Tensors::random(&shape), mel(&shape));
        let tower = tensors.load(&Cpu::default(), shape.clone());
        for window in windows(&shape, &mel) {
            let frames = window.data.len() / shape.bins;
            let twin = Twin { shape: &shape, tensors: &tensors };
            let expected: Vec<f32> = twin.encode(window).concat().iter().map(|x| *x as f32).collect();
            assert_eq!(expected.len(), shape.tokens(frames) * shape.output_width(), "{frames} frames of {shape:?}");
            let off = difference(&encode(&tower, &[window])[0], &expected);
            assert!(off <= TOLERANCE, "{off} off at {frames} frames, window {}, of {shape:?}", window.index);
        }
    }
}

#[test]
fn windows_are_encoded_alike_in_any_batch() {
    for shape in shapes() {
        let (tensors, mel) = (Tensors::random(&shape), mel(&shape));
        let tower = tensors.load(&Cpu::default(), shape.clone());
        let windows = windows(&shape, &mel);
        for (window, together) in windows.iter().zip(encode(&tower, &windows)) {
            assert!(encode(&tower, &[*window])[0] == together, "{} numbers of {shape:?}", window.data.len());
        }
    }
}

/// Rows of windows that are encoded unit by unit, in turn, so many units at a time.
fn in_units(tower: &AudioTower<Cpu>, windows: &[WindowInput<'_>], units: usize) -> Vec<Vec<f32>> {
    let (ops, mut spec, mut back) = (Cpu::default(), RowSpec::default(), ReadBack::default());
    let mut progress: Vec<EncodingProgress> = windows.iter().map(|_| EncodingProgress::default()).collect();
    let mut rows = vec![None; windows.len()];
    while rows.iter().any(Option::is_none) {
        for ((window, progress), rows) in windows.iter().zip(&mut progress).zip(&mut rows) {
            let all = tower.units(window.data.len() / tower.shape().bins);
            if rows.is_none() {
                assert!(progress.units < all, "{} units of {all}", progress.units);
                *rows = tower.advance(&ops, window, progress, units, (&mut spec, &mut back));
                assert_eq!(rows.is_some(), progress.units == all);
            }
        }
    }
    rows.into_iter().flatten().collect()
}

#[test]
fn units_give_the_bits_of_whole_windows() {
    let [images, plain, large, pairs] = shapes();
    let skips = |skip, shape: &EncoderShape| EncoderShape { skip: Some(skip), layers: 3, ..shape.clone() };
    let rotates = EncoderShape { positions: Positions::Rotary(10_000.0), reach: (Some(3), Some(1)), ..plain.clone() };
    let single = EncoderShape { chunk: 36, ..plain.clone() };
    let shapes =
        [skips(1, &plain), skips(2, &rotates), skips(3, &single), rotates, single, images, plain, large, pairs];
    for shape in shapes {
        let (tensors, mel) = (Tensors::random(&shape), mel(&shape));
        let tower = tensors.load(&Cpu::default(), shape.clone());
        let windows = windows(&shape, &mel);
        let whole = encode(&tower, &windows);
        // A row and a head at a time, parts of a layer, some layers.
        for most in [1, 20_000, 60_000, 200_000] {
            let tower = tensors.load(&Cpu::default(), shape.clone()).with_units(most);
            for units in [1, 3] {
                assert!(in_units(&tower, &windows, units) == whole, "{most} multiplications of {shape:?}");
            }
        }
    }
}

/// Multiplications of a unit, and the number of items that it was cut into.
fn cost(work: &EncoderWork, piece: &Piece) -> (usize, usize) {
    let (rows, heads) = (work.rows(), work.heads);
    let part = |all: usize, some: usize, of: usize| (all / of * some, some);
    match piece {
        Piece::Whole => (work.stem + work.layers * (work.project + work.attend + work.finish) + work.end, 1),
        Piece::Stem(chunks) => part(work.stem, chunks.len(), work.full_chunks.1 + 1),
        Piece::StemRows(_, some) => part(work.stem, some.len(), rows),
        Piece::Layers(layers) => (layers.len() * (work.project + work.attend + work.finish), layers.len()),
        Piece::Project(_, some) => part(work.project, some.len(), rows),
        Piece::Attend(_, some) => part(work.attend, some.len(), heads),
        Piece::Finish(_, some) => part(work.finish, some.len(), rows),
        Piece::End(some) => part(work.end, some.len(), work.end_rows),
    }
}

#[test]
fn units_of_published_encoders_are_bounded() {
    let layer = |width, heads, inner| AudioLayerShape { width, heads, inner, key_bias: false };
    let whisper = |bins, layers, layer| EncoderShape {
        bins,
        window: 3_000,
        chunk: 3_000,
        layers,
        layer,
        positions: Positions::Sinusoids,
        pairs: false,
        ..shapes()[3].clone()
    };
    let (base, large) = (whisper(80, 6, layer(512, 8, 2_048)), whisper(128, 32, layer(1_280, 20, 5_120)));
    let omni = EncoderShape {
        bins: 128,
        window: 800,
        chunk: 100,
        convolutions: Convolutions::Conv2d { channels: 480 },
        projection: vec![("a", 1_280), ("b", 2_048)],
        ..large.clone()
    };
    let conformer = ConformerShape {
        bins: 128,
        width: 512,
        layers: 17,
        heads: 8,
        inner: 2_048,
        taps: 9,
        channels: 256,
        scales_rows: false,
        adapter: vec![2_048, 2_048],
    };
    let towers = [("Whisper base", base, 43e9), ("Whisper large", large, 1_150e9), ("Qwen3-Omni", omni, 93e9)];
    let towers = towers.map(|(name, shape, all)| (name, EncoderWork::of_tower(&shape, shape.window), all));
    for (name, work, all) in towers.into_iter().chain([("LFM2.5-Audio", conformer.work(3_000), 83e9)]) {
        for most in [UNIT / 50, UNIT, 4 * UNIT] {
            let pieces = work.pieces(most);
            assert_eq!(work.units(most), pieces.len(), "{name}");
            let costs: Vec<usize> = pieces.iter().map(|piece| cost(&work, piece).0).collect();
            let total = costs.iter().sum::<usize>() as f64;
            assert!((total / all - 1.0).abs() < 0.15, "{name}: {total:e} multiplications of {all:e}");
            for piece in &pieces {
                let (cost, items) = cost(&work, piece);
                // A head, which cannot be cut, is 288 million of Whisper's.
                assert!(cost <= most || items == 1, "{name}: {cost} multiplications in {piece:?}");
                assert!(most < UNIT || cost <= most, "{name}: {cost} multiplications in {piece:?}");
            }
            println!("{name}: {} units, the longest {}", pieces.len(), costs.iter().max().unwrap_or(&0));
        }
    }
}

#[test]
fn units_are_counted_as_they_are_listed() {
    for shape in shapes() {
        for frames in 1..=shape.window {
            let work = EncoderWork::of_tower(&shape, frames);
            for most in [1, 500, 5_000, 20_000, 60_000, 200_000, usize::MAX] {
                let pieces = work.pieces(most);
                assert_eq!(work.units(most), pieces.len(), "{frames} frames, {most} multiplications of {shape:?}");
                // Each row, layer and head once.
                let of = |wanted: &dyn Fn(&Piece) -> usize| pieces.iter().map(wanted).sum::<usize>();
                let finished = of(&|piece| match piece {
                    Piece::Whole => work.layers * work.rows(),
                    Piece::Layers(layers) => layers.len() * work.rows(),
                    Piece::Finish(_, rows) => rows.len(),
                    _ => 0,
                });
                assert_eq!(finished, work.layers * work.rows(), "{pieces:?}");
                let begun = of(&|piece| match piece {
                    Piece::Whole => work.rows(),
                    Piece::Stem(chunks) => {
                        let last = chunks.end == work.full_chunks.1 + 1;
                        (chunks.len() - usize::from(last)) * work.full_chunks.0 + if last { work.last_chunk } else { 0 }
                    }
                    Piece::StemRows(_, rows) => rows.len(),
                    _ => 0,
                });
                assert_eq!(begun, work.rows(), "{pieces:?}");
            }
        }
    }
}
