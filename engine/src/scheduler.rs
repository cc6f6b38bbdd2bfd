//! The tick loop: one thread that owns the models and moves every session forward in batches.
//!
//! A tick takes commands, encodes closed windows of sound, tells the first stage of new prompts, and then steps each stage
//! once with every session that it can advance. When nothing can be advanced the thread waits for a signal; it never
//! waits for a caller.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::conversation::{Conversation, Knowledge, Outcome};
use crate::session::{FinishReason, Peer, SessionError};
use crate::stage::{Answer, End, Item, MelInput, Model, Outbox, Work};

/// Windows encoded in one tick: sound that arrives faster than it is spoken must not hold up those who talk.
const MAX_WINDOWS: usize = 8;
/// Rows of all sessions in one step of a stage.
const MAX_ROWS: usize = 512;
/// Events that one tick can make for one session: a text, the frames that a codec step may hold, and an end.
const EVENTS_PER_TICK: usize = 40;

/// See the module's description.
pub struct Scheduler<T> {
    model: Model<T>,
    sessions: BTreeMap<usize, Conversation<T>>,
    free_slots: Vec<usize>,
    arrivals: flume::Receiver<Peer>,
    open: Arc<AtomicUsize>,
}

impl<T> Scheduler<T> {
    /// Drives `model` for the sessions that arrive, at most `slots` at once; `open` counts them down as they go.
    pub fn new(model: Model<T>, slots: usize, arrivals: flume::Receiver<Peer>, open: Arc<AtomicUsize>) -> Self {
        Self { model, sessions: BTreeMap::new(), free_slots: (0..slots).rev().collect(), arrivals, open }
    }

    /// Runs until everyone who could send sessions is gone.
    pub fn run(mut self, wake: &flume::Receiver<()>) {
        loop {
            if !self.take_arrivals() {
                return;
            }
            let mut progress = self.take_commands();
            progress |= self.encode();
            self.update_prompts();
            for stage in 0..self.model.stages.len() {
                progress |= self.step(stage);
            }
            if !progress && wake.recv().is_err() {
                return;
            }
        }
    }

    fn take_arrivals(&mut self) -> bool {
        loop {
            match self.arrivals.try_recv() {
                Ok(peer) => match self.free_slots.pop() {
                    Some(slot) => {
                        self.sessions.insert(slot, Conversation::new(peer));
                    }
                    // `open` counts slots before a session is sent; dropping the peer ends it all the same.
                    None => tracing::error!("a session arrived without a slot"),
                },
                Err(flume::TryRecvError::Empty) => return true,
                Err(flume::TryRecvError::Disconnected) => return false,
            }
        }
    }

    fn take_commands(&mut self) -> bool {
        let mut progress = false;
        let slots: Vec<usize> = self.sessions.keys().copied().collect();
        for slot in slots {
            while let Some(session) = self.sessions.get_mut(&slot) {
                if session.is_gone() {
                    self.free(slot);
                    progress = true;
                    break;
                }
                if !session.has_room(EVENTS_PER_TICK) {
                    break;
                }
                let Some(command) = session.next_command() else { break };
                progress = true;
                let model = Knowledge {
                    tokenizer: &self.model.tokenizer,
                    log_mel: &self.model.log_mel,
                    voices: &self.model.voices,
                };
                if session.execute(command, &model) == Outcome::AbortActive {
                    self.deliver(0, slot, Item::Abort);
                }
            }
        }
        progress
    }

    /// Ends a session: every stage forgets it.
    fn free(&mut self, slot: usize) {
        let Some(session) = self.sessions.remove(&slot) else { return };
        self.forget(slot);
        self.free_slots.push(slot);
        self.open.fetch_sub(1, Ordering::AcqRel);
        // Last, because who waits for the end of the session's events may count on its slot.
        drop(session);
    }

    fn forget(&mut self, slot: usize) {
        for stage in &mut self.model.stages {
            stage.free(slot);
        }
    }

    fn encode(&mut self) -> bool {
        let mut taken = Vec::new();
        // One window of each session in turn, so that nobody's backlog shuts others out.
        for round in 0..MAX_WINDOWS {
            for (&slot, session) in &mut self.sessions {
                if taken.len() < MAX_WINDOWS && (round == 0 || !session.pending.is_empty()) {
                    taken.extend(session.pending.pop_front().map(|window| (slot, window)));
                }
            }
        }
        if taken.is_empty() {
            return false;
        }
        let inputs: Vec<_> =
            taken.iter().map(|(_, window)| MelInput { mel: &window.mel.data, index: window.index }).collect();
        let encoder = &mut self.model.encoder;
        match catch_unwind(AssertUnwindSafe(|| encoder.encode(&inputs))) {
            Ok(rows) => {
                for ((slot, window), rows) in taken.into_iter().zip(rows) {
                    if let Some(session) = self.sessions.get_mut(&slot) {
                        session.place(window, rows);
                    }
                }
            }
            Err(_) => {
                for (slot, _) in taken {
                    self.fail(slot, internal("encoder"));
                }
            }
        }
        true
    }

