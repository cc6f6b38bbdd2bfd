//! What a caller asks of its session.

use std::time::{Duration, Instant};

#[cfg(doc)]
use super::{Event, FinishReason, ModelInfo, SessionError};

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
    /// Puts an item into the history that did not come from this session: a text, a sound, a tool's result.
    Insert {
        /// Name of the new item.
        item: ItemId,
        /// Where. An unknown neighbour fails with [`SessionError::UnknownItem`].
        place: InsertAt,
        /// What it says.
        content: Content,
    },
    /// New instructions (the system message); empty for none. They hold for answers asked for from now on.
    SetInstructions(String),
    /// The tools that the model may call; empty for none. They hold for answers asked for from now on.
    SetTools(Vec<Tool>),
    /// Answer the history as it stands; the answer becomes the assistant item `item`.
    Respond(Respond),
    /// Answer as if the caller's turn ended here: what was heard so far stands as the user item `item`. Its events come at once;
    /// nobody else may see them before [`Command::CommitSpeculation`]. What is appended from now on waits for the decision: after
    /// `Confirm` it opens the next audio item, after [`Command::AbortSpeculation`] it continues this one. One at a time, and not
    /// beside an answer of the conversation; without open audio this fails with [`SessionError::NothingToCommit`].
    BeginSpeculation {
        /// Name of the user item.
        item: ItemId,
        /// The answer.
        answer: Respond,
    },
    /// The turn did end where [`Command::BeginSpeculation`] took it to: its items are history like any others. Ignored when nothing of that name waits.
    CommitSpeculation {
        /// The answer that was begun.
        response: ResponseId,
    },
    /// The caller went on: the session is as if the answer had never been begun, and its names are free again. It is
    /// reported as cancelled if it was not complete. Ignored when nothing of that name waits.
    AbortSpeculation {
        /// The answer that was begun.
        response: ResponseId,
    },
    /// Stop the answer `response`, if it is still being made. What was said so far stays in the history, and the
    /// session reports [`Event::SegmentFinished`] with [`FinishReason::Cancelled`]. Unknown and finished answers are ignored.
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
    /// How far the caller has heard an answer. With it the engine knows when its caller runs out of sound; without
    /// it, sound is taken to be played as it is handed over.
    Played {
        /// The answer.
        response: ResponseId,
        /// Duration heard of it.
        position: Duration,
        /// When that was.
        at: Instant,
    },
    /// When sound is answered from now on. An open audio item goes on.
    SetSlicePolicy(SlicePolicy),
    /// Nothing will follow: once every answer is complete the session reports [`Event::Finished`]. With
    /// [`SlicePolicy::EachSlice`] the last slice, however short, is answered too. Sound and items that come later are refused
    /// ([`SessionError::AfterFinish`]).
    Finish,
}

/// Where an item is put.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum InsertAt {
    /// After everything else.
    #[default]
    End,
    /// Before everything else; instructions still come first.
    Start,
    /// After this item.
    After(ItemId),
}

/// What an item says.
#[derive(Debug, Clone, PartialEq)]
pub enum Content {
    /// A text.
    Text {
        /// Who says it.
        role: Role,
        /// What is said.
        text: String,
    },
    /// Sound of the caller, whole: mono samples in -1..1 at [`ModelInfo::input_rate`].
    Audio(Vec<f32>),
    /// A tool that the model called.
    ToolCall {
        /// Name of the tool.
        name: String,
        /// Its arguments, as JSON.
        arguments: String,
    },
    /// What a tool answered.
    ToolResult(String),
}

/// A function that the model may call.
#[derive(Debug, Clone, PartialEq)]
pub struct Tool {
    /// Its name.
    pub name: String,
    /// What it is for.
    pub description: String,
    /// JSON schema of its arguments, as JSON.
    pub parameters: String,
}

/// When sound is answered.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum SlicePolicy {
    /// When the caller says so: a turn is one audio item ([`Command::Commit`]), answered by [`Command::Respond`].
    #[default]
    OnCommit,
    /// Each slice by itself, before the next one is read, with memory across slices, as streaming translation wants.
    EachSlice {
        /// Samples of a slice, at least one frame of the log-mel front end (80 ms and more are sensible).
        samples: usize,
        /// Slice k becomes the user item `answer.item + 2 k`, its answer the item `answer.item + 2 k + 1` under the name
        /// `answer.response + k`. [`Command::Commit`] ends a slice early, whatever name it gives.
        answer: Box<Respond>,
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
    /// What to answer in place of the history; `None` for the history as it stands.
    pub input: Option<Vec<Input>>,
    /// Whether the answer is none of the conversation's: it leaves no item behind, and is made beside the others instead of
    /// after them.
    pub out_of_band: bool,
    /// Instructions for this answer in place of the session's; empty for none.
    pub instructions: Option<String>,
    /// Tools for this answer in place of the session's.
    pub tools: Option<Vec<Tool>>,
    /// Upper bound of text tokens; `None` for the model's own.
    pub max_tokens: Option<u32>,
    /// How the text is sampled; `None` for the checkpoint's generation config.
    pub sampling: Option<Sampling>,
    /// Random numbers are a function of (seed, response, step, codebook).
    pub seed: u64,
}

impl Command {
    /// A text message at the end of the history.
    pub fn text(item: ItemId, role: Role, text: impl Into<String>) -> Self {
        Self::Insert { item, place: InsertAt::End, content: Content::Text { role, text: text.into() } }
    }
}

impl Respond {
    /// A spoken answer of the conversation with the model's own settings, and seed 0.
    pub fn new(response: ResponseId, item: ItemId) -> Self {
        Self {
            response,
            item,
            voice: None,
            audio: true,
            input: None,
            out_of_band: false,
            instructions: None,
            tools: None,
            max_tokens: None,
            sampling: None,
            seed: 0,
        }
    }
}

/// A part of an answer's own input.
#[derive(Debug, Clone, PartialEq)]
pub enum Input {
    /// An item of the history.
    Item(ItemId),
    /// Something new.
    Content(Content),
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
