//! Interface between the scheduler and the stages of a model, and the items that pass between stages.
//!
//! A model is a chain of stages. Each keeps state by slot. The output of a stage goes to the next stage over a typed
//! edge; text and samples also become events for the caller.

use std::sync::Arc;
use std::time::Duration;

use repartee_engine_api::{AnswerForm, EngineUsage, Sampling, SessionError, Tool};
use repartee_spoken::SpokenOptions;

use crate::elements::Element;
use crate::held_form::{FormIds, HeldForm};

/// Parameters of one response for the stages.
#[derive(Debug, Clone, PartialEq)]
pub struct ResponseParams {
    /// Id of the response; random numbers depend on it.
    pub response: u64,
    /// Seed of the random numbers.
    pub seed: u64,
    /// Name of a voice of the model.
    pub voice: String,
    /// True if the response is spoken.
    pub audio: bool,
    /// True if text streams in during generation.
    pub streamed: bool,
    /// Functions that the model may call, for a stage that does not read them in the prompt.
    pub tools: Arc<[Tool]>,
    /// Form that the answer is held to.
    pub form: AnswerForm,
    /// The same, read for a stage of [`Stage::form_ids`].
    pub held: Option<HeldForm>,
    /// Upper bound of text tokens.
    pub max_tokens: u32,
    /// Sampling of the text; `None` for the checkpoint's generation config.
    pub sampling: Option<Sampling>,
}

/// End of a stage's part of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StageEnd {
    /// The model sampled its stop token.
    Stop,
    /// A limit was reached.
    Length,
}

/// Kind of item that passes over an edge during a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EdgeKind {
    /// Prompts, to the first stage.
    Prompt,
    /// Text tokens; the caller gets them too.
    Text,
    /// Text tokens, each with its hidden row; the caller gets the tokens too.
    Rows,
    /// Clauses of spoken text, to a voice that speaks a clause at a time.
    Clauses,
    /// Codes of codec frames.
    Codes,
    /// Rows without ids: spectrogram frames, latents of a codec.
    Latents,
    /// Samples, for the caller.
    Samples,
}

/// Item on the edge between two stages.
#[derive(Debug)]
pub enum StageItem {
    /// To the first stage: the whole prompt, and the response to begin once it is prefilled.
    Prompt {
        /// Every position of the prompt.
        elements: Vec<Element>,
        /// For each position, true if a later stage reads it. Such a position is prefilled in this slot: its cache
        /// comes neither from another slot nor from a response, because no later stage gets those rows as context.
        read: Vec<bool>,
        /// Response to begin; `None` for silent prefill.
        response: Option<ResponseParams>,
    },
    /// To the first stage: positions that streamed in for the response.
    Streamed(Vec<Element>),
    /// To the first stage: nothing more streams in for the response. Its text is complete, or was cut at a limit.
    StreamedEnd(StageEnd),
    /// To the first stage: the text that streams in pauses. What came before is spoken to its end; what follows is a new
    /// utterance.
    StreamedPause,
    /// Withdraws prompt positions from `to` on.
    Rewind {
        /// First withdrawn position.
        to: usize,
    },
    /// Prefilled prompt positions. A stage that leaves rows of them has storage for each position of each slot.
    Context {
        /// Position of the first element.
        from: usize,
        /// Elements, one for each position.
        elements: Vec<Element>,
    },
    /// Begins a response; the items after it belong to it.
    Begin(ResponseParams),
    /// A text token.
    Token(u32),
    /// A text token and its hidden row.
    Row {
        /// Id of the token.
        id: u32,
        /// Position of the hidden row.
        position: usize,
    },
    /// A piece of text of a stage that has no tokens.
    Text {
        /// The text; never ends within a character.
        text: String,
        /// Its ids in the history.
        ids: Vec<u32>,
    },
    /// A whole tool call of such a stage. It is not spoken.
    Call {
        /// Name of the tool.
        name: String,
        /// Arguments, as JSON text.
        arguments: String,
        /// Its ids in the history.
        ids: Vec<u32>,
    },
    /// Tokens of the prompt and of the response, as such a stage counts them.
    Usage(EngineUsage),
    /// The stage is at work for the response, and has nothing to give yet.
    Progress,
    /// Pauses the text: a tool call follows, which is not spoken. A stage that waits for text continues as at the
    /// text's end. Text after the call is a new utterance.
    TextPause,
    /// A clause of the response, as it is spoken: words and punctuation, without white space around them; with a letter or
    /// a digit.
    Clause(String),
    /// A codec frame before those of the response, as context for a later stage: it is decoded, but not played.
    Lead(Vec<u32>),
    /// A codec frame, one code for each codebook.
    Codes(Vec<u32>),
    /// Rows without ids.
    Latents {
        /// Values, one row after the other.
        rows: Vec<f32>,
        /// Number of rows.
        count: usize,
    },
    /// Audio samples of the response.
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

/// Share of one slot in a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchEntry {
    /// Index of the slot.
    pub slot: usize,
    /// Rows to advance; at most [`RunnableRows::rows`].
    pub rows: usize,
}

