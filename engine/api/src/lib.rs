//! The handle that a caller of the engine holds: commands in, events out, both bounded.
//!
//! A [`SessionHandle`] is one caller's conversation. It is runtime-neutral: every operation exists in a blocking and an
//! async form. The engine thread never waits for it: a session whose event queue is full is simply not run until
//! the caller has read. Dropping the handle frees everything that the session held in every stage.
//!
//! - [`command`]: what a caller asks for
//! - [`event`]: what a session reports
//! - [`error`]: what can go wrong
//! - [`handle`]: both ends of the queues
//!
//! [`link`] makes both ends; the engine uses the other one ([`Peer`]), and so does a scripted engine in a test.

pub mod command;
pub mod error;
pub mod event;
pub mod handle;

use std::time::Duration;

pub use command::{Command, Content, Input, InsertAt, ItemId, Respond, ResponseId, Role, Sampling, SlicePolicy, Tool};
pub use error::{OpenError, SessionError, SubmitError};
pub use event::{Event, FinishReason, Stamps, Usage};
pub use handle::{Peer, SessionHandle, Wake, link};

/// Commands that may wait in a session before [`SessionHandle::submit`] answers [`SubmitError::Full`].
pub const COMMAND_QUEUE: usize = 256;
/// Events that may wait for the caller; a session with a full queue is not run. At one event a codec frame of 80 ms
/// and some text in between this is about 10 s of unsent speech.
pub const EVENT_QUEUE: usize = 192;

/// What a client has to know of the model that is served.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelInfo {
    /// A name to show, from the checkpoint's folder.
    pub name: String,
    /// Voices that an answer may ask for.
    pub voices: Vec<String>,
    /// The one used when an answer names none.
    pub default_voice: String,
    /// Samples a second expected by [`Command::Append`].
    pub input_rate: u32,
    /// Samples a second in [`Event::Audio`].
    pub output_rate: u32,
    /// Duration of one codec frame.
    pub frame: Duration,
    /// Tokens that a history may hold.
    pub context_tokens: u32,
    /// Whether its prompts have a place for tools.
    pub tools: bool,
}

/// An engine as its callers see it; a scripted one stands in for it in tests.
pub trait SpeechEngine: Send + Sync + 'static {
    /// The model that is served.
    fn info(&self) -> &ModelInfo;
    /// A new conversation, or [`OpenError::Full`] at once.
    fn open(&self) -> Result<SessionHandle, OpenError>;
    /// Sessions open now, and the most there can be.
    fn occupancy(&self) -> (usize, usize);
}