    fn update_prompts(&mut self) {
        let slots: Vec<usize> = self.sessions.keys().copied().collect();
        let context = self.model.context;
        for slot in slots {
            let Some(session) = self.sessions.get_mut(&slot) else { continue };
            let prompt = self.model.prompt.as_ref();
            if session.can_begin() {
                let Some((elements, request)) = session.begin(prompt, &self.model.tokenizer, context) else {
                    continue;
                };
                let (tokens, limit) = (elements.len() as u32, context as u32);
                if tokens >= limit {
                    self.fail(slot, SessionError::ContextFull { tokens, limit });
                    continue;
                }
                let answer = Answer {
                    response: request.response,
                    seed: request.seed,
                    voice: request.voice.unwrap_or_else(|| self.model.voices[0].clone()),
                    audio: request.audio,
                    max_tokens: request.max_tokens.unwrap_or(self.model.max_tokens),
                    sampling: request.sampling,
                };
                self.deliver(0, slot, Item::Prompt { elements, answer: Some(answer) });
                let cached = self.model.stages[0].held(slot);
                if let Some(session) = self.sessions.get_mut(&slot) {
                    session.note_cached(cached);
                }
            } else if let Some(elements) = session.silent_prompt(prompt, context)
                && elements.len() < context
            {
                self.deliver(0, slot, Item::Prompt { elements, answer: None });
            }
        }
    }

    /// One batch of one stage.
    fn step(&mut self, index: usize) -> bool {
        let stage = &mut self.model.stages[index];
        let mut left = MAX_ROWS;
        let mut work = Vec::new();
        for (&slot, session) in &self.sessions {
            let rows = stage.ready(slot).min(stage.max_rows()).min(left);
            if rows > 0 && session.has_room(EVENTS_PER_TICK) {
                left -= rows;
                work.push(Work { slot, rows });
            }
        }
        if work.is_empty() {
            return false;
        }
        let mut out = Vec::new();
        if catch_unwind(AssertUnwindSafe(|| stage.step(&work, &mut out))).is_err() {
            let name = stage.name();
            tracing::error!(stage = name, "a stage panicked: the sessions of its batch end");
            for Work { slot, .. } in work {
                self.fail(slot, internal(name));
            }
            return true;
        }
        self.route(index, out);
        true
    }

    /// Gives an item to a stage, and on to the stages after it what that makes at once.
    fn deliver(&mut self, index: usize, slot: usize, item: Item<T>) {
        let mut out = Vec::new();
        self.model.stages[index].accept(slot, item, &mut out);
        self.route(index, out);
    }

    /// Hands on what stage `index` made: to the caller what concerns it, and to the next stage.
    fn route(&mut self, index: usize, out: Outbox<T>) {
        let last = index + 1 == self.model.stages.len();
        for (slot, item) in out {
            let Some(session) = self.sessions.get_mut(&slot) else { continue };
            match &item {
                Item::Token(id) => session.token(*id),
                Item::Frame(_) => session.frame(),
                Item::Fail(error) => {
                    let error = error.clone();
                    self.fail(slot, error);
                    continue;
                }
                _ => {}
            }
            if !last {
                self.deliver(index + 1, slot, item);
                continue;
            }
            match item {
                Item::Samples(samples) => session.samples(samples),
                Item::End(End::Stop) => session.finish(FinishReason::Stop),
                Item::End(End::Length) => session.finish(FinishReason::Length),
                Item::Abort => session.finish(FinishReason::Cancelled),
                _ => {}
            }
        }
    }

    /// Reports a failure. The stages forget the session; if it lives on they will read its prompt again.
    fn fail(&mut self, slot: usize, error: SessionError) {
        let fatal = error.is_fatal();
        if let Some(session) = self.sessions.get_mut(&slot) {
            session.finish_failed(error);
            self.forget(slot);
        }
        if fatal {
            self.free(slot);
        }
    }
}

fn internal(stage: &'static str) -> SessionError {
    SessionError::Internal { stage, message: "it panicked; the server's log says where".to_owned() }
}
