//! Commands of a session.

use std::time::{Duration, Instant};

use super::AnswerForm;
#[cfg(doc)]
use super::{Event, FinishReason, HearingInfo, ModelInfo, SessionError};

/// Id of one item of the history, chosen by the caller; unique within its session.
pub type ItemId = u64;
/// Id of one response, chosen by the caller; unique within its session.
pub type ResponseId = u64;

/// Upper bound of a text's bytes without a space; a text with more is refused.
pub const MAX_STRETCH: usize = 65_536;

/// A command of the caller. Commands are executed in order. Only [`Command::Cancel`] and [`Command::Played`] overtake
/// commands that wait until audio is encoded, but not those that name the same response. Each response
/// ([`Command::Respond`]) is a sub-request that waits until the response before it is finished.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// Appends a slice of input audio: mono samples in -1..1 at [`ModelInfo::input_rate`]. Slices collect in the open audio
    /// item and are prefilled silently while the caller speaks. A slice that would make the item too long is refused
    /// ([`SessionError::AudioTooLong`]); the audio before it can still be committed.
    Append(Vec<f32>),
    /// Asks for the text of the open audio item as it grows, as [`Event::InputText`], with hints for the recogniser;
    /// without open audio, of the next one. Ignored by models that do not hear text ([`ModelInfo::hears_text`]).
    Listen(Listen),
    /// Ends the open audio item. It becomes the user item `item` of the history. Without open audio this fails with
    /// [`SessionError::NothingToCommit`].
    Commit {
        /// Id of the new item.
        item: ItemId,
    },
    /// Discards the open audio item.
    Clear,
    /// Inserts an item into the history: a text, audio, a tool call or a tool result.
    Insert {
        /// Id of the new item.
        item: ItemId,
        /// Position in the history. An unknown neighbour fails with [`SessionError::UnknownItem`]; once items were
        /// evicted, the new item comes first instead.
        place: InsertAt,
        /// Content of the item.
        content: MessageContent,
    },
    /// Sets the instructions (the system message) of later responses; empty for none.
    SetInstructions(String),
    /// Sets the tools of later responses; empty for none.
    SetTools(Vec<Tool>),
    /// Sets what happens to a history that no longer fits the context. Refused for a share out of range
    /// ([`SessionError::BadValue`]).
    SetEviction(Eviction),
    /// Requests a response to the history as it stands. It becomes the assistant item [`Respond::item`].
    Respond(Respond),
    /// Writes down an audio item of the history, in the background. The transcript so far comes as [`Event::InputText`],
    /// its end as [`Event::SegmentFinished`]. A model that hears text gives what it has heard, without a second pass.
    /// Refused by models that do not transcribe ([`SessionError::NoTranscription`]) or translate
    /// ([`SessionError::NoTranslation`]).
    Transcribe(Transcribe),
    /// Begins a response as if the turn ended here: the open audio stands as the user item `item`. Its events come at
    /// once; the caller withholds them until it submits [`Command::CommitSpeculation`]. Audio appended meanwhile is
    /// kept: after a commit it opens the next audio item, after [`Command::AbortSpeculation`] it continues this one.
    /// One at a time, and not while an in-band response is pending or active; without open audio this fails with
    /// [`SessionError::NothingToCommit`].
    BeginSpeculation {
        /// Id of the user item.
        item: ItemId,
        /// Parameters of the response.
        respond: Respond,
    },
    /// Commits a speculation: the turn ended at its begin, and its items become ordinary history. Ignored if `response`
    /// is no open speculation.
    CommitSpeculation {
        /// Id of the response.
        response: ResponseId,
    },
    /// Aborts a speculation: the session is as if it had never begun, and its ids are free again. The response is reported as
    /// cancelled if it was not complete. Ignored if `response` is no open speculation.
    AbortSpeculation {
        /// Id of the response.
        response: ResponseId,
    },
    /// Cancels a pending or active response, or a transcript. Its text so far stays in the history, and the session reports
    /// [`Event::SegmentFinished`] with [`FinishReason::Cancelled`]. Unknown and finished responses are ignored.
    Cancel {
        /// Id of the response.
        response: ResponseId,
    },
    /// Replaces the text of an assistant item, for instance by the part that was heard. Unknown items are ignored, and so are
    /// responses that are not complete: cancel those first.
    Truncate {
        /// Id of the item.
        item: ItemId,
        /// New text of the item; empty removes the item.
        text: String,
    },
    /// Removes an item from the history; a pending response is cancelled. Unknown items are ignored, and so is the active
    /// response: cancel it first.
    Delete {
        /// Id of the item.
        item: ItemId,
    },
    /// Appends text to a response whose request sets [`Respond::streamed`]; the model reads it as it arrives. Unknown
    /// and finished responses are ignored.
    StreamText {
        /// Id of the response.
        response: ResponseId,
        /// Next piece of the text.
        text: String,
    },
    /// Ends the text of such a response.
    EndText {
        /// Id of the response.
        response: ResponseId,
    },
    /// Reports the playback position of a response, from which the engine computes when its caller runs out of audio. Without
    /// reports it assumes playback from the first samples on.
    Played {
        /// Id of the response.
        response: ResponseId,
        /// Duration of audio played so far.
        position: Duration,
        /// Time of this position.
        at: Instant,
    },
    /// Sets the policy for responses to input audio. Fails while audio is open.
    SetSlicePolicy(SlicePolicy),
    /// Ends the input: once every response is complete the session reports [`Event::Finished`]. With [`SlicePolicy::EachSlice`]
    /// the last slice, however short, is answered too. Later audio, items and requests are refused
    /// ([`SessionError::AfterFinish`]).
    Finish,
}

