//! [`Ops`] on the processor, in single precision.
//!
//! - [`gemm`]: the matrix product of linear layers and convolutions; `panels`: its weights; `product`, `work_split`: products on several threads
//! - [`quantised`]: weights of eight-bit and four-bit integers; [`groups`]: activations likewise; [`integer`]: their product
//! - [`attention`] and `kv_cache`, [`conv`], [`experts`], [`math`], [`rotary`], [`sample`], `segment_snake`: one operation family each
//! - `step`: the operations that read a row spec; `arena`: reused buffers; `table`: embedding tables
//! - [`work`]: bytes and multiply-adds of products; [`hardware_peaks`]: peaks of the hardware
//! - [`simd`]: vector instructions of the processor; [`pool`]: the thread pool
//!
//! Arithmetic is in single precision. Weights are widened to it, exactly for every checkpoint format: matrices, tables and convolutions of
//! bfloat16 on use, all others at load. Products of integer matrices are summed in integers.
//!
//! A device may have a thread pool. Large products, convolutions, norms and activations are then split over it, and each number is computed
//! in the same order as on one thread.

mod arena;
pub mod attention;
pub mod conv;
pub mod experts;
pub mod gemm;
pub mod groups;
pub mod hardware_peaks;
pub mod integer;
mod kv_cache;
pub mod math;
mod panels;
pub mod pool;
mod product;
pub mod quantised;
pub mod rotary;
pub mod sample;
mod segment_snake;
pub mod simd;
mod step;
mod table;
mod tensor;
mod weight;
pub mod work;
mod work_split;

pub use kv_cache::KvFormat;
pub use step::CpuIndex;
pub use table::Table;
pub use tensor::{CpuState, Tensor};
pub use weight::Weight;
pub use work::ProductWork;

use std::sync::{Arc, Mutex, PoisonError};

use crate::ops::{
    AttentionShape, KernelError, NO_ID, Ops, RawTensor, RouterShape, SampleParams, SequenceRows, StateSpec,
    WeightFormat, WeightLayout,
};
use crate::part::WeightPart;
use crate::step_ops::{ReadBack, StepOutputs};
use arena::{Arena, BufferPool, WordListPool};
use gemm::StridedRows;
use groups::QuantisedGroup;
use pool::Pool;
use simd::SimdLevel;
use work::Counters;

/// The processor as a device.
///
/// Clones share their buffers. A stage that runs concurrently has a device of its own, so that its tensors stay at the same addresses.
#[derive(Debug, Clone)]
pub struct Cpu {
    level: SimdLevel,
    /// Thread pool; `None` with one thread.
    pool: Option<Arc<Pool>>,
    kv: KvFormat,
    arena: Arena,
    batches: BufferPool<rotary::BatchBuffers>,
    words: WordListPool,
    scratch: BufferPool<Scratch>,
    groups: BufferPool<Vec<QuantisedGroup>>,
    outputs: BufferPool<StepOutputs<Self>>,
    read_back: BufferPool<ReadBack>,
    /// Product counters; `None` by default, because shared counters slow the threads down.
    counters: Option<Arc<Counters>>,
}

impl Default for Cpu {
    fn default() -> Self {
        Self::with_level(SimdLevel::detect())
    }
}

impl Cpu {
    /// Creates a device with the vector instructions of `level`; the default has the best of the machine.
    pub fn with_level(level: SimdLevel) -> Self {
        let (arena, batches) = (Arena::default(), BufferPool::default());
        let (words, scratch, groups) = (WordListPool::default(), BufferPool::default(), BufferPool::default());
        let (outputs, read_back) = (BufferPool::default(), BufferPool::default());
        Self {
            level,
            pool: None,
            kv: KvFormat::default(),
            arena,
            batches,
            words,
            scratch,
            groups,
            outputs,
            read_back,
            counters: None,
        }
    }

    /// Splits large operations over `pool`; `None` for one thread.
    #[must_use]
    pub fn on(self, pool: Option<Arc<Pool>>) -> Self {
        Self { pool, ..self }
    }

    /// Stores keys and values in `format`; the default has single precision.
    #[must_use]
    pub fn with_kv(self, kv: KvFormat) -> Self {
        Self { kv, ..self }
    }

    /// Vector instructions in use.
    pub fn level(&self) -> SimdLevel {
        self.level
    }

    /// Counts the products of this device.
    #[must_use]
    pub fn counting(self) -> Self {
        Self { counters: Some(Arc::default()), ..self }
    }

    /// Returns the work so far of this device and its clones, on all threads; zero without [`Cpu::counting`].
    pub fn work(&self) -> ProductWork {
        self.counters.as_ref().map(|counters| counters.read()).unwrap_or_default()
    }

