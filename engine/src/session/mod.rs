//! State of one session: history, open input audio, pending and active responses. The scheduler drives it; it computes
//! nothing and depends on no stage's implementation.
//!
//! Parts of the state:
//! - [`state`]: the fields, queues and events of a session
//! - [`history`]: the items, in order
//! - [`pending_response`], [`active_response`], [`out_of_band`]: responses, requested or being generated
//! - [`streamed_text`]: text that streams into a response
//! - [`tool_calls`]: tool calls within generated text; [`json_calls`]: those without marks
//! - [`reasoning`]: reasoning text within generated text
//! - [`input_transcript`]: a transcript being written
//! - [`recognitions`]: audio that a recogniser hears
//! - [`heard_text`]: the complete text of an audio item
//! - [`followed_text`]: transcripts that follow its text
//! - [`slices`]: input audio cut into slices
//! - [`text_intake`]: tokenisation of a command's texts in pieces
//! - [`real_time`]: rate limit of input audio
//! - [`limits`]: upper bounds
//! - [`context`]: parts of the model that commands need
//! - [`messages`]: texts of the caller as token ids
//!
//! Changes of the state, each an `impl Session`:
//! - [`commands`]: the order of commands
//! - [`intake`]: long texts and complete audio, in pieces
//! - [`execute`]: execution of a command
//! - [`input_audio`]: input audio, windows and their rows
//! - [`hearing`]: text that a recogniser hears
//! - [`items`]: items that the caller inserts, deletes and truncates
//! - [`respond`]: requests of responses
//! - [`text_stream`]: text that streams in
//! - [`transcribe`]: transcripts of the caller's audio
//! - [`slice_policy`]: responses to each slice
//! - [`speculation`]: a response begun before the turn has surely ended
//! - [`prompt`]: prompts and the eviction of the oldest items
//! - [`response_output`]: the stages' output as history and events
//! - [`written_output`]: text and tool calls of a stage that has no tokens

mod active_response;
mod commands;
mod context;
mod execute;
mod followed_text;
mod heard_text;
mod hearing;
mod history;
mod input_audio;
mod input_transcript;
pub mod intake;
mod items;
mod json_calls;
pub mod limits;
mod messages;
mod out_of_band;
mod pending_response;
mod prompt;
mod real_time;
mod reasoning;
mod recognitions;
mod respond;
pub mod response_output;
mod slice_policy;
mod slices;
mod speculation;
mod state;
mod streamed_text;
mod text_intake;
mod text_stream;
mod tool_calls;
mod transcribe;
mod written_output;

pub use context::ModelContext;
pub use prompt::{BegunResponse, DefaultLimits};
pub use state::{Queues, Session};
pub use text_intake::EncodedTexts;
