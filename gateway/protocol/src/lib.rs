//! The OpenAI Realtime GA wire: every event that Repartee accepts or sends, typed both ways, one file per event family.
//!
//! | file | what it holds |
//! |---|---|
//! | `client` | [`ClientEvent`]: everything a client may send, and its parser |
//! | `server` | [`ServerEvent`]: everything the server may send |
//! | [`session`] | `session.*` and the session's configuration |
//! | [`input_audio`] | `input_audio_buffer.*` |
//! | [`output_audio`] | `output_audio_buffer.*`, sent only where the server owns the playout clock |
//! | [`item`] | `conversation.item.*` and the items themselves |
//! | [`transcription_session`] | the configuration of sessions that only transcribe |
//! | [`transcription`] | `conversation.item.input_audio_transcription.*` |
//! | [`response`] | `response.*` |
//! | [`reading`] | `repartee.text.*`: a given text that streams in |
//! | [`rate_limits`] | `rate_limits.updated` |
//! | [`error`] | `error`, and the same body in HTTP responses |
//! | [`extension`] | `repartee`: what Repartee adds to an event |
//! | [`merge`] | what an absent field and a `null` mean in an update |
//!
//! What an event does is decided in the crate `repartee-realtime`.
//!
//! ```
//! use repartee_protocol::input_audio::Committed;
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
//! let event = ServerEvent::InputCommitted(Committed { previous_item_id: None, item_id: "item_1".into() });
//! let text = serde_json::to_string(&ServerMessage { event_id: "event_1".into(), event })?;
//! assert_eq!(
//!     text,
//!     r#"{"event_id":"event_1","type":"input_audio_buffer.committed","previous_item_id":null,"item_id":"item_1"}"#
//! );
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod error;
pub mod extension;
pub mod input_audio;
pub mod item;
pub mod merge;
pub mod output_audio;
pub mod rate_limits;
pub mod speech_synthesis;
pub mod response;
pub mod session;
pub mod transcription;
pub mod transcription_session;

mod client;
mod server;

pub use client::{ClientEvent, ClientMessage};
pub use error::{ErrorBody, ErrorKind};
pub use server::{ServerEvent, ServerMessage};

/// A type with one value, which is one string on the wire.
macro_rules! literal {
    ($(#[$meta:meta])* $name:ident = $text:literal) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        pub enum $name {
            /// The value.
            #[default]
            #[serde(rename = $text)]
            Value,
        }
    };
}
pub(crate) use literal;