/// Position of a new item in the history.
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
    /// A text message of a role.
    Text {
        /// Speaker of the text.
        role: Role,
        /// Text of the message.
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
    /// Result of a tool call, as text.
    ToolResult(String),
}

/// Policy for a history that no longer fits the context.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Eviction {
    /// The oldest items are evicted, as many at once as leave a share of the positions.
    Oldest {
        /// Share of the positions after the instructions that stay, 0 to 1. The last item stays in any case.
        kept: f64,
        /// Upper bound of the positions after the instructions; `None` for what the context holds.
        most: Option<u32>,
    },
    /// No item is evicted: a response whose prompt leaves it no space is refused ([`SessionError::ContextFull`]).
    Nothing,
}

impl Default for Eviction {
    /// Frees a quarter at once, because everything after the evicted items is prefilled again.
    fn default() -> Self {
        Self::Oldest { kept: 0.75, most: None }
    }
}

/// A function that the model may call.
#[derive(Debug, Clone, PartialEq)]
pub struct Tool {
    /// Name of the function.
    pub name: String,
    /// Description for the model.
    pub description: String,
    /// JSON schema of the arguments, as JSON text.
    pub parameters: String,
}

/// Policy for responses to input audio.
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
    /// Id of the response's item in the history.
    pub item: ItemId,
    /// One of [`ModelInfo::voices`]; `None` for [`ModelInfo::default_voice`].
    pub voice: Option<String>,
    /// True for a spoken response; false for text alone.
    pub audio: bool,
    /// True if text streams in during generation ([`Command::StreamText`], [`Command::EndText`]), for models that speak
    /// a given text. Refused by other models.
    pub streamed: bool,
    /// Input in place of the history; `None` for the history as it stands.
    pub input: Option<Vec<ResponseInput>>,
    /// True for an out-of-band response: it leaves no item, and runs in a slot of its own instead of after other
    /// responses.
    pub out_of_band: bool,
    /// True for a background response: it gets only the time that other sessions and responses leave, and must be
    /// out-of-band. One at a time for each session.
    pub background: bool,
    /// Instructions in place of the session's; empty for none.
    pub instructions: Option<String>,
    /// Tools in place of the session's.
    pub tools: Option<Vec<Tool>>,
    /// Form that the answer is held to, by models of [`ModelInfo::answer_forms`]; others ignore it.
    pub form: AnswerForm,
    /// Upper bound of text tokens; `None` for the model's default.
    pub max_tokens: Option<u32>,
    /// Sampling of the text; `None` for the checkpoint's generation config.
    pub sampling: Option<Sampling>,
    /// Seed of random numbers, which are a function of (seed, response, step, codebook).
    pub seed: u64,
}

