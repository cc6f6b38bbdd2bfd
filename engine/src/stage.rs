//! The scheduler's interface to the stages of a model, and the items that pass between them.
//!
//! A model is a chain of stages. Each keeps state by slot. What a stage gives goes to the next stage over a typed edge;
//! text and samples also become events for the caller.

use std::time::Duration;

use repartee_engine_api::{Sampling, SessionError};

use crate::elements::Element;

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
    /// Whether text streams in while it is being generated.
    pub streamed: bool,
    /// Upper bound of text tokens.
    pub max_tokens: u32,
    /// Sampling of the text; `None` for the checkpoint's generation config.
    pub sampling: Option<Sampling>,
}

/// Why a stage's part of a response ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StageEnd {
    /// The model's stop token.
    Stop,
    /// A limit.
    Length,
}

/// What passes over an edge during a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EdgeKind {
    /// Prompts, to the first stage.
    Prompt,
    /// Text tokens; the caller gets them too.
    Text,
    /// Text tokens, each with its hidden row; the caller gets the tokens too.
    Rows,
    /// Codes of codec frames.
    Codes,
    /// Rows without ids: spectrogram frames, latents of a codec.
    Latents,
    /// Samples, for the caller.
    Samples,
}

/// An item on the edge between two stages.
#[derive(Debug)]
pub enum StageItem {
    /// To the first stage: the whole prompt, and the response to begin once it is prefilled.
    Prompt {
        /// Every position.
        elements: Vec<Element>,
        /// For each position, whether a later stage reads it. Such a position is prefilled in this slot: its cache is taken
        /// neither from another slot nor from a response, whose rows no later stage gets as context.
        read: Vec<bool>,
        /// `None` for silent prefill.
        response: Option<ResponseParams>,
    },
    /// To the first stage: positions that streamed in for the response.
    Streamed(Vec<Element>),
    /// To the first stage: nothing more streams in for the response.
    StreamedEnd,
    /// Prompt positions from `to` on are withdrawn.
    Rewind {
        /// First position withdrawn.
        to: usize,
    },
    /// Prompt positions that were prefilled. A stage that leaves rows of them has a place for each position of each slot.
    Context {
        /// Position of the first.
        from: usize,
        /// The positions.
        elements: Vec<Element>,
    },
    /// A response begins; the items after it belong to it.
    Begin(ResponseParams),
    /// A text token.
    Token(u32),
    /// A text token and its hidden row.
    Row {
        /// The token.
        id: u32,
        /// Position whose row it is.
        position: usize,
    },
    /// The text has ended for now: a tool call follows, which is not spoken. A stage that waits for text goes on as at the
    /// text's end. Text after it is an utterance of its own.
    TextPause,
    /// A codec frame that stands before those of the response, for the state of a later stage: it is decoded, but not heard.
    Lead(Vec<u32>),
    /// A codec frame, one code for each codebook.
    Codes(Vec<u32>),
    /// Rows without ids.
    Latents {
        /// Their numbers, one row after the other.
        rows: Vec<f32>,
        /// How many.
        count: usize,
    },
    /// Samples.
    Samples(Vec<f32>),
    /// The response is complete on this edge.
    End(StageEnd),
    /// The response is aborted.
    Abort,
    /// The response failed.
    Fail(SessionError),
}

/// Output of the stages, in order: (slot, item).
pub type Outbox = Vec<(usize, StageItem)>;

/// One slot's part of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchEntry {
    /// The slot.
    pub slot: usize,
    /// Rows to advance; at most [`Need::rows`].
    pub rows: usize,
}

/// What a row of a stage is. Rows of one kind cost alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RowKind {
    /// A prompt position.
    Prefill,
    /// A position of the response, with what is sampled from it: a token, or a codec frame with all its codebooks.
    Decode,
    /// A window of input audio, or of codec frames on their way to samples.
    Window,
    /// One evaluation of a solver over a window.
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

/// What a stage could do for a slot now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunnableRows {
    /// Rows by which the slot can advance; 0 while it waits for input.
    pub rows: usize,
    /// What they are.
    pub kind: RowKind,
}

impl RunnableRows {
    /// Nothing: the slot waits for input.
    pub const NONE: Self = Self { rows: 0, kind: RowKind::Decode };

