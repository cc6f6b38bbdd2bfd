//! The commands of a session.

use std::time::{Duration, Instant};

#[cfg(doc)]
use super::{Event, FinishReason, ModelInfo, SessionError};

/// One entry of the history, named by the caller; unique within its session.
pub type ItemId = u64;
/// One response, named by the caller; unique within its session.
pub type ResponseId = u64;

/// A command of the caller. Commands are executed in order; only [`Command::Cancel`] and [`Command::Played`] overtake commands that
/// wait until audio is encoded, but not the ones that name the same response. Each response ([`Command::Respond`]) is a sub-request that waits
/// until the response before it is finished.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// Appends a slice of input audio: mono samples in -1..1 at [`ModelInfo::input_rate`]. Slices collect in the open audio
    /// item and are prefilled silently while the caller speaks. A slice that would make the item too long is refused
    /// ([`SessionError::AudioTooLong`]); the audio before it can still be committed.
    Append(Vec<f32>),
    /// Ends the open audio item. It becomes the user item `item` of the history. Without open audio this fails with
    /// [`SessionError::NothingToCommit`].
    Commit {
        /// Name of the new item.
        item: ItemId,
    },
    /// Discards the open audio item.
    Clear,
    /// Inserts an item into the history: a text, audio, a tool call or a tool result.
    Insert {
        /// Name of the new item.
        item: ItemId,
        /// Its place. An unknown neighbour fails with [`SessionError::UnknownItem`].
        place: InsertAt,
        /// Its content.
        content: MessageContent,
    },
    /// Sets the instructions (the system message) of later responses; empty for none.
    SetInstructions(String),
    /// Sets the tools of later responses; empty for none.
    SetTools(Vec<Tool>),
    /// Requests a response to the history as it stands. It becomes the assistant item [`Respond::item`].
    Respond(Respond),
    /// Begins a response as if the turn ended here: the open audio stands as the user item `item`. Its events come at once; the
    /// caller withholds them until it submits [`Command::CommitSpeculation`]. Audio appended meanwhile is kept: after a commit it
    /// opens the next audio item, after [`Command::AbortSpeculation`] it continues this one. At most one at a time, and not while
    /// an in-band response is pending or active; without open audio this fails with [`SessionError::NothingToCommit`].
    BeginSpeculation {
        /// Name of the user item.
        item: ItemId,
        /// Parameters of the response.
        respond: Respond,
    },
    /// Commits a speculation: the turn ended where it began, and its items are ordinary history. Ignored if `response` is no open
    /// speculation.
    CommitSpeculation {
        /// The response.
        response: ResponseId,
    },
    /// Aborts a speculation: the session is as if it had never begun, and its ids are free again. The response is reported as
    /// cancelled if it was not complete. Ignored if `response` is no open speculation.
    AbortSpeculation {
        /// The response.
        response: ResponseId,
    },
    /// Cancels a pending or active response. Its text so far stays in the history, and the session reports
    /// [`Event::SegmentFinished`] with [`FinishReason::Cancelled`]. Unknown and finished responses are ignored.
    Cancel {
        /// The response.
        response: ResponseId,
    },
    /// Replaces the text of an assistant item, for instance by the part that was heard. Unknown items are ignored, and so are
    /// responses that are not complete: cancel those first.
    Truncate {
        /// The item.
        item: ItemId,
        /// The new text; empty removes the item.
        text: String,
    },
    /// Removes an item from the history; a pending response is cancelled. Unknown items are ignored, and so is the active
    /// response: cancel it first.
    Delete {
        /// The item.
        item: ItemId,
    },
    /// Text for a response whose request says [`Respond::streamed`]; it is read as it comes. Unknown and finished responses are
    /// ignored.
    StreamText {
        /// The response.
        response: ResponseId,
        /// The next piece.
        text: String,
    },
    /// Ends the text of such a response.
    EndText {
        /// The response.
        response: ResponseId,
    },
    /// Reports the playback position of a response, from which the engine computes when its caller runs out of audio. Without
    /// reports it assumes playback from the first samples on.
    Played {
        /// The response.
        response: ResponseId,
        /// Duration played.
        position: Duration,
        /// When this position held.
        at: Instant,
    },
    /// Sets when input audio is answered. Fails while audio is open.
    SetSlicePolicy(SlicePolicy),
    /// Ends the input: once every response is complete the session reports [`Event::Finished`]. With [`SlicePolicy::EachSlice`]
    /// the last slice, however short, is answered too. Later audio, items and requests are refused
    /// ([`SessionError::AfterFinish`]).
    Finish,
}

/// Place of a new item in the history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum InsertAt {
    /// After all other items.
    #[default]
    End,
    /// Before all other items, but after the instructions.
    Start,
    /// After this item.
    After(ItemId),
}

