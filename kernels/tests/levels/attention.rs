//! Attention over cached positions: equal to the plain formula, and the same bits for any chunking and any neighbours.

use proptest::prelude::*;
use repartee_kernels::cpu::simd::SimdLevel;
use repartee_kernels::cpu::{Cpu, KvFormat};
use repartee_kernels::{AttentionShape, Ops, SequenceRows, StateSpec};
use repartee_kernels_testkit::host::HostOps;

use crate::{check, numbers};

/// Query heads and key heads.
const HEADS: (usize, usize) = (4, 2);

#[derive(Debug, Clone)]
struct Case {
    /// Positions of each of two sequences.
    lengths: [usize; 2],
    dim: usize,
    block_len: usize,
    window: Option<usize>,
    chunk: Option<usize>,
    kv: KvFormat,
    /// Rows of each call, used cyclically.
    cuts: Vec<usize>,
}

fn case() -> impl Strategy<Value = Case> {
    let lengths = [1usize..=128, 1usize..=60];
    let dim = prop::sample::select(vec![8usize, 24, 32, 64]);
    let block_len = prop::sample::select(vec![4usize, 16, 24]);
    let window = prop::option::of(1usize..70);
    let chunk = prop::option::of(1usize..30);
    let kv = prop::sample::select(vec![KvFormat::F32, KvFormat::Bf16]);
    (lengths, dim, block_len, window, chunk, kv, prop::collection::vec(1usize..40, 1..6)).prop_map(
        |(lengths, dim, block_len, window, chunk, kv, cuts)| Case { lengths, dim, block_len, window, chunk, kv, cuts },
    )
}

struct Fixture {
    case: Case,
    ops: Cpu,
    shape: AttentionShape,
    /// Queries, keys and values of each sequence.
    inputs: [[Vec<f32>; 3]; 2],
    tables: [Vec<u32>; 2],
}

impl Fixture {
    fn new(level: SimdLevel, case: Case) -> Self {
        let widths = [HEADS.0 * case.dim, HEADS.1 * case.dim, HEADS.1 * case.dim];
        let inputs = [0, 1]
            .map(|s: usize| [0, 1, 2].map(|i: usize| numbers(case.lengths[s] * widths[i], 2.0, (s * 3 + i) as u64)));
        // Blocks of both sequences alternate, as a pool hands them out.
        let blocks = case.lengths.map(|n| n.div_ceil(case.block_len));
        let tables = [0, 1].map(|s| (0..blocks[s]).map(|b| (2 * b + s) as u32).collect());
        let shape = AttentionShape {
            heads: HEADS.0,
            kv_heads: HEADS.1,
            head_dim: case.dim,
            window: case.window,
            chunk: case.chunk,
        };
        let kv = case.kv;
        Self { case, ops: Cpu::with_level(level).with_kv(kv), shape, inputs, tables }
    }

    /// Runs `calls`, each a list of (sequence, rows); returns the results by sequence.
    fn run(&self, calls: &[Vec<(usize, usize)>]) -> [Vec<f32>; 2] {
        let Self { case, ops, shape, inputs, tables } = self;
        let width = HEADS.1 * case.dim;
        let blocks = 2 * tables.iter().map(Vec::len).max().unwrap();
        let mut cache = ops.state(StateSpec::KeyValue { blocks, block_len: case.block_len, width });
        let (mut at, mut results) = ([0, 0], [Vec::new(), Vec::new()]);
        for call in calls {
            let part = |i: usize, width: usize| -> Vec<f32> {
                let rows = |&(s, rows): &(usize, usize)| inputs[s][i][at[s] * width..(at[s] + rows) * width].to_vec();
                call.iter().flat_map(rows).collect()
            };
            let (wide, narrow) = (HEADS.0 * case.dim, HEADS.1 * case.dim);
            let [q, k, v] = [(0, wide), (1, narrow), (2, narrow)].map(|(i, width)| ops.tensor(part(i, width), width));
            let sequences: Vec<_> =
                call.iter().map(|&(s, rows)| SequenceRows { table: &tables[s], position: at[s], rows }).collect();
            let out = ops.read(&ops.attention(&q, &k, &v, &mut cache, &ops.batch(&sequences), *shape));
            let mut rest = &out[..];
            for &(s, rows) in call {
                let (mine, after) = rest.split_at(rows * wide);
                results[s].extend_from_slice(mine);
                at[s] += rows;
                rest = after;
            }
        }
        results
    }

