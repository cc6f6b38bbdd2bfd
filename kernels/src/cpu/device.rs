//! The processor as a device: its settings, buffers and threads, and what operations share.

use std::sync::{Arc, Mutex, PoisonError};

use super::arena::{Arena, BufferPool, WordListPool};
use super::gemm::{self, PackedWeight, StridedRows};
use super::groups::QuantisedGroup;
use super::kv_cache::KvFormat;
use super::pool::Pool;
use super::rotary::BatchBuffers;
use super::scratch::Scratch;
use super::shared_weights::SharedWeights;
use super::simd::SimdLevel;
use super::tensor::Tensor;
use super::work::{Counters, ProductWork};
use crate::ops::StepOutputs;
use crate::step::ReadBack;

/// The processor as a device.
///
/// Clones share their buffers. A stage that runs concurrently has a device of its own, so that its tensors stay at the same addresses.
#[derive(Debug, Clone)]
pub struct Cpu {
    pub(super) level: SimdLevel,
    /// Thread pool; `None` with one thread.
    pub(super) pool: Option<Arc<Pool>>,
    pub(super) kv: KvFormat,
    pub(super) arena: Arena,
    pub(super) batches: BufferPool<BatchBuffers>,
    pub(super) words: WordListPool,
    pub(super) scratch: BufferPool<Scratch>,
    pub(super) groups: BufferPool<Vec<QuantisedGroup>>,
    pub(super) outputs: BufferPool<StepOutputs<Self>>,
    pub(super) read_back: BufferPool<ReadBack>,
    /// Product counters; `None` by default, because shared counters slow the threads down.
    pub(super) counters: Option<Arc<Counters>>,
    /// Weights of several models; `None` for one model.
    pub(super) shared: Option<SharedWeights>,
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
            shared: None,
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

    /// Keeps weights that are equal to those of other models in the memory of these.
    #[must_use]
    pub fn sharing(self, weights: SharedWeights) -> Self {
        Self { shared: Some(weights), ..self }
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
    pub(super) fn count(&self, rows: usize, weight: &PackedWeight) {
        if let Some(counters) = &self.counters {
            counters.count(rows, weight);
        }
    }

    /// Computes a product, split over the pool if that pays.
    pub(super) fn multiply(&self, x: StridedRows<'_>, weight: &PackedWeight, bias: Option<&[f32]>, out: &mut [f32]) {
        self.count(x.count, weight);
        let groups = &mut self.groups.take();
        gemm::multiply_on(self.pool.as_deref(), self.level, x, weight, bias, groups, out);
    }

    /// Calls `compute` with consecutive parts of `numbers`, in whole rows, and the index of each part's first row; split over the pool if
    /// that pays. A part of `least` numbers takes a few microseconds.
    pub(super) fn split(
        &self,
        numbers: &mut [f32],
        width: usize,
        least: usize,
        compute: impl Fn(usize, &mut [f32]) + Sync,
    ) {
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

    /// Computes one number of each pair in the two halves of the columns, split over the pool if that pays. `compute` gets some whole rows,
    /// their outputs, and the width of these.
    pub(super) fn halves(&self, x: &Tensor, compute: impl Fn(&[f32], &mut [f32], usize) + Sync) -> Tensor {
        let columns = x.columns / 2;
        let mut data = self.arena.uninitialised(x.rows * columns);
        self.split(&mut data, columns, LEAST_ACTIVATION, |first, part| {
            compute(&x.data[2 * first * columns..][..2 * part.len()], part, columns);
        });
        Tensor { rows: x.rows, columns, data }
    }

    /// Applies a norm to groups of `width` numbers, split over the pool if that pays. `norm` gets some whole groups and their outputs.
    pub(super) fn norm(&self, x: &Tensor, width: usize, norm: impl Fn(&[f32], &mut [f32]) + Sync) -> Tensor {
        let mut data = self.arena.uninitialised(x.data.len());
        self.split(&mut data, width, LEAST_NORM, |first, to| norm(&x.data[first * width..][..to.len()], to));
        Tensor { data, ..*x }
    }
}

/// Least numbers of an activation for which a part pays.
pub(super) const LEAST_ACTIVATION: usize = 1 << 13;
/// Least numbers of a norm for which a part pays: it does little more than read and write them.
pub(super) const LEAST_NORM: usize = 1 << 15;
