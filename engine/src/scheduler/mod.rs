//! Tick loop: one thread owns the models and advances every session in batches.
//!
//! A tick takes commands, encodes closed audio windows, delivers new prompts to the first stage, and steps each stage
//! once, with the slots that the [planner](crate::deadline) chooses. With nothing runnable the thread blocks until a
//! signal or the next timeout; it never waits for a caller.
//!
//! - this file: admission, commands, timeouts
//! - `prompts`: prompts, shared conversations and streamed text on their way to the first stage
//! - `extra_hearing`: the recogniser's slots for complete audio
//! - `encoding`: windows of an encoder, unit by unit
//! - `hearing`: a recogniser's sound, steps and hypotheses
//! - `faults`: panics outside of the stages' steps
//! - `gauges`: counters and gauges for other threads
//! - `idle_memory`: memory that goes back to the system
//! - `steps`: the stages' steps, one after the other, and the routing of their output
//! - `parallel_stages`: the stages' steps on several threads
//! - `turns`: turns of sessions in work that a tick bounds
//!
//! Stages know **slots**: one for each session, which is also the session's key (`owner`) here, and further ones for
//! out-of-band responses.

mod encoding;
mod extra_hearing;
mod faults;
mod gauges;
mod hearing;
mod idle_memory;
mod parallel_stages;
mod prompts;
mod steps;
mod turns;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use repartee_engine_api::{Command, SessionPeer, WakeSignal};
use repartee_kernels::cpu::pool::Pool;
use tracing::Span;

use crate::answer_forms::AnswerForms;
use crate::audio_input::SampleCounter;
use crate::config::{EngineConfig, Timeouts};
use crate::deadline::{Planner, StepLimits};
use crate::hand_off::Edge;
use crate::model::{FrontEnd, Hearing, Model, SlotCounts};
use crate::models::worker_pool;
use crate::session::intake::{Intake, TextAllowance};
use crate::session::{EncodedTexts, ModelContext, Queues, Session};
use crate::stage::StageItem;
use crate::voices::VoiceRegistry;

use extra_hearing::ExtraHearing;
use idle_memory::IdleMemory;
use turns::{WaitingTurn, in_turn};

pub use gauges::Gauges;

/// Index of the encoder or recogniser in the plan; the stages follow.
const ENCODER: usize = 0;
/// Name of the encoder in measurements.
const ENCODER_NAME: &str = "encoder";
/// Upper bound of units of the encoder's work in one tick: audio that arrives faster than real time must not delay other
/// sessions. A small window is one.
const MAX_WINDOWS: usize = 8;
/// Upper bound of one session's commands taken in one tick.
const MAX_COMMANDS: usize = 64;

/// Clock of the scheduler; tests supply their own.
pub type Clock = Box<dyn Fn() -> Instant + Send + Sync>;

/// Outcome of a tick.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tick {
    /// Something was done; more may be runnable.
    Moved,
    /// Nothing is runnable until a signal, or until the given time.
    Idle(Option<Instant>),
    /// The engine was dropped.
    Over,
}

