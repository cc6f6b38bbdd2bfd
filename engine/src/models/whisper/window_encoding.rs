//! Encoding of a window in units of bounded work: its spectrogram, the encoder's pieces, and the keys and values of its rows
//! in the decoder's layers. What is computed so far is on the host, with the run of a slot; so a run that is withdrawn
//! takes it along.

use std::ops::Range;

use super::steps::WhisperSteps;
use crate::device::Device;
use crate::model::{EncodingProgress, WindowInput};
use crate::models::parts::audio_encoder::pieces::ranges;

/// Window in work.
#[derive(Debug, Default)]
pub struct WindowEncoding {
    /// Number of units done.
    done: usize,
    /// Mel frames, `[frames, bins]`.
    mel: Vec<f32>,
    /// Progress of the encoder.
    progress: EncodingProgress,
    /// Encoded rows, of which the decoder's layers have not all keys.
    encoded: Vec<f32>,
}

impl<O: Device> WhisperSteps<O> {
    /// Number of units of work of a window of `frames` mel frames; one for a window that is encoded in a batch.
    pub fn units(&self, frames: usize) -> usize {
        let stored = self.stored_layers(frames).count();
        match self.model().encoder.units(frames) + stored {
            // One of each.
            2 => 1,
            units => 1 + units,
        }
    }

    /// Layers whose keys are stored in each of the last units.
    fn stored_layers(&self, frames: usize) -> impl Iterator<Item = Range<usize>> + use<O> {
        let (sizes, encoder) = (self.model().decoder.sizes(), &self.model().encoder);
        let work = encoder.shape().tokens(frames) * 2 * sizes.width * sizes.width * sizes.layers;
        ranges(sizes.layers, work, encoder.unit())
    }

    /// Number of units of a window that are left.
    pub fn units_left(&self, frames: usize, window: &WindowEncoding) -> usize {
        self.units(frames).saturating_sub(window.done).max(1)
    }

    /// Does the next `units` units of a slot's window, whose spectrogram `mel` gives. Returns its rows once it is complete.
    pub fn advance(
        &mut self,
        slot: usize,
        window: &mut WindowEncoding,
        units: usize,
        mel: impl FnOnce() -> Vec<f32>,
    ) -> Option<Vec<f32>> {
        let mut left = units;
        if window.done == 0 && left > 0 {
            (window.mel, window.done, left) = (mel(), 1, left - 1);
        }
        let frames = window.mel.len() / self.model().encoder.shape().bins;
        let pieces = self.model().encoder.units(frames);
        if left > 0 && window.done <= pieces {
            let next = left.min(1 + pieces - window.done);
            let input = WindowInput { data: &window.mel, index: 0 };
            let rows = self.encode_part(&input, &mut window.progress, next);
            window.encoded.extend(rows.into_iter().flatten());
            window.done += next;
            left -= next;
        }
        let stored: Vec<Range<usize>> = self.stored_layers(frames).collect();
        let first = window.done.checked_sub(1 + pieces)?;
        for layers in stored.iter().skip(first).take(left) {
            self.store_sound(&[(slot, &window.encoded)], layers.clone());
            window.done += 1;
        }
        (window.done == 1 + pieces + stored.len()).then(|| std::mem::take(&mut window.encoded))
    }
}
