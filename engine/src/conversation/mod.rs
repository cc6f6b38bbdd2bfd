//! One session's truth: its history, the sound being heard, the answers asked for. No arithmetic and no stage: the scheduler drives it.
//!
//! - [`history`]: the items, in order
//! - [`rounds`]: answers that were asked for, and their prompts
//! - [`answering`]: the answers being made
//! - [`suspicion`]: an answer begun before it is certain that the caller's turn is over
//! - [`slices`]: sound that is answered slice by slice
//! - [`messages`]: what callers write, as the model reads it
//! - [`calls`]: tool calls within what the model writes

pub mod answering;
pub mod calls;
pub mod history;
pub mod messages;
pub mod rounds;
pub mod slices;
pub mod suspicion;

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use repartee_engine_api::{Command, Content, Event, InsertAt, ItemId, Peer, ResponseId, SessionError, Tool};

use self::answering::Active;
use self::history::History;
use self::messages::{check_length, system, text_error, text_message};
use self::rounds::{Beside, Round};
use self::slices::Slices;
use self::suspicion::Suspicion;
use crate::audio::log_mel::LogMel;
use crate::hearing::{self, Hearing, Owner, PendingWindow};
use crate::stage::{AudioRows, Message, Prompt};
use crate::text::Tokenizer;

/// The longest sound of one item, in seconds; a caller that never commits must not fill the memory.
pub const MAX_AUDIO_S: u32 = 600;
/// Windows that may wait for the encoder before commands wait too.
const MAX_PENDING: usize = 64;

/// What a conversation needs to know of its model.
pub struct Knowledge<'a, T> {
    /// Text to ids.
    pub tokenizer: &'a Tokenizer,
    /// Sound to windows.
    pub log_mel: &'a Arc<LogMel>,
    /// Voices, the default one first.
    pub voices: &'a [String],
    /// How the model's prompts are written.
    pub prompt: &'a dyn Prompt<T>,
    /// Lanes that are free for answers outside of conversations.
    pub lanes: &'a mut Vec<usize>,
    /// What time it is.
    pub now: Instant,
}

impl<T> Knowledge<'_, T> {
    fn encode(&self, text: &str) -> Result<Vec<u32>, SessionError> {
        self.tokenizer.encode(text).map_err(|error| text_error(&error))
    }
}

/// How far the end of a session's stream has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    /// More may be asked for.
    Open,
    /// Nothing more will be asked for.
    Asked,
    /// The caller was told that everything is complete.
    Told,
}

/// See the module's description.
pub struct Conversation<T> {
    /// The stages' slot for the answers of the conversation.
    lane: usize,
    peer: Peer,
    instructions: String,
    tools: Vec<Tool>,
    /// Instructions and tools as the model reads them.
    system: Option<Vec<u32>>,
    history: History<T>,
    hearing: Option<Hearing<T>>,
    slices: Option<Slices>,
    suspicion: Option<Suspicion<T>>,
    /// Closed windows, in order.
    pub pending: VecDeque<PendingWindow>,
    /// Answers of the conversation that wait for the one before.
    rounds: VecDeque<Round<T>>,
    /// The answer of the conversation being made.
    active: Option<Active<T>>,
    /// Answers outside of it.
    beside: Vec<Beside<T>>,
    /// Whether the prompt may differ from what the stages were last told.
    changed: bool,
    ending: Ending,
    /// Numbers the sounds that were handed over with an answer.
    sounds: u64,
    /// Events handed over so far.
    emitted: Cell<u64>,
    /// Since when the caller, who has no room for events, has read none, and how many it has read.
    unread: Option<(Instant, u64)>,
}

impl<T> Conversation<T> {
    /// A conversation with nothing said, whose answers are made in the stages' slot `lane`.
    pub fn new(peer: Peer, lane: usize) -> Self {
        Self {
            lane,
            peer,
            instructions: String::new(),
            tools: Vec::new(),
            system: None,
            history: History::default(),
            hearing: None,
            slices: None,
            suspicion: None,
            pending: VecDeque::new(),
            rounds: VecDeque::new(),
            active: None,
            beside: Vec::new(),
            changed: false,
            ending: Ending::Open,
            sounds: 0,
            emitted: Cell::new(0),
            unread: None,
        }
    }

    /// The next command, if there is one and what it may lead to has room.
    pub fn next_command(&self) -> Option<Command> {
        if self.pending.len() > MAX_PENDING {
            return None;
        }
        self.peer.commands.try_recv().ok()
    }