/// Computing time and number of steps of the encoder and each stage, by name.
pub type Times = Vec<(&'static str, Duration, u64)>;

/// State of the tick loop.
pub struct Scheduler {
    model: Model,
    timeouts: Timeouts,
    /// True if the model transcribes audio.
    transcribes: bool,
    /// True if the model translates audio into English.
    translates: bool,
    /// Reader of the forms of answers.
    forms: AnswerForms,
    /// Front end before a recogniser.
    unwindowed: Option<SampleCounter>,
    /// The recogniser's slots for complete audio.
    extra_hearing: ExtraHearing,
    /// Upper bound of events that one tick can send for one response.
    events_per_tick: usize,
    voices: Arc<VoiceRegistry>,
    /// Names of the voices when the tick began.
    voice_names: Arc<[String]>,
    /// True if a step takes many slots; otherwise one each.
    batch: bool,
    planner: Planner,
    /// Worker pool of the stages' steps; `None` for one thread, on which they run one after the other.
    pool: Option<Arc<Pool>>,
    /// Edge before each stage but the first.
    edges: Vec<Edge>,
    /// Open sessions, by owner slot.
    sessions: BTreeMap<usize, Session>,
    free_slots: Vec<usize>,
    /// Ids of the long texts of the command being executed.
    texts: EncodedTexts,
    /// Session whose text was tokenised last: sessions take turns.
    tokenised: usize,
    /// Session whose prompt was rendered last: sessions take turns.
    rendered: usize,
    /// Free slots for out-of-band responses.
    free_out_of_band: Vec<usize>,
    out_of_band: BTreeMap<usize, usize>,
    /// Slots of a batch that panicked. Each is stepped alone until its response is complete, so that the next panic
    /// ends only the session at fault.
    quarantine: BTreeSet<usize>,
    /// Start of each slot's wait for silent prefill.
    silent_since: BTreeMap<usize, Instant>,
    idle_memory: IdleMemory,
    /// Start of the step whose output is being routed.
    step_began: Instant,
    arrivals: flume::Receiver<SessionPeer>,
    gauges: Arc<Gauges>,
    clock: Clock,
}

impl Scheduler {
    /// Creates a scheduler for `model` and the sessions that arrive. It counts `gauges.open` down as sessions end.
    pub fn new(
        model: Model,
        config: &EngineConfig,
        arrivals: flume::Receiver<SessionPeer>,
        gauges: Arc<Gauges>,
    ) -> Self {
        Self::with_clock(model, config, arrivals, gauges, Box::new(Instant::now))
    }

    /// Like [`Scheduler::new`], with another clock.
    pub fn with_clock(
        mut model: Model,
        config: &EngineConfig,
        arrivals: flume::Receiver<SessionPeer>,
        gauges: Arc<Gauges>,
        clock: Clock,
    ) -> Self {
        let (sessions, slots) = (model.slots.sessions, model.slots.total());
        let (encoder, hearing) = match &model.hearing {
            Some(Hearing::Text(recogniser)) => {
                let settings = config.stage(recogniser.name());
                let chunk = settings.prefill_chunk.unwrap_or(usize::MAX).min(recogniser.max_rows());
                let captures = recogniser.eager_steps().is_some();
                (StepLimits { batch: settings.batch(), chunk }, (recogniser.name(), captures))
            }
            Some(Hearing::Rows(_)) | None => {
                (StepLimits { batch: MAX_WINDOWS, chunk: MAX_WINDOWS }, (ENCODER_NAME, false))
            }
        };
        let stages = model.stages.iter().map(|stage| {
            let settings = config.stage(stage.name());
            let chunk = settings.prefill_chunk.unwrap_or(usize::MAX).min(stage.max_rows());
            StepLimits { batch: settings.batch(), chunk }
        });
        let counted = model.stages.iter().map(|stage| (stage.name(), stage.eager_steps().is_some()));
        gauges.count(std::iter::once(hearing).chain(counted));
        let edges = model
            .stages
            .iter()
            .skip(1)
            .map(|stage| Edge::new(config.hand_off, config.stage(stage.name()).chunks(), slots));
        // The model keeps an empty list.
        let voices = Arc::new(VoiceRegistry::new(std::mem::replace(&mut model.voices, Box::new(Vec::new()))));
        Self {
            timeouts: config.timeouts,
            transcribes: model.transcribes(config.transcribes),
            translates: model.hearing_info(config.translates).translates,
            forms: AnswerForms::new(model.stages.first().and_then(|stage| stage.form_ids()), model.tokenizer.clone()),
            unwindowed: match &model.hearing {
                Some(Hearing::Text(recogniser)) => Some(SampleCounter::new(recogniser.rate())),
                Some(Hearing::Rows(_)) | None => None,
            },
            events_per_tick: model.events_per_tick(),
            extra_hearing: match &model.hearing {
                Some(Hearing::Text(recogniser)) => ExtraHearing::new(sessions, recogniser.slots()),
                Some(Hearing::Rows(_)) | None => ExtraHearing::default(),
            },
            voice_names: voices.names(),
            voices,
            batch: config.batch,
            planner: Planner::new(config.order(), std::iter::once(encoder).chain(stages).collect())
                .with_bounded_windows(ENCODER),
            pool: model.pool.take().or_else(|| worker_pool(config.threads())),
            edges: edges.collect(),
            sessions: BTreeMap::new(),
            free_slots: (0..sessions).rev().collect(),
            texts: EncodedTexts::new(),
            tokenised: 0,
            rendered: 0,
            free_out_of_band: (sessions..slots).rev().collect(),
            out_of_band: BTreeMap::new(),
            quarantine: BTreeSet::new(),
            silent_since: BTreeMap::new(),
            idle_memory: IdleMemory::default(),
            step_began: clock(),
            arrivals,
            gauges,
            clock,
            model,
        }
    }

    /// Runs the stages in parallel on this pool from now on; one after another with `None`.
    pub fn set_pool(&mut self, pool: Option<Arc<Pool>>) {
        self.pool = pool;
    }

    /// Reads the forms of answers on a thread from now on, which wakes the engine.
    pub fn read_forms_on_thread(&mut self, wake: WakeSignal) {
        self.forms.on_thread(wake);
    }

    /// Runs until the engine is dropped.
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

    /// Does everything that is runnable now, once. Never panics.
    pub fn tick(&mut self) -> Tick {
        self.guarded_tick()
    }

    fn tick_once(&mut self) -> Tick {
        let now = (self.clock)();
        self.voice_names = self.voices.names();
        if !self.take_arrivals() {
            return Tick::Over;
        }
        let mut moved = self.take_commands(now);
        moved |= self.feed_recogniser(now);
        moved |= self.update_prompts(now);
        moved |= self.work(now);
        moved |= self.end_overdue(now);
        self.idle_memory.give_back(&mut self.model, now, moved);
        self.gauges.record_tick(moved.then(|| (self.clock)().saturating_duration_since(now)), self.queues());
        self.gauges.caches(self.model.stages.iter().map(|stage| stage.cache_use()));
        let hearing = match &self.model.hearing {
            Some(Hearing::Text(recogniser)) => recogniser.eager_steps(),
            Some(Hearing::Rows(_)) | None => None,
        };
        self.gauges.eager(std::iter::once(hearing).chain(self.model.stages.iter().map(|stage| stage.eager_steps())));
        if moved {
            return Tick::Moved;
        }
        self.publish_held();
        Tick::Idle(self.next_timeout().into_iter().chain(self.idle_memory.next(now)).min())
    }

    /// Voice registry, shared with callers' threads.
    pub fn voices(&self) -> Arc<VoiceRegistry> {
        self.voices.clone()
    }

    /// Queue lengths of all sessions together.
    fn queues(&self) -> Queues {
        self.sessions.values().map(Session::queues).fold(Queues::default(), |sum, one| Queues {
            commands: sum.commands + one.commands,
            windows: sum.windows + one.windows,
            responses: sum.responses + one.responses,
            events: sum.events + one.events,
        })
    }

    /// Tracing span of the session that owns a slot.
    fn span(&self, slot: usize) -> Span {
        self.sessions.get(&self.owner(slot)).map_or_else(Span::none, |session| session.span().clone())
    }

    /// Number of open sessions.
    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }

    /// Number of resources held for all sessions: cache blocks, items on edges, a recogniser's open slots, out-of-band
    /// slots, notes about slots. 0 without sessions.
    pub fn held(&self) -> usize {
        let slots = 0..self.model.slots.total();
        let stages: usize = self.model.stages.iter().map(|stage| stage.blocks()).sum();
        let edges: usize = self.edges.iter().map(|edge| slots.clone().map(|slot| edge.held(slot)).sum::<usize>()).sum();
        let hearing = match &self.model.hearing {
            Some(Hearing::Text(recogniser)) => recogniser.held(),
            Some(Hearing::Rows(_)) | None => 0,
        };
        stages + edges + hearing + self.out_of_band.len() + self.quarantine.len() + self.silent_since.len()
    }

    /// Blocks of all stages' caches that have memory of the system, and bytes given back since the start.
    pub fn resident(&self) -> (usize, u64) {
        let caches = self.model.stages.iter().map(|stage| stage.cache_use());
        caches.fold((0, 0), |(blocks, bytes), cache| (blocks + cache.resident, bytes + cache.given_back))
    }

    /// Computing time of each stage so far.
    pub fn times(&self) -> Times {
        self.gauges.work().iter().map(|work| (work.stage, work.busy, work.steps)).collect()
    }

    fn take_arrivals(&mut self) -> bool {
        loop {
            match self.arrivals.try_recv() {
                Ok(peer) => match self.free_slots.pop() {
                    Some(slot) => {
                        self.sessions.insert(slot, Session::new(peer, slot));
                    }
                    // The engine counts `gauges.open` before it sends a session. Dropping the peer ends this one.
                    None => tracing::error!("no slot is free for a new session"),
                },
                Err(flume::TryRecvError::Empty) => return true,
                Err(flume::TryRecvError::Disconnected) => return false,
            }
        }
    }

    fn take_commands(&mut self, now: Instant) -> bool {
        let mut moved = false;
        let turn = |(&owner, session): (&usize, &Session)| {
            let tenant = session.tenant().id;
            WaitingTurn { owner, tenant, urgent: session.is_behind() }
        };
        let turns: Vec<WaitingTurn> = self.sessions.iter().map(turn).collect();
        // Sessions take turns only while texts wait.
        let last = if turns.iter().any(|turn| turn.urgent) { self.tokenised } else { usize::MAX };
        let owners = in_turn(turns, last);
        let mut text = TextAllowance::of_tick();
        for owner in owners {
            let mut own = text.of_session();
            let before = own;
            self.guarded(owner, |scheduler| moved |= scheduler.take_commands_of(owner, &mut own, now));
            if own != before {
                text.spend(before, own);
                self.tokenised = owner;
            }
        }
        moved
    }

    fn take_commands_of(&mut self, owner: usize, text: &mut TextAllowance, now: Instant) -> bool {
        let mut moved = false;
        let mut appended = 0;
        let events = self.events_per_tick;
        for _ in 0..MAX_COMMANDS {
            let Some(session) = self.sessions.get_mut(&owner) else { break };
            if session.is_disconnected() {
                self.model.stages.iter_mut().for_each(|stage| stage.keep_prefix(owner));
                self.close(owner);
                moved = true;
                break;
            }
            if !session.has_capacity(events) {
                break;
            }
            let (Some(session), model) = self.split(owner, now) else { break };
            let (command, texts) = match session.take_in(&model, text) {
                Intake::Empty => break,
                Intake::Busy => {
                    moved = true;
                    break;
                }
                Intake::Refused(command, error) => {
                    moved = true;
                    session.refuse(&command, error);
                    continue;
                }
                Intake::Ready(command, texts) => (command, texts),
            };
            moved = true;
            if let Command::Append(samples) = &command {
                appended += samples.len();
            }
            self.texts = texts;
            let (Some(session), mut model) = self.split(owner, now) else { break };
            let stop = session.execute(command, &mut model);
            self.texts.clear();
            let Some(session) = self.sessions.get(&owner) else { break };
            let out_of_band = session.out_of_band_slots();
            self.note_out_of_band(owner, &out_of_band);
            if let Some(slot) = stop {
                self.deliver(0, slot, StageItem::Abort);
                self.reclaim(slot);
            }
            // Commands after a second of audio wait for the next tick.
            if self.model.hearing.as_ref().is_some_and(|hearing| appended >= hearing.rate() as usize) {
                break;
            }
        }
        let (Some(session), mut model) = self.split(owner, now) else { return moved };
        if session.has_capacity(events) {
            session.read_slices(&mut model);
            session.report_finished();
        }
        moved |= session.read_sound(&model);
        moved
    }

    /// Borrows a session together with the parts of the model that it uses.
    fn split(&mut self, owner: usize, now: Instant) -> (Option<&mut Session>, ModelContext<'_>) {
        let model = ModelContext {
            tokenizer: &self.model.tokenizer,
            front_end: match &self.model.hearing {
                Some(Hearing::Rows(ears)) => Some(ears.front_end.as_ref()),
                Some(Hearing::Text(_)) => self.unwindowed.as_ref().map(|counter| counter as &dyn FrontEnd),
                None => None,
            },
            hears_text: self.unwindowed.is_some(),
            voices: &self.voice_names,
            template: self.model.template.as_ref(),
            forms: &mut self.forms,
            audio_output: self.model.codec.is_some(),
            transcribes: self.transcribes,
            translates: self.translates,
            context: self.model.slots.context,
            stages: &self.model.stages,
            free_slots: &mut self.free_out_of_band,
            texts: &self.texts,
            now,
        };
        (self.sessions.get_mut(&owner), model)
    }

    /// Records the out-of-band slots of a session.
    fn note_out_of_band(&mut self, owner: usize, slots: &[usize]) {
        self.out_of_band.retain(|slot, of| *of != owner || slots.contains(slot));
        self.out_of_band.extend(slots.iter().map(|&slot| (slot, owner)));
    }

    /// Session that a slot belongs to.
    fn owner(&self, slot: usize) -> usize {
        self.out_of_band.get(&slot).copied().unwrap_or(slot)
    }

    /// Frees an out-of-band slot once no response uses it.
    fn reclaim(&mut self, slot: usize) {
        let Some(owner) = self.out_of_band.get(&slot) else { return };
        let taken = self.sessions.get(owner).is_some_and(|session| session.out_of_band_slots().contains(&slot));
        if !taken {
            self.reset(slot);
            self.out_of_band.remove(&slot);
            self.free_out_of_band.push(slot);
        }
    }

    /// Ends a session and resets its slots.
    fn close(&mut self, owner: usize) {
        let Some(session) = self.sessions.remove(&owner) else { return };
        self.reset(owner);
        self.free_hearing(owner);
        for slot in session.out_of_band_slots() {
            self.reset(slot);
        }
        // Recomputed, because a panic may have come between the taking of a slot and its record.
        self.out_of_band.retain(|_, of| *of != owner);
        let SlotCounts { sessions, .. } = self.model.slots;
        let slots = (sessions..self.model.slots.total()).rev();
        self.free_out_of_band = slots.filter(|slot| !self.out_of_band.contains_key(slot)).collect();
        self.free_slots.push(owner);
        // Before `open`, so that a caller that finds the slot free also finds its resources released.
        self.publish_held();
        self.gauges.open.fetch_sub(1, Ordering::AcqRel);
        // Last: dropping it closes the event queue, and a caller may wait for that to open the next session.
        drop(session);
    }

    /// Frees everything that stages and edges hold for a slot.
    fn reset(&mut self, slot: usize) {
        for index in 0..self.model.stages.len() {
            self.free_stage(index, slot);
        }
        for edge in &mut self.edges {
            edge.free(slot);
        }
        self.quarantine.remove(&slot);
        self.silent_since.remove(&slot);
    }

    /// Ends sessions whose timeouts have passed.
    fn end_overdue(&mut self, now: Instant) -> bool {
        let mut overdue = Vec::new();
        let (events, timeouts) = (self.events_per_tick, self.timeouts);
        for (&owner, session) in &mut self.sessions {
            let limits = session.timeouts(events, now, &timeouts);
            overdue.extend(limits.into_iter().find(|(until, _)| *until <= now).map(|(_, error)| (owner, error)));
        }
        let any = !overdue.is_empty();
        for (owner, error) in overdue {
            self.span(owner).in_scope(|| tracing::warn!(%error, "a session timed out and ends"));
            self.fail(owner, error);
        }
        any
    }

    fn next_timeout(&mut self) -> Option<Instant> {
        let now = (self.clock)();
        let (events, timeouts) = (self.events_per_tick, self.timeouts);
        let limits = |session: &mut Session| session.timeouts(events, now, &timeouts);
        self.sessions.values_mut().flat_map(limits).map(|(until, _)| until).min()
    }
}
