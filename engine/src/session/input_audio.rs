//! Input audio: windows of samples, audio items, and the encoder's rows.

use std::sync::Arc;
use std::time::{Duration, Instant};

use repartee_engine_api::{InsertAt, ItemId, SessionError};

use super::limits::MAX_AUDIO_S;
use super::{ModelContext, Session};
use crate::audio_input::{AudioInput, EncoderTimes, PendingWindow, WindowTarget};
use crate::elements::{AudioRows, Message, MessageKind};

impl Session {
    pub(super) fn append(&mut self, samples: &[f32], model: &ModelContext<'_>) -> Result<(), SessionError> {
        let limit = model.audio_limit()?;
        let too_long = SessionError::AudioTooLong { limit_s: MAX_AUDIO_S };
        if let Some(slices) = &mut self.slices {
            return slices.push(samples, limit);
        }
        if let Some(speculation) = &mut self.speculation {
            if speculation.audio_input.samples() + speculation.held.len() + samples.len() > limit {
                return Err(too_long);
            }
            speculation.held.extend_from_slice(samples);
            return Ok(());
        }
        let front_end = model.front_end()?;
        // The message header can be prefilled at once; after that only closed windows change the prompt.
        let first = self.audio_input.is_none();
        self.changed |= first;
        let audio_input = self.audio_input.get_or_insert_with(|| AudioInput::new(front_end));
        let fits = audio_input.samples() + samples.len() <= limit;
        let samples = if fits { samples } else { &[] };
        let before = self.pending_windows.len();
        audio_input.push(samples, &mut self.pending_windows);
        if model.hears_text {
            self.hear(samples, first, model);
        }
        if !fits {
            return Err(too_long);
        }
        if model.hears_text {
            return Ok(());
        }
        self.meter_audio(model.duration(samples.len()), before, model.now);
        Ok(())
    }

    pub(super) fn commit(&mut self, item: ItemId, model: &ModelContext<'_>) -> Result<(), SessionError> {
        if let Some(slices) = &mut self.slices {
            return slices.end();
        }
        let Some(audio_input) = self.audio_input.take() else {
            return Err(SessionError::NothingToCommit);
        };
        if self.history.contains(item) {
            self.audio_input = Some(audio_input);
            return Err(SessionError::DuplicateItem(item));
        }
        let encoded = audio_input.finish(WindowTarget::Item(item), &mut self.pending_windows);
        self.changed = true;
        let message = self.end_audio(item, encoded, model);
        self.history.insert(item, InsertAt::End, message)
    }

    /// Message of audio that ends: its encoded windows, or the text heard so far.
    pub(super) fn end_audio(
        &mut self,
        item: ItemId,
        encoded: Vec<Arc<AudioRows>>,
        model: &ModelContext<'_>,
    ) -> Message {
        if !model.hears_text {
            return Message::audio(encoded);
        }
        Message::text(MessageKind::User, self.recognitions.end(item))
    }

    pub(super) fn clear(&mut self) {
        if let Some(slices) = &mut self.slices {
            slices.clear();
        }
        self.audio_input = None;
        self.pending_windows.retain(|window| window.target != WindowTarget::Open);
        self.recognitions.remove(WindowTarget::Open);
        self.next_hearing = None;
        self.changed = true;
    }

    /// Owners of the audio that is not encoded or heard yet, in order.
    pub(super) fn unencoded(&self) -> impl Iterator<Item = WindowTarget> {
        let windows = self.pending_windows.iter().map(|window| window.target);
        windows.chain(self.pending_sounds.iter().map(|sound| sound.target)).chain(self.recognitions.unheard())
    }

    /// Number of samples of the open audio item.
    pub(super) fn open_samples(&self) -> usize {
        match &self.speculation {
            Some(speculation) => speculation.audio_input.samples() + speculation.held.len(),
            None => self.audio_input.as_ref().map_or(0, AudioInput::samples),
        }
    }

    /// Adds an encoded window to its target; windows of deleted items are dropped.
    pub fn place_window(&mut self, window: &PendingWindow, rows: AudioRows, times: EncoderTimes) {
        self.stalled = None;
        self.encoder = Some(times);
        let rows = Arc::new(rows);
        self.changed = true;
        match window.target {
            WindowTarget::Open => {
                if let Some(speculation) = &mut self.speculation {
                    speculation.audio_input.encoded.push(Arc::clone(&rows));
                    if let Some(message) = self.history.get_mut(speculation.item) {
                        message.push_window(rows);
                    }
                } else if let Some(audio_input) = &mut self.audio_input {
                    audio_input.encoded.push(rows);
                }
            }
            WindowTarget::Item(item) => {
                if let Some(message) = self.history.get_mut(item) {
                    message.push_window(rows);
                }
            }
            WindowTarget::Input(audio) => {
                if let Some(message) = self.input_message(audio) {
                    message.push_window(rows);
                }
            }
        }
    }

    /// Counts `sound` that arrived at `now`, and marks the windows from index `first` on that it closed.
    pub(super) fn meter_audio(&mut self, sound: Duration, first: usize, now: Instant) {
        let early = !self.real_time.admit(sound, now);
        self.unwindowed += sound;
        let closed = self.pending_windows.len().saturating_sub(first) as u32;
        if closed == 0 {
            return;
        }
        let each = std::mem::take(&mut self.unwindowed) / closed;
        for window in self.pending_windows.range_mut(first..) {
            (window.sound, window.early) = (each, early);
        }
    }

    /// True if the window that the encoder takes next came faster than real time.
    pub fn encodes_early(&self) -> bool {
        self.pending_windows.front().is_some_and(|window| window.early)
    }

    /// Windows that the encoder takes next: those that all came faster than real time, or none of them.
    pub fn next_windows(&self) -> impl Iterator<Item = &PendingWindow> {
        let early = self.encodes_early();
        self.pending_windows.iter().take_while(move |window| window.early == early)
    }

    /// Takes a window back that the encoder has not completed.
    pub fn continue_window(&mut self, window: PendingWindow) {
        self.stalled = None;
        self.pending_windows.push_front(window);
    }
}