    /// So many rows of a kind.
    pub fn rows(rows: usize, kind: RowKind) -> Self {
        Self { rows, kind }
    }
}

/// Positions of a stage for one prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContextBudget {
    /// Positions that the prompt takes.
    pub used: usize,
    /// Positions that a prompt may take.
    pub limit: usize,
}

/// A stage's cache: how large it is, and what it has saved.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CacheUse {
    /// Blocks that there are.
    pub capacity: usize,
    /// Positions of the prompts that came, since the start.
    pub prompted: u64,
    /// How many of these were cached already, of the slot's own prompt before or of another's.
    pub reused: u64,
}

/// One step of a model's graph, with the state of every slot.
pub trait Stage: Send {
    /// Name, for errors and measurements.
    fn name(&self) -> &'static str;

    /// What it takes from the stage before.
    fn input_kind(&self) -> EdgeKind;

    /// What it gives to the next stage.
    fn output_kind(&self) -> EdgeKind;

    /// Takes an item of the stage before. Items that need no computing are passed on at once.
    fn accept(&mut self, slot: usize, item: StageItem, out: &mut Outbox);

    /// What it could do for the slot now.
    fn runnable_rows(&self, slot: usize) -> RunnableRows;

    /// Sound that the input which it holds for the slot will become. Its own due time is later by what later stages hold.
    fn buffered_audio(&self, _slot: usize) -> Duration {
        Duration::ZERO
    }

    /// Upper bound of rows of one slot in one step.
    fn max_rows(&self) -> usize;

    /// Upper bound of items that one step gives for one slot, an end not counted.
    fn max_items(&self) -> usize;

    /// Begins to advance several slots as one batch. Until [`Stage::collect`] nothing else is launched, but items may come and slots
    /// may be freed. A stage that computes at once gives its items here.
    fn launch(&mut self, work: &[BatchEntry], out: &mut Outbox);

    /// Waits for what was launched and gives what it made. Nothing is sampled for a slot that was freed, or whose prompt or response is
    /// another one since; prompt positions that stay are passed on.
    fn collect(&mut self, _out: &mut Outbox) {}

    /// Advances several slots as one batch.
    fn step(&mut self, work: &[BatchEntry], out: &mut Outbox) {
        self.launch(work, out);
        self.collect(out);
    }

    /// Resets the slot and frees what it holds.
    fn free(&mut self, slot: usize);

    /// Positions cached for the slot; 0 for a stage without a cache.
    fn held(&self, _slot: usize) -> usize {
        0
    }

    /// Cache blocks taken by all slots together; 0 for a stage without a cache.
    fn blocks(&self) -> usize {
        0
    }

    /// How its cache is used; nothing for a stage without one.
    fn cache_use(&self) -> CacheUse {
        CacheUse::default()
    }

    /// Whether its state depends on this prompt position. What a later stage reads is not taken from another slot's cache.
    fn reads(&self, _element: &Element) -> bool {
        false
    }

    /// Launches every step once that decoding takes, for no slot: a device that captures steps has captured them then.
    fn prepare(&mut self) {}

    /// See [`StepOps::eager_steps`](repartee_kernels::StepOps::eager_steps).
    fn eager_steps(&self) -> Option<u64> {
        None
    }

    /// Leading positions of a prompt for which `donor` holds all that this stage needs.
    fn shareable_prefix(&self, _donor: usize, prompt: &[Element]) -> usize {
        prompt.len()
    }

    /// Takes over `donor`'s state for a whole prompt, which [`Stage::shares`] allows; false if there is no memory for it.
    fn share_prefix(&mut self, _slot: usize, _donor: usize, _prompt: &[Element]) -> bool {
        true
    }

    /// Keeps what later sessions may share of a slot that is about to be freed: its cached leading positions that no later
    /// stage reads.
    fn keep_prefix(&mut self, _slot: usize) {}

    /// Positions that a prompt takes, and those that it may take if room is left for a response of `max_tokens` text tokens;
    /// `None` for a stage that reads no prompt.
    fn context_budget(&self, _prompt: &[Element], _max_tokens: usize) -> Option<ContextBudget> {
        None
    }
}
