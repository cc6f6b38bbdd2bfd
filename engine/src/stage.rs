//! The scheduler's interface to a model: stages that step batches of rows, and the items that pass between them.
//!
//! A model is a chain of stages. Each keeps state by slot. A stage's output goes to the next stage; [`Item::Token`] and
//! [`Item::Samples`] also become events for the caller.

use std::sync::Arc;
use std::time::Duration;

use repartee_engine_api::{Sampling, SessionError, Tool};

use crate::audio::log_mel::LogMel;
use crate::text::Tokenizer;

/// Encoded rows of one closed window of input audio; compared by identity.
#[derive(Debug)]
pub struct AudioRows<T> {
    /// The rows on the device.
    pub rows: T,
    /// Number of rows.
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
    /// One row of audio, always of a user's message.
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

/// One message of a session's history, as token ids and encoded audio; text is never tokenised again.
#[derive(Debug)]
pub enum Message<T> {
    /// Instructions.
    System(Vec<u32>),
    /// Text of the caller.
    UserText(Vec<u32>),
    /// Audio of the caller.
    UserAudio(Vec<Arc<AudioRows<T>>>),
    /// Text of the model without the stop token, tool calls included.
    Assistant(Vec<u32>),
    /// A tool call that the caller inserted.
    ToolCall(Vec<u32>),
    /// Result of a tool.
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

/// Parameters of one response for the stages.
#[derive(Debug, Clone, PartialEq)]
pub struct ResponseParams {
    /// Id of the response; random numbers depend on it.
    pub response: u64,
    /// Seed for random numbers.
    pub seed: u64,
    /// A voice of the model.
    pub voice: String,
    /// Whether it is spoken.
    pub audio: bool,
    /// Upper bound of text tokens.
    pub max_tokens: u32,
    /// Sampling of the text; `None` for the checkpoint's generation config.
    pub sampling: Option<Sampling>,
}

/// Why a stage's part of a response ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The model's stop token.
    Stop,
    /// A limit.
    Length,
}

/// An item on the edge between two stages.
#[derive(Debug)]
pub enum Item<T> {
    /// To the first stage: the whole prompt, and the response to begin once it is prefilled.
    Prompt {
        /// Every position.
        elements: Vec<Element<T>>,
        /// `None` for silent prefill.
        response: Option<ResponseParams>,
    },
    /// Prompt positions from `to` on are withdrawn.
    Rewind {
        /// First position withdrawn.
        to: usize,
    },
    /// Prompt positions that were prefilled.
    Context {
        /// Position of the first.
        from: usize,
        /// The positions.
        elements: Vec<Element<T>>,
        /// One hidden row for each.
        hidden: Arc<T>,
    },
    /// A response begins; the items after it belong to it.
    Begin(ResponseParams),
    /// A text token.
    Token(u32),
    /// A codec frame, one code for each codebook.
    Frame(Vec<u32>),
    /// Samples of one codec frame.
    Samples(Vec<f32>),
    /// The response is complete on this edge.
    End(End),
    /// The response is aborted.
    Abort,
    /// The response failed.
    Fail(SessionError),
}

/// Output of the stages, in order: (slot, item).
pub type Outbox<T> = Vec<(usize, Item<T>)>;

/// What a row of a step is. Rows of different kinds differ in cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowKind {
    /// A position of a prompt: it is read into the cache and gives no output.
    Prefill,
    /// A position that gives output: a text token with its logits, or a codec frame with all its codebooks.
    Decode,
    /// A window of sound that is computed as one, for example by an encoder.
    Window,
    /// One evaluation of a solver that refines a window several times.
    SolverStep,
}

impl RowKind {
    /// Every kind, in the order of the variants.
    pub const ALL: [Self; 4] = [Self::Prefill, Self::Decode, Self::Window, Self::SolverStep];

    /// Rows below which a chunk does not pay: more of a prompt's rows cost hardly more than one.
    pub fn least_chunk(self) -> usize {
        match self {
            Self::Prefill => 16,
            Self::Decode | Self::Window | Self::SolverStep => 1,
        }
    }
}

