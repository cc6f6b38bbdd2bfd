//! Events of a session.

use std::time::Instant;

#[cfg(doc)]
use super::{Command, ModelInfo};
use super::{ItemId, ResponseId, SessionError, TranscriptDetails};

/// An event of a session. The events of one response come in order, and none is ever dropped.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The next piece of a response's text; never ends within a character.
    Text {
        /// Id of the response.
        response: ResponseId,
        /// Next piece of the text.
        text: String,
    },
    /// The transcript so far of an audio item of the caller.
    InputText {
        /// Id of the transcript ([`Command::Transcribe`]); `None` for the open audio ([`Command::Listen`]).
        response: Option<ResponseId>,
        /// The audio item; for the open audio the id that its caller announced.
        item: ItemId,
        /// All of the text so far; never ends within a character.
        text: String,
        /// Length in bytes of the part of `text` that later events repeat unchanged. It never shrinks.
        stable: usize,
    },
    /// Details of the transcript of a recording ([`Listen::recorded`](crate::Listen::recorded)), before its end.
    InputDetails {
        /// Id of the transcript.
        response: ResponseId,
        /// The audio item.
        item: ItemId,
        /// Language, words and quality.
        details: Box<TranscriptDetails>,
    },
    /// The samples of one codec frame of a response, in -1..1 at [`ModelInfo::output_rate`].
    Audio {
        /// Id of the response.
        response: ResponseId,
        /// Index of the codec frame, from 0.
        frame: u64,
        /// Mono samples; their number may vary, at the start for instance.
        samples: Vec<f32>,
        /// Timestamps of the first packet's steps; on frame 0 only.
        stamps: Option<LatencyStamps>,
    },
    /// A tool call begins. The arguments follow in pieces; a call is complete when the next one begins or the response
    /// ends.
    ToolCall {
        /// Id of the response.
        response: ResponseId,
        /// Index of the call within the response, from 0.
        call: u32,
        /// Name of the tool.
        name: String,
    },
    /// The next piece of a call's arguments.
    ToolArguments {
        /// Id of the response.
        response: ResponseId,
        /// Index of the call within the response, from 0.
        call: u32,
        /// Next piece of the JSON text.
        arguments: String,
    },
    /// A response is complete; the session goes on.
    SegmentFinished {
        /// Id of the response.
        response: ResponseId,
        /// Reason of the end.
        reason: FinishReason,
        /// Token and frame counts.
        usage: EngineUsage,
    },
    /// Every response requested before [`Command::Finish`] is complete.
    Finished,
    /// A command failed. The session lives on unless [`SessionError::is_fatal`] holds; then this is its last event.
    Failed {
        /// Id of the failed response; `None` for other failures.
        response: Option<ResponseId>,
        /// Error of the command or response.
        error: SessionError,
    },
}

impl Event {
    /// Id of the response that the event is about; `None` for an event of the session.
    pub fn response(&self) -> Option<ResponseId> {
        match self {
            Self::Text { response, .. }
            | Self::InputDetails { response, .. }
            | Self::Audio { response, .. }
            | Self::ToolCall { response, .. }
            | Self::ToolArguments { response, .. }
            | Self::SegmentFinished { response, .. } => Some(*response),
            Self::InputText { response, .. } | Self::Failed { response, .. } => *response,
            Self::Finished => None,
        }
    }

    /// Name of the event, for logs: neither text nor sound.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Text { .. } => "text",
            Self::InputText { .. } => "input_text",
            Self::InputDetails { .. } => "input_details",
            Self::Audio { .. } => "audio",
            Self::ToolCall { .. } => "tool_call",
            Self::ToolArguments { .. } => "tool_arguments",
            Self::SegmentFinished { .. } => "segment_finished",
            Self::Finished => "finished",
            Self::Failed { .. } => "failed",
        }
    }
}

/// Reason for a response's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FinishReason {
    /// The model sampled its stop token.
    Stop,
    /// A limit was reached: `max_tokens`, the model's frame limit or the context.
    Length,
    /// The caller cancelled it ([`Command::Cancel`]).
    Cancelled,
}

/// Token and frame counts of a response.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EngineUsage {
    /// Text tokens of the prompt, template included.
    pub input_text_tokens: u32,
    /// Audio tokens of the prompt.
    pub input_audio_tokens: u32,
    /// Prompt tokens that were cached when the response began.
    pub cached_tokens: u32,
    /// Text tokens of the response.
    pub output_text_tokens: u32,
    /// Codec frames of the response.
    pub output_audio_frames: u32,
}

/// Timestamps on the way to a response's first samples, on the engine's monotonic clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LatencyStamps {
    /// The engine took the command [`Command::Respond`].
    pub accepted: Instant,
    /// The encoder began its last step over the response's input; `begun` if all input was encoded already.
    pub encoding: Instant,
    /// All input was encoded, and the first stage got the prompt.
    pub begun: Instant,
    /// The step of the first text token began: all but the last prompt rows were prefilled.
    pub prefilled: Instant,
    /// The first text token was sampled.
    pub first_token: Instant,
    /// The first codec frame was complete.
    pub first_frame: Instant,
    /// The first samples were decoded.
    pub first_samples: Instant,
}
