//! Starts the engine thread and opens sessions on it.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use repartee_engine_api::{
    Command, EngineLoad, EnrolError, Event, ModelInfo, OpenError, Recording, Respond, Role, SessionHandle, SessionPeer,
    SpeechEngine, StageWork, Tenant, Transcribe, WakeSignal, link,
};
use thiserror::Error;

use crate::cascade::parts::CascadeParts;
use crate::cascade::remote_model::{Rehearsal, RemoteModel};
use crate::checkpoint::{Checkpoint, CheckpointError, Source};
use crate::config::{ConfigError, EngineConfig};
use crate::model::{Codec, Hearing, Model};
use crate::models;
use crate::models::load_error::LoadError;
use crate::progress::{StartProgress, StartStage};
use crate::scheduler::{Gauges, Scheduler};
use crate::stage::EdgeKind;
use crate::voices::VoiceRegistry;

/// [`ModelInfo::input_rate`] of a model without audio input, in Hz.
const NOMINAL_RATE: u32 = 16_000;
/// [`ModelInfo::output_rate`] and [`ModelInfo::frame`] of a model without audio output.
const NOMINAL_CODEC: Codec = Codec { sample_rate: 24_000, frame_samples: (1920, 1) };

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
    progress: &Arc<F>,
) -> Result<CascadeParts<Checkpoint>, StartError> {
    let parts = parts.try_map(Checkpoint::open)?;
    let whole = parts.iter().map(Checkpoint::weight_bytes).sum::<u64>().max(1) as f32;
    // The parts load at once, so what was read is the sum of all.
    let read = Arc::new(Mutex::new(0.0));
    Ok(parts.map(|checkpoint| {
        let (told, read, share) = (progress.clone(), read.clone(), checkpoint.weight_bytes() as f32 / whole);
        let before = Mutex::new(0.0);
        checkpoint.on_read(move |fraction| {
            let mut before = before.lock().unwrap_or_else(PoisonError::into_inner);
            let mut read = read.lock().unwrap_or_else(PoisonError::into_inner);
            *read += (fraction - std::mem::replace(&mut *before, fraction)) * share;
            told(StartProgress { stage: StartStage::Weights, fraction: *read });
        })
    }))
}