/// One slot's part of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Work {
    /// The slot.
    pub slot: usize,
    /// Rows to advance; at most [`Stage::ready`].
    pub rows: usize,
}

/// One step of a model's graph, with the state of every slot.
pub trait Stage<T>: Send {
    /// Name, for errors and measurements.
    fn name(&self) -> &'static str;

    /// Takes an item of the stage before. Items that need no computing are passed on at once.
    fn accept(&mut self, slot: usize, item: Item<T>, out: &mut Outbox<T>);

    /// Rows by which the slot can advance now; 0 while it waits for input.
    fn ready(&self, slot: usize) -> usize;

    /// What the slot's ready rows are. By default several rows are a prompt's, and a single one decodes.
    fn kind(&self, slot: usize) -> RowKind {
        if self.ready(slot) > 1 { RowKind::Prefill } else { RowKind::Decode }
    }

    /// Upper bound of rows of one slot in one step.
    fn max_rows(&self) -> usize;

    /// Advances several slots as one batch.
    fn step(&mut self, work: &[Work], out: &mut Outbox<T>);

    /// Resets the slot and frees what it holds.
    fn free(&mut self, slot: usize);

    /// Positions cached for the slot; 0 for a stage without a cache.
    fn held(&self, slot: usize) -> usize;

    /// Cache blocks taken by all slots together; 0 for a stage without a cache.
    fn blocks(&self) -> usize {
        0
    }
}

/// A window of log-mel frames to encode.
#[derive(Debug)]
pub struct MelInput<'a> {
    /// `[frames, bins]`
    pub mel: &'a [f32],
    /// Index of the window within its turn.
    pub index: usize,
}

/// Encodes log-mel windows to rows.
pub trait Encoder<T>: Send {
    /// Encodes several windows as one batch; one entry each.
    fn encode(&mut self, windows: &[MelInput<'_>]) -> Vec<AudioRows<T>>;
}

/// The prompt template of a model.
pub trait Prompt<T>: Send {
    /// The history as prompt positions. With `open`, the windows of an uncommitted audio message follow; otherwise, with
    /// `respond`, the header of the model's turn.
    fn render(&self, history: &[Message<T>], open: Option<&[Arc<AudioRows<T>>]>, respond: bool) -> Vec<Element<T>>;

    /// The text of a system message that offers tools; `None` if the model knows none.
    fn with_tools(&self, _instructions: &str, _tools: &[Tool]) -> Option<String> {
        None
    }

    /// The text of a tool call; `arguments` is JSON. `None` if the model knows no tools.
    fn tool_call(&self, _name: &str, _arguments: &str) -> Option<String> {
        None
    }

    /// The text of a tool result; `None` if the model knows no tools.
    fn tool_result(&self, _output: &str) -> Option<String> {
        None
    }

    /// Token ids that open and close a tool call; `None` if the model knows no tools.
    fn call_marks(&self) -> Option<(u32, u32)> {
        None
    }
}

/// Slots that the memory suffices for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slots {
    /// Slots of sessions.
    pub sessions: usize,
    /// Slots of out-of-band responses.
    pub out_of_band: usize,
    /// Positions of a prompt and its response together.
    pub context: usize,
}

impl Slots {
    /// All slots; every stage has so many.
    pub fn total(&self) -> usize {
        self.sessions + self.out_of_band
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
    /// Tokenizer of the checkpoint.
    pub tokenizer: Tokenizer,
    /// Front end: samples to log-mel windows.
    pub log_mel: Arc<LogMel>,
    /// Log-mel windows to rows.
    pub encoder: Box<dyn Encoder<T>>,
    /// Prompt template.
    pub prompt: Box<dyn Prompt<T>>,
    /// From the stage that reads the prompt to the stage that makes samples.
    pub stages: Vec<Box<dyn Stage<T>>>,
    /// Geometry of the output.
    pub codec: Codec,
    /// Voices by name, the default one first.
    pub voices: Vec<String>,
    /// Slots that the stages were made for.
    pub slots: Slots,
    /// Upper bound of text tokens of a response whose request names none.
    pub max_tokens: u32,
}
