//! Convolutions: streams of two slots in any chunking, and images.

use proptest::prelude::*;
use repartee_kernels::cpu::simd::SimdLevel;
use repartee_kernels::cpu::{Cpu, CpuState, Weight};
use repartee_kernels::{DType, Ops, RawTensor, SpecLayout, StateSpec, StreamLevel, StreamRows, WeightLayout};
use repartee_kernels_testkit::host::HostOps;

use crate::{check, numbers};

/// A stateful convolution of one of the four kinds.
#[derive(Debug, Clone, Copy)]
struct Kind {
    layout: WeightLayout,
    taps: usize,
}

impl Kind {
    /// Past rows that it needs.
    fn history(self) -> usize {
        match self.layout {
            WeightLayout::Conv1d { dilation } | WeightLayout::GroupedConv1d { dilation, .. } => {
                (self.taps - 1) * dilation
            }
            WeightLayout::ConvTranspose1d { stride, .. } => self.taps / stride - 1,
            _ => self.taps - 1,
        }
    }

    fn shape(self, input: usize, out: usize) -> [usize; 3] {
        match self.layout {
            WeightLayout::Conv1d { .. } => [out, input, self.taps],
            WeightLayout::GroupedConv1d { groups, .. } => [out, input / groups, self.taps],
            WeightLayout::ConvTranspose1d { .. } => [input, out, self.taps],
            _ => [out, 1, self.taps],
        }
    }

    /// Computes the rows of a whole stream by the formula, in double precision.
    fn plain(self, x: &[f32], input: usize, w: &[f32], bias: &[f32]) -> Vec<f64> {
        let (rows, out, taps) = (x.len() / input, bias.len(), self.taps);
        let at = |row: isize, channel: usize| match usize::try_from(row) {
            Ok(row) if row < rows => f64::from(x[row * input + channel]),
            _ => 0.0,
        };
        let (stride, cut) =
            if let WeightLayout::ConvTranspose1d { stride, cut } = self.layout { (stride, cut) } else { (1, false) };
        // A transposed convolution with an overlap may cut off its first block.
        let first = if cut && stride != taps { stride } else { 0 };
        let mut result = Vec::new();
        for row in first..rows * stride {
            for o in 0..out {
                let mut sum = f64::from(bias[o]);
                for tap in 0..taps {
                    let weight = |channel: usize| match self.layout {
                        WeightLayout::Conv1d { .. } => w[(o * input + channel) * taps + tap],
                        WeightLayout::GroupedConv1d { groups, .. } => {
                            w[(o * (input / groups) + channel % (input / groups)) * taps + tap]
                        }
                        WeightLayout::ConvTranspose1d { .. } => w[(channel * out + o) * taps + tap],
                        _ => w[o * taps + tap],
                    };
                    let row = row as isize;
                    let from = match self.layout {
                        WeightLayout::Conv1d { dilation } | WeightLayout::GroupedConv1d { dilation, .. } => {
                            row - ((taps - 1 - tap) * dilation) as isize
                        }
                        // The row that this tap contributes to here, if there is one.
                        WeightLayout::ConvTranspose1d { stride, .. } => {
                            let (from, stride) = (row - tap as isize, stride as isize);
                            if from >= 0 && from % stride == 0 { from / stride } else { -1 }
                        }
                        _ => row - (taps - 1 - tap) as isize,
                    };
                    let channels = match self.layout {
                        WeightLayout::Depthwise => o..o + 1,
                        WeightLayout::GroupedConv1d { groups, .. } => {
                            let (group, length) = (o / (out / groups), input / groups);
                            group * length..(group + 1) * length
                        }
                        _ => 0..input,
                    };
                    sum += channels.map(|channel| at(from, channel) * f64::from(weight(channel))).sum::<f64>();
                }
                result.push(sum);
            }
        }
        result
    }
}

fn kind() -> impl Strategy<Value = Kind> {
    prop_oneof![
        (1usize..8, 1usize..4).prop_map(|(taps, dilation)| Kind { layout: WeightLayout::Conv1d { dilation }, taps }),
        (1usize..8).prop_map(|taps| Kind { layout: WeightLayout::Depthwise, taps }),
        (1usize..8, 1usize..4, 1usize..5).prop_map(|(taps, dilation, groups)| Kind {
            layout: WeightLayout::GroupedConv1d { dilation, groups },
            taps
        }),
        (2usize..6, 1usize..=2, any::<bool>()).prop_map(|(stride, n, cut)| Kind {
            layout: WeightLayout::ConvTranspose1d { stride, cut },
            taps: n * stride
        }),
    ]
}

fn weight(ops: &Cpu, layout: WeightLayout, values: &[f32], shape: &[usize]) -> Weight {
    let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    ops.stored_weight(layout, &[RawTensor { name: "weight", bytes: &bytes, dtype: DType::F32, shape }]).unwrap()
}

