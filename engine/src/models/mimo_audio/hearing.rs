//! The caller's audio as rows of patches: a recording's codes, grouped as the model's own speech is.

use std::sync::Arc;

use repartee_kernels::{Ops, ReadBack, RowSpec};

use crate::device::Device;
use crate::elements::AudioRows;
use crate::model::{Encoder, WindowInput};
use crate::models::parts::code_encoder::CodeEncoder;
use crate::models::parts::patch_encoder::PatchEncoder;

/// Encoder of recordings, with its device and buffers.
pub struct PatchHearing<O: Ops> {
    ops: O,
    codes: CodeEncoder<O>,
    patch: Arc<PatchEncoder<O>>,
    spec: RowSpec,
    back: ReadBack,
}

impl<O: Device> PatchHearing<O> {
    /// Creates an encoder on a device with buffers of its own.
    pub fn new(ops: &O, codes: CodeEncoder<O>, patch: Arc<PatchEncoder<O>>) -> Self {
        Self { ops: ops.with_own_buffers(), codes, patch, spec: RowSpec::default(), back: ReadBack::default() }
    }

    /// Rows of a window, `[frames, bins]`.
    fn rows(&mut self, mel: &[f32]) -> AudioRows {
        let Self { ops, codes, patch, spec, back } = self;
        let encoded = codes.encode(ops, mel, spec, back);
        let patches = patches(codes.quantize(ops, encoded, spec, back), patch.frames);
        let patches: Vec<&[u32]> = patches.iter().map(Vec::as_slice).collect();
        AudioRows { count: patches.len(), rows: patch.encode(ops, &patches, spec, back) }
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
        windows.iter().map(|window| self.rows(window.data)).collect()
    }

    fn end_idle_period(&mut self) -> bool {
        self.ops.shrink()
    }
}
