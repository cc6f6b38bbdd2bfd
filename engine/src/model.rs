//! A loaded model as the engine drives it: optional audio front end, prompt template, chain of stages, voices, and
//! output geometry.

use std::sync::Arc;
use std::time::Duration;

use repartee_engine_api::{EVENT_QUEUE, EnrolError, HearingInfo, ReadingInstructions, Recording, Tool};
use repartee_kernels::cpu::pool::Pool;
use repartee_spoken::ReasoningMarks;
use thiserror::Error;

use crate::elements::{AudioRows, Element, Message};
use crate::recogniser::Recogniser;
use crate::session::limits::{HEARD_EVENTS, MAX_RESPONSES};
use crate::stage::{EdgeKind, Stage};
use crate::text::Tokenizer;

/// Seconds of silence by whose windows the rows of a second are counted.
const PROBE_S: usize = 10;

/// A closed window of input audio, as the encoder takes it.
#[derive(Debug, Clone, PartialEq)]
pub struct InputWindow {
    /// Number of frames; the last window of an audio item may have fewer than the others.
    pub frames: usize,
    /// Frame values, `[frames, width]`, frame by frame.
    pub data: Vec<f32>,
}

/// Turns samples into windows. The windows depend on the samples alone, not on how they were split.
pub trait FrontEnd: Send + Sync {
    /// Sampling rate of its input, in Hz.
    fn rate(&self) -> u32;
    /// Opens a stream for a new audio item.
    fn stream(&self) -> Box<dyn FrontEndStream>;
}

/// Stream that turns one audio item into windows.
pub trait FrontEndStream: Send {
    /// Takes samples (-1..1) and appends the windows that they close to `closed`.
    fn push(&mut self, samples: &[f32], closed: &mut Vec<InputWindow>);
    /// Ends the item; returns the open window, or `None` if it has no frame.
    fn finish(self: Box<Self>) -> Option<InputWindow>;
    /// Number of samples pushed so far.
    fn samples(&self) -> usize;
    /// Returns an independent copy of the stream.
    fn fork(&self) -> Box<dyn FrontEndStream>;
}

/// Input of the encoder: one window.
#[derive(Debug, Clone, Copy)]
pub struct WindowInput<'a> {
    /// Frame values; see [`InputWindow::data`].
    pub data: &'a [f32],
    /// Index of the window within its audio item.
    pub index: usize,
}

/// Numbers of a window that an encoder has begun, between two units of its work.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct EncodingProgress {
    /// Number of units done.
    pub units: usize,
    /// Rows after the layers so far.
    pub rows: Vec<f32>,
    /// Rows of an earlier layer, which are added later.
    pub skipped: Vec<f32>,
    /// Queries, keys and values of the layer in work.
    pub projected: [Vec<f32>; 3],
    /// Results of its attention.
    pub attended: Vec<f32>,
}