/// Runs `calls`, each a list of (slot, rows); returns the results by slot.
fn run(
    ops: &Cpu,
    kind: Kind,
    (weight, bias): (&Weight, &Weight),
    tail: &mut CpuState,
    streams: &[Vec<f32>; 2],
    input: usize,
    calls: &[Vec<(usize, usize)>],
) -> [Vec<f32>; 2] {
    let (mut at, mut results) = ([0, 0], [Vec::new(), Vec::new()]);
    for call in calls {
        let (mut x, mut chunks) = (Vec::new(), Vec::new());
        for &(slot, rows) in call {
            x.extend_from_slice(&streams[slot][at[slot] * input..(at[slot] + rows) * input]);
            chunks.push(StreamRows { slot, position: at[slot], rows });
            at[slot] += rows;
        }
        let mut layout = SpecLayout::default();
        let places = layout.streams(x.len() / input, chunks.len());
        let mut spec = layout.spec();
        spec.set_streams(places, &chunks);
        let now = StreamLevel::new(ops.index(&ops.upload(&spec), places.words()));
        let x = ops.tensor(x, input);
        let (out, level) = match kind.layout {
            WeightLayout::ConvTranspose1d { stride, cut } => {
                let out = ops.conv_transpose1d_at(&x, weight, bias, tail, &now);
                (out, now.upsampled(stride, cut && kind.taps > stride))
            }
            _ => (ops.conv1d_at(&x, weight, bias, tail, &now), now),
        };
        let width = ops.read(&out).len() / ops.rows(&out).max(1);
        let out = ops.read(&out);
        let mut rest = &out[..];
        for StreamRows { slot, position, rows } in chunks {
            let (mine, after) = rest.split_at(rows * level.scale * width);
            let absent = level.skip.saturating_sub(position * level.scale).min(rows * level.scale);
            let (before, mine) = mine.split_at(absent * width);
            assert!(before.iter().all(|&v| v == 0.0), "a row that does not exist is not zero");
            results[slot].extend_from_slice(mine);
            rest = after;
        }
    }
    results
}

/// Any chunking beside any neighbour gives the same bits, and the formula's numbers.
pub fn any_split_equals_the_formula(level: SimdLevel) {
    let ops = Cpu::with_level(level);
    let lengths = [1usize..40, 1usize..20];
    let strategy = (kind(), lengths, 1usize..9, 1usize..40, prop::collection::vec(1usize..9, 1..6));
    check(128, &strategy, |(kind, lengths, input, out, cuts)| {
        let (input, out) = match kind.layout {
            WeightLayout::Depthwise => (input, input),
            WeightLayout::GroupedConv1d { groups, .. } => (input * groups, out * groups),
            _ => (input, out),
        };
        let streams = [0, 1].map(|s: usize| numbers(lengths[s] * input, 1.0, s as u64));
        let shape = kind.shape(input, out);
        let (w, b) = (numbers(shape.iter().product(), 1.0, 2), numbers(out, 1.0, 3));
        let (weight, bias) = (weight(&ops, kind.layout, &w, &shape), weight(&ops, WeightLayout::Vector, &b, &[out]));
        let spec = StateSpec::Tail { slots: 2, rows: kind.history(), columns: input };
        // One state for all cases: a stream's first rows clear their slot's past.
        let mut tail = ops.state(spec);
        let mut results =
            |calls: &[Vec<(usize, usize)>]| run(&ops, kind, (&weight, &bias), &mut tail, &streams, input, calls);
        let alone = [results(&[vec![(0, lengths[0])]])[0].clone(), results(&[vec![(1, lengths[1])]])[1].clone()];
        prop_assert!(results(&[vec![(0, lengths[0]), (1, lengths[1])]]) == alone, "a neighbour changed a result");
        let mut cuts = cuts.iter().cycle();
        let (mut left, mut calls) = (lengths, Vec::new());
        while left != [0, 0] {
            let mut call = Vec::new();
            for (slot, left) in left.iter_mut().enumerate().filter(|(_, left)| **left > 0) {
                let rows = (*cuts.next().unwrap()).min(*left);
                *left -= rows;
                call.push((slot, rows));
            }
            calls.push(call);
        }
        prop_assert!(results(&calls) == alone, "another split gave other bits");
        for (alone, stream) in alone.iter().zip(&streams) {
            let plain = kind.plain(stream, input, &w, &b);
            prop_assert_eq!(alone.len(), plain.len());
            for (a, b) in alone.iter().zip(plain) {
                prop_assert!((f64::from(*a) - b).abs() < 1e-5, "{} instead of {}", a, b);
            }
        }
        Ok(())
    });
}

pub fn conv2d_equals_the_formula(level: SimdLevel) {
    let ops = Cpu::with_level(level);
    let strategy = (1usize..4, 1usize..12, 1usize..12, 1usize..5, 1usize..20, 1usize..4);
    check(64, &strategy, |(images, height, width, input, out, stride)| {
        let x = numbers(images * height * width * input, 1.0, 1);
        let (w, b) = (numbers(out * input * 9, 1.0, 2), numbers(out, 1.0, 3));
        let layout = WeightLayout::Conv2d { stride };
        let (weight, bias) =
            (weight(&ops, layout, &w, &[out, input, 3, 3]), weight(&ops, WeightLayout::Vector, &b, &[out]));
        let found = ops.read(&ops.conv2d(&ops.tensor(x.clone(), input), images, height, width, &weight, &bias));
        let (out_height, out_width) = (height.div_ceil(stride), width.div_ceil(stride));
        prop_assert_eq!(found.len(), images * out_height * out_width * out);
        for (at, &found) in found.iter().enumerate() {
            let (o, at) = (at % out, at / out);
            let (column, row, image) = (at % out_width, at / out_width % out_height, at / out_width / out_height);
            let mut sum = f64::from(b[o]);
            for (tap, channel) in (0..9).flat_map(|tap| (0..input).map(move |channel| (tap, channel))) {
                // Coordinates in the padded image.
                let (y, x_at) = (row * stride + tap / 3, column * stride + tap % 3);
                if (1..=height).contains(&y) && (1..=width).contains(&x_at) {
                    let value = x[((image * height + y - 1) * width + x_at - 1) * input + channel];
                    sum += f64::from(value) * f64::from(w[(o * input + channel) * 9 + tap]);
                }
            }
            prop_assert!((f64::from(found) - sum).abs() < 1e-5, "{} instead of {}", found, sum);
        }
        Ok(())
    });
}
