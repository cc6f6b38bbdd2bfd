//! Convolutions over streams, within segments, and over images.

use super::support::Device;
use super::tiles::{BLOCK, joined, pitched};
use super::{Kernel, SEGMENT_ROWS, SEGMENTS, TwinResult, compare, each, numbers, segment_of, sum};

/// Faults of convolutions in tiles; the products' tests plant those of mma.cuh.
const TILE_CONV: [(&str, &str); 8] = [
    ("source[r].row((taps - 1 - tap) * dilation)", "source[r].row(tap * dilation)"),
    ("source[r].row((taps - 1 - tap) * dilation)", "source[r].row(taps - 1 - tap)"),
    ("position < back + skip", "position < back"),
    ("bias[(output + n) % biases]", "bias[0]"),
    ("!(cut && found.position == skip)", "true"),
    ("there[r] ? sum + bias[(output + n) % biases] : 0.0f", "sum + bias[(output + n) % biases]"),
    ("at((k + i) / channels)", "at(k / channels)"),
    ("from + k % channels", "from"),
];
/// Fault of weights that are padded.
const PITCH: [(&str, &str); 1] = [("weight + (size_t)output * pitch", "weight + (size_t)output * taps * channels")];
const HALF_CONV: &[(&str, &str)] = &joined::<9>(&[&TILE_CONV, &PITCH]);
const TILE_SEGMENT_CONV: &[(&str, &str)] = &[
    ("+ tap * dilation - taps / 2 * dilation", "+ tap * dilation"),
    ("+ tap * dilation - taps / 2 * dilation", "+ tap - taps / 2"),
    ("if (in >= segment[r].rows)", "if (in >= rows)"),
    ("+ group * group_channels", ""),
    ("(size_t)(segment[r].first + in)", "(size_t)in"),
    ("there[r] ? sum + bias[output + n] : 0.0f", "there[r] ? sum : 0.0f"),
    (
        "there[own] = row + own < rows && find_segment(segments, count, row + own, found);",
        "there[own] = true, find_segment(segments, count, row + own, found);",
    ),
];
const TILE_CONV2D: &[(&str, &str)] = &[
    ("+ tap / 3 - 1", "+ tap / 3"),
    ("+ tap / 3 - 1", "+ tap % 3 - 1"),
    ("at_y < height && at_x < width", "at_y < height && at_x <= width"),
    ("% out_height * stride", "% out_height"),
    ("= sum + bias[output + n];", "= sum;"),
];
/// Faults of the tile of f32 weights.
const FLOAT: [(&str, &str); 7] = [
    ("at < outputs && k < columns ? row4", "k < columns ? row4"),
    ("row4(weight + (size_t)at * pitch, k, columns)", "load4(weight + (size_t)at * pitch + k)"),
    ("// The previous columns were read.\n", "if (0)\n"),
    ("load(start + T::DEPTH);\n    __syncthreads();", "load(start + T::DEPTH);"),
    ("load(start + T::DEPTH);", "load(start);"),
    ("sums[r][n] = dot4(x[r], w[n], sums[r][n])", "sums[r][n] = dot4(x[r], w[n], 0.0f)"),
    ("if (at < rows && output < outputs) put", "if (output < outputs) put"),
];
const FLOAT_CONV: &[(&str, &str)] = &joined::<15>(&[&TILE_CONV, &FLOAT]);

