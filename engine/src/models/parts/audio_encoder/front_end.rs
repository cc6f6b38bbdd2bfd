//! Audio input of a model by a log-mel spectrogram and an audio encoder.

use repartee_kernels::{Ops, ReadBack, RowSpec};

use super::tower::AudioTower;
use crate::audio::log_mel::{LogMel, LogMelConfig};
use crate::checkpoint::Checkpoint;
use crate::device::Device;
use crate::elements::AudioRows;
use crate::model::{AudioFrontEnd, Encoder, EncodingProgress, WindowInput};
use crate::models::load_error::LoadError;

/// An encoder with its device and buffers.
struct AudioEncoder<O: Ops> {
    ops: O,
    tower: AudioTower<O>,
    spec: RowSpec,
    back: ReadBack,
}

impl<O: Device> Encoder for AudioEncoder<O> {
    fn encode(&mut self, windows: &[WindowInput<'_>]) -> Vec<AudioRows> {
        let rows = self.tower.encode(&self.ops, windows, &mut self.spec, &mut self.back);
        let width = self.tower.shape().output_width();
        rows.into_iter().map(|rows| AudioRows { count: rows.len() / width, rows }).collect()
    }

    fn rows(&self, frames: usize) -> Option<usize> {
        Some(self.tower.shape().tokens(frames))
    }

    fn units(&self, window: &WindowInput<'_>) -> usize {
        self.tower.units(window.data.len() / self.tower.shape().bins)
    }

    fn advance(
        &mut self,
        window: &WindowInput<'_>,
        progress: &mut EncodingProgress,
        units: usize,
    ) -> Option<AudioRows> {
        let Self { ops, tower, spec, back } = self;
        let rows = tower.advance(ops, window, progress, units, (spec, back))?;
        Some(AudioRows { count: rows.len() / tower.shape().output_width(), rows })
    }

    fn unfinished_bytes(&self) -> usize {
        self.tower.unfinished_bytes()
    }

    fn end_idle_period(&mut self) -> bool {
        self.ops.shrink()
    }
}

/// Creates the audio input of a model: the spectrogram that preprocessor_config.json describes, in the windows of `tower`,
/// and `tower` on a device with buffers of its own.
pub fn audio_front_end<O: Device>(
    ops: &O,
    tower: AudioTower<O>,
    checkpoint: &Checkpoint,
) -> Result<AudioFrontEnd, LoadError> {
    let config = LogMelConfig::load(checkpoint, tower.shape().bins)?;
    let log_mel = LogMel::new(&config, tower.shape().window)
        .map_err(|value| LoadError::Mel { file: checkpoint.label("preprocessor_config.json"), value })?;
    let (ops, spec, back) = (ops.with_own_buffers(), RowSpec::default(), ReadBack::default());
    let encoder = AudioEncoder { ops, tower, spec, back };
    Ok(AudioFrontEnd { front_end: Box::new(log_mel), encoder: Box::new(encoder) })
}