/// Kind of a stage's rows. Rows of one kind have the same cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RowKind {
    /// A prompt position.
    Prefill,
    /// A position of the response, sampling included: a token, or a codec frame with all its codebooks.
    Decode,
    /// A window of input audio, or of codec frames for the vocoder.
    Window,
    /// One evaluation of a solver over a window.
    SolverStep,
}

impl RowKind {
    /// Every kind, in the order of the variants.
    pub const ALL: [Self; 4] = [Self::Prefill, Self::Decode, Self::Window, Self::SolverStep];

    /// Smallest chunk of rows that pays off: a few prompt rows cost hardly more than one.
    pub fn least_chunk(self) -> usize {
        match self {
            Self::Prefill => 16,
            Self::Decode | Self::Window | Self::SolverStep => 1,
        }
    }
}

/// Rows that a stage can advance for a slot now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunnableRows {
    /// Number of rows; 0 while the slot waits for input.
    pub rows: usize,
    /// Kind of the rows.
    pub kind: RowKind,
}

impl RunnableRows {
    /// No rows: the slot waits for input.
    pub const NONE: Self = Self { rows: 0, kind: RowKind::Decode };

    /// A need of `rows` rows of a kind.
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

/// Size and hit counts of a stage's cache.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CacheUse {
    /// Number of blocks.
    pub capacity: usize,
    /// Blocks with memory of the system: those that are held, and free ones that were used.
    pub resident: usize,
    /// Bytes given back to the system since the start.
    pub given_back: u64,
    /// Prompt positions received since the start.
    pub prompted: u64,
    /// Prompt positions found in the cache since the start, of the slot's own earlier prompt or of another's.
    pub reused: u64,
}

/// One step of a model's graph, with the state of every slot.
pub trait Stage: Send {
    /// Name of the stage, for errors and measurements.
    fn name(&self) -> &'static str;

    /// Kind of item that it takes from the stage before.
    fn input_kind(&self) -> EdgeKind;

    /// Kind of item that it gives to the next stage.
    fn output_kind(&self) -> EdgeKind;

    /// False for a first stage that passes a given text on and writes none of its own.
    fn writes(&self) -> bool {
        true
    }

    /// Takes an item of the stage before. Items that need no computing pass on at once.
    fn accept(&mut self, slot: usize, item: StageItem, out: &mut Outbox);

    /// Takes what has arrived for the slot from outside of the engine, a bounded part of it; false if there is nothing.
    fn arrived(&mut self, _slot: usize, _out: &mut Outbox) -> bool {
        false
    }

    /// True if a response begun again from its prompt is the same.
    fn is_replayable(&self) -> bool {
        true
    }