/// Encodes windows to rows. It keeps no state between windows: what it keeps of a window that it has begun is in its progress.
pub trait Encoder: Send {
    /// Encodes several windows as one batch; returns one entry for each.
    fn encode(&mut self, windows: &[WindowInput<'_>]) -> Vec<AudioRows>;

    /// Number of rows of a window with so many frames; `None` if only its encoding tells.
    fn rows(&self, _frames: usize) -> Option<usize> {
        None
    }

    /// Number of units of work of a window. Each is bounded in cost; windows of one are encoded as a batch.
    fn units(&self, _window: &WindowInput<'_>) -> usize {
        1
    }

    /// Runs the next `units` units of a window. Returns its rows once all are done.
    fn advance(
        &mut self,
        window: &WindowInput<'_>,
        progress: &mut EncodingProgress,
        units: usize,
    ) -> Option<AudioRows> {
        progress.units += units;
        self.encode(std::slice::from_ref(window)).pop()
    }

    /// Bytes of the numbers of a window between two units, at most.
    fn unfinished_bytes(&self) -> usize {
        0
    }

    /// Ends a period of the encoder's memory; see [`Stage::end_idle_period`].
    fn end_idle_period(&mut self) -> bool {
        false
    }
}

/// Audio input of a model.
pub enum Hearing {
    /// Audio becomes rows of the model's own prompts.
    Rows(AudioFrontEnd),
    /// Audio becomes text, which stands in prompts like the caller's own.
    Text(Box<dyn Recogniser>),
}

impl Hearing {
    /// Sampling rate of its input, in Hz.
    pub fn rate(&self) -> u32 {
        match self {
            Self::Rows(audio) => audio.front_end.rate(),
            Self::Text(recogniser) => recogniser.rate(),
        }
    }
}

/// Audio input that becomes rows.
pub struct AudioFrontEnd {
    /// Turns samples into windows.
    pub front_end: Box<dyn FrontEnd>,
    /// Turns windows into rows.
    pub encoder: Box<dyn Encoder>,
}

impl AudioFrontEnd {
    /// Longest sound whose rows a prompt of `positions` positions has room for; `None` if only encoding tells the rows.
    pub fn longest(&self, positions: usize) -> Option<Duration> {
        let (mut stream, mut windows) = (self.front_end.stream(), Vec::new());
        let second = vec![0.0; self.front_end.rate() as usize];
        (0..PROBE_S).for_each(|_| stream.push(&second, &mut windows));
        windows.extend(stream.finish());
        let rows = windows.iter().map(|window| self.encoder.rows(window.frames)).sum::<Option<usize>>()?;
        let seconds = PROBE_S as f64 * positions as f64 / rows as f64;
        Duration::try_from_secs_f64(seconds).ok()
    }
}

/// Template of tools in prompts and generated text.
pub trait ToolTemplate {
    /// Text of a system message that offers tools.
    fn system(&self, instructions: &str, tools: &[Tool]) -> String;
    /// Text of a tool call; `arguments` is JSON.
    fn call(&self, name: &str, arguments: &str) -> String;
    /// Text of a tool result.
    fn result(&self, output: &str) -> String;
    /// Tokens that delimit a call in generated text; `None` if calls are JSON without any.
    fn call_tokens(&self) -> Option<&ToolCallTokens>;
}

/// Tokens that delimit a tool call in generated text, as id and spelling.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolCallTokens {
    /// Token that opens a call.
    pub open: (u32, String),
    /// Token that closes a call.
    pub close: (u32, String),
}

/// Marks around reasoning text in generated text, with the ids of those that are one token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReasoningTokens {
    /// Spelling of both marks.
    pub marks: ReasoningMarks,
    /// Id of the opening mark; `None` if several tokens spell it.
    pub open: Option<u32>,
    /// Id of the closing mark; `None` if several tokens spell it.
    pub close: Option<u32>,
}

/// Prompt template of a model.
pub trait PromptTemplate: Send {
    /// Renders the history as prompt positions. With `open`, the windows of an uncommitted audio item follow;
    /// otherwise, with `respond`, the header of the model's turn.
    fn render(&self, history: &[Message], open: Option<&[Arc<AudioRows>]>, respond: bool) -> Vec<Element>;

    /// Renders text that streams in during generation as positions; `None` if the model takes none.
    fn streamed(&self, _ids: &[u32]) -> Option<Vec<Element>> {
        None
    }

    /// True if the model speaks a given text a clause at a time, and makes it speakable itself: its first stage is a
    /// [clause reader](crate::models::parts::clause_reader).
    fn reads_clauses(&self) -> bool {
        false
    }

    /// True if answers can be held to a form ([`Respond::form`](repartee_engine_api::Respond::form)).
    fn holds_forms(&self) -> bool {
        false
    }

    /// True if later prompts contain the codes of the model's own speech.
    fn keeps_speech(&self) -> bool {
        false
    }

    /// Number of a response's text tokens that stand before its codec frame `frame` in later prompts; `None` for all
    /// tokens generated before the frame. A model that makes speech in a later stage than text returns a number,
    /// because the order of generation depends on the hand-off.
    fn tokens_before(&self, _frame: usize) -> Option<usize> {
        None
    }

    /// Marks around reasoning text, which is neither sent nor spoken, nor part of later prompts; `None` if the model
    /// writes none.
    fn reasoning(&self) -> Option<&ReasoningTokens> {
        None
    }

