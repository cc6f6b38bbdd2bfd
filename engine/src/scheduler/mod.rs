//! The tick loop: one thread that owns the models and moves every session forward in batches.
//!
//! A tick takes commands, encodes closed windows of sound, tells the first stage of new prompts, and then steps each stage
//! once, with those sessions that the [planner](crate::deadline) chooses. When nothing can be advanced the thread waits for a
//! signal or for the next limit of a wait; it never waits for a caller.
//!
//! - this file: sessions come, speak, and go
//! - `steps`: the stages' work and what becomes of it
//!
//! The stages know sessions by **lane**: one for each session's conversation, and some more for answers outside of them.

mod steps;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use repartee_engine_api::{Peer, SessionError};

use crate::config::{EngineConfig, Waits};
use crate::conversation::rounds::Room;
use crate::conversation::{Conversation, Knowledge};
use crate::deadline::{Limits, Planner};
use crate::hand_off::Edge;
use crate::stage::{Item, Model};

/// Windows encoded in one tick: sound that arrives faster than it is spoken must not hold up those who talk.
const MAX_WINDOWS: usize = 8;
/// Events that one tick can make for one answer: a text, the frames that a codec step may hold, and an end.
const EVENTS_PER_TICK: usize = 40;
/// Commands of one session taken in one tick.
const MAX_COMMANDS: usize = 64;

/// What time it is; a test's clock goes as it is told.
pub type Clock = Box<dyn Fn() -> Instant + Send>;

/// What came of a tick.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tick {
    /// Something was done; there may be more.
    Moved,
    /// Nothing can be done until somebody signals, or until then.
    Idle(Option<Instant>),
    /// Everyone who could send sessions is gone.
    Over,
}