    /// Rows that it can advance for the slot now.
    fn runnable_rows(&self, slot: usize) -> RunnableRows;

    /// Duration of audio that the slot's held input will become. The rows of earlier stages are due later by this much.
    fn buffered_audio(&self, _slot: usize) -> Duration {
        Duration::ZERO
    }

    /// Upper bound of one slot's rows in one step.
    fn max_rows(&self) -> usize;

    /// Upper bound of one slot's items from one step, not counting an end.
    fn max_items(&self) -> usize;

    /// Launches a step of several slots as one batch. Until [`Stage::collect`] nothing else is launched, but items may
    /// arrive and slots may be freed. A stage that computes at once gives its items here.
    fn launch(&mut self, work: &[BatchEntry], out: &mut Outbox);

    /// Waits for the launched step and gives its output. Samples nothing for a slot that was freed, or whose prompt or
    /// response has changed since; prompt positions that stay are passed on.
    fn collect(&mut self, _out: &mut Outbox) {}

    /// Advances several slots as one batch.
    fn step(&mut self, work: &[BatchEntry], out: &mut Outbox) {
        self.launch(work, out);
        self.collect(out);
    }

    /// Resets the slot and frees its resources.
    fn free(&mut self, slot: usize);

    /// Positions cached for the slot; 0 for a stage without a cache.
    fn held(&self, _slot: usize) -> usize {
        0
    }

    /// Cache blocks held by all slots together; 0 for a stage without a cache.
    fn blocks(&self) -> usize {
        0
    }

    /// Size and hit counts of its cache; zeros for a stage without one.
    fn cache_use(&self) -> CacheUse {
        CacheUse::default()
    }

    /// True if its state depends on this prompt position. Positions that a later stage reads are not taken from another
    /// slot's cache.
    fn reads(&self, _element: &Element) -> bool {
        false
    }

    /// Launches every decode step once, for no slot, so that a device that captures steps has captured them.
    fn prepare(&mut self) {}

    /// Number of steps launched without a captured graph; see
    /// [`Ops::eager_steps`](repartee_kernels::Ops::eager_steps).
    fn eager_steps(&self) -> Option<u64> {
        None
    }

    /// Number of leading prompt positions for which `donor` holds all that this stage needs.
    fn shareable_prefix(&self, _donor: usize, prompt: &[Element]) -> usize {
        prompt.len()
    }

    /// Takes over `donor`'s state for a whole prompt, as [`Stage::shareable_prefix`] allows; false if there is no memory for it.
    fn share_prefix(&mut self, _slot: usize, _donor: usize, _prompt: &[Element]) -> bool {
        true
    }

    /// Keeps the shareable prefix of a slot that is about to be freed for later sessions: its cached leading positions
    /// that no later stage reads.
    fn keep_prefix(&mut self, _slot: usize) {}

    /// Ends a period of the stage's memory. [`Stage::give_back_idle`] gives back what nobody used in it. True if memory that
    /// nobody uses is left for later periods.
    fn end_idle_period(&mut self) -> bool {
        false
    }

    /// Gives a bounded part of the idle memory back to the system; false if there is none.
    fn give_back_idle(&mut self) -> bool {
        false
    }

    /// Maximum codec frames of an utterance; `None` if the stage makes none.
    fn most_frames(&self) -> Option<usize> {
        None
    }

    /// Ids of a stage whose text can be held to a form ([`ResponseParams::held`]); `None` for other stages.
    fn form_ids(&self) -> Option<FormIds> {
        None
    }

    /// Form in which the stage passes text on to be spoken; `None` if it does not make text speakable.
    fn spoken_text(&self) -> Option<&SpokenOptions> {
        None
    }

    /// Positions that a prompt takes, and the limit that leaves space for a response of `max_tokens` text tokens;
    /// `None` for a stage that reads no prompt.
    fn context_budget(&self, _prompt: &[Element], _max_tokens: usize) -> Option<ContextBudget> {
        None
    }
}