    /// Instructions that ask the model for a transcript of the caller's audio, if it was taught some; `None` for a request in
    /// plain words.
    fn transcription(&self) -> Option<&'static str> {
        None
    }

    /// Instructions with which the model reads the caller's message aloud, if it was taught some.
    fn given_text_instructions(&self) -> Option<ReadingInstructions> {
        None
    }

    /// Number of tokens, as limits and usage count them, that `positions` positions stand for.
    fn tokens(&self, positions: usize) -> usize {
        positions
    }

    /// Template of tools; `None` if the model has no tools.
    fn tools(&self) -> Option<&dyn ToolTemplate> {
        None
    }
}

/// Voices of a model.
pub trait Voices: Send {
    /// Names of the voices, the default one first.
    fn names(&self) -> Vec<String>;

    /// Sampling rate of the recordings for new voices, in Hz; `None` if the list of voices is fixed.
    fn recording_rate(&self) -> Option<u32> {
        None
    }

    /// Enrols a voice from a recording under an unused name. Runs on a caller's thread, in parallel with the stages.
    fn enrol(&mut self, _name: &str, _recording: &Recording) -> Result<(), EnrolError> {
        Err(EnrolError::Fixed { known: self.names().join(", ") })
    }

    /// Removes an enrolled voice; false if there is none of that name.
    fn remove_voice(&mut self, _name: &str) -> bool {
        false
    }
}

/// A fixed list of voices.
impl Voices for Vec<String> {
    fn names(&self) -> Vec<String> {
        self.clone()
    }
}

/// Numbers of slots, and positions of each, that the memory suffices for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotCounts {
    /// Slots for sessions.
    pub sessions: usize,
    /// Slots for out-of-band responses.
    pub out_of_band: usize,
    /// Positions of a prompt and its response together.
    pub context: usize,
}

impl SlotCounts {
    /// Number of all slots; every stage has this many.
    pub fn total(&self) -> usize {
        self.sessions + self.out_of_band
    }
}

/// Geometry of a model's audio output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Codec {
    /// Sampling rate, in Hz.
    pub sample_rate: u32,
    /// Samples of one codec frame, as a ratio: (numerator, denominator).
    pub frame_samples: (u32, u32),
}

impl Codec {
    /// Duration of one codec frame.
    pub fn frame(&self) -> Duration {
        let (samples, of) = self.frame_samples;
        let nanoseconds = u128::from(samples) * 1_000_000_000 / (u128::from(of) * u128::from(self.sample_rate));
        Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
    }

    /// Duration of `samples` samples.
    pub fn duration(&self, samples: usize) -> Duration {
        Duration::from_secs_f64(samples as f64 / f64::from(self.sample_rate))
    }
}

/// A loaded model, ready to run.
pub struct Model {
    /// Tokenizer of the checkpoint.
    pub tokenizer: Tokenizer,
    /// Audio input; `None` for a model that takes text alone.
    pub hearing: Option<Hearing>,
    /// Template of the model's prompts.
    pub template: Box<dyn PromptTemplate>,
    /// Stages in order, from the one that reads the prompt to the one that makes samples, or text if the model does not
    /// speak; none for a recogniser alone.
    pub stages: Vec<Box<dyn Stage>>,
    /// Geometry of the audio output; `None` for a model that answers with text alone.
    pub codec: Option<Codec>,
    /// Voices of the model; the scheduler takes them over.
    pub voices: Box<dyn Voices>,
    /// Slots that the stages were built for.
    pub slots: SlotCounts,
    /// Default upper bound of text tokens of a response.
    pub max_tokens: u32,
    /// The same of an answer: of a response whose text the model writes itself.
    pub answer_tokens: u32,
    /// Worker pool for operations and for stages that run in parallel. `None` for one thread, or for a device that has
    /// its own.
    pub pool: Option<Arc<Pool>>,
}

