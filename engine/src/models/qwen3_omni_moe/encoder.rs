//! The audio tower as the engine's encoder.

use repartee_kernels::{ReadBack, RowSpec, StepOps};

use super::audio_tower::{AudioTower, Window, tokens};
use crate::device::Device;
use crate::elements::AudioRows;
use crate::model::{Encoder, WindowInput};

/// The audio tower with its device, buffers and number of mel bins.
pub struct AudioEncoder<O: StepOps> {
    ops: O,
    tower: AudioTower<O>,
    bins: usize,
    spec: RowSpec,
    back: ReadBack,
}

impl<O: StepOps> AudioEncoder<O> {
    /// Creates the encoder over `bins` mel bins.
    pub fn new(ops: O, tower: AudioTower<O>, bins: usize) -> Self {
        Self { ops, tower, bins, spec: RowSpec::default(), back: ReadBack::default() }
    }
}

impl<O: Device> Encoder for AudioEncoder<O> {
    fn encode(&mut self, windows: &[WindowInput<'_>]) -> Vec<AudioRows> {
        // Every window but a turn's last holds at least one full chunk.
        let inputs: Vec<_> = windows.iter().map(|w| Window { mel: w.data, follows_full_chunk: w.index > 0 }).collect();
        let rows = self.tower.encode(&self.ops, &inputs, &mut self.spec, &mut self.back);
        let counts = inputs.iter().map(|input| tokens(input.mel.len() / self.bins));
        rows.into_iter().zip(counts).map(|(rows, count)| AudioRows { rows, count }).collect()
    }
}
