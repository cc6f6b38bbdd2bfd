//! The state of one session: history, open input audio, pending and active responses. The scheduler drives it; it computes
//! nothing and knows no stage.
//!
//! - [`commands`]: the order of commands
//! - [`history`]: the items, in order
//! - [`intake`]: long texts and complete audio, by pieces
//! - [`pending_response`]: requested responses
//! - [`active_response`]: responses being generated
//! - [`out_of_band`]: out-of-band responses, requested or being generated
//! - [`prompt`]: prompts and the eviction of the oldest items
//! - [`speculation`]: a response begun before the turn has surely ended
//! - [`streamed_text`]: text that streams in while its response is being generated
//! - [`slices`]: input audio answered slice by slice
//! - [`real_time`]: which audio came faster than time passes
//! - [`messages`]: texts of the caller as token ids
//! - [`tool_calls`]: tool calls within generated text

pub mod active_response;
mod commands;
pub mod history;
pub mod intake;
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
use std::sync::Arc;
use std::time::{Duration, Instant};

use repartee_engine_api::{Command, Content, Event, InsertAt, ItemId, Peer, ResponseId, SessionError, Tool};
use tracing::Span;

use self::active_response::ActiveResponse;
use self::history::History;
use self::intake::{PendingSound, TextIntake};
use self::messages::{check_length, system, text_error, text_message};
use self::out_of_band::OutOfBandResponse;
use self::pending_response::PendingResponse;
use self::real_time::RealTime;
use self::slices::Slices;
use self::speculation::Speculation;
use crate::audio_input::{AudioInput, PendingWindow, WindowTarget};
use crate::elements::{AudioRows, Message, MessageKind};
use crate::model::{FrontEnd, Script};
use crate::stage::Stage;
use crate::text::{MAX_STRETCH, TextError, Tokenizer};

/// Longest audio of one item, in seconds: a caller that never commits must not fill the memory.
pub const MAX_AUDIO_S: u32 = 600;

/// The parts of the model that a session uses while it executes commands.
pub struct ModelContext<'a> {
    /// Text to ids.
    pub tokenizer: &'a Tokenizer,
    /// Sound to windows; `None` for a model without ears.
    pub front_end: Option<&'a dyn FrontEnd>,
    /// Voices, the default one first.
    pub voices: &'a [String],
    /// How the model's prompts are written.
    pub script: &'a dyn Script,
    /// The model's stages.
    pub stages: &'a [Box<dyn Stage>],
    /// Free slots for out-of-band responses.
    pub free_slots: &'a mut Vec<usize>,
    /// Ids of the long texts of the command that is executed.
    pub texts: &'a [(String, Vec<u32>)],
    /// The time of this tick.
    pub now: Instant,
}

impl ModelContext<'_> {
    fn encode(&self, text: &str) -> Result<Vec<u32>, SessionError> {
        if let Some((_, ids)) = self.texts.iter().find(|(known, _)| known == text) {
            return Ok(ids.clone());
        }
        self.tokenizer.encode(text).map_err(|error| text_error(&error))
    }

    fn front_end(&self) -> Result<&dyn FrontEnd, SessionError> {
        self.front_end.ok_or(SessionError::NoEars)
    }

    /// How long so many samples of input last.
    fn duration(&self, samples: usize) -> Duration {
        let rate = self.front_end.map_or(0, |front_end| front_end.rate()).max(1);
        Duration::from_secs_f64(samples as f64 / f64::from(rate))
    }

    /// Samples of the longest audio item.
    fn audio_limit(&self) -> Result<usize, SessionError> {
        Ok(MAX_AUDIO_S as usize * self.front_end()?.rate() as usize)
    }
}

/// Lengths of a session's queues, or of all sessions' together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Queues {
    /// Commands of callers that were not taken yet.
    pub commands: usize,
    /// Windows of input audio that wait for the encoder.
    pub windows: usize,
    /// Responses that were requested and have not begun.
    pub responses: usize,
    /// Events that callers have not read yet.
    pub events: usize,
}

/// When a step of the encoder began and ended.
#[derive(Debug, Clone, Copy)]
pub struct EncoderTimes {
    /// Its windows were taken.
    pub began: Instant,
    /// Their rows were there.
    pub ended: Instant,
}

/// How far [`Command::Finish`] has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    /// Not submitted yet.
    Open,
    /// Submitted; responses are still to come.
    Requested,
    /// [`Event::Finished`] was reported.
    Reported,
}