/// Hints for an audio item that is being heard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listen {
    /// Id under which its text is reported; best the id of its later [`Command::Commit`].
    pub item: ItemId,
    /// Language of the audio; `None` if unknown.
    pub language: Option<String>,
    /// Further hints, such as the spelling of names; empty for none.
    pub prompt: String,
    /// True for an English translation in place of the transcript, by models that translate ([`HearingInfo::translates`]).
    pub translate: bool,
    /// True for audio of a recording, which is at hand: it is heard window by window, and not as it grows. Its transcript
    /// has details ([`Event::InputDetails`]).
    pub recorded: bool,
    /// Certainty that the text of live audio waits for before it stays.
    pub delay: TextDelay,
}

/// Certainty that growing text waits for: more of it comes later, and holds more often.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum TextDelay {
    /// Words stay as soon as others follow them.
    Minimal,
    /// Two hypotheses agree on a word that stays.
    Low,
    /// Three hypotheses agree on a word that stays.
    #[default]
    Medium,
    /// Four hypotheses agree on a word that stays.
    High,
    /// Words stay at the end of the audio, or of the longest window of the model.
    VeryHigh,
}

impl Listen {
    /// Creates a request without hints for live audio.
    pub fn new(item: ItemId) -> Self {
        Self {
            item,
            language: None,
            prompt: String::new(),
            translate: false,
            recorded: false,
            delay: TextDelay::default(),
        }
    }
}

/// The parameters of one transcript. A model that hears text takes hints with [`Listen`] alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transcribe {
    /// Id of the transcript, among those of responses.
    pub response: ResponseId,
    /// The audio item.
    pub item: ItemId,
    /// Language of the audio; `None` if unknown.
    pub language: Option<String>,
    /// Further hints, such as the spelling of names; empty for none.
    pub prompt: String,
    /// True for an English translation in place of the transcript.
    pub translate: bool,
}

impl Transcribe {
    /// Creates a request for a transcript without hints.
    pub fn new(response: ResponseId, item: ItemId) -> Self {
        Self { response, item, language: None, prompt: String::new(), translate: false }
    }
}

impl Command {
    /// Creates a command that inserts a text message at the end of the history.
    pub fn text(item: ItemId, role: Role, text: impl Into<String>) -> Self {
        Self::Insert { item, place: InsertAt::End, content: MessageContent::Text { role, text: text.into() } }
    }
}

impl Respond {
    /// Creates a spoken in-band response with the model's settings and seed 0.
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
            form: AnswerForm::Free,
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
    /// Content that is not in the history.
    Content(MessageContent),
}

/// Sampling parameters of a token, applied in the order of the reference implementation: repetition penalty,
/// temperature, top-k, top-p.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampling {
    /// Temperature; 0 for greedy, with only the penalty in effect.
    pub temperature: f32,
    /// Number of most likely tokens to keep; 0 keeps all.
    pub top_k: u32,
    /// Nucleus: keeps the smallest set of tokens whose probability reaches `top_p`; 1 keeps all.
    pub top_p: f32,
    /// Divisor of positive and factor of negative logits of tokens already seen; 1 for none.
    pub repetition_penalty: f32,
}

impl Sampling {
    /// Greedy sampling: the most likely token.
    pub const GREEDY: Self = Self { temperature: 0.0, top_k: 0, top_p: 1.0, repetition_penalty: 1.0 };
}

/// Speaker of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Author of instructions.
    System,
    /// The caller as speaker.
    User,
    /// The model as speaker.
    Assistant,
}
