//! State of one session: history, open input audio, pending and active responses. The scheduler drives it; it computes
//! nothing and depends on no stage's implementation.
//!
//! - [`context`]: parts of the model that commands need
//! - [`commands`]: the order of commands
//! - [`input_audio`]: input audio, windows and their rows
//! - [`items`]: items that the caller inserts, deletes and truncates
//! - [`history`]: the items, in order
//! - [`intake`]: long texts and complete audio, in pieces
//! - [`pending_response`]: requested responses that have not begun
//! - [`active_response`]: responses being generated
//! - [`out_of_band`]: out-of-band responses, requested or being generated
//! - [`prompt`]: prompts and the eviction of the oldest items
//! - [`speculation`]: a response begun before the turn has surely ended
//! - [`streamed_text`]: text that streams in while its response is being generated
//! - [`slices`]: input audio answered slice by slice
//! - [`real_time`]: rate limit of input audio
//! - [`messages`]: texts of the caller as token ids
//! - [`tool_calls`]: tool calls within generated text

pub mod active_response;
mod commands;
mod context;
pub mod history;
mod input_audio;
pub mod intake;
mod items;
pub mod messages;
pub mod out_of_band;
pub mod pending_response;
pub mod prompt;
pub mod real_time;
pub mod slices;
pub mod speculation;
pub mod streamed_text;
pub mod tool_calls;

use std::cell::Cell;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

use repartee_engine_api::{Command, Event, ResponseId, SessionError, SessionPeer, Tool};
use tracing::Span;

use self::active_response::ActiveResponse;
pub use self::context::ModelContext;
use self::history::History;
use self::intake::{PendingAudio, TextIntake};
use self::messages::system;
use self::out_of_band::OutOfBandResponse;
use self::pending_response::PendingResponse;
use self::real_time::AudioRateLimiter;
use self::slices::Slices;
use self::speculation::Speculation;
use crate::audio_input::{AudioInput, PendingWindow};

/// Upper bound of one audio item, in seconds: a caller that never commits must not fill the memory.
pub const MAX_AUDIO_S: u32 = 600;

/// Queue lengths of one session, or of all sessions together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Queues {
    /// Commands that the engine has not taken yet.
    pub commands: usize,
    /// Windows of input audio that wait for the encoder.
    pub windows: usize,
    /// Requested responses that have not begun.
    pub responses: usize,
    /// Events that the caller has not read yet.
    pub events: usize,
}

/// Start and end of an encoder's step.
#[derive(Debug, Clone, Copy)]
pub struct EncoderTimes {
    /// Time at which the step took its windows.
    pub began: Instant,
    /// Time at which their rows were complete.
    pub ended: Instant,
}

/// State of [`Command::Finish`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    /// The command was not submitted yet.
    Open,
    /// The command was submitted; responses are unfinished.
    Requested,
    /// [`Event::Finished`] was reported.
    Reported,
}

/// State of one session.
pub struct Session {
    /// Slot of the session in every stage; its in-band responses run there.
    slot: usize,
    peer: SessionPeer,
    /// Commands that wait until fewer windows wait for the encoder.
    held_commands: VecDeque<Command>,
    instructions: String,
    tools: Vec<Tool>,
    /// Encoded system message of instructions and tools.
    system: Option<Vec<u32>>,
    history: History,
    audio_input: Option<AudioInput>,
    slices: Option<Slices>,
    speculation: Option<Speculation>,
    /// Closed windows that wait for the encoder, in order.
    pub pending_windows: VecDeque<PendingWindow>,
    /// Duration of audio that is in no closed window yet.
    unwindowed: Duration,
    real_time: AudioRateLimiter,
    /// Complete audio that waits for the front end, in order.
    pending_sounds: VecDeque<PendingAudio>,
    /// Next command, while its texts are being tokenised.
    text_intake: Option<Box<TextIntake>>,
    /// Time since which a response has waited for the encoder without progress.
    stalled: Option<Instant>,
    /// Last step of the encoder with windows of this session.
    encoder: Option<EncoderTimes>,
    /// In-band responses that wait for the one before them.
    pending_responses: VecDeque<PendingResponse>,
    /// The in-band response being generated.
    active: Option<ActiveResponse>,
    /// Out-of-band responses, pending or active.
    out_of_band: Vec<OutOfBandResponse>,
    /// True if the prompt may differ from the last one delivered to the stages.
    changed: bool,
    ending: Ending,
    /// Number of audio parts in responses' own inputs so far; numbers the next one.
    input_audios: u64,
    /// Number of events sent so far.
    emitted: Cell<u64>,
    /// While the event queue is full: start of the caller's inactivity, and the number of events it had read then.
    unread: Option<(Instant, u64)>,
}

impl Session {
    /// Creates an empty session in slot `slot` of the stages.
    pub fn new(peer: SessionPeer, slot: usize) -> Self {
        Self {
            slot,
            peer,
            held_commands: VecDeque::new(),
            instructions: String::new(),
            tools: Vec::new(),
            system: None,
            history: History::default(),
            audio_input: None,
            slices: None,
            speculation: None,
            pending_windows: VecDeque::new(),
            unwindowed: Duration::ZERO,
            real_time: AudioRateLimiter::default(),
            pending_sounds: VecDeque::new(),
            text_intake: None,
            stalled: None,
            encoder: None,
            pending_responses: VecDeque::new(),
            active: None,
            out_of_band: Vec::new(),
            changed: false,
            ending: Ending::Open,
            input_audios: 0,
            emitted: Cell::new(0),
            unread: None,
        }
    }

