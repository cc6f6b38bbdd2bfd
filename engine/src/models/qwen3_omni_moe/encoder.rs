//! The audio tower as the engine's encoder.

use repartee_kernels::Ops;

use super::audio_tower::{AudioTower, Window, tokens};
use crate::elements::AudioRows;
use crate::model::{Encoder, WindowInput};

/// The audio tower and the number of mel bins.
pub struct AudioEncoder<O: Ops> {
    ops: O,
    tower: AudioTower<O>,
    bins: usize,
}

impl<O: Ops> AudioEncoder<O> {
    /// Over `bins` mel bins.
    pub fn new(ops: O, tower: AudioTower<O>, bins: usize) -> Self {
        Self { ops, tower, bins }
    }
}

impl<O: Ops + Send> Encoder<O::T> for AudioEncoder<O>
where
    O::T: Send,
    O::Weight: Send,
{
    fn encode(&mut self, windows: &[WindowInput<'_>]) -> Vec<AudioRows<O::T>> {
        // Every window but a turn's last holds at least one full chunk.
        let inputs: Vec<_> = windows.iter().map(|w| Window { mel: w.data, follows_full_chunk: w.index > 0 }).collect();
        let rows = self.tower.forward(&self.ops, &inputs);
        let mut from = 0;
        let cut = |input: &Window<'_>| {
            let count = tokens(input.mel.len() / self.bins);
            let mine: Vec<usize> = (from..from + count).collect();
            from += count;
            AudioRows { rows: self.ops.gather(&rows, &mine), count }
        };
        inputs.iter().map(cut).collect()
    }
}
