//! One session's truth: its history, the sound being heard, the answers asked for. No arithmetic and no stage: the scheduler drives it.

mod answering;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use crate::audio::log_mel::LogMel;
use crate::hearing::{Hearing, PendingWindow};
use crate::session::{
    Command, Content, Event, FinishReason, ItemId, Peer, Respond, ResponseId, Role, SessionError, Usage,
};
use crate::stage::{AudioRows, Element, Message, Prompt};
use crate::text::{TextStream, Tokenizer};

/// The longest sound of one item, in seconds; a caller that never commits must not fill the memory.
pub const MAX_AUDIO_S: u32 = 600;

/// The share of the context, one in so many, that is kept for an answer; and, when old items have to be forgotten, the
/// share that is then free for new ones.
const ROOM: usize = 4;

/// What a conversation needs to know of its model.
pub struct Knowledge<'a> {
    /// Text to ids.
    pub tokenizer: &'a Tokenizer,
    /// Sound to windows.
    pub log_mel: &'a Arc<LogMel>,
    /// Voices, the default one first.
    pub voices: &'a [String],
}

/// An entry of the history.
pub struct Entry<T> {
    /// The caller's name for it.
    pub id: ItemId,
    /// What it is.
    pub message: Message<T>,
}

/// An answer that was asked for.
struct Round {
    request: Respond,
    /// The instructions as they were when it was asked for.
    instructions: Option<Vec<u32>>,
    /// When the engine took it.
    accepted: Instant,
}

/// The answer that is being made.
pub struct Active {
    /// What was asked for.
    pub request: Respond,
    /// When the engine took it.
    accepted: Instant,
    /// When its first token came.
    first_token: Option<Instant>,
    /// When its first frame came.
    first_frame: Option<Instant>,
    text: TextStream,
    frames_sent: u64,
    usage: Usage,
}

/// See the module's description.
pub struct Conversation<T> {
    peer: Peer,
    instructions: Option<Vec<u32>>,
    history: Vec<Entry<T>>,
    hearing: Option<Hearing<T>>,
    /// Closed windows, in order.
    pub pending: VecDeque<PendingWindow>,
    /// Answers that wait for the one before.
    rounds: VecDeque<Round>,
    /// The answer being made.
    pub active: Option<Active>,
    /// Whether the prompt may differ from what the stages were last told.
    changed: bool,
}

/// What the scheduler has to do after a command.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing more.
    Done,
    /// Take the active answer back from the stages.
    AbortActive,
}

impl<T> Conversation<T> {
    /// A conversation with nothing said.
    pub fn new(peer: Peer) -> Self {
        Self {
            peer,
            instructions: None,
            history: Vec::new(),
            hearing: None,
            pending: VecDeque::new(),
            rounds: VecDeque::new(),
            active: None,
            changed: false,
        }
    }

    /// The next command, if there is one.
    pub fn next_command(&self) -> Option<Command> {
        self.peer.commands.try_recv().ok()
    }

    /// Whether the caller has dropped its handle.
    pub fn is_gone(&self) -> bool {
        self.peer.commands.is_disconnected()
    }

    /// Whether the caller has room for what one tick can make; a session without is not run.
    pub fn has_room(&self, events: usize) -> bool {
        self.peer.events.capacity().is_none_or(|capacity| self.peer.events.len() + events <= capacity)
    }

    /// Hands an event over. Room was checked before the tick; a caller that is gone is noticed by its commands.
    pub fn emit(&self, event: Event) {
        if let Err(flume::TrySendError::Full(event)) = self.peer.events.try_send(event) {
            tracing::error!(?event, "an event was made for a session without room");
        }
    }

    fn fail(&self, response: Option<ResponseId>, error: SessionError) {
        self.emit(Event::Failed { response, error });
    }

    /// Executes one command.
    pub fn execute(&mut self, command: Command, model: &Knowledge<'_>) -> Outcome {
        match command {
            Command::Append(samples) => self.hear(&samples, model),
            Command::Commit { item } => self.commit(item),
            Command::Clear => self.clear(),
            Command::Insert { item, content: Content::Text { role, text }, .. } => {
                match model.tokenizer.encode(&text) {
                    Ok(ids) => self.push(
                        item,
                        match role {
                            Role::System => Message::System(ids),
                            Role::User => Message::UserText(ids),
                            Role::Assistant => Message::Assistant(ids),
                        },
                    ),
                    Err(error) => self.fail(None, text_error(&error)),
                }
            }
            Command::Instruct(text) => match model.tokenizer.encode(&text) {
                Ok(ids) => {
                    self.instructions = (!ids.is_empty()).then_some(ids);
                    self.changed = true;
                }
                Err(error) => self.fail(None, text_error(&error)),
            },
            Command::Respond(request) => self.ask(request, model),
            Command::Cancel { response } => return self.cancel(response),
            Command::Truncate { item, text } => self.truncate(item, &text, model.tokenizer),
            Command::Delete { item } => self.delete(item),
            _ => {}
        }
        Outcome::Done
    }

