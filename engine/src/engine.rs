//! Starts the engine's tick loops and opens sessions on them.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use repartee_engine_api::{
    Command, EngineLoad, EnrolError, Event, ModelInfo, OpenError, Recording, Respond, Role, SessionHandle,
    SpeechEngine, StageWork, Tenant, Transcribe, WakeSignal,
};
use repartee_kernels::cpu::SharedWeights;
use thiserror::Error;

use crate::cascade::parts::CascadeParts;
use crate::cascade::remote_model::{Rehearsal, RemoteModel};
use crate::checkpoint::{Checkpoint, CheckpointError, Source};
use crate::config::{ConfigError, EngineConfig};
use crate::model::Model;
use crate::model_info::model_info;
use crate::models;
use crate::models::load_error::LoadError;
use crate::progress::{StartProgress, StartStage};
use crate::tick_loop::{Refusal, TickLoop};

/// Error of an engine's start.
#[derive(Debug, Error)]
pub enum StartError {
    /// The checkpoint cannot be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// A setting is out of range.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The model loaded but gave no response.
    #[error("the model gave no response during warm-up: {0}")]
    WarmUp(String),
    /// The operating system refused to start the thread.
    #[error("cannot start the engine's thread: {0}")]
    Thread(#[from] std::io::Error),
}

impl From<CheckpointError> for StartError {
    fn from(error: CheckpointError) -> Self {
        Self::Load(error.into())
    }
}

/// Opens the checkpoints of a cascade; `progress` is told what part of all weights was read.
fn open_parts<F: Fn(StartProgress) + Send + Sync + 'static>(
    parts: CascadeParts<Source>,
    loops: usize,
    progress: &Arc<F>,
) -> Result<CascadeParts<Checkpoint>, StartError> {
    let parts = parts.try_map(Checkpoint::open)?;
    let whole = parts.iter().map(Checkpoint::weight_bytes).sum::<u64>().max(1) as f32;
    // The parts load at once, so what was read is the sum of all.
    let read = Arc::new(Mutex::new(0.0));
    Ok(parts.map(|checkpoint| {
        let (told, read, share) = (progress.clone(), read.clone(), checkpoint.weight_bytes() as f32 / whole);
        let before = Mutex::new(0.0);
        checkpoint
            .on_read(move |fraction| {
                let mut before = before.lock().unwrap_or_else(PoisonError::into_inner);
                let mut read = read.lock().unwrap_or_else(PoisonError::into_inner);
                *read += (fraction - std::mem::replace(&mut *before, fraction)) * share;
                told(StartProgress { stage: StartStage::Weights, fraction: *read });
            })
            .read_times(loops)
    }))
}

/// Model of a tick loop, with the signal that wakes it.
type LoopModel = (Model, (WakeSignal, flume::Receiver<()>));

/// Loads the model of each tick loop, with the loop's settings and signal. On the processor they share their weights.
fn load_loops(
    config: &EngineConfig,
    load: impl Fn(&EngineConfig, Option<&SharedWeights>, &WakeSignal) -> Result<Model, LoadError>,
) -> Result<Vec<LoopModel>, LoadError> {
    let shared = (config.loops > 1).then(SharedWeights::default);
    let one = |number| {
        let signal = WakeSignal::new();
        Ok((load(&config.of_loop(number), shared.as_ref(), &signal.0)?, signal))
    };
    (0..config.loops).map(one).collect()
}

/// A running engine. Dropping it ends all sessions and joins its threads.
#[derive(Debug)]
pub struct Engine {
    info: ModelInfo,
    /// Tick loops; a session stays on one.
    loops: Vec<TickLoop>,
}

impl Engine {
    /// Loads a checkpoint, starts the thread and warms up. The engine is ready when this returns.
    pub fn start(source: Source, config: &EngineConfig) -> Result<Self, StartError> {
        Self::start_with_progress(source, config, |_| {})
    }

