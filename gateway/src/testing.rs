//! An engine that follows a script, for tests of everything around it. Deterministic: the same commands give the same
//! text and the same sound.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use repartee_engine::session::{
    Command, Content, Event, FinishReason, ModelInfo, OpenError, Peer, Respond, Session, SessionError, SpeechEngine,
    Stamps, Usage, Wake, link,
};
use tokio::sync::{Semaphore, watch};

/// Samples a second that the scripted model hears.
pub const INPUT_RATE: u32 = 16_000;
/// Samples a second that the scripted model speaks.
pub const OUTPUT_RATE: u32 = 24_000;
/// Samples of one frame, 80 ms.
pub const FRAME_SAMPLES: usize = 1_920;
/// Frequency of the scripted voice, in Hz.
pub const TONE: f32 = 440.0;

/// What the engine does.
#[derive(Debug, Clone)]
pub struct Script {
    /// Sessions that can be open at once.
    pub slots: usize,
    /// Codec frames of an answer, after its text.
    pub frames: u64,
    /// What an answer waits for: each frame takes one permit. `None` for as fast as it goes.
    pub gate: Option<Arc<Semaphore>>,
    /// Makes every answer fail.
    pub failure: Option<SessionError>,
}

impl Default for Script {
    fn default() -> Self {
        Self { slots: 4, frames: 5, gate: None, failure: None }
    }
}

/// The scripted engine. An answer says how much it heard: `I heard 1280 ms.`, or `You wrote: hello`. Sessions run as
/// tasks of the runtime in which they are opened.
#[derive(Debug)]
pub struct ScriptedEngine {
    info: ModelInfo,
    script: Script,
    open: Arc<watch::Sender<usize>>,
    log: Arc<Mutex<Vec<Command>>>,
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
            tools: true,
        };
        Arc::new(Self { info, script, open: Arc::new(watch::Sender::new(0)), log: Arc::default() })
    }

    /// How many sessions are open, as a signal.
    pub fn open_sessions(&self) -> watch::Receiver<usize> {
        self.open.subscribe()
    }

    /// Every command of every session so far, in order.
    pub fn commands(&self) -> Vec<Command> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Counts one session as long as it lives.
struct Slot(Arc<watch::Sender<usize>>);

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.send_modify(|open| *open -= 1);
    }
}

impl SpeechEngine for ScriptedEngine {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    fn open(&self) -> Result<Session, OpenError> {
        let slots = self.script.slots;
        let taken = self.open.send_if_modified(|open| {
            let free = *open < slots;
            *open += usize::from(free);
            free
        });
        if !taken {
            return Err(OpenError::Full { slots });
        }
        let slot = Slot(self.open.clone());
        let (session, peer) = link(Wake::new().0);
        let actor = Actor {
            peer,
            script: self.script.clone(),
            log: self.log.clone(),
            heard: 0,
            last: String::new(),
            waiting: VecDeque::new(),
        };
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

/// One session's script.
struct Actor {
    peer: Peer,
    script: Script,
    log: Arc<Mutex<Vec<Command>>>,
    /// Samples of the open audio item.
    heard: usize,
    /// What the next answer says.
    last: String,
    /// Answers that wait for the one before.
    waiting: VecDeque<Respond>,
}

impl Actor {
    async fn run(mut self) {
        while let Some(command) = self.receive().await {
            self.take(command);
            while let Some(respond) = self.waiting.pop_front() {
                if self.answer(&respond).await.is_none() {
                    return;
                }
            }
        }
    }

    fn take(&mut self, command: Command) {
        match command {
            Command::Append(samples) => self.heard += samples.len(),
            Command::Clear => self.heard = 0,
            Command::Commit { .. } => {
                self.last = format!("I heard {} ms.", self.heard * 1_000 / INPUT_RATE as usize);
                self.heard = 0;
            }
            Command::Insert { content: Content::Text { text, .. }, .. } => self.last = format!("You wrote: {text}"),
            Command::Respond(respond) => self.waiting.push_back(respond),
            _ => {}
        }
    }

    async fn receive(&self) -> Option<Command> {
        let command = self.peer.commands.recv_async().await.ok()?;
        self.log.lock().unwrap_or_else(PoisonError::into_inner).push(command.clone());
        Some(command)
    }

    /// Says one answer; `None` once the caller is gone.
    async fn answer(&mut self, respond: &Respond) -> Option<()> {
        let response = respond.response;
        if let Some(error) = self.script.failure.clone() {
            return self.tell(Event::Failed { response: Some(response), error }).await;
        }
        let accepted = Instant::now();
        for piece in self.last.clone().split_inclusive(' ') {
            self.tell(Event::Text { response, text: piece.to_owned() }).await?;
        }
        let first_token = Instant::now();
        let (mut frame, mut cancelled) = (0, false);
        let frames = if respond.audio { self.script.frames } else { 0 };
        while frame < frames && !cancelled {
            let gate = self.script.gate.clone();
            let permit = async {
                match &gate {
                    // A closed gate lets everything through.
                    Some(gate) => drop(gate.acquire().await.map(tokio::sync::SemaphorePermit::forget)),
                    None => tokio::task::yield_now().await,
                }
            };
            tokio::select! {
                biased;
                command = self.receive() => match command? {
                    Command::Cancel { response: named } if named == response => cancelled = true,
                    other => self.take(other),
                },
                () = permit => {
                    let now = Instant::now();
                    let stamps = Stamps { accepted, first_token, first_frame: now, first_samples: now };
                    let samples = tone(frame);
                    self.tell(Event::Audio { response, frame, samples, stamps: (frame == 0).then_some(stamps) }).await?;
                    frame += 1;
                }
            }
        }
        let reason = if cancelled { FinishReason::Cancelled } else { FinishReason::Stop };
        let usage = Usage {
            input_text_tokens: 10,
            input_audio_tokens: 20,
            cached_tokens: 5,
            output_text_tokens: 4,
            output_audio_frames: u32::try_from(frame).unwrap_or(u32::MAX),
        };
        self.tell(Event::SegmentFinished { response, reason, usage }).await
    }

    async fn tell(&self, event: Event) -> Option<()> {
        self.peer.events.send_async(event).await.ok()
    }
}

/// Frame `index` of the scripted voice, a steady tone at half of full scale.
pub fn tone(index: u64) -> Vec<f32> {
    let start = index as usize * FRAME_SAMPLES;
    (start..start + FRAME_SAMPLES)
        .map(|sample| (sample as f32 / OUTPUT_RATE as f32 * TONE * std::f32::consts::TAU).sin() * 0.5)
        .collect()
}
