//! The caller's audio as rows: those of the audio tower, 25 a second, of which each group becomes their mean. The rows that
//! a recording's last group lacks count as zeros.

use repartee_kernels::{Ops, ReadBack, RowSpec};

use crate::device::Device;
use crate::elements::AudioRows;
use crate::model::{Encoder, EncodingProgress, WindowInput};
use crate::models::load_error::LoadError;
use crate::models::parts::audio_encoder::shape::EncoderShape;
use crate::models::parts::audio_encoder::tower::AudioTower;
use crate::models::parts::rows::{HostRows, in_step};
use crate::models::parts::weights::Weights;

/// Weights of `continuous_audio_tower`, and the matrix after the mean.
pub struct GroupTower<O: Ops> {
    /// The audio tower.
    pub tower: AudioTower<O>,
    matching: O::Weight,
    group: usize,
}

impl<O: Ops> GroupTower<O> {
    /// Loads the tower; `w` has no prefix.
    pub fn load(w: &Weights<'_, O>, shape: EncoderShape, group: usize) -> Result<Self, LoadError> {
        let width = shape.output_width();
        let matching = w.at("audio_tower").linear("continual_output_matching.weight", width, width)?;
        Ok(Self { tower: AudioTower::load(&w.at("continuous_audio_tower"), shape)?, matching, group })
    }

    /// Rows of the language model for rows of the tower, from a group's first one on.
    pub fn grouped(&self, ops: &O, rows: &[f32], (spec, back): (&mut RowSpec, &mut ReadBack)) -> AudioRows {
        let (width, mut means) = (self.tower.shape().output_width(), Vec::new());
        for group in rows.chunks(self.group * width) {
            let column = |at: usize| group[at..].iter().step_by(width).sum::<f32>() / self.group as f32;
            means.extend((0..width).map(column));
        }
        let means = HostRows { width, data: means };
        let rows = in_step(ops, &means, ("groups", 0), (spec, back), |ops, x| ops.linear(&x, &self.matching, None));
        AudioRows { count: rows.count(), rows: rows.data }
    }
}

/// The tower with its device and buffers.
pub struct GroupHearing<O: Ops> {
    ops: O,
    tower: GroupTower<O>,
    spec: RowSpec,
    back: ReadBack,
}

impl<O: Device> GroupHearing<O> {
    /// Creates an encoder on a device with buffers of its own.
    pub fn new(ops: &O, tower: GroupTower<O>) -> Self {
        Self { ops: ops.with_own_buffers(), tower, spec: RowSpec::default(), back: ReadBack::default() }
    }
}

impl<O: Device> Encoder for GroupHearing<O> {
    fn encode(&mut self, windows: &[WindowInput<'_>]) -> Vec<AudioRows> {
        let Self { ops, tower, spec, back } = self;
        let rows = tower.tower.encode(ops, windows, spec, back);
        rows.iter().map(|rows| tower.grouped(ops, rows, (spec, back))).collect()
    }

    fn units(&self, window: &WindowInput<'_>) -> usize {
        self.tower.tower.units(window.data.len() / self.tower.tower.shape().bins)
    }

    fn advance(
        &mut self,
        window: &WindowInput<'_>,
        progress: &mut EncodingProgress,
        units: usize,
    ) -> Option<AudioRows> {
        let Self { ops, tower, spec, back } = self;
        let rows = tower.tower.advance(ops, window, progress, units, (spec, back))?;
        Some(tower.grouped(ops, &rows, (spec, back)))
    }

    fn unfinished_bytes(&self) -> usize {
        self.tower.tower.unfinished_bytes()
    }

    fn end_idle_period(&mut self) -> bool {
        self.ops.shrink()
    }
}