    /// True if the caller has dropped its handle.
    pub fn is_disconnected(&self) -> bool {
        self.peer.commands.is_disconnected()
    }

    /// True if the event queue has places for `events` events from each slot of the session. Otherwise the session is
    /// not runnable.
    pub fn has_capacity(&self, events: usize) -> bool {
        let events = events * (1 + self.out_of_band.len());
        self.peer.events.capacity().is_none_or(|capacity| self.peer.events.len() + events <= capacity)
    }

    /// Tracing span in which the session was opened.
    pub fn span(&self) -> &Span {
        &self.peer.span
    }

    /// Queue lengths of the session.
    pub fn queues(&self) -> Queues {
        Queues {
            commands: self.peer.commands.len() + self.held_commands.len(),
            windows: self.pending_windows.len(),
            responses: self.pending_responses.len(),
            events: self.peer.events.len(),
        }
    }

    /// Sends an event. The scheduler checks the queue's capacity before the tick; a dropped handle is noticed by its
    /// command queue.
    fn emit(&self, event: Event) {
        match self.peer.events.try_send(event) {
            Ok(()) => self.emitted.set(self.emitted.get() + 1),
            Err(flume::TrySendError::Full(event)) => {
                // The event itself is not logged: it holds the caller's words or sound.
                let kind = event.kind();
                self.peer.span.in_scope(|| tracing::error!(kind, "an event was dropped: the queue is full"));
            }
            Err(flume::TrySendError::Disconnected(_)) => {}
        }
    }

    /// Reports a failure of `response`, or of a command that requests none.
    pub fn fail(&self, response: Option<ResponseId>, error: SessionError) {
        self.emit(Event::Failed { response, error });
    }

    /// Reports that a command is refused.
    pub fn refuse(&self, command: &Command, error: SessionError) {
        self.fail(about(command), error);
    }

    /// Executes one command. Returns the slot of a response that the stages must abort, if any.
    pub fn execute(&mut self, command: Command, model: &mut ModelContext<'_>) -> Option<usize> {
        let about = about(&command);
        let done = if self.ending != Ending::Open && requests_more(&command) {
            Err(SessionError::AfterFinish)
        } else {
            self.run(command, model)
        };
        done.unwrap_or_else(|error| {
            self.fail(about, error);
            None
        })
    }

    fn run(&mut self, command: Command, model: &mut ModelContext<'_>) -> Result<Option<usize>, SessionError> {
        match command {
            Command::Append(samples) => self.append(&samples, model)?,
            Command::Commit { item } => {
                let stop = self.abort_speculation();
                // The speculation is aborted even if the commit fails.
                if let Err(error) = self.commit(item) {
                    self.fail(None, error);
                }
                return Ok(stop);
            }
            Command::Clear => {
                let stop = self.abort_speculation();
                self.clear();
                return Ok(stop);
            }
            Command::Insert { item, place, content } => self.insert(item, place, content, model)?,
            Command::SetInstructions(text) => {
                let system = system(&text, &self.tools, model)?;
                (self.instructions, self.system, self.changed) = (text, system, true);
            }
            Command::SetTools(tools) => {
                let system = system(&self.instructions, &tools, model)?;
                (self.tools, self.system, self.changed) = (tools, system, true);
            }
            Command::Respond(request) => self.respond(request, model)?,
            Command::BeginSpeculation { item, respond } => self.begin_speculation(item, respond, model)?,
            Command::CommitSpeculation { response } => self.commit_speculation(response, model)?,
            Command::AbortSpeculation { response } => {
                if self.speculation.as_ref().is_some_and(|speculation| speculation.response == response) {
                    return Ok(self.abort_speculation());
                }
            }
            Command::Cancel { response } => return Ok(self.cancel(response, model)),
            Command::Truncate { item, text } => self.truncate(item, &text, model)?,
            Command::Delete { item } => self.delete(item),
            Command::StreamText { response, text } => self.stream_text(response, &text, model.now)?,
            Command::EndText { response } => self.end_text(response)?,
            Command::Played { response, position, at } => self.played(response, position, at),
            Command::SetSlicePolicy(policy) => self.set_policy(policy, model)?,
            Command::Finish => {
                if let Some(slices) = self.slices.as_mut().filter(|slices| !slices.is_empty()) {
                    // A missing open slice is no error here.
                    let _ = slices.end();
                }
                if self.ending == Ending::Open {
                    self.ending = Ending::Requested;
                }
            }
        }
        Ok(None)
    }

    /// Reports [`Event::Finished`] once every response is complete.
    pub fn report_finished(&mut self) {
        let idle = self.active.is_none() && self.pending_responses.is_empty() && self.out_of_band.is_empty();
        let read = self.speculation.is_none() && self.slices.as_ref().is_none_or(Slices::is_empty);
        if self.ending == Ending::Requested && idle && read {
            self.ending = Ending::Reported;
            self.emit(Event::Finished);
        }
    }
}

/// Id of the response that a command requests.
fn about(command: &Command) -> Option<ResponseId> {
    match command {
        Command::Respond(request) | Command::BeginSpeculation { respond: request, .. } => Some(request.response),
        _ => None,
    }
}

/// True if a command is refused after [`Command::Finish`].
fn requests_more(command: &Command) -> bool {
    matches!(
        command,
        Command::Append(_)
            | Command::Commit { .. }
            | Command::Insert { .. }
            | Command::Respond(_)
            | Command::BeginSpeculation { .. }
            | Command::SetSlicePolicy(_)
    )
}