    /// Like [`Engine::start`]; calls `progress` on this thread whenever the start has advanced.
    pub fn start_with_progress(
        source: Source,
        config: &EngineConfig,
        progress: impl Fn(StartProgress) + Send + Sync + 'static,
    ) -> Result<Self, StartError> {
        config.check()?;
        progress(StartProgress::BEGIN);
        let progress = Arc::new(progress);
        let told = progress.clone();
        let read = move |fraction| told(StartProgress { stage: StartStage::Weights, fraction });
        let checkpoint = Checkpoint::open(source)?.on_read(read).read_times(config.loops);
        let models = load_loops(config, |config, shared, _| models::load_model_sharing(&checkpoint, config, shared))?;
        Self::run((checkpoint.name(), ""), models, config, &*progress)
    }

    /// Loads the parts of a cascade, as [`Engine::start_with_progress`] does one model. The cascade has the language
    /// model's name.
    pub fn start_cascade(
        parts: CascadeParts<Source>,
        config: &EngineConfig,
        progress: impl Fn(StartProgress) + Send + Sync + 'static,
    ) -> Result<Self, StartError> {
        config.check()?;
        progress(StartProgress::BEGIN);
        let progress = Arc::new(progress);
        let parts = open_parts(parts, config.loops, &progress)?;
        let is_spoken = parts.think.is_some() && parts.speak.is_some();
        let models = load_loops(config, |config, shared, _| {
            let mut model = models::load_cascade(parts.as_ref(), None, config, shared)?;
            if is_spoken {
                model.answer_tokens = model.answer_tokens.min(config.spoken_answers.tokens);
            }
            Ok(model)
        })?;
        let instructions = if is_spoken { &config.spoken_answers.instructions[..] } else { "" };
        let name = parts.main().map_or("cascade", Checkpoint::name);
        Self::run((name, instructions), models, config, &*progress)
    }

    /// Starts a cascade whose language model is behind a server; of `parts` the others. Without a voice its text is the
    /// answer. The server is not asked yet, so it may start later.
    pub fn start_remote_cascade(
        think: RemoteModel,
        parts: CascadeParts<Source>,
        config: &EngineConfig,
        progress: impl Fn(StartProgress) + Send + Sync + 'static,
    ) -> Result<Self, StartError> {
        config.check()?;
        progress(StartProgress::BEGIN);
        let progress = Arc::new(progress);
        let parts = open_parts(parts, config.loops, &progress)?;
        let rehearsal = Rehearsal::new(think.thinker);
        let (name, fallback) = (think.name.clone(), think.fallback);
        let think = RemoteModel { name: think.name, thinker: rehearsal.clone(), fallback };
        let models = load_loops(config, |config, shared, wake| {
            models::load_cascade(parts.as_ref(), Some((think.clone(), wake.clone())), config, shared)
        })?;
        let instructions = if parts.speak.is_some() { &config.spoken_answers.instructions[..] } else { "" };
        let engine = Self::run((&name, instructions), models, config, &*progress)?;
        rehearsal.end();
        Ok(engine)
    }

    /// Starts the threads of a model's loops and warms them up. The texts are the model's name and its default instructions.
    fn run(
        (name, instructions): (&str, &str),
        models: Vec<LoopModel>,
        config: &EngineConfig,
        progress: &dyn Fn(StartProgress),
    ) -> Result<Self, StartError> {
        progress(StartProgress { stage: StartStage::WarmUp, fraction: 1.0 });
        let infos = models.iter().map(|(model, _)| model_info((name, instructions), model, config));
        // The loops' shares of the cache are alike, but for a session.
        let context = |one: ModelInfo, other: ModelInfo| ModelInfo {
            context_tokens: one.context_tokens.min(other.context_tokens),
            ..one
        };
        let info = infos.reduce(context).ok_or_else(|| StartError::WarmUp("it has no loop".to_owned()))?;
        let start = |(number, (model, signal)): (usize, LoopModel)| {
            let name = if config.loops > 1 { format!("engine-{number}") } else { "engine".to_owned() };
            TickLoop::start(name, model, &config.of_loop(number), signal)
        };
        let loops = models.into_iter().enumerate().map(start).collect::<Result<_, _>>()?;
        let engine = Self { info, loops };
        for one in &engine.loops {
            engine.warm_up(one)?;
        }
        Ok(engine)
    }