    /// Counts a product of `rows` rows.
    fn count(&self, rows: usize, weight: &gemm::PackedWeight) {
        if let Some(counters) = &self.counters {
            counters.count(rows, weight);
        }
    }

    /// Computes a product, split over the pool if that pays.
    fn multiply(&self, x: StridedRows<'_>, weight: &gemm::PackedWeight, bias: Option<&[f32]>, out: &mut [f32]) {
        self.count(x.count, weight);
        let groups = &mut self.groups.take();
        gemm::multiply_on(self.pool.as_deref(), self.level, x, weight, bias, groups, out);
    }

    /// Calls `compute` with consecutive parts of `numbers`, in whole rows, and the index of each part's first row; split over the pool if
    /// that pays. A part of `least` numbers takes a few microseconds.
    fn split(&self, numbers: &mut [f32], width: usize, least: usize, compute: impl Fn(usize, &mut [f32]) + Sync) {
        let rows = numbers.len() / width.max(1);
        let most = self.pool.as_ref().map_or(1, |pool| 2 * pool.threads()).min(numbers.len() / least.max(1));
        match &self.pool {
            Some(pool) if most > 1 => {
                let rows_each = rows.div_ceil(most);
                let parts = Mutex::new(numbers.chunks_mut(rows_each * width).enumerate());
                pool.run(rows.div_ceil(rows_each), |_| {
                    let next = parts.lock().unwrap_or_else(PoisonError::into_inner).next();
                    if let Some((part, numbers)) = next {
                        compute(part * rows_each, numbers);
                    }
                });
            }
            _ => compute(0, numbers),
        }
    }

    /// Applies a norm to groups of `width` numbers, split over the pool if that pays. `norm` gets some whole groups and their outputs.
    fn norm(&self, x: &Tensor, width: usize, norm: impl Fn(&[f32], &mut [f32]) + Sync) -> Tensor {
        let mut data = self.arena.uninitialised(x.data.len());
        self.split(&mut data, width, LEAST_NORM, |first, to| norm(&x.data[first * width..][..to.len()], to));
        Tensor { data, ..*x }
    }
}

/// Writes the frequencies and magnitudes of a snake's weights to `parameters`.
fn snake_parameters<'a>(parameters: &'a mut Vec<f32>, alpha: &Weight, beta: &Weight) -> (&'a [f32], &'a [f32]) {
    parameters.clear();
    parameters.extend(alpha.vector().iter().map(|a| a.exp()));
    parameters.extend(beta.vector().iter().map(|b| 1.0 / (b.exp() + 1e-9)));
    parameters.split_at(alpha.vector().len())
}

/// Least numbers of an activation for which a part pays.
const LEAST_ACTIVATION: usize = 1 << 13;
/// Least numbers of a norm for which a part pays: it does little more than read and write them.
const LEAST_NORM: usize = 1 << 15;

/// Working memory of operations, kept between calls.
#[derive(Default)]
struct Scratch {
    /// One for each part of a region.
    attention: Vec<attention::Scratch>,
    experts: experts::Scratch,
    sample: sample::Scratch,
    /// Tail and new rows of a convolution.
    joined: Vec<f32>,
    /// Parameters of an activation.
    parameters: Vec<f32>,
}

impl Ops for Cpu {
    type T = Tensor;
    type Ids = Vec<u32>;
    type Weight = Weight;
    type State = CpuState;
    type Batch = rotary::CpuBatch;

