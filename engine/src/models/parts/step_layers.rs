//! Layers of a step, between which other work can run.
//!
//! On the CPU an evaluation of a large transformer takes hundreds of milliseconds, which others would wait for. So it is cut into
//! units of whole layers. A row depends on its own inputs alone, so the numbers equal those of the whole step bit for bit.

use repartee_kernels::Ops;

use super::audio_encoder::pieces::UNIT;

/// Most multiplications of a unit on a device: all on one that captures steps, which is fast and gains nothing from smaller ones.
pub fn unit_of<O: Ops>(ops: &O) -> usize {
    if ops.eager_steps().is_some() { usize::MAX } else { UNIT }
}

/// Layers of a step, each of which takes the rows of the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepLayers {
    /// Number of layers.
    pub count: usize,
    /// Numbers of a row between two layers.
    pub width: usize,
    /// Multiplications of a row in a layer.
    pub row_work: usize,
    /// Most multiplications of a unit, unless one layer has more.
    pub most: usize,
}

impl StepLayers {
    /// Layers of a unit over `rows` rows, at least one.
    pub fn in_unit(&self, rows: usize) -> usize {
        (self.most / rows.saturating_mul(self.row_work).max(1)).clamp(1, self.count.max(1))
    }

    /// Bytes of the numbers between two units of a step over `rows` rows; 0 if it is one unit.
    pub fn unfinished_bytes(&self, rows: usize) -> usize {
        if self.units(rows) == 1 { 0 } else { rows * self.width * size_of::<f32>() }
    }

    /// Units of a step over `rows` rows.
    pub fn units(&self, rows: usize) -> usize {
        self.count.div_ceil(self.in_unit(rows)).max(1)
    }
}
