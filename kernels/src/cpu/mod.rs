//! [`Ops`] on the processor, one thread, single precision.
//!
//! - [`gemm`]: the matrix product behind linear layers and convolutions
//! - [`attention`], [`conv`], [`experts`], [`math`], [`rotary`], [`sample`]: one concept each
//! - `step`: the operations that read a row spec
//! - [`simd`]: what the processor offers; [`pool`]: threads that run closures side by side
//!
//! Arithmetic is in single precision. Weights are widened to it, which is exact for every format of a checkpoint: matrices of
//! bfloat16 as they are used, all others when they load.

pub mod attention;
pub mod conv;
pub mod experts;
pub mod gemm;
pub mod math;
pub mod pool;
pub mod rotary;
pub mod sample;
pub mod simd;
mod step;
mod weight;

pub use step::Index;
pub use weight::Weight;

use crate::ops::{
    Attention, AttentionBatch, KernelError, Layout, NO_ID, Ops, RawTensor, Router, SampleParams, SequenceRows,
    StateSpec, StreamChunk,
};
use gemm::Rows;
use simd::Level;

/// The processor as a device.
#[derive(Debug, Clone)]
pub struct Cpu {
    level: Level,
}

impl Default for Cpu {
    fn default() -> Self {
        Self { level: Level::detect() }
    }
}

impl Cpu {
    /// With the vector instructions of `level`; the default has the best of the machine.
    pub fn with_level(level: Level) -> Self {
        Self { level }
    }

    /// The vector instructions in use.
    pub fn level(&self) -> Level {
        self.level
    }
}

/// Activations: `[rows, columns]`, row-major.
#[derive(Debug, Clone, PartialEq)]
pub struct Tensor {
    rows: usize,
    columns: usize,
    data: Vec<f32>,
}

impl Tensor {
    fn new(data: Vec<f32>, columns: usize) -> Self {
        let rows = data.len().checked_div(columns).unwrap_or(0);
        assert_eq!(rows * columns, data.len(), "values do not fill whole rows");
        Self { rows, columns, data }
    }

    fn like(&self) -> Vec<f32> {
        vec![0.0; self.data.len()]
    }
}

/// Memory updated in place.
#[derive(Debug)]
pub enum State {
    /// Keys and values of an attention layer.
    KeyValue(attention::Cache),
    /// What a convolution remembers.
    Tail(conv::Tail),
    /// Ids that each slot has produced.
    TokenMask {
        /// Ids.
        vocabulary: usize,
        /// `[slot][id]`.
        flags: Vec<bool>,
    },
    /// Rows that outlive a step.
    Rows {
        /// Numbers in a row.
        columns: usize,
        /// `[row][columns]`.
        data: Vec<f32>,
    },
}

impl State {
    fn cache(&mut self) -> &mut attention::Cache {
        match self {
            Self::KeyValue(cache) => cache,
            other => panic!("attention needs keys and values, got {other:?}"),
        }
    }

    fn reset(&mut self, slot: usize) {
        if let Self::TokenMask { vocabulary, flags } = self {
            flags[slot * *vocabulary..(slot + 1) * *vocabulary].fill(false);
        }
    }

    fn tail(&mut self) -> &mut conv::Tail {
        match self {
            Self::Tail(tail) => tail,
            other => panic!("a convolution needs a tail, got {other:?}"),
        }
    }
}

impl Ops for Cpu {
    type T = Tensor;
    type Ids = Vec<u32>;
    type Weight = Weight;
    type State = State;
    type Batch = rotary::Batch;