pub const KERNELS: &[Kernel] = &[
    Kernel {
        name: "conv_f32",
        file: "conv_tiles.cu",
        check: |ptx| conv(ptx, "conv_f32", FLOAT_TILE),
        planted: FLOAT_CONV,
    },
    Kernel { name: "conv_bf16", file: "conv_tiles.cu", check: |ptx| conv(ptx, "conv_bf16", FEW), planted: HALF_CONV },
    Kernel {
        name: "conv_some_bf16",
        file: "conv_tiles.cu",
        check: |ptx| conv(ptx, "conv_some_bf16", SOME),
        planted: HALF_CONV,
    },
    Kernel {
        name: "conv_rows_bf16",
        file: "conv_tiles.cu",
        check: |ptx| conv(ptx, "conv_rows_bf16", MANY),
        planted: HALF_CONV,
    },
    Kernel {
        name: "depthwise_f32",
        file: "conv.cu",
        check: depthwise,
        planted: &[
            ("weight[tap * channels + channel]", "weight[channel]"),
            ("source.row(taps - 1 - tap)", "source.row(tap)"),
            ("sum = bias[channel];", "sum = 0.0f;"),
        ],
    },
    Kernel {
        name: "extend_tail_f32",
        file: "conv.cu",
        check: extend_tail,
        planted: &[
            ("before <= skip ? 0.0f : tail[", "tail["),
            ("from[(size_t)(at - tail_rows) * channels]", "from[(size_t)row * channels]"),
            ("(chunk[1] * scale + absent)", "(chunk[1] * scale)"),
        ],
    },
    Kernel {
        name: "segment_conv_f32",
        file: "conv_tiles.cu",
        check: |ptx| segment_conv(ptx, "segment_conv_f32", FLOAT_TILE),
        planted: TILE_SEGMENT_CONV,
    },
    Kernel {
        name: "segment_conv_bf16",
        file: "conv_tiles.cu",
        check: |ptx| segment_conv(ptx, "segment_conv_bf16", MANY),
        planted: TILE_SEGMENT_CONV,
    },
    Kernel {
        name: "conv2d_f32",
        file: "conv_tiles.cu",
        check: |ptx| conv2d(ptx, "conv2d_f32", FLOAT_TILE),
        planted: TILE_CONV2D,
    },
    Kernel {
        name: "conv2d_bf16",
        file: "conv_tiles.cu",
        check: |ptx| conv2d(ptx, "conv2d_bf16", MANY),
        planted: TILE_CONV2D,
    },
];

/// Rows and outputs of a block, and true if its weight has the format of tensor cores.
#[derive(Clone, Copy)]
struct Tile {
    rows: usize,
    outputs: usize,
    half: bool,
}

const FEW: Tile = Tile { rows: 8, outputs: 16, half: true };
const SOME: Tile = Tile { rows: 32, outputs: 16, half: true };
const MANY: Tile = Tile { rows: 64, outputs: 32, half: true };
const FLOAT_TILE: Tile = Tile { rows: 32, outputs: 32, half: false };

/// Uploads a weight in the kernel's format.
fn weights(device: &mut Device, tile: Tile, numbers: &[f32], columns: usize) -> u64 {
    if tile.half { device.weight(true, &pitched(numbers, columns).0) } else { device.f32s(numbers) }
}

/// Launches a convolution.
fn launch(
    device: &mut Device,
    name: &str,
    tile: Tile,
    (rows, outputs, columns): (usize, usize, usize),
    mut params: Vec<u64>,
) -> Result<(), super::Fault> {
    params.push(if tile.half { columns.next_multiple_of(8) } else { columns } as u64);
    let grid = [rows.div_ceil(tile.rows) as u32, outputs.div_ceil(tile.outputs) as u32, 1];
    device.launch(name, grid, BLOCK, 0, &params)
}

/// Chunks of the first level: slot, first row, rows, position. A new stream, a continued one, a place without rows, and a partly absent
/// one.
pub const CHUNKS: [[u32; 4]; 4] = [[2, 0, 3, 0], [0, 3, 4, 9], [0, 0, 0, 0], [1, 7, 2, 1]];
/// The last row belongs to none.
pub const ROWS: usize = 10;
const SLOTS: usize = 3;

/// A level of the streams, with a slot's tail.
pub struct Level<'a> {
    pub scale: usize,
    pub skip: usize,
    pub channels: usize,
    pub tail_rows: usize,
    pub x: &'a [f32],
    pub tail: &'a [f32],
}

