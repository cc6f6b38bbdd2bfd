//! What the scheduler sees of a model: stages that say what they need and step a batch of rows, and the items that pass
//! between them.
//!
//! A model is a chain of stages. Each keeps the state of every session under the session's slot number. Whatever a
//! stage makes goes to the next one, and to the caller where it means something there ([`Item::Token`],
//! [`Item::Samples`]).

use std::sync::Arc;
use std::time::Duration;

use repartee_engine_api::{Sampling, SessionError, Tool};

use crate::audio::log_mel::LogMel;
use crate::text::Tokenizer;

/// Encoded rows of one closed window of sound; compared by identity.
#[derive(Debug)]
pub struct AudioRows<T> {
    /// The rows on the device.
    pub rows: T,
    /// How many.
    pub count: usize,
}

/// One position of a prompt.
#[derive(Debug)]
pub enum Element<T> {
    /// A text token.
    Token {
        /// Its id.
        id: u32,
        /// Whether it belongs to a user's message.
        user: bool,
    },
    /// One row of sound, always the user's.
    Audio {
        /// The window that it belongs to.
        window: Arc<AudioRows<T>>,
        /// Which of its rows.
        row: usize,
    },
}

impl<T> Clone for Element<T> {
    fn clone(&self) -> Self {
        match self {
            Self::Token { id, user } => Self::Token { id: *id, user: *user },
            Self::Audio { window, row } => Self::Audio { window: Arc::clone(window), row: *row },
        }
    }
}

impl<T> PartialEq for Element<T> {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Token { id: a, user: b }, Self::Token { id: c, user: d }) => a == c && b == d,
            (Self::Audio { window: a, row: b }, Self::Audio { window: c, row: d }) => Arc::ptr_eq(a, c) && b == d,
            _ => false,
        }
    }
}

/// One message of a session's history, as ids and encoded sound: never text that would be tokenised again.
#[derive(Debug)]
pub enum Message<T> {
    /// Instructions.
    System(Vec<u32>),
    /// The caller, in text.
    UserText(Vec<u32>),
    /// The caller, in sound.
    UserAudio(Vec<Arc<AudioRows<T>>>),
    /// The model; without the stop token. Calls of tools that it wrote are a part of it.
    Assistant(Vec<u32>),
    /// A call of a tool that was put into the history.
    ToolCall(Vec<u32>),
    /// What a tool answered.
    ToolResult(Vec<u32>),
}

impl<T> Clone for Message<T> {
    fn clone(&self) -> Self {
        match self {
            Self::System(ids) => Self::System(ids.clone()),
            Self::UserText(ids) => Self::UserText(ids.clone()),
            Self::UserAudio(windows) => Self::UserAudio(windows.clone()),
            Self::Assistant(ids) => Self::Assistant(ids.clone()),
            Self::ToolCall(ids) => Self::ToolCall(ids.clone()),
            Self::ToolResult(ids) => Self::ToolResult(ids.clone()),
        }
    }
}

/// What an answer is made with.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// Counter for random numbers.
    pub response: u64,
    /// Seed for random numbers.
    pub seed: u64,
    /// A voice of the model.
    pub voice: String,
    /// Whether it is spoken.
    pub audio: bool,
    /// Most text tokens.
    pub max_tokens: u32,
    /// How text is chosen; `None` for the checkpoint's way.
    pub sampling: Option<Sampling>,
}

/// Why a stage's part of an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// By the model's own stop.
    Stop,
    /// At a limit.
    Length,
}

/// What passes between stages.
#[derive(Debug)]
pub enum Item<T> {
    /// To the first stage: the whole prompt as it should be now, and the answer to begin once it is read.
    Prompt {
        /// Every position.
        elements: Vec<Element<T>>,
        /// `None` while the caller still speaks.
        answer: Option<Answer>,
    },
    /// Prompt positions from `to` on are withdrawn.
    Rewind {
        /// First position withdrawn.
        to: usize,
    },
    /// The next prompt positions have been read.
    Context {
        /// Position of the first.
        from: usize,
        /// The positions.
        elements: Vec<Element<T>>,
        /// One hidden row for each.
        hidden: Arc<T>,
    },
    /// An answer begins: what follows belongs to it.
    Begin(Answer),
    /// A text token.
    Token(u32),
    /// A codec frame, one code for each codebook.
    Frame(Vec<u32>),
    /// Samples of one codec frame.
    Samples(Vec<f32>),
    /// The answer is complete on this edge.
    End(End),
    /// The answer is withdrawn.
    Abort,
    /// The session cannot go on.
    Fail(SessionError),
}

