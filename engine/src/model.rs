//! A loaded model as the engine drives it: optional ears, a script, a chain of stages, voices, and the geometry of its output.

use std::sync::Arc;
use std::time::Duration;

use repartee_engine_api::{EVENT_QUEUE, EnrolError, Recording, Tool};
use repartee_kernels::cpu::pool::Pool;
use thiserror::Error;

use crate::elements::{AudioRows, Element, Message};
use crate::session::pending_response::MAX_RESPONSES;
use crate::stage::{EdgeKind, Stage};
use crate::text::Tokenizer;

/// A closed window of input audio, as an encoder takes it.
#[derive(Debug, Clone, PartialEq)]
pub struct InputWindow {
    /// Frames; the last window of an audio item may have fewer than the others.
    pub frames: usize,
    /// `[frames, width]`, frame by frame.
    pub data: Vec<f32>,
}

/// Samples to windows. The windows depend on the samples alone, not on how they were split.
pub trait FrontEnd: Send + Sync {
    /// Samples a second that it takes.
    fn rate(&self) -> u32;
    /// The stream of a new audio item.
    fn stream(&self) -> Box<dyn FrontEndStream>;
}

/// One audio item on its way to windows.
pub trait FrontEndStream: Send {
    /// Takes samples (-1..1) and appends the windows that they close to `closed`.
    fn push(&mut self, samples: &[f32], closed: &mut Vec<InputWindow>);
    /// Ends the item: the window that is still open; `None` if it has no frame.
    fn finish(self: Box<Self>) -> Option<InputWindow>;
    /// Samples so far.
    fn samples(&self) -> usize;
    /// An equal stream that goes its own way.
    fn fork(&self) -> Box<dyn FrontEndStream>;
}

/// A window to encode.
#[derive(Debug, Clone, Copy)]
pub struct WindowInput<'a> {
    /// [`InputWindow::data`]
    pub data: &'a [f32],
    /// Index of the window within its audio item.
    pub index: usize,
}

/// Encodes windows to rows. It keeps no state from window to window.
pub trait Encoder: Send {
    /// Encodes several windows as one batch; one entry each.
    fn encode(&mut self, windows: &[WindowInput<'_>]) -> Vec<AudioRows>;
}

/// How a model hears.
pub struct AudioFrontEnd {
    /// Samples to windows.
    pub front_end: Box<dyn FrontEnd>,
    /// Windows to rows.
    pub encoder: Box<dyn Encoder>,
}

/// The texts of tools in a model's template.
pub trait ToolTemplate {
    /// The text of a system message that offers tools.
    fn system(&self, instructions: &str, tools: &[Tool]) -> String;
    /// The text of a tool call; `arguments` is JSON.
    fn call(&self, name: &str, arguments: &str) -> String;
    /// The text of a tool result.
    fn result(&self, output: &str) -> String;
    /// What stands around a call in generated text.
    fn marks(&self) -> &ToolCallTokens;
}

/// The tokens around a tool call in generated text, as id and spelling.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolCallTokens {
    /// Opens a call.
    pub open: (u32, String),
    /// Closes it.
    pub close: (u32, String),
}

/// How a model's prompt is written.
pub trait PromptTemplate: Send {
    /// The history as prompt positions. With `open`, the windows of an uncommitted audio item follow; otherwise, with
    /// `respond`, the header of the model's turn.
    fn render(&self, history: &[Message], open: Option<&[Arc<AudioRows>]>, respond: bool) -> Vec<Element>;

    /// The positions of text that streams in while the response is being generated; `None` if the model cannot take any.
    fn streamed(&self, _ids: &[u32]) -> Option<Vec<Element>> {
        None
    }

    /// Whether the codes that the model speaks are part of later prompts.
    fn keeps_speech(&self) -> bool {
        false
    }

    /// Text tokens of a response that stand before its codec frame `frame` in later prompts; `None` for those that came before
    /// it. A model whose speech is made in a later stage than its text names them: what came first depends on the hand-off.
    fn tokens_before(&self, _frame: usize) -> Option<usize> {
        None
    }

    /// Its template of tools; `None` if the model knows none.
    fn tools(&self) -> Option<&dyn ToolTemplate> {
        None
    }
}

/// The voices of a model.
pub trait Voices: Send {
    /// Names, the default one first.
    fn names(&self) -> Vec<String>;

    /// Sampling rate of the recordings that new voices are made of, in Hz; `None` for a fixed list.
    fn recording_rate(&self) -> Option<u32> {
        None
    }