    /// Whether the caller has dropped its handle.
    pub fn is_gone(&self) -> bool {
        self.peer.commands.is_disconnected()
    }

    /// Whether the caller has room for what one tick can make of one answer, `events`, on each of its lanes; a session
    /// without is not run.
    pub fn has_room(&self, events: usize) -> bool {
        let events = events * (1 + self.beside.len());
        self.peer.events.capacity().is_none_or(|capacity| self.peer.events.len() + events <= capacity)
    }

    /// Hands an event over. Room was checked before the tick; a caller that is gone is noticed by its commands.
    fn emit(&self, event: Event) {
        match self.peer.events.try_send(event) {
            Ok(()) => self.emitted.set(self.emitted.get() + 1),
            Err(flume::TrySendError::Full(event)) => {
                tracing::error!(?event, "an event was made for a session without room");
            }
            Err(flume::TrySendError::Disconnected(_)) => {}
        }
    }

    /// Reports a failure that is no answer's end.
    pub fn fail(&self, response: Option<ResponseId>, error: SessionError) {
        self.emit(Event::Failed { response, error });
    }

    /// Executes one command. Returns the lane on which an answer has to be stopped, if one has to be.
    pub fn execute(&mut self, command: Command, model: &mut Knowledge<'_, T>) -> Option<usize> {
        let about = match &command {
            Command::Respond(request) | Command::BeginSpeculation { answer: request, .. } => Some(request.response),
            _ => None,
        };
        let done = if self.ending != Ending::Open && adds(&command) {
            Err(SessionError::AfterFinish)
        } else {
            self.run(command, model)
        };
        done.unwrap_or_else(|error| {
            self.fail(about, error);
            None
        })
    }