/// A running engine. Dropping it ends all sessions and joins its thread.
#[derive(Debug)]
pub struct Engine {
    info: ModelInfo,
    slots: usize,
    voices: Arc<VoiceRegistry>,
    gauges: Arc<Gauges>,
    /// Queue of new sessions; `None` only while dropping.
    arrivals: Option<flume::Sender<SessionPeer>>,
    wake: WakeSignal,
    thread: Option<JoinHandle<()>>,
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
        let checkpoint = Checkpoint::open(source)?.on_read(read);
        let model = models::load_model(&checkpoint, config)?;
        Self::run((checkpoint.name(), ""), model, config, &*progress, WakeSignal::new())
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
        let parts = open_parts(parts, &progress)?;
        let is_spoken = parts.think.is_some() && parts.speak.is_some();
        let mut model = models::load_cascade(parts.as_ref(), None, config)?;
        if is_spoken {
            model.answer_tokens = model.answer_tokens.min(config.spoken_answers.tokens);
        }
        let instructions = if is_spoken { &config.spoken_answers.instructions[..] } else { "" };
        let name = parts.main().map_or("cascade", Checkpoint::name);
        Self::run((name, instructions), model, config, &*progress, WakeSignal::new())
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
        let parts = open_parts(parts, &progress)?;
        let (wake, woken) = WakeSignal::new();
        let rehearsal = Rehearsal::new(think.thinker);
        let (name, fallback) = (think.name.clone(), think.fallback);
        let think = RemoteModel { name: think.name, thinker: rehearsal.clone(), fallback };
        let model = models::load_cascade(parts.as_ref(), Some((think, wake.clone())), config)?;
        let instructions = if parts.speak.is_some() { &config.spoken_answers.instructions[..] } else { "" };
        let engine = Self::run((&name, instructions), model, config, &*progress, (wake, woken))?;
        rehearsal.end();
        Ok(engine)
    }

    /// Starts the thread of a loaded model, which the signal wakes, and warms it up. The texts are the model's name and its
    /// default instructions.
    fn run(
        (name, instructions): (&str, &str),
        model: Model,
        config: &EngineConfig,
        progress: &dyn Fn(StartProgress),
        (wake, woken): (WakeSignal, flume::Receiver<()>),
    ) -> Result<Self, StartError> {
        progress(StartProgress { stage: StartStage::WarmUp, fraction: 1.0 });
        let slots = model.slots.sessions;
        let voices = model.voices.names();
        let codec = model.codec.unwrap_or(NOMINAL_CODEC);
        let most_frames = model.stages.iter().filter_map(|stage| stage.most_frames()).min();
        let longest = |frames: usize| codec.frame().saturating_mul(u32::try_from(frames).unwrap_or(u32::MAX));
        let info = ModelInfo {
            name: name.to_owned(),
            default_voice: voices.first().cloned().unwrap_or_default(),
            voices,
            input_rate: model.hearing.as_ref().map_or(NOMINAL_RATE, Hearing::rate),
            output_rate: codec.sample_rate,
            frame: codec.frame(),
            context_tokens: model.slots.context as u32,
            audio_input: model.hearing.is_some(),
            hears_text: matches!(model.hearing, Some(Hearing::Text(_))),
            answers: model.answers(),
            audio_output: model.codec.is_some(),
            tools: model.template.tools().is_some(),
            answer_forms: model.template.holds_forms()
                || model.stages.first().is_some_and(|stage| stage.form_ids().is_some()),
            transcribes: model.transcribes(config.transcribes),
            hearing: model.hearing_info(config.translates),
            given_text: model.codec.is_some() && model.template.streamed(&[]).is_some(),
            reads_messages: model.codec.and(model.template.given_text_instructions()),
            reads_only: model.stages.first().is_some_and(|stage| !stage.writes()),
            // In a cascade the text has the limit of a response's tokens.
            reads_clauses: model.stages.first().is_some_and(|stage| stage.output_kind() == EdgeKind::Clauses),
            whole_texts: !model.tokenizer.encodes_pieces(),
            spoken_text: model.stages.iter().find_map(|stage| stage.spoken_text()).cloned(),
            speech_limit: most_frames.map(longest),
            instructions: instructions.to_owned(),
            recording_rate: model.voices.recording_rate(),
        };
        let gauges = Arc::new(Gauges::default());
        let (arrivals, arriving) = flume::bounded(slots);
        let mut scheduler = Scheduler::new(model, config, arriving, Arc::clone(&gauges));
        scheduler.read_forms_on_thread(wake.clone());
        let voices = scheduler.voices();
        let thread = std::thread::Builder::new().name("engine".to_owned()).spawn(move || scheduler.run(&woken))?;
        let engine = Self { info, slots, voices, gauges, arrivals: Some(arrivals), wake, thread: Some(thread) };
        engine.warm_up()?;
        Ok(engine)
    }

    /// Resources that sessions hold (cache blocks and more), counted when the engine was last idle; 0 without sessions.
    pub fn held(&self) -> usize {
        self.gauges.held.load(Ordering::Acquire)
    }

    /// Runs one short response through every stage, so that code and weights are in memory for the first caller.
    fn warm_up(&self) -> Result<(), StartError> {
        let failed = |error: &dyn std::fmt::Display| StartError::WarmUp(error.to_string());
        let session = self.open().map_err(|error| failed(&error))?;
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
        let arrivals = self.arrivals.as_ref().ok_or(OpenError::Stopped)?;
        let taken =
            self.gauges.open.fetch_update(Ordering::AcqRel, Ordering::Acquire, |n| (n < self.slots).then_some(n + 1));
        if taken.is_err() {
            return Err(OpenError::Full { slots: self.slots });
        }
        let (session, mut peer) = link(self.wake.clone());
        peer.tenant = tenant.clone();
        if arrivals.try_send(peer).is_err() {
            self.gauges.open.fetch_sub(1, Ordering::AcqRel);
            return Err(OpenError::Stopped);
        }
        self.wake.signal();
        Ok(session)
    }

    fn voices(&self) -> Vec<String> {
        self.voices.names().to_vec()
    }

    fn enrol(&self, name: &str, recording: &Recording) -> Result<(), EnrolError> {
        self.voices.enrol(name, recording)
    }

    fn remove_voice(&self, name: &str) -> bool {
        self.voices.remove_voice(name)
    }

    fn occupancy(&self) -> (usize, usize) {
        (self.gauges.open.load(Ordering::Acquire), self.slots)
    }

    fn work(&self) -> Vec<StageWork> {
        self.gauges.work()
    }

    fn load(&self) -> EngineLoad {
        self.gauges.load()
    }

    fn ready(&self) -> bool {
        self.gauges.ready.load(Ordering::Acquire) && self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        drop(self.arrivals.take());
        self.wake.signal();
        if let Some(thread) = self.thread.take() {
            // The loop reported its own panic when it happened.
            let _ = thread.join();
        }
    }
}