    /// Makes a voice of this name, which no other has, out of a recording. Runs beside the stages, on a thread of its own.
    fn enrol(&mut self, _name: &str, _recording: &Recording) -> Result<(), EnrolError> {
        Err(EnrolError::Fixed { known: self.names().join(", ") })
    }

    /// Forgets a voice that was made; whether there was one.
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

/// Slots that the memory suffices for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotCounts {
    /// Slots of sessions.
    pub sessions: usize,
    /// Slots of out-of-band responses.
    pub out_of_band: usize,
    /// Positions of a prompt and its response together.
    pub context: usize,
}

impl SlotCounts {
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
    /// Samples of one codec frame, as a ratio: (numerator, denominator).
    pub frame_samples: (u32, u32),
}

impl Codec {
    /// Duration of a frame.
    pub fn frame(&self) -> Duration {
        let (samples, of) = self.frame_samples;
        let nanoseconds = u128::from(samples) * 1_000_000_000 / (u128::from(of) * u128::from(self.sample_rate));
        Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
    }

    /// Duration of so many samples.
    pub fn duration(&self, samples: usize) -> Duration {
        Duration::from_secs_f64(samples as f64 / f64::from(self.sample_rate))
    }
}

/// A loaded model, ready to be driven.
pub struct Model {
    /// Tokenizer of the checkpoint.
    pub tokenizer: Tokenizer,
    /// How it hears; `None` for a model that only reads.
    pub audio: Option<AudioFrontEnd>,
    /// How its prompts are written.
    pub template: Box<dyn PromptTemplate>,
    /// From the stage that reads the prompt to the stage that makes samples.
    pub stages: Vec<Box<dyn Stage>>,
    /// Geometry of the output.
    pub codec: Codec,
    /// Its voices.
    pub voices: Box<dyn Voices>,
    /// Slots that the stages were made for.
    pub slots: SlotCounts,
    /// Upper bound of text tokens of a response whose request names none.
    pub max_tokens: u32,
    /// The threads that its operations are split over; the stages run side by side on the same ones. `None` for one thread, or for a
    /// device that has its own.
    pub pool: Option<Arc<Pool>>,
}

/// Why stages do not make a chain. A defect of a family.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TopologyError {
    /// There is no stage.
    #[error("the model has no stage")]
    Empty,
    /// A stage takes something else than the one before it gives.
    #[error("the {stage} takes {takes:?}, but gets {gets:?}")]
    Mismatch {
        /// The stage.
        stage: &'static str,
        /// What it takes.
        takes: EdgeKind,
        /// What it gets.
        gets: EdgeKind,
    },
    /// The last stage makes no samples.
    #[error("the last stage gives {gives:?}, not samples")]
    Silent {
        /// What it gives.
        gives: EdgeKind,
    },
    /// One step makes more events than a session's queue holds.
    #[error(
        "one tick makes up to {events} events of each of {} responses, a session's queue holds {EVENT_QUEUE}",
        MAX_RESPONSES
    )]
    TooManyEvents {
        /// Events.
        events: usize,
    },
}

impl Model {
    /// Events that one tick can send for one response.
    pub fn events_per_tick(&self) -> usize {
        let events = self.stages.iter().map(|stage| match stage.output_kind() {
            // A token can give text, or the name and the arguments of a tool call.
            EdgeKind::Text | EdgeKind::Rows => 2 * stage.max_items(),
            EdgeKind::Samples => stage.max_items(),
            EdgeKind::Prompt | EdgeKind::Codes | EdgeKind::Latents => 0,
        });
        // The rest of a text, of a tool call, and the end.
        events.sum::<usize>() + 4
    }

    /// Checks that each stage takes what the one before it gives.
    pub fn check(&self) -> Result<(), TopologyError> {
        let mut gets = EdgeKind::Prompt;
        for stage in &self.stages {
            if stage.input_kind() != gets {
                return Err(TopologyError::Mismatch { stage: stage.name(), takes: stage.input_kind(), gets });
            }
            gets = stage.output_kind();
        }
        match gets {
            EdgeKind::Prompt => Err(TopologyError::Empty),
            EdgeKind::Samples if self.events_per_tick() * MAX_RESPONSES > EVENT_QUEUE => {
                Err(TopologyError::TooManyEvents { events: self.events_per_tick() })
            }
            EdgeKind::Samples => Ok(()),
            gives => Err(TopologyError::Silent { gives }),
        }
    }
}