    fn hear(&mut self, samples: &[f32], model: &Knowledge<'_>) {
        // The opening of a message can be read at once; after that only whole windows change the prompt.
        self.changed |= self.hearing.is_none();
        let hearing = self.hearing.get_or_insert_with(|| Hearing::new(model.log_mel));
        let limit = MAX_AUDIO_S as usize * model.log_mel.config().sampling_rate as usize;
        if hearing.samples() + samples.len() > limit {
            return self.fail(None, SessionError::AudioTooLong { limit_s: MAX_AUDIO_S });
        }
        hearing.push(samples, &mut self.pending);
    }

    fn commit(&mut self, item: ItemId) {
        let Some(hearing) = self.hearing.take() else {
            return self.fail(None, SessionError::NothingToCommit);
        };
        if self.knows(item) {
            self.hearing = Some(hearing);
            return self.fail(None, SessionError::DuplicateItem(item));
        }
        let encoded = hearing.finish(item, &mut self.pending);
        self.push(item, Message::UserAudio(encoded));
    }

    fn clear(&mut self) {
        self.hearing = None;
        self.pending.retain(|window| window.item.is_some());
        self.changed = true;
    }

    fn knows(&self, item: ItemId) -> bool {
        self.history.iter().any(|entry| entry.id == item)
    }

    fn push(&mut self, id: ItemId, message: Message<T>) {
        if self.knows(id) {
            return self.fail(None, SessionError::DuplicateItem(id));
        }
        self.history.push(Entry { id, message });
        self.changed = true;
    }

    /// Takes an answer's place in the history at once, so that what comes later follows it.
    fn ask(&mut self, request: Respond, model: &Knowledge<'_>) {
        let response = Some(request.response);
        if let Some(voice) = request.voice.as_ref().filter(|voice| !model.voices.contains(voice)) {
            let known = model.voices.join(", ");
            return self.fail(response, SessionError::UnknownVoice { voice: voice.clone(), known });
        }
        if self.knows(request.item) {
            return self.fail(response, SessionError::DuplicateItem(request.item));
        }
        self.push(request.item, Message::Assistant(Vec::new()));
        let instructions = self.instructions.clone();
        self.rounds.push_back(Round { request, instructions, accepted: Instant::now() });
    }

    fn cancel(&mut self, response: ResponseId) -> Outcome {
        if self.active.as_ref().is_some_and(|active| active.request.response == response) {
            return Outcome::AbortActive;
        }
        self.withdraw(|request| request.response == response);
        Outcome::Done
    }

    /// Takes waiting answers back, and their places in the history.
    fn withdraw(&mut self, which: impl Fn(&Respond) -> bool) {
        let (gone, stay): (VecDeque<_>, VecDeque<_>) = self.rounds.drain(..).partition(|round| which(&round.request));
        self.rounds = stay;
        for Round { request: Respond { response, item, .. }, .. } in gone {
            self.history.retain(|entry| entry.id != item);
            self.changed = true;
            self.emit(Event::SegmentFinished { response, reason: FinishReason::Cancelled, usage: Usage::default() });
        }
    }

    /// Whether an item is an answer that is not complete.
    fn is_unfinished(&self, item: ItemId) -> bool {
        let active = self.active.as_ref().is_some_and(|active| active.request.item == item);
        active || self.rounds.iter().any(|round| round.request.item == item)
    }

    fn delete(&mut self, item: ItemId) {
        self.withdraw(|request| request.item == item);
        if !self.is_unfinished(item) {
            self.history.retain(|entry| entry.id != item);
            self.pending.retain(|window| window.item != Some(item));
            self.changed = true;
        }
    }

    /// Keeps the ids whose text is a prefix of `text`, and adds the rest of it.
    fn truncate(&mut self, item: ItemId, text: &str, tokenizer: &Tokenizer) {
        if self.is_unfinished(item) {
            return;
        }
        if text.is_empty() {
            return self.delete(item);
        }
        let Some(Entry { message: Message::Assistant(ids), .. }) =
            self.history.iter_mut().find(|entry| entry.id == item)
        else {
            return;
        };
        let (mut keep, mut kept) = (0, String::new());
        for n in 1..=ids.len() {
            let spoken = tokenizer.decode(&ids[..n]);
            if text.starts_with(&spoken) {
                (keep, kept) = (n, spoken);
            }
        }
        match tokenizer.encode(&text[kept.len()..]) {
            Ok(rest) => {
                ids.truncate(keep);
                ids.extend(rest);
                self.changed = true;
            }
            Err(error) => self.fail(None, text_error(&error)),
        }
    }

