//! An engine that follows a script, for tests of everything around it. Deterministic: the same commands give the same
//! text and the same sound.

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

/// Samples a second that the scripted model hears.
pub const INPUT_RATE: u32 = 16_000;
/// Samples a second that the scripted model speaks.
pub const OUTPUT_RATE: u32 = 24_000;
/// Samples a second of the recordings that it takes.
pub const RECORDING_RATE: u32 = 16_000;
/// Samples of one frame, 80 ms.
pub const FRAME_SAMPLES: usize = 1_920;

/// What the engine does.
#[derive(Debug, Clone)]
pub struct Script {
    /// Sessions that can be open at once.
    pub slots: usize,
    /// Codec frames of a response, after its text.
    pub frames: u64,
    /// What a response waits for: each frame takes one permit. `None` for as fast as it goes.
    pub gate: Option<Arc<Semaphore>>,
    /// Makes every response fail.
    pub failure: Option<SessionError>,
    /// The first responses of each session, in order; those after them are as the rest of the script says.
    pub responses: Vec<ScriptedResponse>,
    /// What a response calls if it is offered that function and has no function's result yet: its name, and its arguments in pieces.
    pub call: Option<(String, Vec<String>)>,
    /// Whether it takes new voices. One sounds as every other does.
    pub accepts_enrolment: bool,
    /// Whether it transcribes. A transcript says how long the turn was: `words of 1280 ms`.
    pub has_transcription: bool,
}

/// A response that is written beforehand.
#[derive(Debug, Clone, Default)]
pub struct ScriptedResponse {
    /// What it says; `None` for how long its input was.
    pub text: Option<String>,
    /// Its codec frames.
    pub frames: u64,
    /// After so many frames it waits to be cancelled.
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

/// The scripted engine. A response says how long its input was: `I heard 1280 ms.`, or `You wrote: hello`, or `The tool says: 7`.
/// Sessions run as tasks of the runtime in which they are opened.
#[derive(Debug)]
pub struct ScriptedEngine {
    info: ModelInfo,
    script: Script,
    open: Arc<watch::Sender<usize>>,
    log: Arc<Mutex<Vec<Command>>>,
    /// Codec frames of all sessions that were handed over.
    frames: Arc<watch::Sender<u64>>,
    ready: AtomicBool,
    /// Voices that were enrolled, by name.
    enrolled: Mutex<BTreeMap<String, Recording>>,
}

impl ScriptedEngine {
    /// An engine that follows `script`.
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

    /// Sets what it answers when it is asked whether it is ready; at first it is.
    pub fn set_ready(&self, ready: bool) {
        self.ready.store(ready, Ordering::Release);
    }

    /// How many sessions are open, as a signal.
    pub fn open_sessions(&self) -> watch::Receiver<usize> {
        self.open.subscribe()
    }

    /// How many codec frames were handed over in all sessions, as a signal.
    pub fn frames(&self) -> watch::Receiver<u64> {
        self.frames.subscribe()
    }

    /// Voices that are enrolled now, by name.
    pub fn enrolled(&self) -> BTreeMap<String, Recording> {
        self.enrolled.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Every command of every session so far, in order.
    pub fn commands(&self) -> Vec<Command> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Every command since the last time it was asked so, in order; none of them is kept.
    pub fn take_commands(&self) -> Vec<Command> {
        std::mem::take(&mut *self.log.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Counts one session as long as it lives.
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