/// Error of stages that do not make a chain; a defect of the model family.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TopologyError {
    /// The model has no stage.
    #[error("the model has no stage")]
    Empty,
    /// A stage takes another kind of item than the stage before it gives.
    #[error("the {stage} takes {takes:?}, but gets {gets:?}")]
    Mismatch {
        /// Name of the stage.
        stage: &'static str,
        /// Kind of item that the stage takes.
        takes: EdgeKind,
        /// Kind of item that the stage before it gives.
        gets: EdgeKind,
    },
    /// The last stage makes neither samples, with a codec, nor text, without one.
    #[error("the last stage gives {gives:?}: a model with a codec ends in samples, one without in text")]
    LastStage {
        /// Kind of item that the last stage gives.
        gives: EdgeKind,
    },
    /// One tick can send more events than a session's queue holds.
    #[error(
        "one tick makes up to {events} events of each of {} responses, a session's queue holds {EVENT_QUEUE}",
        MAX_RESPONSES
    )]
    TooManyEvents {
        /// Events of one response in one tick.
        events: usize,
    },
}

impl Model {
    /// Upper bound of events that one tick can send for one response.
    pub fn events_per_tick(&self) -> usize {
        // A token of the first stage can give text, or the name and the arguments of a tool call.
        let texts = self.stages.first().map_or(0, |stage| match stage.output_kind() {
            EdgeKind::Text | EdgeKind::Rows | EdgeKind::Clauses | EdgeKind::Codes => 2 * stage.max_items(),
            EdgeKind::Prompt | EdgeKind::Latents | EdgeKind::Samples => 0,
        });
        let speaking_stages = self.stages.iter().filter(|stage| stage.output_kind() == EdgeKind::Samples);
        let pieces: usize = speaking_stages.map(|stage| stage.max_items()).sum();
        // The rest of an answer and of its text, the rest of a tool call, and the end. A hypothesis is less.
        texts + pieces + 5
    }

    /// True if it transcribes audio; `taught` if the checkpoint does so on request.
    pub fn transcribes(&self, taught: bool) -> bool {
        match self.hearing {
            Some(Hearing::Rows(_)) => taught || self.template.transcription().is_some(),
            Some(Hearing::Text(_)) => true,
            None => false,
        }
    }

    /// Properties of its hearing; `taught` if the checkpoint translates on request.
    pub fn hearing_info(&self, taught: bool) -> HearingInfo {
        match &self.hearing {
            // A template of its own for transcripts has none for translations.
            Some(Hearing::Rows(audio)) => {
                let translates = taught && self.template.transcription().is_none();
                HearingInfo { translates, longest: audio.longest(self.slots.context), ..HearingInfo::default() }
            }
            Some(Hearing::Text(recogniser)) => recogniser.info(),
            None => HearingInfo::default(),
        }
    }

    /// Audio input that becomes rows, if the model has such.
    pub fn front_end(&mut self) -> Option<&mut AudioFrontEnd> {
        match &mut self.hearing {
            Some(Hearing::Rows(audio)) => Some(audio),
            Some(Hearing::Text(_)) | None => None,
        }
    }

    /// True if it writes responses; otherwise it only hears.
    pub fn answers(&self) -> bool {
        !self.stages.is_empty()
    }

    /// Checks that each stage takes the kind of item that the stage before it gives, and that events fit into a
    /// session's queue.
    pub fn check(&self) -> Result<(), TopologyError> {
        let mut gets = EdgeKind::Prompt;
        for stage in &self.stages {
            if stage.input_kind() != gets {
                return Err(TopologyError::Mismatch { stage: stage.name(), takes: stage.input_kind(), gets });
            }
            gets = stage.output_kind();
        }
        match (gets, self.codec) {
            (EdgeKind::Prompt, None) if matches!(self.hearing, Some(Hearing::Text(_))) => Ok(()),
            (EdgeKind::Prompt, _) => Err(TopologyError::Empty),
            (EdgeKind::Samples, Some(_)) | (EdgeKind::Text, None) => {
                let events = self.events_per_tick();
                let fit = events * MAX_RESPONSES + HEARD_EVENTS <= EVENT_QUEUE;
                if fit { Ok(()) } else { Err(TopologyError::TooManyEvents { events }) }
            }
            (gives, _) => Err(TopologyError::LastStage { gives }),
        }
    }
}