    /// Resources that sessions hold (cache blocks and more), counted when the engine was last idle; 0 without sessions.
    pub fn held(&self) -> usize {
        self.loops.iter().map(|one| one.gauges.held.load(Ordering::Acquire)).sum()
    }

    /// Number of session slots.
    fn slots(&self) -> usize {
        self.loops.iter().map(|one| one.slots).sum()
    }

    /// Runs one short response through every stage of a loop, so that code and weights are in memory for the first caller.
    fn warm_up(&self, tick_loop: &TickLoop) -> Result<(), StartError> {
        let failed = |error: &dyn std::fmt::Display| StartError::WarmUp(error.to_string());
        let opened = tick_loop.open_for(&Tenant::default());
        let session = opened.map_err(|refusal| failed(&refusal.error(tick_loop.slots)))?;
        let request = match self.info.answers {
            true => {
                let audio = self.info.audio_output;
                Command::Respond(Respond { max_tokens: Some(4), audio, ..Respond::new(0, 1) })
            }
            false => Command::Transcribe(Transcribe::new(0, 0)),
        };
        // A recogniser before a language model takes long to find no words in noise, and its first turn is no slower.
        let input = if self.info.audio_input && !(self.info.hears_text && self.info.answers) {
            let second = self.info.input_rate as usize;
            let noise = (0..second).map(|i| (i * 7919 % 1000) as f32 * 2e-5).collect();
            vec![Command::Append(noise), Command::Commit { item: 0 }]
        } else {
            vec![Command::text(0, Role::User, "one two three")]
        };
        for command in input.into_iter().chain([request]) {
            session.submit(command).map_err(|error| failed(&error))?;
        }
        while let Some(event) = session.next_event_blocking() {
            match event {
                Event::Audio { .. } | Event::SegmentFinished { .. } => {
                    session.close();
                    return Ok(());
                }
                Event::Failed { error, .. } => return Err(failed(&error)),
                _ => {}
            }
        }
        Err(failed(&"the session ended"))
    }
}

impl SpeechEngine for Engine {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    fn open(&self) -> Result<SessionHandle, OpenError> {
        self.open_for(&Tenant::default())
    }

    fn open_for(&self, tenant: &Tenant) -> Result<SessionHandle, OpenError> {
        // The freest loop first. Another caller may take its last slot meanwhile.
        let mut loops: Vec<&TickLoop> = self.loops.iter().collect();
        loops.sort_by_key(|one| one.slots.saturating_sub(one.open_sessions()));
        let mut refusal = Refusal::Full;
        for one in loops.into_iter().rev() {
            match one.open_for(tenant) {
                Ok(session) => return Ok(session),
                Err(new) => refusal = new,
            }
        }
        Err(refusal.error(self.slots()))
    }

    fn voices(&self) -> Vec<String> {
        self.loops.first().map(|one| one.voices.names().to_vec()).unwrap_or_default()
    }

    fn enrol(&self, name: &str, recording: &Recording) -> Result<(), EnrolError> {
        for (at, one) in self.loops.iter().enumerate() {
            if let Err(error) = one.voices.enrol(name, recording) {
                // All loops have a voice or none.
                self.loops[..at].iter().for_each(|one| _ = one.voices.remove_voice(name));
                return Err(error);
            }
        }
        Ok(())
    }

    fn remove_voice(&self, name: &str) -> bool {
        self.loops.iter().filter(|one| one.voices.remove_voice(name)).count() > 0
    }

    fn occupancy(&self) -> (usize, usize) {
        (self.loops.iter().map(TickLoop::open_sessions).sum(), self.slots())
    }

    fn work(&self) -> Vec<StageWork> {
        let mut loops = self.loops.iter().map(|one| one.gauges.work());
        let mut all = loops.next().unwrap_or_default();
        for work in loops {
            all.iter_mut().zip(&work).for_each(|(all, more)| all.add(more));
        }
        all
    }

    fn load(&self) -> EngineLoad {
        let mut loops = self.loops.iter().map(|one| one.gauges.load());
        let mut all = loops.next().unwrap_or_default();
        loops.for_each(|load| all.add(&load));
        all
    }

    fn ready(&self) -> bool {
        self.loops.iter().all(TickLoop::is_ready)
    }
}