/// Content of an item.
#[derive(Debug, Clone, PartialEq)]
pub enum MessageContent {
    /// A text.
    Text {
        /// Speaker.
        role: Role,
        /// The text.
        text: String,
    },
    /// Complete audio of the caller: mono samples in -1..1 at [`ModelInfo::input_rate`].
    Audio(Vec<f32>),
    /// A tool call of the model.
    ToolCall {
        /// Name of the tool.
        name: String,
        /// Arguments, as JSON text.
        arguments: String,
    },
    /// Result of a tool call.
    ToolResult(String),
}

/// A function that the model may call.
#[derive(Debug, Clone, PartialEq)]
pub struct Tool {
    /// Its name.
    pub name: String,
    /// Description for the model.
    pub description: String,
    /// JSON schema of the arguments, as JSON text.
    pub parameters: String,
}

/// When input audio is answered.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum SlicePolicy {
    /// On request: a turn is one audio item ([`Command::Commit`]), answered by [`Command::Respond`].
    #[default]
    OnCommit,
    /// Slice by slice: each slice is a user item, answered before the next one is read, as in streaming translation.
    EachSlice {
        /// Samples of a slice; at least 80 ms.
        samples: usize,
        /// Parameters of the responses. Slice k becomes the user item `item + 2 k`, its response `response + k` the assistant item
        /// `item + 2 k + 1`. [`Command::Commit`] ends a slice early; its item id is ignored.
        respond: Box<Respond>,
    },
}

/// The parameters of one response.
#[derive(Debug, Clone, PartialEq)]
pub struct Respond {
    /// Id of the response.
    pub response: ResponseId,
    /// Id of its item in the history.
    pub item: ItemId,
    /// One of [`ModelInfo::voices`]; `None` for [`ModelInfo::default_voice`].
    pub voice: Option<String>,
    /// Whether the response is spoken; otherwise it is text alone.
    pub audio: bool,
    /// Whether text streams in while the response is being generated ([`Command::StreamText`], [`Command::EndText`]), as models
    /// take it that read text aloud. Refused by a model that cannot.
    pub streamed: bool,
    /// Input in place of the history; `None` for the history as it stands.
    pub input: Option<Vec<ResponseInput>>,
    /// Whether the response is out-of-band: it leaves no item, and runs in a slot of its own instead of after other responses.
    pub out_of_band: bool,
    /// Whether it is made only with what every other session and response leaves; then it is out-of-band, and nobody waits for it.
    /// One at a time for each session.
    pub background: bool,
    /// Instructions in place of the session's; empty for none.
    pub instructions: Option<String>,
    /// Tools in place of the session's.
    pub tools: Option<Vec<Tool>>,
    /// Upper bound of text tokens; `None` for the model's.
    pub max_tokens: Option<u32>,
    /// Sampling of the text; `None` for the checkpoint's generation config.
    pub sampling: Option<Sampling>,
    /// Random numbers are a function of (seed, response, step, codebook).
    pub seed: u64,
}

impl Command {
    /// Inserts a text message at the end of the history.
    pub fn text(item: ItemId, role: Role, text: impl Into<String>) -> Self {
        Self::Insert { item, place: InsertAt::End, content: MessageContent::Text { role, text: text.into() } }
    }
}

impl Respond {
    /// A spoken in-band response with the model's settings and seed 0.
    pub fn new(response: ResponseId, item: ItemId) -> Self {
        Self {
            response,
            item,
            voice: None,
            audio: true,
            streamed: false,
            input: None,
            out_of_band: false,
            background: false,
            instructions: None,
            tools: None,
            max_tokens: None,
            sampling: None,
            seed: 0,
        }
    }
}

/// A part of a response's own input.
#[derive(Debug, Clone, PartialEq)]
pub enum ResponseInput {
    /// An item of the history.
    Item(ItemId),
    /// New content.
    Content(MessageContent),
}

/// Sampling parameters of a token. They apply in the order of the reference implementation: repetition penalty, temperature,
/// top-k, top-p.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampling {
    /// 0 for greedy; then only the penalty has an effect.
    pub temperature: f32,
    /// Keep the `top_k` most likely tokens; 0 keeps all.
    pub top_k: u32,
    /// Keep the smallest set of tokens whose probability reaches `top_p`; 1 keeps all.
    pub top_p: f32,
    /// Divides (positive) or multiplies (negative) the logits of tokens already seen; 1 is none.
    pub repetition_penalty: f32,
}

impl Sampling {
    /// The most likely token.
    pub const GREEDY: Self = Self { temperature: 0.0, top_k: 0, top_p: 1.0, repetition_penalty: 1.0 };
}

/// Speaker of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Instructions.
    System,
    /// The caller.
    User,
    /// The model.
    Assistant,
}