/// Seconds that each stage has computed, by name; the encoder first.
pub type Times = Vec<(&'static str, Duration, u64)>;

/// See the module's description.
pub struct Scheduler<T> {
    model: Model<T>,
    waits: Waits,
    /// Whether steps take many sessions at once.
    batch: bool,
    planner: Planner,
    /// One before each stage but the first.
    edges: Vec<Edge<T>>,
    /// By lane.
    sessions: BTreeMap<usize, Conversation<T>>,
    free_lanes: Vec<usize>,
    /// Lanes for answers outside of conversations, and whose they are.
    free_beside: Vec<usize>,
    beside: BTreeMap<usize, usize>,
    /// Lanes that were in a batch that panicked: they are stepped alone until their answer is complete, so that only the
    /// one at fault is ended by the next panic.
    suspects: BTreeSet<usize>,
    /// Since when a lane's sound waits to be read silently.
    silent_since: BTreeMap<usize, Instant>,
    arrivals: flume::Receiver<Peer>,
    gauges: Arc<Gauges>,
    clock: Clock,
    times: Vec<(Duration, u64)>,
}

/// What an engine holds, for anyone to read at any time.
#[derive(Debug, Default)]
pub struct Gauges {
    /// Sessions that are open, those included that the thread has not seen yet.
    pub open: AtomicUsize,
    /// What [`Scheduler::held`] said when the thread last had nothing to do.
    pub held: AtomicUsize,
}

impl<T> Scheduler<T> {
    /// Drives `model` for the sessions that arrive; `gauges.open` is counted down as they go.
    pub fn new(model: Model<T>, config: &EngineConfig, arrivals: flume::Receiver<Peer>, gauges: Arc<Gauges>) -> Self {
        Self::with_clock(model, config, arrivals, gauges, Box::new(Instant::now))
    }

    /// The same with a clock of its own.
    pub fn with_clock(
        model: Model<T>,
        config: &EngineConfig,
        arrivals: flume::Receiver<Peer>,
        gauges: Arc<Gauges>,
        clock: Clock,
    ) -> Self {
        let (sessions, lanes) = (model.lanes.sessions, model.lanes.total());
        let encoder = Limits { batch: MAX_WINDOWS, chunk: MAX_WINDOWS };
        let stages = model.stages.iter().map(|stage| {
            let settings = config.stage(stage.name());
            let chunk = settings.prefill_chunk.unwrap_or(usize::MAX).min(stage.max_rows());
            Limits { batch: settings.batch(), chunk }
        });
        let edges = model
            .stages
            .iter()
            .skip(1)
            .map(|stage| Edge::new(config.hand_off, config.stage(stage.name()).chunks(), lanes));
        Self {
            waits: config.waits,
            batch: config.batch,
            planner: Planner::new(config.order(), std::iter::once(encoder).chain(stages).collect()),
            edges: edges.collect(),
            sessions: BTreeMap::new(),
            free_lanes: (0..sessions).rev().collect(),
            free_beside: (sessions..lanes).rev().collect(),
            beside: BTreeMap::new(),
            suspects: BTreeSet::new(),
            silent_since: BTreeMap::new(),
            arrivals,
            gauges,
            clock,
            times: vec![(Duration::ZERO, 0); model.stages.len() + 1],
            model,
        }
    }

    /// Runs until everyone who could send sessions is gone.
    pub fn run(mut self, wake: &flume::Receiver<()>) {
        loop {
            let waited = match self.tick() {
                Tick::Moved => Ok(()),
                Tick::Over => return,
                Tick::Idle(None) => wake.recv().map_err(|_| ()),
                Tick::Idle(Some(until)) => match wake.recv_deadline(until) {
                    Ok(()) | Err(flume::RecvTimeoutError::Timeout) => Ok(()),
                    Err(flume::RecvTimeoutError::Disconnected) => Err(()),
                },
            };
            if waited.is_err() {
                return;
            }
        }
    }

    /// Does everything that can be done now, once.
    pub fn tick(&mut self) -> Tick {
        let now = (self.clock)();
        if !self.take_arrivals() {
            return Tick::Over;
        }
        let mut moved = self.take_commands(now);
        moved |= self.update_prompts(now);
        moved |= self.work(now);
        moved |= self.end_overdue(now);
        if moved {
            return Tick::Moved;
        }
        self.gauges.held.store(self.held(), Ordering::Release);
        Tick::Idle(self.next_limit())
    }

    /// Sessions that live.
    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }

    /// Positions that the stages hold for all sessions together, and pieces that wait on edges and lanes that are taken:
    /// all of it 0 once nobody is there.
    pub fn held(&self) -> usize {
        let lanes = 0..self.model.lanes.total();
        let stages: usize = self.model.stages.iter().map(|stage| stage.blocks()).sum();
        let edges: usize = self.edges.iter().map(|edge| lanes.clone().map(|lane| edge.held(lane)).sum::<usize>()).sum();
        stages + edges + self.beside.len() + self.suspects.len() + self.silent_since.len()
    }

    /// What each stage has computed so far.
    pub fn times(&self) -> Times {
        let names = std::iter::once("encoder").chain(self.model.stages.iter().map(|stage| stage.name()));
        names.zip(&self.times).map(|(name, &(time, steps))| (name, time, steps)).collect()
    }

    fn take_arrivals(&mut self) -> bool {
        loop {
            match self.arrivals.try_recv() {
                Ok(peer) => match self.free_lanes.pop() {
                    Some(lane) => {
                        self.sessions.insert(lane, Conversation::new(peer, lane));
                    }
                    // `gauges.open` counts lanes before a session is sent; dropping the peer ends it all the same.
                    None => tracing::error!("a session arrived without a lane"),
                },
                Err(flume::TryRecvError::Empty) => return true,
                Err(flume::TryRecvError::Disconnected) => return false,
            }
        }
    }

    fn take_commands(&mut self, now: Instant) -> bool {
        let mut moved = false;
        let slots: Vec<usize> = self.sessions.keys().copied().collect();
        for slot in slots {
            for _ in 0..MAX_COMMANDS {
                let Some(session) = self.sessions.get_mut(&slot) else { break };
                if session.is_gone() {
                    self.free(slot);
                    moved = true;
                    break;
                }
                if !session.has_room(EVENTS_PER_TICK) {
                    break;
                }
                let Some(command) = session.next_command() else { break };
                moved = true;
                let (session, mut model) = self.split(slot, now);
                let Some(session) = session else { break };
                let stop = session.execute(command, &mut model);
                let beside = session.lanes_beside();
                self.note_beside(slot, &beside);
                if let Some(lane) = stop {
                    self.deliver(0, lane, Item::Abort);
                    self.reclaim(lane);
                }
            }
            let (Some(session), mut model) = self.split(slot, now) else { continue };
            if session.has_room(EVENTS_PER_TICK) {
                session.read_slices(&mut model);
                session.tell_end();
            }
        }
        moved
    }

    /// One session beside what it has to know.
    fn split(&mut self, slot: usize, now: Instant) -> (Option<&mut Conversation<T>>, Knowledge<'_, T>) {
        let model = Knowledge {
            tokenizer: &self.model.tokenizer,
            log_mel: &self.model.log_mel,
            voices: &self.model.voices,
            prompt: self.model.prompt.as_ref(),
            lanes: &mut self.free_beside,
            now,
        };
        (self.sessions.get_mut(&slot), model)
    }

    /// Notes whose the lanes are that a session has for answers outside of its conversation.
    fn note_beside(&mut self, slot: usize, lanes: &[usize]) {
        self.beside.retain(|lane, owner| *owner != slot || lanes.contains(lane));
        self.beside.extend(lanes.iter().map(|&lane| (lane, slot)));
    }

    /// Whose a lane is.
    fn owner(&self, lane: usize) -> usize {
        self.beside.get(&lane).copied().unwrap_or(lane)
    }

    /// Frees a lane for other answers once the answer outside of a conversation that had it is over.
    fn reclaim(&mut self, lane: usize) {
        let Some(owner) = self.beside.get(&lane) else { return };
        let taken = self.sessions.get(owner).is_some_and(|session| session.lanes_beside().contains(&lane));
        if !taken {
            self.forget(lane);
            self.beside.remove(&lane);
            self.free_beside.push(lane);
        }
    }

    /// Ends a session: every stage forgets it.
    fn free(&mut self, slot: usize) {
        let Some(session) = self.sessions.remove(&slot) else { return };
        self.forget(slot);
        for lane in session.lanes_beside() {
            self.forget(lane);
            self.beside.remove(&lane);
            self.free_beside.push(lane);
        }
        self.free_lanes.push(slot);
        // Nobody who counts on its lane may find that something is still held.
        self.gauges.held.store(self.held(), Ordering::Release);
        self.gauges.open.fetch_sub(1, Ordering::AcqRel);
        // Last, because who waits for the end of the session's events may count on its lane.
        drop(session);
    }

    fn forget(&mut self, lane: usize) {
        for stage in &mut self.model.stages {
            stage.free(lane);
        }
        for edge in &mut self.edges {
            edge.free(lane);
        }
        self.suspects.remove(&lane);
        self.silent_since.remove(&lane);
    }

    fn update_prompts(&mut self, now: Instant) -> bool {
        let mut moved = false;
        let slots: Vec<usize> = self.sessions.keys().copied().collect();
        let room = Room { context: self.model.lanes.context, max_tokens: self.model.max_tokens };
        for slot in slots {
            let lanes = match self.sessions.get(&slot) {
                Some(session) if session.has_room(EVENTS_PER_TICK) => session.startable(),
                _ => continue,
            };
            for lane in lanes {
                let (Some(session), model) = self.split(slot, now) else { continue };
                let Some((elements, answer)) = session.begin(lane, &model, room) else { continue };
                moved = true;
                let (tokens, limit) = (elements.len() as u32, room.context as u32);
                if tokens >= limit {
                    self.fail(lane, SessionError::ContextFull { tokens, limit });
                    continue;
                }
                self.deliver(0, lane, Item::Prompt { elements, answer: Some(answer) });
                let cached = self.model.stages[0].held(lane);
                if let Some(session) = self.sessions.get_mut(&slot) {
                    session.note_cached(lane, cached);
                }
            }
            let (Some(session), model) = self.split(slot, now) else { continue };
            if let Some(elements) = session.silent_prompt(&model, room.context)
                && elements.len() < room.context
            {
                self.deliver(0, slot, Item::Prompt { elements, answer: None });
            }
        }
        moved
    }

    /// Ends sessions that waited longer than they may.
    fn end_overdue(&mut self, now: Instant) -> bool {
        let mut overdue = Vec::new();
        for (&slot, session) in &mut self.sessions {
            let limits = session.waits(EVENTS_PER_TICK, now, &self.waits);
            overdue.extend(limits.into_iter().find(|(until, _)| *until <= now).map(|(_, error)| (slot, error)));
        }
        let any = !overdue.is_empty();
        for (slot, error) in overdue {
            tracing::warn!(%error, "a session waited too long and ends");
            self.fail(slot, error);
        }
        any
    }

    fn next_limit(&mut self) -> Option<Instant> {
        let now = (self.clock)();
        let waits = self.waits;
        let limits = |session: &mut Conversation<T>| session.waits(EVENTS_PER_TICK, now, &waits);
        self.sessions.values_mut().flat_map(limits).map(|(until, _)| until).min()
    }
}