impl Level<'_> {
    pub fn rows(&self) -> usize {
        ROWS * self.scale
    }

    /// Returns a row's chunk and its position in the stream, if it exists.
    pub fn place(&self, row: usize) -> Option<(usize, usize)> {
        let at = row / self.scale;
        let (index, chunk) = CHUNKS.iter().enumerate().find(|(_, c)| (c[1]..c[1] + c[2]).contains(&(at as u32)))?;
        let position = chunk[3] as usize * self.scale + row - chunk[1] as usize * self.scale;
        (position >= self.skip).then_some((index, position))
    }

    /// Returns a number of a chunk's stream; zero before its start.
    pub fn number(&self, chunk: usize, position: i64, channel: usize) -> f64 {
        let [slot, first, _, before] = CHUNKS[chunk].map(|n| n as usize);
        let before = (before * self.scale) as i64;
        if position < self.skip as i64 {
            return 0.0;
        }
        if position >= before {
            let row = first * self.scale + (position - before) as usize;
            return f64::from(self.x[row * self.channels + channel]);
        }
        let row = (self.tail_rows as i64 + position - before) as usize;
        f64::from(self.tail[(slot * self.tail_rows + row) * self.channels + channel])
    }
}

/// Tails from earlier chunks: those of continued streams have zeros before their start, those of new ones have another stream's rows.
pub fn tails(scale: usize, skip: usize, channels: usize, tail_rows: usize) -> Vec<f32> {
    let mut tail = numbers(2, SLOTS * tail_rows * channels);
    for [slot, _, rows, position] in CHUNKS.map(|chunk| chunk.map(|n| n as usize)) {
        let before = position * scale;
        if rows > 0 && before > skip {
            let absent = (tail_rows + skip).saturating_sub(before).min(tail_rows);
            tail[slot * tail_rows * channels..][..absent * channels].fill(0.0);
        }
    }
    tail
}

fn conv(ptx: &str, name: &str, tile: Tile) -> TwinResult {
    // Scale, skip, channels, taps, dilation, outputs, biases, and true if a stream's first row is cut off.
    for (scale, skip, channels, taps, dilation, outputs, biases, cut) in [
        (1, 0, 3, 1, 1, 2, 2, false),
        (1, 0, 4, 3, 2, 5, 5, false),
        (2, 2, 8, 3, 3, 7, 7, false),
        (2, 2, 5, 2, 1, 9, 3, true),
        (3, 3, 4, 2, 1, 12, 4, true),
        (1, 0, 3, 3, 1, 35, 35, false),
        (1, 0, 30, 3, 1, 3, 3, false),
    ] {
        let mut device = Device::load(ptx);
        let tail_rows = (taps - 1) * dilation;
        let x = numbers(1, ROWS * scale * channels);
        let tail = tails(scale, skip, channels, tail_rows);
        let level = Level { scale, skip, channels, tail_rows, x: &x, tail: &tail };
        let (weight, bias) = (numbers(3, outputs * taps * channels), numbers(4, biases));
        let rows = level.rows();
        let out = device.fresh(rows * outputs);
        let sizes = [CHUNKS.len(), scale, skip, rows, channels, taps, dilation, outputs, biases, tail_rows];
        let mut params = vec![
            device.f32s(&x),
            if tail.is_empty() { device.fresh(1) } else { device.f32s(&tail) },
            weights(&mut device, tile, &weight, taps * channels),
            device.f32s(&bias),
            out,
            device.u32s(CHUNKS.as_flattened()),
        ];
        params.extend(sizes.map(|size| size as u64));
        params.push(u64::from(cut));
        launch(&mut device, name, tile, (rows, outputs, taps * channels), params)?;
        let wanted = (0..rows * outputs).map(|i| {
            let (row, output) = (i / outputs, i % outputs);
            let Some((chunk, position)) = level.place(row).filter(|(_, position)| !cut || *position != skip) else {
                return (0.0, 0.0);
            };
            let terms = (0..taps * channels).map(|k| {
                let (tap, channel) = (k / channels, k % channels);
                let at = position as i64 - ((taps - 1 - tap) * dilation) as i64;
                f64::from(weight[output * taps * channels + k]) * level.number(chunk, at, channel)
            });
            sum(terms.chain([f64::from(bias[output % biases])]))
        });
        if let Some(wrong) = compare(&device.read_f32s(out, rows * outputs)?, wanted) {
            return Ok(Some(format!("{channels} channels, {taps} taps: {wrong}")));
        }
    }
    Ok(None)
}