    fn weight(&self, layout: WeightLayout, parts: &[RawTensor<'_>]) -> Result<Weight, KernelError> {
        self.weight_in_format(layout, WeightFormat::Float, parts)
    }

    fn weight_in_format(
        &self,
        layout: WeightLayout,
        format: WeightFormat,
        parts: &[RawTensor<'_>],
    ) -> Result<Weight, KernelError> {
        let parts: Vec<_> = parts.iter().copied().map(WeightPart::Stored).collect();
        self.weight_from_parts(layout, format, &parts)
    }

    fn weight_from_parts(
        &self,
        layout: WeightLayout,
        format: WeightFormat,
        parts: &[WeightPart<'_>],
    ) -> Result<Weight, KernelError> {
        Weight::new(self.pool.as_deref(), layout, format, parts)
    }

    fn with_own_buffers(&self) -> Self {
        let fresh = Self::with_level(self.level).on(self.pool.clone()).with_kv(self.kv);
        Self { counters: self.counters.clone(), ..fresh }
    }

    fn state(&self, spec: StateSpec) -> CpuState {
        // The system does not touch zeroed allocations of this size: memory is committed on first use.
        match spec {
            StateSpec::KeyValue { blocks, block_len, width } => {
                CpuState::KeyValue(kv_cache::KvCache::new(self.kv, blocks, block_len, width))
            }
            StateSpec::Tail { slots, rows, columns } => CpuState::Tail(conv::ConvState::new(slots, rows, columns)),
            StateSpec::Rows { rows, columns } => CpuState::Rows { columns, data: vec![0.0; rows * columns] },
            StateSpec::TokenMask { slots, vocabulary } => {
                CpuState::TokenMask { vocabulary, flags: vec![false; slots * vocabulary] }
            }
        }
    }

    fn reset(&self, state: &mut CpuState, slot: usize) {
        state.reset(slot);
    }

    fn copy_block(&self, state: &mut CpuState, from: u32, to: u32) {
        state.cache().copy_block(from as usize, to as usize);
    }

    fn batch(&self, sequences: &[SequenceRows<'_>]) -> rotary::CpuBatch {
        rotary::CpuBatch::new(&self.batches, |batch| {
            batch.clear();
            sequences.iter().for_each(|&sequence| batch.push(sequence));
        })
    }

    fn tensor(&self, values: Vec<f32>, columns: usize) -> Tensor {
        Tensor::new(values.into(), columns)
    }

    fn ids(&self, ids: &[u32]) -> Vec<u32> {
        ids.to_vec()
    }

    fn read(&self, x: &Tensor) -> Vec<f32> {
        x.data.to_vec()
    }

    fn read_ids(&self, ids: &Vec<u32>) -> Vec<u32> {
        ids.clone()
    }

    fn rows(&self, x: &Tensor) -> usize {
        x.rows
    }

    fn kv_number_bytes(&self) -> usize {
        self.kv.size()
    }

    fn address(&self, x: &Tensor) -> usize {
        x.data.as_ptr().addr()
    }

    fn copy(&self, x: &Tensor) -> Tensor {
        x.clone()
    }

    fn gather(&self, x: &Tensor, at: &[usize]) -> Tensor {
        let mut data = self.arena.uninitialised(at.len() * x.columns);
        for (to, &row) in data.chunks_exact_mut(x.columns).zip(at) {
            to.copy_from_slice(&x.data[row * x.columns..(row + 1) * x.columns]);
        }
        Tensor { rows: at.len(), columns: x.columns, data }
    }

    fn concat(&self, parts: &[&Tensor]) -> Tensor {
        let columns = parts.first().map_or(0, |p| p.columns);
        let mut data = self.arena.uninitialised(parts.iter().map(|p| p.data.len()).sum());
        let mut rest = &mut data[..];
        for part in parts {
            let (to, after) = rest.split_at_mut(part.data.len());
            to.copy_from_slice(&part.data);
            rest = after;
        }
        Tensor::new(data, columns)
    }

    fn embed(&self, table: &Weight, ids: &Vec<u32>) -> Tensor {
        let table = table.table();
        let width = table.width;
        let mut data = self.arena.zeros(ids.len() * width);
        for (row, &id) in data.chunks_exact_mut(width).zip(ids) {
            if id != NO_ID {
                table.look_up(id as usize, row);
            }
        }
        Tensor { rows: ids.len(), columns: width, data }
    }

    fn linear(&self, x: &Tensor, weight: &Weight, bias: Option<&Weight>) -> Tensor {
        let weight = weight.packed();
        let mut data = self.arena.uninitialised(x.rows * weight.columns);
        let rows = StridedRows::dense(&x.data, weight.k);
        self.multiply(rows, weight, bias.map(Weight::vector), &mut data);
        Tensor { rows: x.rows, columns: weight.columns, data }
    }

    fn narrow(&self, x: &Tensor, start: usize, length: usize) -> Tensor {
        let mut data = self.arena.uninitialised(x.rows * length);
        for (to, row) in data.chunks_exact_mut(length).zip(x.data.chunks_exact(x.columns)) {
            to.copy_from_slice(&row[start..start + length]);
        }
        Tensor { rows: x.rows, columns: length, data }
    }

    fn add(&self, mut x: Tensor, y: &Tensor) -> Tensor {
        assert_eq!((x.rows, x.columns), (y.rows, y.columns), "shapes differ");
        for (a, b) in x.data.iter_mut().zip(&*y.data) {
            *a += b;
        }
        x
    }

    fn mul(&self, mut x: Tensor, y: &Tensor) -> Tensor {
        assert_eq!((x.rows, x.columns), (y.rows, y.columns), "shapes differ");
        for (a, b) in x.data.iter_mut().zip(&*y.data) {
            *a *= b;
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
        for a in &mut *x.data {
            *a *= by;
        }
        x
    }

    fn rms_norm(&self, x: &Tensor, weight: &Weight, eps: f32) -> Tensor {
        let weight = weight.vector();
        self.norm(x, weight.len(), |from, to| math::rms_norm(self.level, from, weight, eps, to))
    }

    fn layer_norm(&self, x: &Tensor, weight: &Weight, bias: &Weight, eps: f32) -> Tensor {
        let (weight, bias) = (weight.vector(), bias.vector());
        self.norm(x, weight.len(), |from, to| math::layer_norm(self.level, from, weight, bias, eps, to))
    }

    fn silu(&self, mut x: Tensor) -> Tensor {
        self.split(&mut x.data, x.columns, LEAST_ACTIVATION, |_, part| math::silu(self.level, part));
        x
    }

    fn silu_mul(&self, x: &Tensor) -> Tensor {
        let columns = x.columns / 2;
        let mut data = self.arena.uninitialised(x.rows * columns);
        self.split(&mut data, columns, LEAST_ACTIVATION, |first, part| {
            let from = &x.data[2 * first * columns..][..2 * part.len()];
            math::silu_mul(self.level, from, part, columns);
        });
        Tensor { rows: x.rows, columns, data }
    }

    fn gelu(&self, mut x: Tensor) -> Tensor {
        self.split(&mut x.data, x.columns, LEAST_ACTIVATION, |_, part| math::gelu(self.level, part));
        x
    }

    fn gelu_tanh(&self, mut x: Tensor) -> Tensor {
        self.split(&mut x.data, x.columns, LEAST_ACTIVATION, |_, part| math::gelu_tanh(self.level, part));
        x
    }

    fn snake(&self, mut x: Tensor, alpha: &Weight, beta: &Weight) -> Tensor {
        let parameters = &mut self.scratch.take().parameters;
        let (frequency, magnitude) = snake_parameters(parameters, alpha, beta);
        let snake = |_, part: &mut [f32]| math::snake(self.level, part, frequency, magnitude);
        self.split(&mut x.data, x.columns, LEAST_ACTIVATION, snake);
        x
    }

    fn clamp(&self, mut x: Tensor, low: f32, high: f32) -> Tensor {
        for a in &mut *x.data {
            *a = a.clamp(low, high);
        }
        x
    }

    fn sigmoid_gate(&self, mut y: Tensor, gate: &Tensor) -> Tensor {
        math::sigmoid_gate(self.level, &mut y.data, &gate.data);
        y
    }

    fn rotary(&self, mut x: Tensor, batch: &rotary::CpuBatch, head_dim: usize, theta: f32) -> Tensor {
        batch.rotate(self.level, &mut x.data, head_dim, theta);
        x
    }

    fn attention(
        &self,
        q: &Tensor,
        k: &Tensor,
        v: &Tensor,
        cache: &mut CpuState,
        batch: &rotary::CpuBatch,
        shape: AttentionShape,
    ) -> Tensor {
        let cache = cache.cache();
        cache.store(&k.data, &v.data, batch.rows());
        let mut data = self.arena.zeros(q.data.len());
        let scratch = &mut self.scratch.take().attention;
        let (pool, batch) = (self.pool.as_deref(), batch.rows());
        attention::cached(pool, self.level, &q.data, cache, batch, shape, scratch, &mut data);
        Tensor { data, ..*q }
    }

    fn experts(&self, x: &Tensor, router: &Weight, gate_up: &Weight, down: &Weight, spec: RouterShape) -> Tensor {
        let down = down.experts();
        let data = experts::mixture(self, &x.data, router.packed(), gate_up.experts(), down, spec);
        Tensor { rows: x.rows, columns: down[0].columns, data }
    }

    fn conv2d(&self, x: &Tensor, images: usize, height: usize, width: usize, weight: &Weight, bias: &Weight) -> Tensor {
        let Weight::Conv2d { packed, stride } = weight else {
            panic!("not a convolution over two axes: {}", weight.kind())
        };
        let bias = bias.vector();
        let data = conv::conv2d(self, &x.data, (images, height, width), x.columns, packed, *stride, bias);
        Tensor::new(data, packed.columns)
    }

    fn reshape(&self, x: Tensor, columns: usize) -> Tensor {
        Tensor::new(x.data, columns)
    }

    fn sample(
        &self,
        logits: &Tensor,
        params: &[SampleParams],
        allowed_mask: Option<&Weight>,
        output_mask: Option<&mut CpuState>,
    ) -> Vec<u32> {
        let mut ids = Vec::with_capacity(params.len());
        sample::rows(self, logits, params.iter().copied(), allowed_mask, output_mask, &mut ids);
        ids
    }
}
