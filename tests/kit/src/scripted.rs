//! A scripted engine, for tests of everything around the engine. It is deterministic: the same commands give the same
//! text and sound.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use repartee_engine_api::{
    Command, EngineLoad, EnrolError, HearingInfo, ModelInfo, OpenError, Recording, SessionHandle, SpeechEngine, Tenant,
    WakeSignal, link,
};
use tokio::sync::watch;

mod actor;
mod script;
mod voice;

use actor::ScriptedSession;
pub use script::{FRAME_SAMPLES, INPUT_RATE, OUTPUT_RATE, RECORDING_RATE, Script, ScriptedResponse};
pub use voice::{VoiceTrace, voice, voice_at};

/// The scripted engine. A response reports its input: `I heard 1280 ms.`, `You wrote: hello` or `The tool says: 7`.
/// Sessions run as tasks of the runtime in which they are opened.
#[derive(Debug)]
pub struct ScriptedEngine {
    info: ModelInfo,
    script: Script,
    open: Arc<watch::Sender<usize>>,
    /// Recorded commands of all sessions, in order.
    log: Arc<watch::Sender<Vec<Command>>>,
    /// Number of codec frames sent in all sessions.
    frames: Arc<watch::Sender<u64>>,
    ready: AtomicBool,
    /// Beginning of the endless tick that it reports, if any.
    busy_since: Mutex<Option<Instant>>,
    /// Enrolled voices, by name.
    enrolled: Mutex<BTreeMap<String, Recording>>,
}

impl ScriptedEngine {
    /// Creates an engine that follows `script`.
    pub fn new(script: Script) -> Arc<Self> {
        let info = ModelInfo {
            name: "scripted".into(),
            voices: vec!["ada".into(), "bob".into()],
            default_voice: "ada".into(),
            input_rate: INPUT_RATE,
            output_rate: script.output_rate,
            frame: Duration::from_millis(80),
            context_tokens: 4_096,
            audio_input: true,
            hears_text: false,
            answers: true,
            audio_output: true,
            tools: true,
            answer_forms: false,
            transcribes: script.has_transcription,
            hearing: HearingInfo::default(),
            given_text: true,
            reads_messages: None,
            reads_clauses: script.reads_clauses,
            reads_only: false,
            whole_texts: false,
            spoken_text: None,
            speech_limit: None,
            instructions: String::new(),
            recording_rate: script.accepts_enrolment.then_some(RECORDING_RATE),
        };
        Arc::new(Self {
            info,
            script,
            open: Arc::new(watch::Sender::new(0)),
            log: Arc::new(watch::Sender::new(Vec::new())),
            frames: Arc::new(watch::Sender::new(0)),
            ready: AtomicBool::new(true),
            busy_since: Mutex::default(),
            enrolled: Mutex::default(),
        })
    }

    /// Sets the readiness that it reports; initially true.
    pub fn set_ready(&self, ready: bool) {
        self.ready.store(ready, Ordering::Release);
    }

    /// Reports ticks without any time between them from now on.
    pub fn fill_ticks(&self) {
        *self.busy_since.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// Watches the number of open sessions.
    pub fn open_sessions(&self) -> watch::Receiver<usize> {
        self.open.subscribe()
    }

    /// Watches the number of codec frames sent in all sessions.
    pub fn frames(&self) -> watch::Receiver<u64> {
        self.frames.subscribe()
    }

    /// Returns the enrolled voices, by name.
    pub fn enrolled(&self) -> BTreeMap<String, Recording> {
        self.enrolled.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns all recorded commands of all sessions, in order. A client may see an event before the commands that the
    /// same input gave: what its answer does not depend on is to be waited for, by [`Self::received`].
    pub fn commands(&self) -> Vec<Command> {
        self.log.borrow().clone()
    }

    /// Waits until a command is recorded that fulfils `wanted`.
    pub async fn received(&self, wanted: impl Fn(&Command) -> bool) {
        // The sender is here, so that waiting cannot fail.
        let _ = self.log.subscribe().wait_for(|log| log.iter().any(&wanted)).await;
    }

    /// Removes and returns all recorded commands, in order.
    pub fn take_commands(&self) -> Vec<Command> {
        self.log.send_replace(Vec::new())
    }
}

/// Guard that counts one open session.
struct OpenSession(Arc<watch::Sender<usize>>);

impl Drop for OpenSession {
    fn drop(&mut self) {
        self.0.send_modify(|open| *open -= 1);
    }
}

impl SpeechEngine for ScriptedEngine {
    fn ready(&self) -> bool {
        self.ready.load(Ordering::Acquire)
    }

    fn info(&self) -> &ModelInfo {
        &self.info
    }

    fn voices(&self) -> Vec<String> {
        self.info.voices.iter().cloned().chain(self.enrolled().into_keys()).collect()
    }

    fn enrol(&self, name: &str, recording: &Recording) -> Result<(), EnrolError> {
        if !self.script.accepts_enrolment {
            return Err(EnrolError::Fixed { known: self.info.voices.join(", ") });
        }
        if recording.samples.len() < RECORDING_RATE as usize {
            return Err(EnrolError::Recording { reason: "it is shorter than a second".to_owned() });
        }
        self.enrolled.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), recording.clone());
        Ok(())
    }

    fn remove_voice(&self, name: &str) -> bool {
        self.enrolled.lock().unwrap_or_else(PoisonError::into_inner).remove(name).is_some()
    }

    fn open(&self) -> Result<SessionHandle, OpenError> {
        let slots = self.script.slots;
        let taken = self.open.send_if_modified(|open| {
            let free = *open < slots;
            *open += usize::from(free);
            free
        });
        if !taken {
            return Err(OpenError::Full { slots });
        }
        let slot = OpenSession(self.open.clone());
        let (session, peer) = link(WakeSignal::new().0);
        let actor = ScriptedSession::new(peer, self.script.clone(), self.log.clone(), self.frames.clone());
        tokio::spawn(async move {
            actor.run().await;
            drop(slot);
        });
        Ok(session)
    }

    fn open_for(&self, tenant: &Tenant) -> Result<SessionHandle, OpenError> {
        let session = self.open()?;
        tenant.work.add(self.script.rows_at_open, 0);
        Ok(session)
    }

    fn load(&self) -> EngineLoad {
        let busy_since = *self.busy_since.lock().unwrap_or_else(PoisonError::into_inner);
        let running_tick = busy_since.map(|since| since.elapsed()).unwrap_or_default();
        EngineLoad {
            loops: 1,
            running_tick,
            running_time: running_tick,
            due_time: running_tick,
            ..EngineLoad::default()
        }
    }

    fn occupancy(&self) -> (usize, usize) {
        (*self.open.borrow(), self.script.slots)
    }
}