/// One session.
pub struct Session {
    /// Slot of the session in every stage; its in-band responses run there.
    slot: usize,
    peer: Peer,
    /// Commands that wait until fewer windows wait for the encoder.
    held_commands: VecDeque<Command>,
    instructions: String,
    tools: Vec<Tool>,
    /// Instructions and tools as the model reads them.
    system: Option<Vec<u32>>,
    history: History,
    audio_input: Option<AudioInput>,
    slices: Option<Slices>,
    speculation: Option<Speculation>,
    /// Closed windows that wait for the encoder, in order.
    pub pending_windows: VecDeque<PendingWindow>,
    /// Sound that is in none of them yet.
    unwindowed: Duration,
    real_time: RealTime,
    /// Complete audio on its way through the front end, in order.
    pending_sounds: VecDeque<PendingSound>,
    /// The next command, while its texts are being tokenised.
    text_intake: Option<Box<TextIntake>>,
    /// Since when none of them was encoded.
    stalled: Option<Instant>,
    /// The encoder's newest step with any of them.
    encoder: Option<EncoderTimes>,
    /// In-band responses that wait for the one before them.
    pending_responses: VecDeque<PendingResponse>,
    /// The in-band response being generated.
    active: Option<ActiveResponse>,
    /// Out-of-band responses, waiting or active.
    out_of_band: Vec<OutOfBandResponse>,
    /// Whether the prompt may differ from the last one delivered to the stages.
    changed: bool,
    ending: Ending,
    /// Audio parts of responses' own inputs so far; numbers the next one.
    input_audios: u64,
    /// Events sent so far.
    emitted: Cell<u64>,
    /// While the event queue is full: since when the caller has read nothing, and how many events it had read then.
    unread: Option<(Instant, u64)>,
}