    /// Computes the formula in double precision, from keys and values as they are stored.
    fn plain(&self, s: usize) -> Vec<f64> {
        let Self { case: Case { dim, window, chunk, lengths, .. }, inputs: [..], .. } = self;
        let [q, k, v] = &self.inputs[s];
        let kept = |numbers: &[f32]| match self.case.kv {
            KvFormat::F32 => numbers.to_vec(),
            KvFormat::Bf16 => numbers.iter().map(|&number| half::bf16::from_f32(number).to_f32()).collect(),
        };
        let (k, v) = (kept(k), kept(v));
        let mut out = Vec::new();
        for row in 0..lengths[s] {
            for head in 0..HEADS.0 {
                let kv = head / (HEADS.0 / HEADS.1);
                let from = window.map_or(0, |w| (row + 1).saturating_sub(w));
                let to = chunk.map_or(row + 1, |chunk| (row / chunk + 1) * chunk).min(lengths[s]);
                let key = |p: usize, d: usize| f64::from(k[(p * HEADS.1 + kv) * dim + d]);
                let query = |d: usize| f64::from(q[(row * HEADS.0 + head) * dim + d]);
                let score = |p: usize| (0..*dim).map(|d| query(d) * key(p, d)).sum::<f64>() / (*dim as f64).sqrt();
                let weights: Vec<f64> = (from..to).map(|p| score(p).exp()).collect();
                let total: f64 = weights.iter().sum();
                for d in 0..*dim {
                    let value = |p: usize| f64::from(v[(p * HEADS.1 + kv) * dim + d]);
                    out.push((from..to).zip(&weights).map(|(p, w)| w * value(p)).sum::<f64>() / total);
                }
            }
        }
        out
    }
}

/// Any chunking beside any neighbour gives the same bits, and the formula's numbers.
pub fn any_split_equals_the_formula(level: SimdLevel) {
    check(96, &case(), |case| {
        let fixture = Fixture::new(level, case.clone());
        let [first, second] = case.lengths;
        let alone = [fixture.run(&[vec![(0, first)]])[0].clone(), fixture.run(&[vec![(1, second)]])[1].clone()];
        let together = fixture.run(&[vec![(0, first), (1, second)]]);
        prop_assert!(alone == together, "a neighbour changed a result");
        let mut cuts = case.cuts.iter().cycle();
        let (mut left, mut calls) = (case.lengths, Vec::new());
        while left != [0, 0] {
            let mut call = Vec::new();
            for (s, left) in left.iter_mut().enumerate() {
                // The rows of a chunk come together.
                let rows = cuts.next().unwrap().next_multiple_of(case.chunk.unwrap_or(1)).min(*left);
                *left -= rows;
                if rows > 0 {
                    call.push((s, rows));
                }
            }
            calls.push(call);
        }
        prop_assert!(fixture.run(&calls) == alone, "another split gave other bits");
        for (s, alone) in alone.iter().enumerate() {
            for (a, b) in alone.iter().zip(fixture.plain(s)) {
                prop_assert!((f64::from(*a) - b).abs() < 1e-5, "{} instead of {}", a, b);
            }
        }
        Ok(())
    });
}

/// Queries without keys of their own see the whole of stored sequences, in pieces of any size and beside any neighbour, and leave them as
/// they are.
pub fn stored_attention_equals_the_formula(level: SimdLevel) {
    const WHOLE: usize = 128;
    check(48, &case(), |case| {
        let fixture = Fixture::new(level, Case { window: None, chunk: Some(WHOLE), ..case.clone() });
        let Fixture { ops, shape, inputs, tables, .. } = &fixture;
        let (wide, narrow) = (HEADS.0 * case.dim, HEADS.1 * case.dim);
        let blocks = 2 * tables.iter().map(Vec::len).max().unwrap();
        let mut cache = ops.state(StateSpec::KeyValue { blocks, block_len: case.block_len, width: narrow });
        let rows = |s: usize, position, rows| SequenceRows { table: &tables[s], position, rows };
        let both = ops.batch(&[rows(0, 0, case.lengths[0]), rows(1, 0, case.lengths[1])]);
        let joined = |i: usize| [&inputs[0][i][..], &inputs[1][i]].concat();
        ops.store_keys(&ops.tensor(joined(1), narrow), &ops.tensor(joined(2), narrow), &mut cache, &both);
        let together = ops.read(&ops.stored_attention(&ops.tensor(joined(0), wide), &mut cache, &both, *shape));
        let mut cuts = case.cuts.iter().cycle();
        let mut pieces = Vec::new();
        for (s, &length) in case.lengths.iter().enumerate() {
            let mut at = 0;
            while at < length {
                let count = (*cuts.next().unwrap()).min(length - at);
                let queries = ops.tensor(inputs[s][0][at * wide..(at + count) * wide].to_vec(), wide);
                // The last rows of the sequence, whichever they are.
                let batch = ops.batch(&[rows(s, length - count, count)]);
                pieces.extend(ops.read(&ops.stored_attention(&queries, &mut cache, &batch, *shape)));
                at += count;
            }
        }
        prop_assert!(together == pieces, "another split gave other bits");
        let plain = [fixture.plain(0), fixture.plain(1)].concat();
        for (a, b) in together.iter().zip(plain) {
            prop_assert!((f64::from(*a) - b).abs() < 1e-5, "{} instead of {}", a, b);
        }
        Ok(())
    });
}
