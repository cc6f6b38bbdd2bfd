//! API of the speech engine: session handles that take commands and give events over bounded queues.
//!
//! A [`SessionHandle`] is one session. It is runtime-neutral: each operation has a blocking and an async form. The
//! engine thread never waits for a caller: a session whose event queue is full is not runnable until the caller has
//! read (backpressure). Dropping the handle ends the session and frees its resources.
//!
//! - [`answer_form`]: form that an answer is held to
//! - [`command`]: commands of the caller
//! - [`event`]: events of a session
//! - [`error`]: errors of commands, responses, sessions and voices
//! - [`handle`]: both ends of the queues
//! - [`speech_engine`]: interface of an engine, and properties of its model
//! - [`remote`], [`remote_failure`]: a language model behind a server, and its failures
//! - [`tenant`]: whom sessions belong to
//! - [`transcript`]: properties of a model's hearing, and details of its transcripts
//! - [`work`]: counters of computed work, and queue lengths
//!
//! [`link`] creates both ends. The engine holds the other one ([`SessionPeer`]); in tests a scripted engine does.

pub mod answer_form;
pub mod command;
pub mod error;
pub mod event;
pub mod handle;
pub mod remote;
pub mod remote_failure;
pub mod speech_engine;
pub mod tenant;
pub mod transcript;
pub mod work;

pub use answer_form::{AnswerForm, JsonSchema};
pub use command::{
    Command, Eviction, InsertAt, ItemId, Listen, MAX_STRETCH, MessageContent, Respond, ResponseId, ResponseInput, Role,
    Sampling, SlicePolicy, TextDelay, Tool, Transcribe,
};
pub use error::{EnrolError, OpenError, SessionError, SubmitError};
pub use event::{EngineUsage, Event, FinishReason, LatencyStamps};
pub use handle::{COMMAND_QUEUE, EVENT_QUEUE, SessionHandle, SessionPeer, WakeSignal, link};
pub use remote::{
    RemoteAnswer, RemoteCall, RemoteEnd, RemoteEvent, RemoteMessage, RemoteRequest, RemoteThinker, RemoteUsage,
};
pub use remote_failure::{RemoteFailure, RemoteFailureKind};
pub use speech_engine::{ModelInfo, ReadingInstructions, Recording, SpeechEngine};
pub use tenant::{Tenant, TenantWork};
pub use transcript::{HearingInfo, TimedWord, TranscriptDetails, TranscriptQuality};
pub use work::{EngineLoad, StageWork};
