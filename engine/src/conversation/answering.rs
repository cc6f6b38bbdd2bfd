//! The answer that is being made: what the stages made of it becomes history and events.

use std::time::Instant;

use super::{Active, Conversation, Entry};
use crate::session::{Event, FinishReason, ResponseId, SessionError, Stamps, Usage};
use crate::stage::Message;

impl<T> Conversation<T> {
    /// Notes how many prompt positions the active answer found cached.
    pub fn note_cached(&mut self, positions: usize) {
        if let Some(active) = &mut self.active {
            active.usage.cached_tokens = positions as u32;
        }
    }

    /// A token of the active answer.
    pub fn token(&mut self, id: u32) {
        let Some(active) = &mut self.active else { return };
        active.first_token.get_or_insert_with(Instant::now);
        active.usage.output_text_tokens += 1;
        let (response, item) = (active.request.response, active.request.item);
        let text = active.text.push(id);
        let entry = self.history.iter_mut().find(|entry| entry.id == item);
        if let Some(Entry { message: Message::Assistant(ids), .. }) = entry {
            ids.push(id);
        }
        if let Some(text) = text {
            self.emit(Event::Text { response, text });
        }
    }

    /// A codec frame of the active answer is complete.
    pub fn frame(&mut self) {
        if let Some(active) = &mut self.active {
            active.first_frame.get_or_insert_with(Instant::now);
            active.usage.output_audio_frames += 1;
        }
    }

    /// Samples of the active answer's next frame.
    pub fn samples(&mut self, samples: Vec<f32>) {
        let Some(active) = &mut self.active else { return };
        let now = Instant::now();
        let stamps = (active.frames_sent == 0).then(|| Stamps {
            accepted: active.accepted,
            first_token: active.first_token.unwrap_or(now),
            first_frame: active.first_frame.unwrap_or(now),
            first_samples: now,
        });
        let (response, frame) = (active.request.response, active.frames_sent);
        active.frames_sent += 1;
        self.emit(Event::Audio { response, frame, samples, stamps });
    }

    /// The active answer is over.
    pub fn finish(&mut self, reason: FinishReason) {
        if let Some((response, usage)) = self.end_active() {
            self.emit(Event::SegmentFinished { response, reason, usage });
        }
    }

    /// The active answer, or a command of which no stage knows, failed.
    pub fn finish_failed(&mut self, error: SessionError) {
        let response = self.end_active().map(|(response, _)| response);
        self.fail(response, error);
    }

    fn end_active(&mut self) -> Option<(ResponseId, Usage)> {
        let Active { request, text, usage, .. } = self.active.take()?;
        self.changed = true;
        if let Some(text) = text.finish() {
            self.emit(Event::Text { response: request.response, text });
        }
        // An answer without words leaves no trace.
        self.history.retain(|entry| {
            entry.id != request.item || !matches!(&entry.message, Message::Assistant(ids) if ids.is_empty())
        });
        Some((request.response, usage))
    }
}
