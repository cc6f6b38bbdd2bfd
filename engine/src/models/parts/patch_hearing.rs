//! The caller's audio as rows of patches: a recording's codes, grouped as the model's own speech is. A long window is encoded
//! in units of bounded work: those of the encoder, then some patches at a time, each of which is independent of the others.

use std::ops::Range;
use std::sync::Arc;

use repartee_kernels::{Ops, ReadBack, RowSpec};

use crate::device::Device;
use crate::elements::AudioRows;
use crate::model::{Encoder, EncodingProgress, WindowInput};
use crate::models::parts::audio_encoder::pieces::ranges;
use crate::models::parts::code_encoder::{CodeEncoder, JOINED};
use crate::models::parts::patch_encoder::PatchEncoder;

/// Encoder of recordings, with its device and buffers.
pub struct PatchHearing<O: Ops> {
    ops: O,
    codes: CodeEncoder<O>,
    patch: Arc<PatchEncoder<O>>,
    /// Multiplications of the patch encoder for a patch.
    patch_work: usize,
    /// Numbers of a row.
    output: usize,
    spec: RowSpec,
    back: ReadBack,
}

impl<O: Device> PatchHearing<O> {
    /// Creates an encoder on a device with buffers of its own. The patch encoder takes `patch_work` multiplications for a
    /// patch, and makes rows of `output` numbers.
    pub fn new(
        ops: &O,
        codes: CodeEncoder<O>,
        patch: Arc<PatchEncoder<O>>,
        (patch_work, output): (usize, usize),
    ) -> Self {
        let (ops, spec, back) = (ops.with_own_buffers(), RowSpec::default(), ReadBack::default());
        Self { ops, codes, patch, patch_work, output, spec, back }
    }

    /// Rows of a window, `[frames, bins]`.
    fn rows(&mut self, mel: &[f32]) -> Vec<f32> {
        let Self { ops, codes, spec, back, .. } = self;
        let encoded = codes.tower().encode(ops, &[WindowInput { data: mel, index: 0 }], spec, back);
        self.patch_rows(encoded.concat())
    }

    /// Rows of the patches of the tower's rows, from a patch's first one on.
    fn patch_rows(&mut self, encoded: Vec<f32>) -> Vec<f32> {
        let Self { ops, codes, patch, spec, back, .. } = self;
        let joined = codes.join(ops, encoded, spec, back);
        let patches = patches(codes.quantize(ops, joined, spec, back), patch.frames);
        let patches: Vec<&[u32]> = patches.iter().map(Vec::as_slice).collect();
        patch.encode(ops, &patches, spec, back)
    }

    fn heard(&self, rows: Vec<f32>) -> AudioRows {
        AudioRows { count: rows.len() / self.output, rows }
    }

    /// Mel frames of a window.
    fn frames(&self, window: &WindowInput<'_>) -> usize {
        window.data.len() / self.codes.tower().shape().bins
    }

    /// Patches of each unit after the tower's.
    fn ranges(&self, frames: usize) -> impl ExactSizeIterator<Item = Range<usize>> + use<O> {
        let patches = self.codes.tower().shape().tokens(frames).div_ceil(JOINED * self.patch.frames);
        let each = self.patch.frames * self.codes.frame_work() + self.patch_work;
        ranges(patches, patches * each, self.codes.tower().unit())
    }
}

/// Groups the codes of frames. The last frame is repeated until it fills its patch, as in the reference.
pub fn patches(mut frames: Vec<Vec<u32>>, group: usize) -> Vec<Vec<u32>> {
    if let Some(last) = frames.last().cloned() {
        frames.resize(frames.len().next_multiple_of(group), last);
    }
    frames.chunks(group).map(|patch| patch.concat()).collect()
}

impl<O: Device> Encoder for PatchHearing<O> {
    fn encode(&mut self, windows: &[WindowInput<'_>]) -> Vec<AudioRows> {
        let encode = |window: &WindowInput<'_>| {
            let rows = self.rows(window.data);
            self.heard(rows)
        };
        windows.iter().map(encode).collect()
    }

    fn units(&self, window: &WindowInput<'_>) -> usize {
        let frames = self.frames(window);
        match self.codes.tower().units(frames) + self.ranges(frames).len() {
            // One of each.
            2 => 1,
            units => units,
        }
    }

    fn advance(
        &mut self,
        window: &WindowInput<'_>,
        progress: &mut EncodingProgress,
        units: usize,
    ) -> Option<AudioRows> {
        let frames = self.frames(window);
        if self.units(window) == 1 {
            progress.units += 1;
            let rows = self.rows(window.data);
            return Some(self.heard(rows));
        }
        let (of_tower, mut left) = (self.codes.tower().units(frames), units);
        if progress.units < of_tower {
            let next = left.min(of_tower - progress.units);
            let Self { ops, codes, spec, back, .. } = self;
            let input = WindowInput { data: window.data, index: 0 };
            if let Some(rows) = codes.tower().advance(ops, &input, progress, next, (spec, back)) {
                progress.rows = rows;
            }
            left -= next;
        }
        let all = self.ranges(frames);
        let (count, per_patch) = (all.len(), JOINED * self.patch.frames * self.codes.tower().shape().output_width());
        for range in all.skip(progress.units.saturating_sub(of_tower)).take(left) {
            let to = (range.end * per_patch).min(progress.rows.len());
            let rows = self.patch_rows(progress.rows[range.start * per_patch..to].to_vec());
            progress.attended.extend(rows);
            progress.units += 1;
        }
        (progress.units == of_tower + count).then(|| self.heard(std::mem::take(&mut progress.attended)))
    }

    fn unfinished_bytes(&self) -> usize {
        let tower = self.codes.tower();
        let rows = tower.shape().tokens(tower.shape().window);
        let patches = rows.div_ceil(JOINED * self.patch.frames);
        tower.unfinished_bytes() + (rows * tower.shape().output_width() + patches * self.output) * size_of::<f32>()
    }

    fn end_idle_period(&mut self) -> bool {
        self.ops.shrink()
    }
}