fn depthwise(ptx: &str) -> TwinResult {
    for (scale, skip, channels, taps) in [(1, 0, 3, 7), (2, 2, 5, 4)] {
        let mut device = Device::load(ptx);
        let tail_rows = taps - 1;
        let x = numbers(1, ROWS * scale * channels);
        let tail = tails(scale, skip, channels, tail_rows);
        let level = Level { scale, skip, channels, tail_rows, x: &x, tail: &tail };
        let (weight, bias) = (numbers(3, taps * channels), numbers(4, channels));
        let count = level.rows() * channels;
        let out = device.fresh(count);
        let mut params = vec![
            device.f32s(&x),
            device.f32s(&tail),
            device.f32s(&weight),
            device.f32s(&bias),
            out,
            device.u32s(CHUNKS.as_flattened()),
        ];
        params.extend([CHUNKS.len(), scale, skip, level.rows(), channels, taps, tail_rows].map(|size| size as u64));
        each(&mut device, "depthwise_f32", count, &params)?;
        let wanted = (0..count).map(|i| {
            let channel = i % channels;
            let Some((chunk, position)) = level.place(i / channels) else { return (0.0, 0.0) };
            let terms = (0..taps).map(|tap| {
                let at = position as i64 - (taps - 1 - tap) as i64;
                f64::from(weight[tap * channels + channel]) * level.number(chunk, at, channel)
            });
            sum(terms.chain([f64::from(bias[channel])]))
        });
        if let Some(wrong) = compare(&device.read_f32s(out, count)?, wanted) {
            return Ok(Some(wrong));
        }
    }
    Ok(None)
}

fn extend_tail(ptx: &str) -> TwinResult {
    for (scale, skip, channels, tail_rows) in [(1, 0, 3, 6), (1, 0, 70, 2), (2, 2, 4, 5), (2, 3, 4, 1)] {
        let mut device = Device::load(ptx);
        let x = numbers(1, ROWS * scale * channels);
        let tail = tails(scale, skip, channels, tail_rows);
        let level = Level { scale, skip, channels, tail_rows, x: &x, tail: &tail };
        let at = device.f32s(&tail);
        let mut params = vec![device.f32s(&x), at, device.u32s(CHUNKS.as_flattened())];
        params.extend([scale, skip, channels, tail_rows].map(|size| size as u64));
        let grid = [CHUNKS.len() as u32, channels.div_ceil(32) as u32, 1];
        device.launch("extend_tail_f32", grid, [32, 1, 1], 0, &params)?;
        let wanted = (0..tail.len()).map(|i| {
            let (slot, row, channel) = (i / channels / tail_rows, i / channels % tail_rows, i % channels);
            // Slots without rows in this step keep their tails.
            let Some(chunk) = CHUNKS.iter().position(|c| c[2] > 0 && c[0] as usize == slot) else {
                return (f64::from(tail[i]), 0.0);
            };
            let end = ((CHUNKS[chunk][3] + CHUNKS[chunk][2]) as usize * scale) as i64;
            (level.number(chunk, end - (tail_rows - row) as i64, channel), 0.0)
        });
        if let Some(wrong) = compare(&device.read_f32s(at, tail.len())?, wanted) {
            return Ok(Some(format!("{tail_rows} rows of {channels}: {wrong}")));
        }
    }
    Ok(None)
}

