//! OpenAI Realtime GA wire format: all client and server events, typed in both directions, one file per event family.
//!
//! | file | contents |
//! |---|---|
//! | `client` | [`ClientEvent`]: all client events, and the parser |
//! | `server` | [`ServerEvent`]: all server events |
//! | [`session`] | `session.*` and the session configuration |
//! | [`input_audio`] | `input_audio_buffer.*` |
//! | [`output_audio`] | `output_audio_buffer.*`, sent only if the server owns the playout clock |
//! | [`item`] | `conversation.item.*` and the item types |
//! | [`transcription_session`] | wire form of a session by its kind |
//! | [`transcription`] | `conversation.item.input_audio_transcription.*` |
//! | [`response`] | `response.*` |
//! | [`speech_synthesis`] | `repartee.text.*`: given text, streamed by the client |
//! | [`truncation`] | a conversation that no longer fits the context |
//! | [`rate_limits`] | `rate_limits.updated` |
//! | [`decision`] | `repartee.decision`: decisions about the caller's sound |
//! | [`error`] | `error` events, and the body of HTTP errors |
//! | [`json`] | bodies of requests, and the bounds of a JSON text |
//! | [`extension`] | `repartee`: Repartee's extension of an event |
//! | `literal` | fields with one value |
//! | [`fields`] | fields as clients write them, and the paths of wrong ones |
//! | [`beta`] | names of the beta interface |
//! | [`noise_reduction`] | noise reduction of the caller's audio |
//! | [`merge`] | update semantics of absent and `null` fields |
//! | [`suggestion`] | names that a person may have meant |
//!
//! The crate `repartee-realtime` implements the behaviour of the events.
//!
//! ```
//! use repartee_protocol::input_audio::AudioCommitted;
//! use repartee_protocol::{ClientEvent, ClientMessage, ServerEvent, ServerMessage};
//!
//! let message = ClientMessage::parse(r#"{"type": "input_audio_buffer.commit", "event_id": "mine"}"#)?;
//! assert_eq!(message.event, ClientEvent::InputCommit);
//! assert_eq!(message.event_id.as_deref(), Some("mine"));
//!
//! // An error is the body of the `error` event that the client gets.
//! let error = ClientMessage::parse(r#"{"type": "input_audio_buffer.append"}"#).unwrap_err();
//! assert_eq!(error.code.as_deref(), Some("missing_required_parameter"));
//! assert_eq!(error.param.as_deref(), Some("audio"));
//!
//! let event = ServerEvent::InputCommitted(AudioCommitted { previous_item_id: None, item_id: "item_1".into() });
//! let text = serde_json::to_string(&ServerMessage { event_id: "event_1".into(), event })?;
//! assert_eq!(
//!     text,
//!     r#"{"event_id":"event_1","type":"input_audio_buffer.committed","previous_item_id":null,"item_id":"item_1"}"#
//! );
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod beta;
pub mod decision;
pub mod error;
pub mod extension;
pub mod input_audio;
pub mod item;
pub mod json;
pub mod merge;
pub mod noise_reduction;
pub mod output_audio;
pub mod rate_limits;
pub mod response;
pub mod session;
pub mod speech_synthesis;
pub mod suggestion;
pub mod transcription;
pub mod transcription_session;
pub mod truncation;

mod client;
pub mod fields;
mod literal;
mod server;

pub use client::{ClientEvent, ClientMessage, MAX_PLAIN_EVENT};
pub use error::{ErrorBody, ErrorKind};
pub use server::{ServerEvent, ServerMessage};
