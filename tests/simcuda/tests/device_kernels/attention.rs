//! Rotary embedding, and attention over blocks and within segments.

use super::support::Device;
use super::{Kernel, SEGMENT_ROWS, SEGMENTS, TwinResult, compare, numbers, segment_of};

pub const KERNELS: &[Kernel] = &[
    Kernel {
        name: "rotary_f32",
        file: "attention.cu",
        check: rotary,
        planted: &[
            ("frequencies[i % half]", "frequencies[(i + 1) % half]"),
            ("head[2] + row - head[0]", "head[2]"),
            ("(size_t)(first + 31 - __clz(those)) * stride", "(size_t)first * stride"),
            ("s < sequences && row", "row"),
            ("if (i >= columns / 2) return;", ""),
            ("__fmul_rn(b, cosine), __fmul_rn(a, sine)", "__fmul_rn(b, cosine), __fmul_rn(b, sine)"),
        ],
    },
    Kernel {
        name: "split_heads_f32",
        file: "attention.cu",
        check: split,
        planted: &[
            ("(head - heads) % kv_heads) * head_dim", "0) * head_dim"),
            ("is_query ? q_norm : is_key ? k_norm : nullptr", "is_query ? k_norm : is_key ? k_norm : nullptr"),
            ("is_query ? q_norm : is_key ? k_norm : nullptr", "is_query ? q_norm : k_norm"),
            ("low = weight[d] * (low * by)", "low = weight[d] * low"),
            ("warp_sum(square) / head_dim", "warp_sum(square) / (head_dim + 1)"),
            ("frequencies && there && (is_query || is_key)", "frequencies && there && is_query"),
            ("frequencies && there && (is_query || is_key)", "frequencies && there"),
            ("place.position, frequencies[d]", "place.position + 1, frequencies[d]"),
            ("if (head >= all) return;", ""),
        ],
    },
    Kernel {
        name: "store_keys_f32",
        file: "attention.cu",
        check: store,
        planted: &[
            ("position / block_len % place.entries", "position / block_len"),
            ("values[to + i] = v[from + i]", "values[to + i] = k[from + i]"),
            ("* block_len + position % block_len", "* block_len + (position + 1) % block_len"),
        ],
    },
    Kernel {
        name: "attention_f32",
        file: "attention.cu",
        check: attention,
        planted: &[
            ("blockIdx.y / group * head_dim", "blockIdx.y % (gridDim.y / group) * head_dim"),
            ("own_end > window ? own_end - window : 0", "0"),
            ("(place.position / chunk + 1) * chunk, place.end)", "(place.position / chunk + 2) * chunk, place.end)"),
            ("(place.position / chunk + 1) * chunk, place.end)", "place.position + 1, place.end)"),
            ("min((place.position / chunk + 1) * chunk, place.end)", "(place.position / chunk + 1) * chunk"),
            ("own_end = place.position + 1", "own_end = place.end"),
            ("sum = fmaf(of[d], factor, sum);", "sum += of[d];"),
            ("sums[i] *= factor;", ";"),
            ("query[d] = q[d];\n  __syncthreads();", "query[d] = q[d];"),
            ("j + n < count ? load_lane", "true ? load_lane"),
            ("i / 4 * 128 + lane * 4 + i % 4", "i / 4 * 128 + lane * 4"),
            ("score = there ? score * scale", "score = there ? score"),
            (
                "  __syncthreads();\n  for (unsigned d = threadIdx.x; d < numbers;",
                "  for (unsigned d = threadIdx.x; d < numbers;",
            ),
        ],
    },
    Kernel {
        name: "segment_attention_f32",
        file: "attention.cu",
        check: segments,
        planted: &[
            (
                "find_segment(segments, count, blockIdx.x, segment)",
                "find_segment(segments, count, blockIdx.x + 1, segment)",
            ),
            ("after = min(segment.rows - 1 - row, right)", "after = segment.rows - 1 - row"),
            ("after = min(segment.rows - 1 - row, right)", "after = min(segment.rows - row, right)"),
            ("before = min(row, left)", "before = row"),
            ("before = min(row, left)", "before = left"),
            ("Dense rows = {k + head, v + head + first, width}", "Dense rows = {k + head, v + first, width}"),
            ("Dense rows = {k + head, v + head + first, width}", "Dense rows = {k + head, v + head, width}"),
            ("numbers = min(head_dim - first, PART)", "numbers = PART"),
            ("*to = out + own + first", "*to = out + own"),
        ],
    },
];

