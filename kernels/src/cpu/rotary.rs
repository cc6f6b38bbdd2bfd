//! Rotary position embedding, rotate-half form: the angles of a batch are computed once for all of a model's layers.

use std::sync::{Arc, Mutex, PoisonError};

use super::simd::dispatch;
use crate::ops::AttentionBatch;

/// The rows of an attention step, and the angles of its rotary embeddings once a layer has asked for them.
#[derive(Debug)]
pub struct Batch {
    pub(super) rows: AttentionBatch,
    /// One entry for each pair of head width and base: a model's layers share them.
    angles: Mutex<Vec<Arc<Angles>>>,
}

impl From<AttentionBatch> for Batch {
    fn from(rows: AttentionBatch) -> Self {
        Self { rows, angles: Mutex::default() }
    }
}

impl Batch {
    /// The angles of every row, computed at the first call with these sizes.
    pub(super) fn angles(&self, head_dim: usize, theta: f32) -> Arc<Angles> {
        let mut known = self.angles.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(angles) = known.iter().find(|angles| angles.head_dim == head_dim && angles.theta == theta) {
            return Arc::clone(angles);
        }
        let angles = Arc::new(Angles::new(&self.rows.positions, head_dim, theta));
        known.push(Arc::clone(&angles));
        angles
    }

    /// How often angles were computed.
    pub fn computed_angles(&self) -> usize {
        self.angles.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

/// Cosine and sine of every row's angles, `[row][head_dim / 2]`.
#[derive(Debug)]
pub(super) struct Angles {
    head_dim: usize,
    theta: f32,
    cos: Vec<f32>,
    sin: Vec<f32>,
}

impl Angles {
    fn new(positions: &[u32], head_dim: usize, theta: f32) -> Self {
        let half = head_dim / 2;
        // As the reference: inverse frequencies and angles in single precision.
        let frequencies: Vec<f32> = (0..half).map(|i| 1.0 / theta.powf((2 * i) as f32 / head_dim as f32)).collect();
        let (mut cos, mut sin) =
            (Vec::with_capacity(positions.len() * half), Vec::with_capacity(positions.len() * half));
        for (row, &position) in positions.iter().enumerate() {
            if row > 0 && positions[row - 1] == position {
                cos.extend_from_within((row - 1) * half..);
                sin.extend_from_within((row - 1) * half..);
                continue;
            }
            for frequency in &frequencies {
                let (s, c) = (position as f32 * frequency).sin_cos();
                cos.push(c);
                sin.push(s);
            }
        }
        Self { head_dim, theta, cos, sin }
    }
}

#[inline(always)]
fn rotate_loop<const FUSED: bool>(x: &mut [f32], angles: &Angles) {
    let half = angles.head_dim / 2;
    let rows = angles.cos.len() / half;
    let width = x.len() / rows.max(1);
    let turns = angles.cos.chunks_exact(half).zip(angles.sin.chunks_exact(half));
    for (row, (cos, sin)) in x.chunks_exact_mut(width.max(1)).zip(turns) {
        for head in row.chunks_exact_mut(angles.head_dim) {
            let (low, high) = head.split_at_mut(half);
            for (((a, b), &cos), &sin) in low.iter_mut().zip(high).zip(cos).zip(sin) {
                // Never fused: the same bits at every level.
                (*a, *b) = (*a * cos - *b * sin, *b * cos + *a * sin);
            }
        }
    }
}

dispatch!(/// Rotates each head of each row by its angles.
    pub(super) fn rotate = rotate_loop(x: &mut [f32], angles: &Angles));