    fn run(&mut self, command: Command, model: &mut Knowledge<'_, T>) -> Result<Option<usize>, SessionError> {
        match command {
            Command::Append(samples) => self.hear(&samples, model)?,
            Command::Commit { item } => {
                let stop = self.take_back();
                // What was taken back is gone for good, also if this fails.
                if let Err(error) = self.commit(item) {
                    self.fail(None, error);
                }
                return Ok(stop);
            }
            Command::Clear => {
                let stop = self.take_back();
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
            Command::Respond(request) => self.ask(request, model)?,
            Command::BeginSpeculation { item, answer } => self.speculate(item, answer, model)?,
            Command::CommitSpeculation { response } => self.confirm(response, model)?,
            Command::AbortSpeculation { response } => {
                if self.suspicion.as_ref().is_some_and(|suspicion| suspicion.response == response) {
                    return Ok(self.take_back());
                }
            }
            Command::Cancel { response } => return Ok(self.cancel(response, model)),
            Command::Truncate { item, text } => self.truncate(item, &text, model)?,
            Command::Delete { item } => self.delete(item),
            Command::Played { response, position, at } => self.played(response, position, at),
            Command::SetSlicePolicy(policy) => self.set_policy(policy, model)?,
            Command::Finish => {
                if let Some(slices) = self.slices.as_mut().filter(|slices| !slices.is_empty()) {
                    // Nothing open is no fault here: all slices may be whole.
                    let _ = slices.end();
                }
                if self.ending == Ending::Open {
                    self.ending = Ending::Asked;
                }
            }
        }
        Ok(None)
    }

    fn hear(&mut self, samples: &[f32], model: &Knowledge<'_, T>) -> Result<(), SessionError> {
        let limit = MAX_AUDIO_S as usize * model.log_mel.config().sampling_rate as usize;
        let too_long = SessionError::AudioTooLong { limit_s: MAX_AUDIO_S };
        if let Some(slices) = &mut self.slices {
            return slices.push(samples, limit);
        }
        if let Some(suspicion) = &mut self.suspicion {
            if suspicion.hearing.samples() + suspicion.held.len() + samples.len() > limit {
                return Err(too_long);
            }
            suspicion.held.extend_from_slice(samples);
            return Ok(());
        }
        // The opening of a message can be read at once; after that only whole windows change the prompt.
        self.changed |= self.hearing.is_none();
        let hearing = self.hearing.get_or_insert_with(|| Hearing::new(model.log_mel));
        if hearing.samples() + samples.len() > limit {
            return Err(too_long);
        }
        hearing.push(samples, &mut self.pending);
        Ok(())
    }

    fn commit(&mut self, item: ItemId) -> Result<(), SessionError> {
        if let Some(slices) = &mut self.slices {
            return slices.end();
        }
        let Some(hearing) = self.hearing.take() else {
            return Err(SessionError::NothingToCommit);
        };
        if self.history.knows(item) {
            self.hearing = Some(hearing);
            return Err(SessionError::DuplicateItem(item));
        }
        let encoded = hearing.finish(Owner::Item(item), &mut self.pending);
        self.changed = true;
        self.history.insert(item, InsertAt::End, Message::UserAudio(encoded))
    }

    fn clear(&mut self) {
        if let Some(slices) = &mut self.slices {
            slices.clear();
        }
        self.hearing = None;
        self.pending.retain(|window| window.owner != Owner::Open);
        self.changed = true;
    }

    fn insert(
        &mut self,
        item: ItemId,
        place: InsertAt,
        content: Content,
        model: &Knowledge<'_, T>,
    ) -> Result<(), SessionError> {
        if let Content::Audio(samples) = content {
            return self.insert_audio(item, place, &samples, model);
        }
        let message = text_message(content, model)?;
        self.changed = true;
        self.history.insert(item, place, message)
    }

    fn insert_audio(
        &mut self,
        item: ItemId,
        place: InsertAt,
        samples: &[f32],
        model: &Knowledge<'_, T>,
    ) -> Result<(), SessionError> {
        check_length(samples, model)?;
        self.history.insert(item, place, Message::UserAudio(Vec::new()))?;
        hearing::windows(model.log_mel, samples, Owner::Item(item), &mut self.pending);
        self.changed = true;
        Ok(())
    }

    fn delete(&mut self, item: ItemId) {
        let undecided = self.suspicion.as_ref().is_some_and(|s| s.item == item || s.answer_item == item);
        if undecided {
            return;
        }
        self.withdraw(|request| request.item == item);
        if !self.is_unfinished(item) && self.history.remove(item) {
            self.pending.retain(|window| window.owner != Owner::Item(item));
            self.changed = true;
        }
    }

    /// Keeps the ids whose text is a prefix of `text`, and adds the rest of it.
    fn truncate(&mut self, item: ItemId, text: &str, model: &Knowledge<'_, T>) -> Result<(), SessionError> {
        if self.is_unfinished(item) {
            return Ok(());
        }
        let Some(Message::Assistant(ids)) = self.history.get_mut(item) else {
            return Ok(());
        };
        if text.is_empty() {
            self.delete(item);
            return Ok(());
        }
        let (mut keep, mut kept) = (0, String::new());
        for n in 1..=ids.len() {
            let spoken = model.tokenizer.decode(&ids[..n]);
            if text.starts_with(&spoken) {
                (keep, kept) = (n, spoken);
            }
        }
        let rest = model.tokenizer.encode(&text[kept.len()..]).map_err(|error| text_error(&error))?;
        ids.truncate(keep);
        ids.extend(rest);
        self.changed = true;
        Ok(())
    }

    /// Puts an encoded window where it belongs; one of a deleted item is dropped.
    pub fn place(&mut self, window: &PendingWindow, rows: AudioRows<T>) {
        let rows = Arc::new(rows);
        self.changed = true;
        match window.owner {
            Owner::Open => {
                if let Some(suspicion) = &mut self.suspicion {
                    suspicion.hearing.encoded.push(Arc::clone(&rows));
                    if let Some(Message::UserAudio(windows)) = self.history.get_mut(suspicion.item) {
                        windows.push(rows);
                    }
                } else if let Some(hearing) = &mut self.hearing {
                    hearing.encoded.push(rows);
                }
            }
            Owner::Item(item) => {
                if let Some(Message::UserAudio(windows)) = self.history.get_mut(item) {
                    windows.push(rows);
                }
            }
            Owner::Input(sound) => self.place_input(sound, rows),
        }
    }

    /// Tells the caller, once, that everything that was asked for is complete.
    pub fn tell_end(&mut self) {
        let idle = self.active.is_none() && self.rounds.is_empty() && self.beside.is_empty();
        let read = self.suspicion.is_none() && self.slices.as_ref().is_none_or(Slices::is_empty);
        if self.ending == Ending::Asked && idle && read {
            self.ending = Ending::Told;
            self.emit(Event::Finished);
        }
    }
}

/// Whether a command asks for more.
fn adds(command: &Command) -> bool {
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
