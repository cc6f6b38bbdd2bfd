//! An engine between the gateway and the real one that records inputs and responses. Tests compare the caller's speech
//! with the inputs, and the caller's recording with the responses.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, ensure};
use repartee_engine_api::{
    Command, Event, ModelInfo, OpenError, ResponseId, SessionHandle, SessionPeer, SpeechEngine, StageWork, WakeSignal,
    link,
};

use crate::questions::Question;
use crate::spectral_similarity::{SIMILAR, Sound, spectral_similarity};

/// A response of the model.
#[derive(Debug, Clone)]
pub struct RecordedResponse {
    session: usize,
    response: ResponseId,
    /// Text of the response.
    pub text: String,
    /// Sound of the response.
    pub sound: Sound,
}

/// The recording engine. It needs a tokio runtime. Sessions are numbered from 0 in order of opening.
pub struct RecordingEngine {
    engine: Arc<dyn SpeechEngine>,
    log: Arc<Mutex<Log>>,
}

#[derive(Default)]
struct Log {
    /// Input of each session.
    inputs: Vec<SessionInput>,
    answers: Vec<RecordedResponse>,
}

#[derive(Default)]
struct SessionInput {
    /// Samples of each turn that was committed or is speculated on.
    turns: Vec<Vec<f32>>,
    /// Samples appended since the last turn.
    open: Vec<f32>,
}

impl SessionInput {
    fn keep(&mut self, command: &Command) {
        match command {
            Command::Append(samples) => self.open.extend(samples),
            Command::Clear => self.open.clear(),
            Command::Commit { .. } | Command::BeginSpeculation { .. } => {
                self.turns.push(std::mem::take(&mut self.open))
            }
            Command::AbortSpeculation { .. } => {
                let mut turn = self.turns.pop().unwrap_or_default();
                turn.append(&mut self.open);
                self.open = turn;
            }
            _ => {}
        }
    }
}

impl RecordingEngine {
    /// Creates a recorder of `engine`.
    pub fn of(engine: Arc<dyn SpeechEngine>) -> Arc<Self> {
        Arc::new(Self { engine, log: Arc::default() })
    }

    /// Returns the latest response of a session with this text. Earlier ones may be aborted speculations.
    pub fn response_with_text(&self, session: usize, text: &str) -> Result<RecordedResponse> {
        let log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        let is_it = |said: &&RecordedResponse| said.session == session && said.text.trim() == text.trim();
        let latest = log.answers.iter().rev().find(is_it);
        latest.cloned().with_context(|| format!("the model never said {text:?} in session {session}"))
    }

    /// Fails unless the engine's input for turn `index` of a session is similar to the sound of `asked`.
    pub fn check_input_turn(&self, session: usize, index: usize, asked: &Question) -> Result<()> {
        let turn = {
            let log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
            log.inputs.get(session).and_then(|input| input.turns.get(index).cloned())
        };
        let samples = turn.with_context(|| format!("the engine got no turn {index} in session {session}"))?;
        let heard = Sound { samples, rate: self.info().input_rate };
        let similarity = spectral_similarity(&Sound::read(&asked.path())?, &heard);
        println!("{} was heard {similarity:.3} similar", asked.text);
        ensure!(similarity > SIMILAR, "{} was heard {similarity:.3} similar", asked.text);
        Ok(())
    }
}

impl SpeechEngine for RecordingEngine {
    fn info(&self) -> &ModelInfo {
        self.engine.info()
    }

    fn open(&self) -> Result<SessionHandle, OpenError> {
        let inner = self.engine.open()?;
        let (session, peer) = link(WakeSignal::new().0);
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        log.inputs.push(SessionInput::default());
        let relay =
            Relay { number: log.inputs.len() - 1, rate: self.info().output_rate, inner, peer, log: self.log.clone() };
        tokio::spawn(async move {
            // Concurrently: a full queue in one direction must not block the other. Either end ends both.
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

    fn work(&self) -> Vec<StageWork> {
        self.engine.work()
    }

    fn ready(&self) -> bool {
        self.engine.ready()
    }
}

/// Relay of one session.
struct Relay {
    number: usize,
    rate: u32,
    inner: SessionHandle,
    peer: SessionPeer,
    log: Arc<Mutex<Log>>,
}

impl Relay {
    async fn commands(&self) {
        while let Ok(command) = self.peer.commands.recv_async().await {
            self.log.lock().unwrap_or_else(PoisonError::into_inner).inputs[self.number].keep(&command);
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

    fn with(&self, response: ResponseId, change: impl FnOnce(&mut RecordedResponse)) {
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (self.number, response);
        let known = log.answers.iter().position(|said| (said.session, said.response) == key);
        let place = known.unwrap_or_else(|| {
            let sound = Sound { samples: Vec::new(), rate: self.rate };
            log.answers.push(RecordedResponse { session: self.number, response, text: String::new(), sound });
            log.answers.len() - 1
        });
        change(&mut log.answers[place]);
    }
}