const TABLE: usize = 3;
const STRIDE: usize = 4 + TABLE;
const BLOCK: usize = 5;
const BLOCKS: usize = 7;

/// A sequence: first row, rows, first position, table.
struct Sequence(u32, u32, u32, &'static [u32]);

/// Two with rows, a place without, and a ring; the last row belongs to none.
const SEQUENCES: [Sequence; 4] =
    [Sequence(0, 3, 4, &[5, 2, 0]), Sequence(0, 0, 0, &[]), Sequence(3, 1, 0, &[4]), Sequence(4, 2, 11, &[6, 1])];
const ROWS: usize = 7;

fn batch(device: &mut Device) -> u64 {
    let words = SEQUENCES.iter().flat_map(|Sequence(row, rows, position, table)| {
        let mut words = vec![*row, *rows, *position, table.len() as u32];
        words.extend_from_slice(table);
        // Words after a table are not read.
        words.resize(STRIDE, 1_000_000);
        words
    });
    device.u32s(&words.collect::<Vec<_>>())
}

/// Returns the sequence and position of a row.
fn place(row: usize) -> Option<(&'static Sequence, usize)> {
    let row = row as u32;
    let of = SEQUENCES.iter().find(|s| s.1 > 0 && (s.0..s.0 + s.1).contains(&row))?;
    Some((of, (of.2 + row - of.0) as usize))
}

fn cell(sequence: &Sequence, position: usize) -> usize {
    sequence.3[position / BLOCK % sequence.3.len()] as usize * BLOCK + position % BLOCK
}

fn wide(value: f32) -> f64 {
    f64::from(value)
}

fn rotary(ptx: &str) -> TwinResult {
    let (heads, dim) = (12, 6);
    let columns = heads * dim;
    let mut device = Device::load(ptx);
    let (x, frequencies) = (numbers(1, ROWS * columns), [1.0f32, 0.21, 0.037]);
    let batch = batch(&mut device);
    let at = device.f32s(&x);
    let params =
        [at, batch, device.f32s(&frequencies), SEQUENCES.len() as u64, STRIDE as u64, columns as u64, dim as u64];
    // Several blocks for the pairs of a row.
    device.launch("rotary_f32", [ROWS as u32, 2, 1], [32, 1, 1], 0, &params)?;
    let wanted = (0..ROWS * columns).map(|i| {
        let Some((_, position)) = place(i / columns) else { return (wide(x[i]), 0.0) };
        let (d, half) = (i % dim, dim / 2);
        let angle = wide(position as f32 * frequencies[d % half]);
        let (low, high) = (wide(x[i - d + d % half]), wide(x[i - d + d % half + half]));
        let wanted =
            if d < half { low * angle.cos() - high * angle.sin() } else { high * angle.cos() + low * angle.sin() };
        (wanted, (low.abs() + high.abs()) * 4.0 * f64::powi(2.0, -24))
    });
    Ok(compare(&device.read_f32s(at, ROWS * columns)?, wanted))
}

/// Splits with norms and rotation, and without either.
fn split(ptx: &str) -> TwinResult {
    let (heads, kv_heads, dim) = (3, 2, 6);
    let all = heads + 2 * kv_heads;
    for (normed, rotated) in [(true, true), (false, true), (true, false), (false, false)] {
        let mut device = Device::load(ptx);
        let x = numbers(1, ROWS * all * dim);
        let (norms, frequencies) = ([numbers(2, dim), numbers(3, dim)], [1.0f32, 0.21, 0.037]);
        let batch = batch(&mut device);
        let mut params = vec![device.f32s(&x)];
        params.extend([0, 1].map(|of| if normed { device.f32s(&norms[of]) } else { 0 }));
        params.push(if rotated { device.f32s(&frequencies) } else { 0 });
        params.push(batch);
        let widths = [heads * dim, kv_heads * dim, kv_heads * dim];
        let outs = widths.map(|width| device.fresh(ROWS * width));
        params.extend(outs);
        params.extend([SEQUENCES.len(), STRIDE, heads, kv_heads, dim].map(|size| size as u64));
        params.push(u64::from(1e-6f32.to_bits()));
        device.launch("split_heads_f32", [ROWS as u32, all.div_ceil(4) as u32, 1], [128, 1, 1], 0, &params)?;
        for (part, (at, width)) in outs.into_iter().zip(widths).enumerate() {
            let first = widths[..part].iter().sum::<usize>();
            let wanted = (0..ROWS * width).map(|i| {
                let (row, column, d) = (i / width, first + i % width, i % dim);
                let head = &x[row * all * dim + column - d..][..dim];
                let square = head.iter().map(|v| wide(*v).powi(2)).sum::<f64>() / dim as f64;
                let number = |d: usize| match norms.get(part) {
                    Some(norm) if normed => wide(norm[d]) * wide(head[d]) / (square + 1e-6).sqrt(),
                    _ => wide(head[d]),
                };
                let (half, bound) = (dim / 2, 16.0 * f64::powi(2.0, -24));
                let (low, high) = (number(d % half), number(d % half + half));
                let Some((_, position)) = place(row).filter(|_| rotated && part < 2) else {
                    return (number(d), number(d).abs() * bound);
                };
                let angle = wide(position as f32 * frequencies[d % half]);
                let rotated = [low * angle.cos() - high * angle.sin(), high * angle.cos() + low * angle.sin()];
                (rotated[d / half], (low.abs() + high.abs()) * bound)
            });
            if let Some(wrong) = compare(&device.read_f32s(at, ROWS * width)?, wanted) {
                return Ok(Some(format!("part {part}, normed {normed}, rotated {rotated}: {wrong}")));
            }
        }
    }
    Ok(None)
}

fn store(ptx: &str) -> TwinResult {
    let width = 9;
    let mut device = Device::load(ptx);
    let (k, v, before) = (numbers(1, ROWS * width), numbers(2, ROWS * width), numbers(3, BLOCKS * BLOCK * width));
    let batch = batch(&mut device);
    let (keys, values) = (device.f32s(&before), device.f32s(&before));
    let sizes = [SEQUENCES.len() as u64, STRIDE as u64, width as u64, BLOCK as u64];
    let params = [device.f32s(&k), device.f32s(&v), keys, values, batch, sizes[0], sizes[1], sizes[2], sizes[3]];
    device.launch("store_keys_f32", [ROWS as u32, 1, 1], [32, 1, 1], 0, &params)?;
    for (at, new) in [(keys, k), (values, v)] {
        let mut wanted = before.clone();
        for row in 0..ROWS {
            if let Some((sequence, position)) = place(row) {
                let to = cell(sequence, position) * width;
                wanted[to..to + width].copy_from_slice(&new[row * width..][..width]);
            }
        }
        let found = device.read_f32s(at, wanted.len())?;
        if let Some(wrong) = compare(&found, wanted.iter().map(|v| (wide(*v), 0.0))) {
            return Ok(Some(wrong));
        }
    }
    Ok(None)
}

/// Softmax of scaled scores over some keys, times their values.
fn attended(q: &[f32], keys: &[&[f32]], values: &[&[f32]], d: usize) -> (f64, f64) {
    let scale = 1.0 / (q.len() as f64).sqrt();
    let score = |key: &[f32]| q.iter().zip(key).map(|(a, b)| wide(*a) * wide(*b)).sum::<f64>() * scale;
    let weights: Vec<f64> = keys.iter().map(|key| score(key).exp()).collect();
    let total: f64 = weights.iter().sum();
    let wanted: f64 = weights.iter().zip(values).map(|(weight, value)| weight / total * wide(value[d])).sum();
    // Scores are below the head's width, values below one.
    (wanted, (q.len() + keys.len() + 16) as f64 * 2.0 * f64::powi(2.0, -24))
}

/// One sequence of some rows, with no later position stored: long ones, windows, chunks, several tiles for a warp.
fn attention(ptx: &str) -> TwinResult {
    for (heads, kv_heads, dim, position, rows, window, chunk) in [
        (4, 2, 8, 0, 1, u32::MAX, 1),
        (4, 2, 6, 9, 1, u32::MAX, 1),
        (2, 1, 36, 170, 1, u32::MAX, 1),
        (2, 2, 8, 60, 1, 33, 1),
        (1, 1, 200, 40, 1, 7, 1),
        (2, 1, 8, 60, 6, u32::MAX, 4),
        (2, 1, 8, 60, 5, 2, 6),
    ] {
        let (width, group) = (kv_heads * dim, heads / kv_heads);
        let mut device = Device::load(ptx);
        let (cells, wide_rows) = (position + rows, heads * dim);
        let (k, v) = (numbers(1, cells * width), numbers(2, cells * width));
        // The last row belongs to no sequence.
        let q: Vec<f32> = numbers(3, (rows + 1) * wide_rows).iter().map(|v| v * 4.0).collect();
        // A table of one block, the second; nothing was written before it or after the last position.
        let block = (cells + 8) * width;
        let (keys, values) = (device.fresh(2 * block), device.fresh(2 * block));
        for (to, from) in [(keys, &k), (values, &v)] {
            let part = device.f32s(from);
            device.memory.copy(to + (block * 4) as u64, part, cells * width * 4)?;
        }
        let batch = device.u32s(&[0, rows as u32, position as u32, 1, 1]);
        let out = device.fresh((rows + 1) * wide_rows);
        let mut params = vec![device.f32s(&q), keys, values, batch, out, 1, 5];
        params.extend([group, width, cells + 8, dim].map(|size| size as u64));
        params.extend([u64::from(window), chunk as u64, u64::from((1.0 / (dim as f32).sqrt()).to_bits())]);
        let shared = (4 * (dim + 2) + dim) * 4;
        device.launch("attention_f32", [rows as u32 + 1, heads as u32, 1], [128, 1, 1], shared, &params)?;
        let wanted = (0..(rows + 1) * wide_rows).map(|i| {
            let (row, head, d) = (i / wide_rows, i / dim % heads, i % dim);
            if row == rows {
                return (0.0, 0.0);
            }
            let (own, at) = (position + row, head / group * dim);
            let seen = (own + 1).saturating_sub(window as usize)..((own / chunk + 1) * chunk).min(cells);
            let keys: Vec<&[f32]> = seen.clone().map(|p| &k[p * width + at..][..dim]).collect();
            let values: Vec<&[f32]> = seen.map(|p| &v[p * width + at..][..dim]).collect();
            let (wanted, bound) = attended(&q[row * wide_rows + head * dim..][..dim], &keys, &values, d);
            (wanted, 4.0 * bound)
        });
        if let Some(wrong) = compare(&device.read_f32s(out, (rows + 1) * wide_rows)?, wanted) {
            return Ok(Some(format!("{heads} heads of {dim} at {position}: {wrong}")));
        }
    }
    Ok(None)
}

/// Whole segments, causal attention, a reach to both sides, and heads of more numbers than a block sums.
fn segments(ptx: &str) -> TwinResult {
    let heads = 2;
    let rows = SEGMENT_ROWS;
    for (dim, left, right) in [(8, u32::MAX, u32::MAX), (8, u32::MAX, 0), (8, 3, 7), (8, 33, 2), (260, 2, 1)] {
        let width = heads * dim;
        let mut device = Device::load(ptx);
        let [q, k, v] = [1, 2, 3].map(|stream| numbers(stream, rows * width));
        let scale = u64::from((1.0 / (dim as f32).sqrt()).to_bits());
        let params = [
            device.f32s(&q),
            device.f32s(&k),
            device.f32s(&v),
            device.u32s(&SEGMENTS),
            device.fresh(rows * width),
            SEGMENTS.len() as u64,
            dim as u64,
            u64::from(left),
            u64::from(right),
            scale,
        ];
        let shared = (4 * (dim + 2) + dim) * 4;
        let blocks = (heads * dim.div_ceil(256)) as u32;
        device.launch("segment_attention_f32", [rows as u32, blocks, 1], [128, 1, 1], shared, &params)?;
        let wanted = (0..rows * width).map(|i| {
            let (row, head, d) = (i / width, i % width / dim * dim, i % dim);
            let Some(segment) = segment_of(row) else { return (0.0, 0.0) };
            let seen = segment.start.max(row.saturating_sub(left as usize))
                ..segment.end.min(row.saturating_add(right as usize).saturating_add(1));
            let keys: Vec<&[f32]> = seen.clone().map(|at| &k[at * width + head..][..dim]).collect();
            let values: Vec<&[f32]> = seen.map(|at| &v[at * width + head..][..dim]).collect();
            attended(&q[row * width + head..][..dim], &keys, &values, d)
        });
        if let Some(wrong) = compare(&device.read_f32s(params[4], rows * width)?, wanted) {
            return Ok(Some(format!("heads of {dim}, {left} and {right} rows: {wrong}")));
        }
    }
    Ok(None)
}
