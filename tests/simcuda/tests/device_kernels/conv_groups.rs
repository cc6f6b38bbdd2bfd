//! Convolutions in groups, over streams and within segments.

use super::conv::{CHUNKS, Level, ROWS, tails};
use super::support::Device;
use super::{Kernel, SEGMENT_ROWS, SEGMENTS, TwinResult, compare, each, numbers, segment_of, sum};

pub const KERNELS: &[Kernel] = &[
    Kernel {
        name: "grouped_conv_f32",
        file: "conv.cu",
        check: grouped_conv,
        planted: &[
            ("from[first + c], weight[tap * own + c]", "from[c], weight[tap * own + c]"),
            ("output / (outputs / groups) * own;\n  const Streams", "output % groups * own;\n  const Streams"),
            (
                "source.row((taps - 1 - tap) * dilation);\n      if (!from) continue;",
                "source.row(taps - 1 - tap);\n      if (!from) continue;",
            ),
            ("    sum += bias[output];\n", ""),
        ],
    },
    Kernel {
        name: "segment_grouped_conv_f32",
        file: "conv.cu",
        check: segment_grouped_conv,
        planted: &[
            ("* channels + first;", "* channels;"),
            ("* own;\n  Segment segment;", "* 0;\n  Segment segment;"),
            ("if (at >= segment.rows) continue;", "if (at > segment.rows) continue;"),
            ("tap * dilation - taps / 2 * dilation;\n      if (at >=", "tap * dilation;\n      if (at >="),
            ("total += bias[output];", ""),
        ],
    },
];

/// Channels, taps, dilation, outputs and groups: fewer and more outputs than channels, and each channel by itself.
const GROUPED: [(usize, usize, usize, usize, usize); 3] = [(6, 3, 2, 9, 3), (8, 5, 1, 4, 2), (5, 1, 1, 5, 5)];

fn grouped_conv(ptx: &str) -> TwinResult {
    for ((channels, taps, dilation, outputs, groups), (scale, skip)) in
        GROUPED.into_iter().zip([(1, 0), (2, 2), (1, 0)])
    {
        let mut device = Device::load(ptx);
        let (tail_rows, own) = ((taps - 1) * dilation, channels / groups);
        let x = numbers(1, ROWS * scale * channels);
        let tail = tails(scale, skip, channels, tail_rows);
        let level = Level { scale, skip, channels, tail_rows, x: &x, tail: &tail };
        let (weight, bias) = (numbers(3, outputs * taps * own), numbers(4, outputs));
        let count = level.rows() * outputs;
        let out = device.fresh(count);
        let mut params = vec![
            device.f32s(&x),
            if tail.is_empty() { device.fresh(1) } else { device.f32s(&tail) },
            device.f32s(&weight),
            device.f32s(&bias),
            out,
            device.u32s(CHUNKS.as_flattened()),
        ];
        let sizes = [CHUNKS.len(), scale, skip, level.rows(), channels, taps, dilation, outputs, groups, tail_rows];
        params.extend(sizes.map(|size| size as u64));
        each(&mut device, "grouped_conv_f32", count, &params)?;
        let wanted = (0..count).map(|i| {
            let output = i % outputs;
            let Some((chunk, position)) = level.place(i / outputs) else { return (0.0, 0.0) };
            let terms = (0..taps * own).map(|k| {
                let at = position as i64 - ((taps - 1 - k / own) * dilation) as i64;
                let channel = output * groups / outputs * own + k % own;
                f64::from(weight[output * taps * own + k]) * level.number(chunk, at, channel)
            });
            sum(terms.chain([f64::from(bias[output])]))
        });
        if let Some(wrong) = compare(&device.read_f32s(out, count)?, wanted) {
            return Ok(Some(format!("{channels} channels in {groups} groups: {wrong}")));
        }
    }
    Ok(None)
}

fn segment_grouped_conv(ptx: &str) -> TwinResult {
    for (channels, taps, dilation, outputs, groups) in GROUPED {
        let mut device = Device::load(ptx);
        let own = channels / groups;
        let x = numbers(1, SEGMENT_ROWS * channels);
        let (weight, bias) = (numbers(2, outputs * taps * own), numbers(3, outputs));
        let count = SEGMENT_ROWS * outputs;
        let mut params = vec![device.f32s(&x), device.f32s(&weight), device.f32s(&bias), device.fresh(count)];
        params.push(device.u32s(&SEGMENTS));
        let sizes = [SEGMENTS.len(), SEGMENT_ROWS, channels, taps, dilation, outputs, groups];
        params.extend(sizes.map(|size| size as u64));
        each(&mut device, "segment_grouped_conv_f32", count, &params)?;
        let wanted = (0..count).map(|i| {
            let (row, output) = (i / outputs, i % outputs);
            let Some(segment) = segment_of(row) else { return (0.0, 0.0) };
            let terms = (0..taps * own).map(|k| {
                let (tap, channel) = (k / own, output * groups / outputs * own + k % own);
                let at = (row + tap * dilation).checked_sub(taps / 2 * dilation).filter(|at| segment.contains(at));
                let number = at.map_or(0.0, |at| f64::from(x[at * channels + channel]));
                f64::from(weight[output * taps * own + k]) * number
            });
            sum(terms.chain([f64::from(bias[output])]))
        });
        if let Some(wrong) = compare(&device.read_f32s(params[3], count)?, wanted) {
            return Ok(Some(format!("{channels} channels in {groups} groups: {wrong}")));
        }
    }
    Ok(None)
}
