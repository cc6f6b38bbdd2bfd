//! Rotary position embedding in rotate-half form; a batch's angles are computed once for all of a model's layers.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::arena::{BufferPool, PooledBuffer};
use super::simd::{SimdLevel, dispatch};
use crate::batch::AttentionBatch;

/// Rows of an attention step, with cached angles of its rotary embeddings.
pub struct CpuBatch(PooledBuffer<BatchBuffers>);

/// Buffers of a batch, reused by the next one.
#[derive(Default)]
pub(super) struct BatchBuffers {
    pub(super) rows: AttentionBatch,
    angles: Mutex<CachedAngles>,
}

/// Cached angles for each list of frequencies; a model's layers share them.
#[derive(Default)]
struct CachedAngles {
    angles: Vec<Angles>,
    /// Entries that belong to this batch.
    valid: usize,
}

impl CpuBatch {
    /// Creates a batch; `fill` writes its rows.
    pub(super) fn new(pool: &BufferPool<BatchBuffers>, fill: impl FnOnce(&mut AttentionBatch)) -> Self {
        let mut parts = pool.take();
        fill(&mut parts.rows);
        parts.angles.get_mut().unwrap_or_else(PoisonError::into_inner).valid = 0;
        Self(parts)
    }

    pub(super) fn rows(&self) -> &AttentionBatch {
        &self.0.rows
    }

    fn known(&self) -> MutexGuard<'_, CachedAngles> {
        self.0.angles.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Rotates each head of each row by its position. The first call with these inverse frequencies computes the angles.
    pub(super) fn rotate(&self, level: SimdLevel, x: &mut [f32], frequencies: &[f32]) {
        let mut known = self.known();
        let CachedAngles { angles, valid } = &mut *known;
        let at = angles[..*valid].iter().position(|angles| angles.frequencies == frequencies);
        let at = at.unwrap_or_else(|| {
            let at = *valid;
            if at == angles.len() {
                angles.push(Angles::default());
            }
            angles[at].compute(&self.0.rows.positions, frequencies);
            *valid += 1;
            at
        });
        rotate(level, x, &angles[at]);
    }

    /// Number of times that angles were computed.
    pub fn computed_angles(&self) -> usize {
        self.known().valid
    }
}

impl fmt::Debug for CpuBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.rows.fmt(f)
    }
}

/// Cosine and sine of every row's angles, `[row][frequency]`.
#[derive(Debug, Default)]
struct Angles {
    frequencies: Vec<f32>,
    cos: Vec<f32>,
    sin: Vec<f32>,
}

impl Angles {
    /// Angles in single precision, as in the reference.
    fn compute(&mut self, positions: &[u32], inverse: &[f32]) {
        let Self { frequencies, cos, sin } = self;
        frequencies.clear();
        frequencies.extend_from_slice(inverse);
        let half = inverse.len();
        cos.clear();
        sin.clear();
        for (row, &position) in positions.iter().enumerate() {
            if row > 0 && positions[row - 1] == position {
                cos.extend_from_within((row - 1) * half..);
                sin.extend_from_within((row - 1) * half..);
                continue;
            }
            for frequency in &*frequencies {
                let (s, c) = (position as f32 * frequency).sin_cos();
                cos.push(c);
                sin.push(s);
            }
        }
    }
}

#[inline(always)]
fn rotate_loop<const FUSED: bool>(x: &mut [f32], angles: &Angles) {
    let half = angles.frequencies.len();
    let rows = angles.cos.len() / half;
    let width = x.len() / rows.max(1);
    let turns = angles.cos.chunks_exact(half).zip(angles.sin.chunks_exact(half));
    for (row, (cos, sin)) in x.chunks_exact_mut(width.max(1)).zip(turns) {
        for head in row.chunks_exact_mut(2 * half) {
            let (low, high) = head.split_at_mut(half);
            for (((a, b), &cos), &sin) in low.iter_mut().zip(high).zip(cos).zip(sin) {
                // Never fused: the same bits at every level.
                (*a, *b) = (*a * cos - *b * sin, *b * cos + *a * sin);
            }
        }
    }
}

dispatch!(/// Rotates each head of each row by its angles.
    fn rotate = rotate_loop(x: &mut [f32], angles: &Angles));
