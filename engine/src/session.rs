//! The handle that a caller of the engine holds: commands in, events out, both bounded.
//!
//! A [`Session`] is one caller's conversation. It is runtime-neutral: every operation exists in a blocking and an
//! async form. The engine thread never waits for it: a session whose event queue is full is simply not run until
//! the caller has read. Dropping the handle frees everything that the session held in every stage.
//!
//! [`link`] makes both ends; the engine uses the other one ([`Peer`]), and so does a scripted engine in a test.

use std::time::{Duration, Instant};

use thiserror::Error;

/// Commands that may wait in a session before [`Session::submit`] answers [`SubmitError::Full`].
pub const COMMAND_QUEUE: usize = 256;
/// Events that may wait for the caller; a session with a full queue is not run. At one event a codec frame of 80 ms
/// and some text in between this is about 10 s of unsent speech.
pub const EVENT_QUEUE: usize = 192;

/// One entry of the history, named by the caller; unique within its session.
pub type ItemId = u64;
/// One answer, named by the caller; unique within its session.
pub type ResponseId = u64;

/// What a caller asks of its session. Commands are executed in order; each answer ([`Command::Respond`]) is a
/// sub-request that waits until the round before it is finished.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// A slice of the caller's sound: mono samples in -1..1 at [`ModelInfo::input_rate`]. Slices collect in the open
    /// audio item and are prefilled silently while the caller goes on. A slice that would make the item too long is refused
    /// ([`SessionError::AudioTooLong`]); what came before it can still be committed.
    Append(Vec<f32>),
    /// Ends the open audio item: it becomes the user item `item` of the history. Without open audio this fails with
    /// [`SessionError::NothingToCommit`].
    Commit {
        /// Name of the new item.
        item: ItemId,
    },
    /// Forgets the open audio item.
    Clear,
    /// Puts a text message at the end of the history.
    Message {
        /// Name of the new item.
        item: ItemId,
        /// Who says it.
        role: Role,
        /// What is said.
        text: String,
    },
    /// New instructions (the system message); empty for none. They hold for answers asked for from now on.
    Instruct(String),
    /// Answer the history as it stands; the answer becomes the assistant item `item`.
    Respond(Respond),
    /// Stop the answer `response`, if it is still being made. What was said so far stays in the history, and the
    /// session reports [`Event::Finished`] with [`FinishReason::Cancelled`]. Unknown and finished answers are ignored.
    Cancel {
        /// The answer to stop.
        response: ResponseId,
    },
    /// Replace the text of an assistant item, for instance by the part that was heard. Unknown items are ignored, and so are
    /// answers that are not complete: cancel those first.
    Truncate {
        /// The item.
        item: ItemId,
        /// What remains of it; empty removes the item.
        text: String,
    },
    /// Remove an item from the history; an answer that still waits for its turn is cancelled. Unknown items are ignored, and so is
    /// the answer being made: cancel it first.
    Delete {
        /// The item.
        item: ItemId,
    },
}

/// The parameters of one answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Respond {
    /// Name of the answer in the events about it.
    pub response: ResponseId,
    /// Name of the history item that it becomes.
    pub item: ItemId,
    /// One of [`ModelInfo::voices`]; `None` for [`ModelInfo::default_voice`].
    pub voice: Option<String>,
    /// Whether to speak the answer; otherwise it is text alone.
    pub audio: bool,
    /// Upper bound of text tokens; `None` for the model's own.
    pub max_tokens: Option<u32>,
    /// How the text is sampled; `None` for the checkpoint's generation config.
    pub sampling: Option<Sampling>,
    /// Random numbers are a function of (seed, response, step, codebook).
    pub seed: u64,
}

/// How one token is chosen. Fields are applied in the order of the reference implementation: repetition penalty,
/// temperature, top-k, top-p.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampling {
    /// 0 means greedy: the other fields but the penalty are then without effect.
    pub temperature: f32,
    /// Keep the `top_k` most likely tokens; 0 keeps all.
    pub top_k: u32,
    /// Keep the smallest set of tokens whose probability reaches `top_p`; 1 keeps all.
    pub top_p: f32,
    /// Divides (positive) or multiplies (negative) the logits of tokens already seen; 1 is none.
    pub repetition_penalty: f32,
}

impl Sampling {
    /// Always the most likely token.
    pub const GREEDY: Self = Self { temperature: 0.0, top_k: 0, top_p: 1.0, repetition_penalty: 1.0 };
}

/// Who says a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Instructions.
    System,
    /// The caller.
    User,
    /// The model.
    Assistant,
}

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
    /// An answer is complete: segment finished.
    Finished {
        /// The answer.
        response: ResponseId,
        /// Why it ended.
        reason: FinishReason,
        /// What it took.
        usage: Usage,
    },
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
}

/// Why a session could not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SessionError {
    /// `Commit` without audio.
    #[error("no audio to commit: append some first")]
    NothingToCommit,
    /// The audio of one item is longer than the model takes.
    #[error("one audio item holds at most {limit_s} s of sound")]
    AudioTooLong {
        /// The limit in seconds.
        limit_s: u32,
    },
    /// `Respond` named a voice that the model lacks.
    #[error("unknown voice `{voice}`: this model has {known}")]
    UnknownVoice {
        /// What was asked for.
        voice: String,
        /// What there is.
        known: String,
    },
    /// An item id was used twice.
    #[error("item {0} exists already")]
    DuplicateItem(ItemId),
    /// The last item alone does not fit; of a history that is too long the oldest items are forgotten.
    #[error("the conversation holds {tokens} tokens, the model takes {limit}")]
    ContextFull {
        /// Tokens of the history.
        tokens: u32,
        /// The limit.
        limit: u32,
    },
    /// Not a number in the middle of the model: the session is over, its neighbours are not.
    #[error("the {stage} produced a value that is not finite")]
    NotFinite {
        /// Where.
        stage: &'static str,
    },
    /// The engine failed: the session is over.
    #[error("internal error in the {stage}: {message}")]
    Internal {
        /// Where.
        stage: &'static str,
        /// What it said.
        message: String,
    },
}