impl Session {
    /// An empty session in the stages' slot `slot`.
    pub fn new(peer: Peer, slot: usize) -> Self {
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
            real_time: RealTime::default(),
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

    /// Whether the caller has dropped its handle.
    pub fn is_gone(&self) -> bool {
        self.peer.commands.is_disconnected()
    }

    /// Whether the event queue has room for `events` events from each slot of the session. A session without room is not
    /// runnable.
    pub fn has_room(&self, events: usize) -> bool {
        let events = events * (1 + self.out_of_band.len());
        self.peer.events.capacity().is_none_or(|capacity| self.peer.events.len() + events <= capacity)
    }

    /// The span in which the session was opened.
    pub fn span(&self) -> &Span {
        &self.peer.span
    }

    /// What waits in it.
    pub fn queues(&self) -> Queues {
        Queues {
            commands: self.peer.commands.len() + self.held_commands.len(),
            windows: self.pending_windows.len(),
            responses: self.pending_responses.len(),
            events: self.peer.events.len(),
        }
    }

    /// Sends an event. Room was checked before the tick; a dropped handle is noticed by its command queue.
    fn emit(&self, event: Event) {
        match self.peer.events.try_send(event) {
            Ok(()) => self.emitted.set(self.emitted.get() + 1),
            Err(flume::TrySendError::Full(event)) => {
                // Not the event itself, which has the caller's words or sound.
                let kind = event.kind();
                self.peer.span.in_scope(|| tracing::error!(kind, "an event was dropped: the queue is full"));
            }
            Err(flume::TrySendError::Disconnected(_)) => {}
        }
    }

    /// Reports a failure, of `response` if it is one's.
    pub fn fail(&self, response: Option<ResponseId>, error: SessionError) {
        self.emit(Event::Failed { response, error });
    }

    /// Reports that a command was not executed.
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
                    // No open slice is no error here.
                    let _ = slices.end();
                }
                if self.ending == Ending::Open {
                    self.ending = Ending::Requested;
                }
            }
        }
        Ok(None)
    }

    fn append(&mut self, samples: &[f32], model: &ModelContext<'_>) -> Result<(), SessionError> {
        let limit = model.audio_limit()?;
        let too_long = SessionError::AudioTooLong { limit_s: MAX_AUDIO_S };
        if let Some(slices) = &mut self.slices {
            return slices.push(samples, limit);
        }
        if let Some(speculation) = &mut self.speculation {
            if speculation.audio_input.samples() + speculation.held.len() + samples.len() > limit {
                return Err(too_long);
            }
            speculation.held.extend_from_slice(samples);
            return Ok(());
        }
        let front_end = model.front_end()?;
        // The message header can be prefilled at once; after that only closed windows change the prompt.
        self.changed |= self.audio_input.is_none();
        let audio_input = self.audio_input.get_or_insert_with(|| AudioInput::new(front_end));
        if audio_input.samples() + samples.len() > limit {
            return Err(too_long);
        }
        let before = self.pending_windows.len();
        audio_input.push(samples, &mut self.pending_windows);
        self.pace(model.duration(samples.len()), before, model.now);
        Ok(())
    }

    fn commit(&mut self, item: ItemId) -> Result<(), SessionError> {
        if let Some(slices) = &mut self.slices {
            return slices.end();
        }
        let Some(audio_input) = self.audio_input.take() else {
            return Err(SessionError::NothingToCommit);
        };
        if self.history.knows(item) {
            self.audio_input = Some(audio_input);
            return Err(SessionError::DuplicateItem(item));
        }
        let encoded = audio_input.finish(WindowTarget::Item(item), &mut self.pending_windows);
        self.changed = true;
        self.history.insert(item, InsertAt::End, Message::audio(encoded))
    }

    fn clear(&mut self) {
        if let Some(slices) = &mut self.slices {
            slices.clear();
        }
        self.audio_input = None;
        self.pending_windows.retain(|window| window.target != WindowTarget::Open);
        self.changed = true;
    }

    fn insert(
        &mut self,
        item: ItemId,
        place: InsertAt,
        content: Content,
        model: &ModelContext<'_>,
    ) -> Result<(), SessionError> {
        if let Content::Audio(samples) = content {
            return self.insert_audio(item, place, samples, model);
        }
        let message = text_message(content, model)?;
        self.changed = true;
        self.history.insert(item, place, message)
    }

    fn insert_audio(
        &mut self,
        item: ItemId,
        place: InsertAt,
        samples: Vec<f32>,
        model: &ModelContext<'_>,
    ) -> Result<(), SessionError> {
        check_length(&samples, model)?;
        let stream = model.front_end()?.stream();
        self.history.insert(item, place, Message::audio(Vec::new()))?;
        self.pending_sounds.push_back(PendingSound::new(stream, samples, WindowTarget::Item(item)));
        self.changed = true;
        Ok(())
    }

    fn delete(&mut self, item: ItemId) {
        let speculative = self.speculation.as_ref().is_some_and(|s| s.item == item || s.response_item == item);
        if speculative {
            return;
        }
        self.withdraw(|request| request.item == item);
        if !self.is_unfinished(item) && self.history.remove(item) {
            self.drop_audio(item);
            self.changed = true;
        }
    }

    /// Keeps the tokens whose text is a prefix of `text` and appends the rest of `text`, encoded.
    fn truncate(&mut self, item: ItemId, text: &str, model: &ModelContext<'_>) -> Result<(), SessionError> {
        if self.is_unfinished(item) {
            return Ok(());
        }
        let Some(message) = self.history.get_mut(item).filter(|message| message.kind == MessageKind::Assistant) else {
            return Ok(());
        };
        let ids: Vec<u32> = message.token_ids().collect();
        if text.is_empty() {
            self.delete(item);
            return Ok(());
        }
        let (keep, kept) = model.tokenizer.common_prefix(&ids, text);
        if text.len() - kept > MAX_STRETCH {
            return Err(text_error(&TextError::TooLong));
        }
        let rest = model.tokenizer.encode(&text[kept..]).map_err(|error| text_error(&error))?;
        message.truncate_text(keep, rest);
        self.changed = true;
        Ok(())
    }

    /// Drops audio of an item that was not encoded yet.
    fn drop_audio(&mut self, item: ItemId) {
        self.pending_windows.retain(|window| window.target != WindowTarget::Item(item));
        self.pending_sounds.retain(|sound| sound.target != WindowTarget::Item(item));
    }

    /// What audio that is not encoded yet belongs to, in order.
    fn unencoded(&self) -> impl Iterator<Item = WindowTarget> {
        let windows = self.pending_windows.iter().map(|window| window.target);
        windows.chain(self.pending_sounds.iter().map(|sound| sound.target))
    }

    /// Samples of the open audio item.
    fn open_samples(&self) -> usize {
        match &self.speculation {
            Some(speculation) => speculation.audio_input.samples() + speculation.held.len(),
            None => self.audio_input.as_ref().map_or(0, AudioInput::samples),
        }
    }

    /// Adds an encoded window to its target; windows of deleted items are dropped.
    pub fn place_window(&mut self, window: &PendingWindow, rows: AudioRows, times: EncoderTimes) {
        self.stalled = None;
        self.encoder = Some(times);
        let rows = Arc::new(rows);
        self.changed = true;
        match window.target {
            WindowTarget::Open => {
                if let Some(speculation) = &mut self.speculation {
                    speculation.audio_input.encoded.push(Arc::clone(&rows));
                    if let Some(message) = self.history.get_mut(speculation.item) {
                        message.push_window(rows);
                    }
                } else if let Some(audio_input) = &mut self.audio_input {
                    audio_input.encoded.push(rows);
                }
            }
            WindowTarget::Item(item) => {
                if let Some(message) = self.history.get_mut(item) {
                    message.push_window(rows);
                }
            }
            WindowTarget::Input(audio) => self.place_input(audio, rows),
        }
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

/// The response that a command requests.
fn about(command: &Command) -> Option<ResponseId> {
    match command {
        Command::Respond(request) | Command::BeginSpeculation { respond: request, .. } => Some(request.response),
        _ => None,
    }
}

/// Whether a command is refused after [`Command::Finish`].
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
