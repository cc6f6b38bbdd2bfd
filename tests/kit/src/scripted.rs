//! A scripted engine, for tests of everything around the engine. It is deterministic: the same commands give the same
//! text and sound.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use repartee_engine_api::{
    Command, EnrolError, ModelInfo, OpenError, Recording, SessionError, SessionHandle, SpeechEngine, WakeSignal, link,
};
use tokio::sync::{Semaphore, watch};

mod actor;
mod voice;

use actor::ScriptedSession;
pub use voice::{VoiceTrace, voice};

/// Input sample rate of the scripted model, in Hz.
pub const INPUT_RATE: u32 = 16_000;
/// Output sample rate of the scripted model, in Hz.
pub const OUTPUT_RATE: u32 = 24_000;
/// Sample rate of recordings for enrolment, in Hz.
pub const RECORDING_RATE: u32 = 16_000;
/// Samples of one codec frame, 80 ms.
pub const FRAME_SAMPLES: usize = 1_920;

/// Script of the engine.
#[derive(Debug, Clone)]
pub struct Script {
    /// Most concurrent sessions.
    pub slots: usize,
    /// Codec frames of a response, after its text.
    pub frames: u64,
    /// Semaphore that paces responses: each frame takes one permit. `None` for full speed.
    pub gate: Option<Arc<Semaphore>>,
    /// Error with which every response fails.
    pub failure: Option<SessionError>,
    /// First responses of each session, in order; later ones follow the other fields.
    pub responses: Vec<ScriptedResponse>,
    /// Function call of a response, as name and argument pieces. It is made if the function is offered and has no
    /// result yet.
    pub call: Option<(String, Vec<String>)>,
    /// True if voices can be enrolled. All voices sound the same.
    pub accepts_enrolment: bool,
    /// True if it transcribes. A transcript contains the duration of the turn: `words new 1280 ms`.
    pub has_transcription: bool,
}

/// A scripted response.
#[derive(Debug, Clone, Default)]
pub struct ScriptedResponse {
    /// Text of the response; `None` for a report of the input's duration.
    pub text: Option<String>,
    /// Number of codec frames.
    pub frames: u64,
    /// Number of frames after which it waits for its cancellation.
    pub hold_after_frames: Option<u64>,
}

impl Default for Script {
    fn default() -> Self {
        Self {
            slots: 4,
            frames: 5,
            gate: None,
            failure: None,
            responses: Vec::new(),
            call: None,
            accepts_enrolment: false,
            has_transcription: false,
        }
    }
}

/// The scripted engine. A response reports its input: `I heard 1280 ms.`, `You wrote: hello` or `The tool says: 7`.
/// Sessions run as tasks of the runtime in which they are opened.
#[derive(Debug)]
pub struct ScriptedEngine {
    info: ModelInfo,
    script: Script,
    open: Arc<watch::Sender<usize>>,
    log: Arc<Mutex<Vec<Command>>>,
    /// Number of codec frames sent in all sessions.
    frames: Arc<watch::Sender<u64>>,
    ready: AtomicBool,
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
            output_rate: OUTPUT_RATE,
            frame: Duration::from_millis(80),
            context_tokens: 4_096,
            audio_input: true,
            tools: true,
            transcribes: script.has_transcription,
            given_text: true,
            recording_rate: script.accepts_enrolment.then_some(RECORDING_RATE),
        };
        Arc::new(Self {
            info,
            script,
            open: Arc::new(watch::Sender::new(0)),
            log: Arc::default(),
            frames: Arc::new(watch::Sender::new(0)),
            ready: AtomicBool::new(true),
            enrolled: Mutex::default(),
        })
    }

    /// Sets the readiness that it reports; initially true.
    pub fn set_ready(&self, ready: bool) {
        self.ready.store(ready, Ordering::Release);
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

    /// Returns all recorded commands of all sessions, in order.
    pub fn commands(&self) -> Vec<Command> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Removes and returns all recorded commands, in order.
    pub fn take_commands(&self) -> Vec<Command> {
        std::mem::take(&mut *self.log.lock().unwrap_or_else(PoisonError::into_inner))
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

    fn occupancy(&self) -> (usize, usize) {
        (*self.open.borrow(), self.script.slots)
    }
}