/// What the stages make, in order: (slot, item).
pub type Outbox<T> = Vec<(usize, Item<T>)>;

/// Part of a batch: one session's share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Work {
    /// The session.
    pub slot: usize,
    /// Rows to advance; at most what [`Stage::ready`] said.
    pub rows: usize,
}

/// One step of a model's graph, with the state of every session.
pub trait Stage<T>: Send {
    /// Its name, for errors and measurements.
    fn name(&self) -> &'static str;

    /// Takes what the stage before made. What needs no arithmetic is passed on at once.
    fn accept(&mut self, slot: usize, item: Item<T>, out: &mut Outbox<T>);

    /// Rows that the session could advance by now; 0 while it waits.
    fn ready(&self, slot: usize) -> usize;

    /// Most rows of one session in one step.
    fn max_rows(&self) -> usize;

    /// Advances several sessions as one batch.
    fn step(&mut self, work: &[Work], out: &mut Outbox<T>);

    /// Forgets the session and frees everything that it held.
    fn free(&mut self, slot: usize);

    /// Positions held for the session, for usage figures; 0 where that means nothing.
    fn held(&self, slot: usize) -> usize;

    /// Blocks of cached positions taken by all sessions together; 0 for a stage without any.
    fn blocks(&self) -> usize {
        0
    }
}

/// A window of log-mel frames to encode.
#[derive(Debug)]
pub struct MelInput<'a> {
    /// `[frames, bins]`
    pub mel: &'a [f32],
    /// Windows of the same turn before it.
    pub index: usize,
}

/// Turns sound into rows.
pub trait Encoder<T>: Send {
    /// Encodes several windows as one batch; one entry each.
    fn encode(&mut self, windows: &[MelInput<'_>]) -> Vec<AudioRows<T>>;
}

/// Writes prompts in the way that a model was trained on.
pub trait Prompt<T>: Send {
    /// The history as prompt positions. With `open`, windows of a message that is still being spoken follow; otherwise,
    /// with `answer`, the header of the model's turn.
    fn render(&self, history: &[Message<T>], open: Option<&[Arc<AudioRows<T>>]>, answer: bool) -> Vec<Element<T>>;

    /// The text of a system message that offers tools; `None` if the model knows none.
    fn with_tools(&self, _instructions: &str, _tools: &[Tool]) -> Option<String> {
        None
    }

    /// A call as the model writes it, with its arguments as JSON.
    fn tool_call(&self, _name: &str, _arguments: &str) -> Option<String> {
        None
    }

    /// The text of a message with what a tool answered.
    fn tool_result(&self, _output: &str) -> Option<String> {
        None
    }

    /// The ids between which the model writes a call.
    fn call_marks(&self) -> Option<(u32, u32)> {
        None
    }
}

/// How many conversations there is memory for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lanes {
    /// Sessions.
    pub sessions: usize,
    /// Answers outside of their conversations.
    pub beside: usize,
    /// Positions that a prompt and its answer may take.
    pub context: usize,
}

impl Lanes {
    /// Slots that every stage has.
    pub fn total(&self) -> usize {
        self.sessions + self.beside
    }
}

/// Geometry of a model's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Codec {
    /// Samples a second.
    pub sample_rate: u32,
    /// Duration of a frame.
    pub frame: Duration,
}

/// A loaded model, ready to be driven.
pub struct Model<T> {
    /// Text to ids and back.
    pub tokenizer: Tokenizer,
    /// Sound to log-mel windows.
    pub log_mel: Arc<LogMel>,
    /// Log-mel windows to rows.
    pub encoder: Box<dyn Encoder<T>>,
    /// History to prompt.
    pub prompt: Box<dyn Prompt<T>>,
    /// From the one that reads the prompt to the one that makes samples.
    pub stages: Vec<Box<dyn Stage<T>>>,
    /// What comes out.
    pub codec: Codec,
    /// Voices by name, the default one first.
    pub voices: Vec<String>,
    /// How many conversations it is set up for.
    pub lanes: Lanes,
    /// Most text tokens of an answer, if its request names none.
    pub max_tokens: u32,
}
