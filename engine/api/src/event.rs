//! What a session reports.

use std::time::Instant;

#[cfg(doc)]
use super::{Command, ModelInfo};
use super::{ResponseId, SessionError};

/// What a session reports. Events of one answer come in the order in which they were made; nothing is ever dropped.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// Part of an answer's text: the next piece, never half a character.
    Text {
        /// The answer.
        response: ResponseId,
        /// What to append to the transcript.
        text: String,
    },
    /// Part of an answer's sound: the samples that one codec frame added, in -1..1 at [`ModelInfo::output_rate`].
    Audio {
        /// The answer.
        response: ResponseId,
        /// Index of the codec frame, from 0.
        frame: u64,
        /// Mono samples; their number may vary, at the start for instance.
        samples: Vec<f32>,
        /// When the parts of the first frame were ready; on frame 0 only.
        stamps: Option<Stamps>,
    },
    /// The model calls a tool. Its arguments follow in pieces; a call is complete when the next one begins or the answer ends.
    ToolCall {
        /// The answer.
        response: ResponseId,
        /// Which call of the answer, from 0.
        call: u32,
        /// Name of the tool.
        name: String,
    },
    /// More of a call's arguments.
    ToolArguments {
        /// The answer.
        response: ResponseId,
        /// Which call of the answer.
        call: u32,
        /// JSON text that follows what came before.
        arguments: String,
    },
    /// An answer is complete; the session goes on.
    SegmentFinished {
        /// The answer.
        response: ResponseId,
        /// Why it ended.
        reason: FinishReason,
        /// What it took.
        usage: Usage,
    },
    /// Everything that was asked for before [`Command::Finish`] is complete.
    Finished,
    /// A command failed. The session lives on unless [`SessionError::is_fatal`] holds; then this is its last event.
    Failed {
        /// The answer that failed, if it was one.
        response: Option<ResponseId>,
        /// What happened.
        error: SessionError,
    },
}

/// Why an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FinishReason {
    /// The model ended it.
    Stop,
    /// `max_tokens`, the model's frame limit or the context was reached.
    Length,
    /// The caller cancelled it.
    Cancelled,
}

/// What an answer took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Text tokens of the prompt, template included.
    pub input_text_tokens: u32,
    /// Audio tokens of the prompt.
    pub input_audio_tokens: u32,
    /// Prompt tokens that were already in the cache when the answer was asked for.
    pub cached_tokens: u32,
    /// Text tokens of the answer.
    pub output_text_tokens: u32,
    /// Codec frames of the answer.
    pub output_audio_frames: u32,
}

/// When the parts of an answer's first sound were ready, all on the engine's monotonic clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamps {
    /// The engine took the `Respond` command.
    pub accepted: Instant,
    /// The first text token was sampled.
    pub first_token: Instant,
    /// The first codec frame was complete.
    pub first_frame: Instant,
    /// Its samples were decoded.
    pub first_samples: Instant,
}