    /// Puts an encoded window where it belongs; one of a deleted item is dropped.
    pub fn place(&mut self, window: PendingWindow, rows: AudioRows<T>) {
        let rows = Arc::new(rows);
        self.changed = true;
        match window.item {
            None => self.hearing.iter_mut().for_each(|hearing| hearing.encoded.push(Arc::clone(&rows))),
            Some(item) => {
                let entry = self.history.iter_mut().find(|entry| entry.id == item);
                if let Some(Entry { message: Message::UserAudio(windows), .. }) = entry {
                    windows.push(rows);
                }
            }
        }
    }

    /// Whether the next answer can begin: none is being made, and all sound before it is encoded.
    pub fn can_begin(&self) -> bool {
        self.active.is_none() && !self.rounds.is_empty() && self.pending.iter().all(|window| window.item.is_none())
    }

    /// Begins the next answer: its prompt, and what it was asked with. `context` is what prompt and answer may take.
    pub fn begin(
        &mut self,
        prompt: &dyn Prompt<T>,
        tokenizer: &Tokenizer,
        context: usize,
    ) -> Option<(Vec<Element<T>>, Respond)> {
        let Round { request, instructions, accepted } = self.rounds.pop_front()?;
        let room = request.max_tokens.map_or(context, |tokens| tokens as usize).min(context / ROOM);
        let elements = self.fit(context - room, |session| {
            let end = session.history.iter().position(|entry| entry.id == request.item)?;
            Some((end, session.render(prompt, instructions.as_ref(), end, None, true)))
        })?;
        let sound = elements.iter().filter(|element| matches!(element, Element::Audio { .. })).count() as u32;
        self.active = Some(Active {
            request: request.clone(),
            accepted,
            first_token: None,
            first_frame: None,
            text: tokenizer.stream(),
            frames_sent: 0,
            usage: Usage {
                input_text_tokens: elements.len() as u32 - sound,
                input_audio_tokens: sound,
                ..Usage::default()
            },
        });
        Some((elements, request))
    }

    /// The prompt to read silently, if it changed since the last call and nothing is being answered.
    pub fn silent_prompt(&mut self, prompt: &dyn Prompt<T>, context: usize) -> Option<Vec<Element<T>>> {
        if self.active.is_some() || !self.rounds.is_empty() || !std::mem::take(&mut self.changed) {
            return None;
        }
        self.fit(context - context / ROOM, |session| {
            // Rows of an item that is only half encoded would be read in the wrong place.
            let half = session.pending.iter().find_map(|window| window.item);
            let half = half.and_then(|item| session.history.iter().position(|entry| entry.id == item));
            let open = session.hearing.as_ref().filter(|_| half.is_none()).map(|hearing| &hearing.encoded[..]);
            let end = half.unwrap_or(session.history.len());
            Some((end, session.render(prompt, session.instructions.as_ref(), end, open, false)))
        })
    }

    /// A prompt of at most `limit` positions: if it is longer, the oldest items are forgotten, more than is needed at
    /// once, because all that follows them has to be read again. The last item before the prompt's end stays, so a prompt can
    /// still be too long. `render` gives where in the history the prompt ends, and the prompt.
    fn fit(
        &mut self,
        limit: usize,
        render: impl Fn(&Self) -> Option<(usize, Vec<Element<T>>)>,
    ) -> Option<Vec<Element<T>>> {
        let (mut end, mut elements) = render(self)?;
        if elements.len() > limit {
            while elements.len() > limit - limit / ROOM && end > 1 {
                let oldest = self.history.remove(0).id;
                self.pending.retain(|window| window.item != Some(oldest));
                (end, elements) = render(self)?;
            }
        }
        Some(elements)
    }

    fn render(
        &self,
        prompt: &dyn Prompt<T>,
        instructions: Option<&Vec<u32>>,
        end: usize,
        open: Option<&[Arc<AudioRows<T>>]>,
        answer: bool,
    ) -> Vec<Element<T>> {
        let system = instructions.into_iter().map(|ids| Message::System(ids.clone()));
        let rest = self.history[..end].iter().map(|entry| entry.message.clone());
        prompt.render(&system.chain(rest).collect::<Vec<_>>(), open, answer)
    }
}

fn text_error(error: &crate::text::TextError) -> SessionError {
    SessionError::Internal { stage: "tokenizer", message: error.to_string() }
}
