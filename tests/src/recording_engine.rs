//! What the model itself said: an engine between the gateway and the real one that keeps every answer, so that what a listener
//! heard can be held against it.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use repartee_engine_api::{Event, ModelInfo, OpenError, Peer, ResponseId, SessionHandle, SpeechEngine, Wake, link};

use crate::spectral_similarity::Sound;

/// An answer as the model made it.
#[derive(Debug, Clone)]
pub struct Said {
    session: usize,
    response: ResponseId,
    /// Its text.
    pub text: String,
    /// Its sound.
    pub sound: Sound,
}

/// An engine that is listened to. Must be used within a runtime.
pub struct RecordingEngine {
    engine: Arc<dyn SpeechEngine>,
    log: Arc<Mutex<Log>>,
}

#[derive(Default)]
struct Log {
    sessions: usize,
    answers: Vec<Said>,
}

impl RecordingEngine {
    /// Listens to `engine`.
    pub fn of(engine: Arc<dyn SpeechEngine>) -> Arc<Self> {
        Arc::new(Self { engine, log: Arc::default() })
    }

    /// The latest answer with this text. Earlier ones may have been begun when a turn only seemed to be over.
    pub fn said(&self, text: &str) -> Result<Said> {
        let log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        let latest = log.answers.iter().rev().find(|said| said.text.trim() == text.trim());
        latest.cloned().with_context(|| format!("the model never said {text:?}"))
    }
}

impl SpeechEngine for RecordingEngine {
    fn info(&self) -> &ModelInfo {
        self.engine.info()
    }

    fn open(&self) -> Result<SessionHandle, OpenError> {
        let inner = self.engine.open()?;
        let (session, peer) = link(Wake::new().0);
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        log.sessions += 1;
        let relay = Relay { number: log.sessions, rate: self.info().output_rate, inner, peer, log: self.log.clone() };
        tokio::spawn(async move {
            // Side by side: a full queue in one direction must not hold up the other. Whichever end goes ends both.
            tokio::select! {
                () = relay.commands() => {}
                () = relay.events() => {}
            }
        });
        Ok(session)
    }

    fn occupancy(&self) -> (usize, usize) {
        self.engine.occupancy()
    }
}

/// One session.
struct Relay {
    number: usize,
    rate: u32,
    inner: SessionHandle,
    peer: Peer,
    log: Arc<Mutex<Log>>,
}

impl Relay {
    async fn commands(&self) {
        while let Ok(command) = self.peer.commands.recv_async().await {
            if self.inner.submit_async(command).await.is_err() {
                return;
            }
        }
    }

    async fn events(&self) {
        while let Some(event) = self.inner.next_event().await {
            self.keep(&event);
            if self.peer.events.send_async(event).await.is_err() {
                return;
            }
        }
    }

    fn keep(&self, event: &Event) {
        match event {
            Event::Text { response, text } => self.with(*response, |said| said.text += text),
            Event::Audio { response, samples, .. } => self.with(*response, |said| said.sound.samples.extend(samples)),
            _ => {}
        }
    }

    fn with(&self, response: ResponseId, change: impl FnOnce(&mut Said)) {
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (self.number, response);
        let known = log.answers.iter().position(|said| (said.session, said.response) == key);
        let place = known.unwrap_or_else(|| {
            let sound = Sound { samples: Vec::new(), rate: self.rate };
            log.answers.push(Said { session: self.number, response, text: String::new(), sound });
            log.answers.len() - 1
        });
        change(&mut log.answers[place]);
    }
}
