//! The realtime session as a state machine without I/O and without a clock. [`RealtimeSession::handle`] takes an input and the time,
//! and returns effects.
//!
//! | file | contents |
//! |---|---|
//! | `interface` | [`SessionInput`] and [`Effect`] |
//! | `session` | [`RealtimeSession`]: the state |
//! | `dispatch` | inputs and client events, each to the file that handles it |
//! | `config` | the configuration: initial, updated, checked |
//! | `update` | `session.update` |
//! | `input_buffer` | input audio buffer: preroll, turns, slices for the engine |
//! | `turns` | the caller's turns, from turn detection or client commits |
//! | `slice_responses` | responses to each slice of a turn |
//! | `speculation` | responses started before the turn has surely ended |
//! | `transcription`, `transcriber` | transcripts of the turns, and their queue |
//! | `transcription_session` | transcription sessions |
//! | `idle` | the idle timeout |
//! | `history` | the conversation's items |
//! | `echo` | items as events repeat them |
//! | `encodable` | texts that the model cannot encode |
//! | `items` | `conversation.item.*` |
//! | `tools` | function tools |
//! | `repeated_calls` | function calls that a model repeats in place of an answer |
//! | `create_response` | `response.create` and `response.cancel`: validation, start, queue, stop |
//! | `speech_synthesis` | responses that speak given text |
//! | `item_audio` | audio of an event's items, decoded before the event is handled |
//! | `request_input` | model input of a request that replaces the conversation |
//! | `response` | responses of a session by state, and their wire form |
//! | `given_text` | given text of a response |
//! | `engine_events` | engine events of active responses |
//! | `playback` | barge-in and reports of the playout clock |
//! | `client_playback` | estimate of the playback by a client with its own clock |
//! | `engine_error` | errors of the engine on the wire |
//! | `paced_voice` | the voice of a speed |
//! | [`estimate`] | estimate of the heard words |
//! | [`audio`] | base64 audio in events |

pub mod audio;
mod client_playback;
mod config;
mod create_response;
mod dispatch;
mod echo;
mod encodable;
mod engine_error;
mod engine_events;
pub mod estimate;
mod given_text;
mod history;
mod idle;
mod input_buffer;
mod interface;
mod item_audio;
mod items;
mod paced_voice;
mod playback;
mod repeated_calls;
mod request_input;
mod response;
mod session;
mod slice_responses;
mod speculation;
mod speech_synthesis;
#[cfg(test)]
mod tests;
mod tools;
mod transcriber;
mod transcription;
mod transcription_session;
mod turns;
mod update;

pub use config::initial_session;
pub use engine_error::engine_error;
pub use interface::{AudioSettings, Delivery, Effect, PIECE_MS, PlayoutReport, SessionInput, SessionSetup};
pub use item_audio::ItemAudio;
pub use paced_voice::PacedVoice;
pub use session::RealtimeSession;