    fn weight(&self, layout: Layout, parts: &[RawTensor<'_>]) -> Result<Weight, KernelError> {
        Weight::new(layout, parts)
    }

    fn state(&self, spec: StateSpec) -> State {
        // Zeroed allocations of this size come from the system untouched: memory is taken as positions are used.
        match spec {
            StateSpec::KeyValue { blocks, block_len, width } => {
                State::KeyValue(attention::Cache::new(blocks, block_len, width))
            }
            StateSpec::Tail { slots, rows, columns } => State::Tail(conv::Tail::new(slots, rows, columns)),
            StateSpec::Rows { rows, columns } => State::Rows { columns, data: vec![0.0; rows * columns] },
            StateSpec::TokenMask { slots, vocabulary } => {
                State::TokenMask { vocabulary, flags: vec![false; slots * vocabulary] }
            }
        }
    }

    fn reset(&self, state: &mut State, slot: usize) {
        state.reset(slot);
    }

    fn copy_block(&self, state: &mut State, from: u32, to: u32) {
        state.cache().copy_block(from as usize, to as usize);
    }

    fn batch(&self, sequences: &[SequenceRows<'_>]) -> rotary::Batch {
        rotary::Batch::from(AttentionBatch::new(sequences))
    }

    fn tensor(&self, values: Vec<f32>, columns: usize) -> Tensor {
        Tensor::new(values, columns)
    }

    fn ids(&self, ids: &[u32]) -> Vec<u32> {
        ids.to_vec()
    }

    fn read(&self, x: &Tensor) -> Vec<f32> {
        x.data.clone()
    }

    fn read_ids(&self, ids: &Vec<u32>) -> Vec<u32> {
        ids.clone()
    }

    fn rows(&self, x: &Tensor) -> usize {
        x.rows
    }

    fn copy(&self, x: &Tensor) -> Tensor {
        x.clone()
    }

    fn gather(&self, x: &Tensor, at: &[usize]) -> Tensor {
        let mut data = Vec::with_capacity(at.len() * x.columns);
        for &row in at {
            data.extend_from_slice(&x.data[row * x.columns..(row + 1) * x.columns]);
        }
        Tensor { rows: at.len(), columns: x.columns, data }
    }

    fn scatter(&self, mut x: Tensor, at: &[usize], rows: &Tensor) -> Tensor {
        for (&row, from) in at.iter().zip(rows.data.chunks_exact(x.columns)) {
            x.data[row * x.columns..(row + 1) * x.columns].copy_from_slice(from);
        }
        x
    }

    fn concat(&self, parts: &[&Tensor]) -> Tensor {
        let columns = parts.first().map_or(0, |p| p.columns);
        Tensor::new(parts.iter().flat_map(|p| p.data.iter().copied()).collect(), columns)
    }

    fn embed(&self, table: &Weight, ids: &Vec<u32>) -> Tensor {
        let (width, table) = table.table();
        let mut data = vec![0.0; ids.len() * width];
        for (row, &id) in data.chunks_exact_mut(width).zip(ids) {
            if id != NO_ID {
                row.copy_from_slice(&table[id as usize * width..(id as usize + 1) * width]);
            }
        }
        Tensor { rows: ids.len(), columns: width, data }
    }

    fn linear(&self, x: &Tensor, weight: &Weight, bias: Option<&Weight>) -> Tensor {
        let weight = weight.packed();
        let mut data = vec![0.0; x.rows * weight.columns];
        let rows = Rows::dense(&x.data, weight.k);
        gemm::multiply(self.level, rows, weight, bias.map(Weight::vector), &mut data);
        Tensor { rows: x.rows, columns: weight.columns, data }
    }

    fn narrow(&self, x: &Tensor, start: usize, length: usize) -> Tensor {
        let data = x.data.chunks_exact(x.columns).flat_map(|row| row[start..start + length].iter().copied()).collect();
        Tensor { rows: x.rows, columns: length, data }
    }

    fn add(&self, mut x: Tensor, y: &Tensor) -> Tensor {
        assert_eq!((x.rows, x.columns), (y.rows, y.columns), "shapes differ");
        for (a, b) in x.data.iter_mut().zip(&y.data) {
            *a += b;
        }
        x
    }

    fn scale(&self, mut x: Tensor, by: &Weight) -> Tensor {
        let by = by.vector();
        for row in x.data.chunks_exact_mut(by.len()) {
            for (a, b) in row.iter_mut().zip(by) {
                *a *= b;
            }
        }
        x
    }

    fn scale_all(&self, mut x: Tensor, by: f32) -> Tensor {
        for a in &mut x.data {
            *a *= by;
        }
        x
    }

    fn rms_norm(&self, x: &Tensor, weight: &Weight, eps: f32) -> Tensor {
        let mut data = x.like();
        math::rms_norm(self.level, &x.data, weight.vector(), eps, &mut data);
        Tensor { data, ..*x }
    }

    fn layer_norm(&self, x: &Tensor, weight: &Weight, bias: &Weight, eps: f32) -> Tensor {
        let mut data = x.like();
        math::layer_norm(self.level, &x.data, weight.vector(), bias.vector(), eps, &mut data);
        Tensor { data, ..*x }
    }

    fn silu(&self, mut x: Tensor) -> Tensor {
        math::silu(self.level, &mut x.data);
        x
    }

    fn silu_mul(&self, x: &Tensor) -> Tensor {
        let columns = x.columns / 2;
        let mut data = vec![0.0; x.rows * columns];
        math::silu_mul(self.level, &x.data, &mut data, columns);
        Tensor { rows: x.rows, columns, data }
    }

    fn gelu(&self, mut x: Tensor) -> Tensor {
        math::gelu(self.level, &mut x.data);
        x
    }

    fn snake(&self, mut x: Tensor, alpha: &Weight, beta: &Weight) -> Tensor {
        let frequency: Vec<f32> = alpha.vector().iter().map(|a| a.exp()).collect();
        let magnitude: Vec<f32> = beta.vector().iter().map(|b| 1.0 / (b.exp() + 1e-9)).collect();
        math::snake(self.level, &mut x.data, &frequency, &magnitude);
        x
    }

    fn clamp(&self, mut x: Tensor, low: f32, high: f32) -> Tensor {
        for a in &mut x.data {
            *a = a.clamp(low, high);
        }
        x
    }

    fn sigmoid_gate(&self, mut y: Tensor, gate: &Tensor) -> Tensor {
        math::sigmoid_gate(self.level, &mut y.data, &gate.data);
        y
    }

    fn rotary(&self, mut x: Tensor, batch: &rotary::Batch, head_dim: usize, theta: f32) -> Tensor {
        rotary::rotate(self.level, &mut x.data, &batch.angles(head_dim, theta));
        x
    }

    fn attention(
        &self,
        q: &Tensor,
        k: &Tensor,
        v: &Tensor,
        cache: &mut State,
        batch: &rotary::Batch,
        shape: Attention,
    ) -> Tensor {
        let cache = cache.cache();
        cache.store(&k.data, &v.data, &batch.rows);
        let mut data = q.like();
        attention::cached(self.level, &q.data, cache, &batch.rows, shape, &mut data);
        Tensor { data, ..*q }
    }

    fn segment_attention(&self, q: &Tensor, k: &Tensor, v: &Tensor, segments: &[usize], heads: usize) -> Tensor {
        let mut data = q.like();
        attention::segments(self.level, &q.data, &k.data, &v.data, segments, heads, &mut data);
        Tensor { data, ..*q }
    }

    fn experts(&self, x: &Tensor, router: &Weight, gate_up: &Weight, down: &Weight, spec: Router) -> Tensor {
        let down = down.experts();
        let data = experts::mixture(self.level, &x.data, router.packed(), gate_up.experts(), down, spec);
        Tensor { rows: x.rows, columns: down[0].columns, data }
    }

    fn conv2d(&self, x: &Tensor, images: usize, height: usize, width: usize, weight: &Weight, bias: &Weight) -> Tensor {
        let Weight::Conv2d { packed, stride } = weight else {
            panic!("not a convolution over two axes: {}", weight.kind())
        };
        let bias = bias.vector();
        let data = conv::conv2d(self.level, &x.data, (images, height, width), x.columns, packed, *stride, bias);
        Tensor::new(data, packed.columns)
    }

    fn reshape(&self, x: Tensor, columns: usize) -> Tensor {
        Tensor::new(x.data, columns)
    }

    fn conv1d(&self, x: &Tensor, weight: &Weight, bias: &Weight, tail: &mut State, chunks: &[StreamChunk]) -> Tensor {
        let tail = tail.tail();
        let spans = tail.spans(chunks);
        conv::conv1d(self.level, x, weight, bias, tail, &spans)
    }

    fn conv_transpose1d(
        &self,
        x: &Tensor,
        weight: &Weight,
        bias: &Weight,
        tail: &mut State,
        chunks: &[StreamChunk],
    ) -> (Tensor, Vec<StreamChunk>) {
        let tail = tail.tail();
        let spans = tail.spans(chunks);
        let (wide, spans) = conv::conv_transpose1d(self.level, x, weight, bias, tail, &spans);
        let columns = wide.columns;
        let chunk = |(chunk, span): (&StreamChunk, &conv::Span)| StreamChunk { rows: span.rows, ..*chunk };
        let made: Vec<StreamChunk> = chunks.iter().zip(&spans).map(chunk).collect();
        if made.iter().map(|chunk| chunk.rows).sum::<usize>() == wide.rows {
            return (wide, made);
        }
        let rows = spans.iter().flat_map(|span| &wide.data[span.row * columns..(span.row + span.rows) * columns]);
        (Tensor::new(rows.copied().collect(), columns), made)
    }

    fn sample(
        &self,
        logits: &Tensor,
        params: &[SampleParams],
        allowed_mask: Option<&Weight>,
        output_mask: Option<&mut State>,
    ) -> Vec<u32> {
        sample::rows(self.level, &logits.data, logits.columns, params.iter().copied(), allowed_mask, output_mask)
    }
}