fn segment_conv(ptx: &str, name: &str, tile: Tile) -> TwinResult {
    for (channels, taps, dilation, outputs, groups) in
        [(3, 1, 1, 2, 1), (4, 3, 5, 6, 1), (8, 7, 1, 5, 1), (5, 3, 2, 1, 1), (6, 3, 1, 80, 2), (24, 5, 1, 6, 3)]
    {
        let mut device = Device::load(ptx);
        let (columns, own) = (taps * channels / groups, channels / groups);
        let x = numbers(1, SEGMENT_ROWS * channels);
        let (weight, bias) = (numbers(2, outputs * columns), numbers(3, outputs));
        let out = device.fresh(SEGMENT_ROWS * outputs);
        let mut params = vec![
            device.f32s(&x),
            weights(&mut device, tile, &weight, columns),
            device.f32s(&bias),
            out,
            device.u32s(&SEGMENTS),
            SEGMENTS.len() as u64,
        ];
        params.extend([SEGMENT_ROWS, channels, taps, dilation, outputs, groups].map(|size| size as u64));
        // Each group has tiles of its own.
        let tiled = (outputs / groups).next_multiple_of(tile.outputs) * groups;
        launch(&mut device, name, tile, (SEGMENT_ROWS, tiled, columns), params)?;
        let wanted = (0..SEGMENT_ROWS * outputs).map(|i| {
            let (row, output) = (i / outputs, i % outputs);
            let Some(segment) = segment_of(row) else { return (0.0, 0.0) };
            let terms = (0..columns).map(|k| {
                let (tap, channel) = (k / own, output * groups / outputs * own + k % own);
                let at = (row + tap * dilation).checked_sub(taps / 2 * dilation).filter(|at| segment.contains(at));
                let number = at.map_or(0.0, |at| f64::from(x[at * channels + channel]));
                f64::from(weight[output * columns + k]) * number
            });
            sum(terms.chain([f64::from(bias[output])]))
        });
        if let Some(wrong) = compare(&device.read_f32s(out, SEGMENT_ROWS * outputs)?, wanted) {
            return Ok(Some(format!("{channels} channels, {taps} taps: {wrong}")));
        }
    }
    Ok(None)
}

fn conv2d(ptx: &str, name: &str, tile: Tile) -> TwinResult {
    for (images, height, width, stride, channels, outputs) in
        [(1, 3, 4, 1, 1, 3), (2, 5, 4, 2, 4, 6), (3, 7, 5, 2, 3, 1), (1, 1, 1, 2, 8, 4)]
    {
        let mut device = Device::load(ptx);
        let x = numbers(1, images * height * width * channels);
        let (weight, bias) = (numbers(2, outputs * 9 * channels), numbers(3, outputs));
        let (out_height, out_width) = (height.div_ceil(stride), width.div_ceil(stride));
        let rows = images * out_height * out_width;
        let out = device.fresh(rows * outputs);
        let weights = weights(&mut device, tile, &weight, 9 * channels);
        let mut params = vec![device.f32s(&x), weights, device.f32s(&bias), out];
        params.extend([rows, height, width, stride, channels, outputs].map(|size| size as u64));
        launch(&mut device, name, tile, (rows, outputs, 9 * channels), params)?;
        let wanted = (0..rows * outputs).map(|i| {
            let (row, output) = (i / outputs, i % outputs);
            let (image, y, at_x) = (row / out_width / out_height, row / out_width % out_height, row % out_width);
            let terms = (0..9 * channels).map(|k| {
                let (tap, channel) = (k / channels, k % channels);
                let y = (y * stride + tap / 3).checked_sub(1).filter(|y| *y < height);
                let at_x = (at_x * stride + tap % 3).checked_sub(1).filter(|x| *x < width);
                let Some((y, at_x)) = y.zip(at_x) else { return 0.0 };
                let pixel = x[((image * height + y) * width + at_x) * channels + channel];
                f64::from(weight[output * 9 * channels + k]) * f64::from(pixel)
            });
            sum(terms.chain([f64::from(bias[output])]))
        });
        if let Some(wrong) = compare(&device.read_f32s(out, rows * outputs)?, wanted) {
            return Ok(Some(format!("{height} by {width}: {wrong}")));
        }
    }
    Ok(None)
}