impl SessionError {
    /// Whether the session is over.
    pub fn is_fatal(&self) -> bool {
        matches!(self, Self::NotFinite { .. } | Self::Internal { .. })
    }
}

/// Why a session could not be opened.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum OpenError {
    /// Every slot is taken.
    #[error("all {slots} session slots are taken: try again later")]
    Full {
        /// How many there are.
        slots: usize,
    },
    /// The engine has stopped.
    #[error("the engine has stopped")]
    Stopped,
}

/// Why a command could not be handed over. The command comes back.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum SubmitError {
    /// The session has not taken the commands before it yet.
    #[error("the session's command queue is full")]
    Full(Command),
    /// The session has ended.
    #[error("the session has ended")]
    Ended(Command),
}

/// An engine as its callers see it; a scripted one stands in for it in tests.
pub trait SpeechEngine: Send + Sync + 'static {
    /// The model that is served.
    fn info(&self) -> &ModelInfo;
    /// A new conversation, or [`OpenError::Full`] at once.
    fn open(&self) -> Result<Session, OpenError>;
    /// Sessions open now, and the most there can be.
    fn occupancy(&self) -> (usize, usize);
}

/// The caller's end of one conversation. See the module's description.
#[derive(Debug)]
pub struct Session {
    commands: flume::Sender<Command>,
    events: flume::Receiver<Event>,
    wake: Wake,
}

/// The engine's end of one conversation.
#[derive(Debug)]
pub struct Peer {
    /// Commands of the caller; disconnected once the handle is dropped.
    pub commands: flume::Receiver<Command>,
    /// Events for the caller.
    pub events: flume::Sender<Event>,
}

/// Tells the engine that something may be runnable: a command came, room for events was made, a handle was dropped.
/// Clones and repeated calls collapse into one pending signal.
#[derive(Debug, Clone)]
pub struct Wake(flume::Sender<()>);

impl Wake {
    /// A signal and the end that waits for it.
    pub fn new() -> (Self, flume::Receiver<()>) {
        let (tx, rx) = flume::bounded(1);
        (Self(tx), rx)
    }

    /// Never blocks.
    pub fn signal(&self) {
        // A full queue is a signal that has not been seen yet, and a closed one has nobody left to tell.
        let _ = self.0.try_send(());
    }
}

/// Both ends of a new conversation; `wake` is signalled whenever the engine's end has something to do.
pub fn link(wake: Wake) -> (Session, Peer) {
    let (command_tx, command_rx) = flume::bounded(COMMAND_QUEUE);
    let (event_tx, event_rx) = flume::bounded(EVENT_QUEUE);
    (Session { commands: command_tx, events: event_rx, wake }, Peer { commands: command_rx, events: event_tx })
}

impl Session {
    /// Hands a command over without waiting.
    pub fn submit(&self, command: Command) -> Result<(), SubmitError> {
        let sent = self.commands.try_send(command).map_err(|error| match error {
            flume::TrySendError::Full(command) => SubmitError::Full(command),
            flume::TrySendError::Disconnected(command) => SubmitError::Ended(command),
        });
        self.wake.signal();
        sent
    }

    /// Hands a command over, waiting for room on this thread.
    pub fn submit_blocking(&self, command: Command) -> Result<(), SubmitError> {
        match self.submit(command) {
            Err(SubmitError::Full(command)) => {
                let sent = self.commands.send(command);
                self.wake.signal();
                sent.map_err(|error| SubmitError::Ended(error.into_inner()))
            }
            done => done,
        }
    }

    /// Hands a command over, waiting for room. Cancel safe: a dropped future has handed over all or nothing.
    pub async fn submit_async(&self, command: Command) -> Result<(), SubmitError> {
        match self.submit(command) {
            Err(SubmitError::Full(command)) => {
                let sent = self.commands.send_async(command).await;
                self.wake.signal();
                sent.map_err(|error| SubmitError::Ended(error.into_inner()))
            }
            done => done,
        }
    }

    /// The next event, or `None` once the session has ended and everything was read. Cancel safe.
    pub async fn next_event(&self) -> Option<Event> {
        let event = self.events.recv_async().await.ok();
        self.wake.signal();
        event
    }

    /// The next event, waiting on this thread, or `None` once the session has ended and everything was read.
    pub fn next_event_blocking(&self) -> Option<Event> {
        let event = self.events.recv().ok();
        self.wake.signal();
        event
    }

    /// The next event if one is there.
    pub fn try_next_event(&self) -> Option<Event> {
        let event = self.events.try_recv().ok();
        if event.is_some() {
            self.wake.signal();
        }
        event
    }
}

impl Session {
    /// Ends the conversation and waits until the engine has freed everything that it held.
    pub fn close(mut self) {
        self.hang_up();
        while self.events.recv().is_ok() {}
    }

    /// The engine sees the disconnection when it looks: so disconnect first, then wake it.
    fn hang_up(&mut self) {
        let (closed, _) = flume::bounded(1);
        drop(std::mem::replace(&mut self.commands, closed));
        self.wake.signal();
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.hang_up();
    }
}
