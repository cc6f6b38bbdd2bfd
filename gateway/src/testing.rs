//! An engine that follows a script, for tests of everything around it. Deterministic: the same commands give the same
//! text and the same sound.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use repartee_engine::session::{
    Command, Content, Event, FinishReason, Input, ModelInfo, OpenError, Peer, Respond, ResponseId, Session,
    SessionError, SpeechEngine, Stamps, Tool, Usage, Wake, link,
};
use tokio::sync::{Semaphore, watch};

mod voice;

pub use voice::{Trace, voice};

/// Samples a second that the scripted model hears.
pub const INPUT_RATE: u32 = 16_000;
/// Samples a second that the scripted model speaks.
pub const OUTPUT_RATE: u32 = 24_000;
/// Samples of one frame, 80 ms.
pub const FRAME_SAMPLES: usize = 1_920;

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
    /// The first answers of each session, in order; those after them are as the rest of the script says.
    pub answers: Vec<Scripted>,
    /// What an answer calls if it is offered that function and no function has answered yet: its name, and its arguments in pieces.
    pub call: Option<(String, Vec<String>)>,
}

/// An answer that is written beforehand.
#[derive(Debug, Clone, Default)]
pub struct Scripted {
    /// What it says; `None` for how much was heard.
    pub text: Option<String>,
    /// Its codec frames.
    pub frames: u64,
    /// After so many frames it waits to be cancelled.
    pub hold: Option<u64>,
}

impl Default for Script {
    fn default() -> Self {
        Self { slots: 4, frames: 5, gate: None, failure: None, answers: Vec::new(), call: None }
    }
}

/// The scripted engine. An answer says how much it heard: `I heard 1280 ms.`, or `You wrote: hello`, or `The tool says: 7`.
/// Sessions run as tasks of the runtime in which they are opened.
#[derive(Debug)]
pub struct ScriptedEngine {
    info: ModelInfo,
    script: Script,
    open: Arc<watch::Sender<usize>>,
    log: Arc<Mutex<Vec<Command>>>,
    /// Codec frames of all sessions that were handed over.
    frames: Arc<watch::Sender<u64>>,
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
        Arc::new(Self {
            info,
            script,
            open: Arc::new(watch::Sender::new(0)),
            log: Arc::default(),
            frames: Arc::new(watch::Sender::new(0)),
        })
    }

    /// How many sessions are open, as a signal.
    pub fn open_sessions(&self) -> watch::Receiver<usize> {
        self.open.subscribe()
    }

    /// How many codec frames were handed over in all sessions, as a signal.
    pub fn frames(&self) -> watch::Receiver<u64> {
        self.frames.subscribe()
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
            frames: self.frames.clone(),
            heard: 0,
            heard_before: 0,
            suspected: None,
            tools: Vec::new(),
            last: String::new(),
            called: false,
            waiting: VecDeque::new(),
            beside: VecDeque::new(),
            answered: 0,
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
    frames: Arc<watch::Sender<u64>>,
    /// Samples of the open audio item.
    heard: usize,
    /// Samples of the turn whose end is suspected.
    heard_before: usize,
    /// The answer that was begun on suspicion.
    suspected: Option<ResponseId>,
    /// Functions that the session offers.
    tools: Vec<Tool>,
    /// What the next answer says.
    last: String,
    /// Whether a function has answered.
    called: bool,
    /// Answers that wait for the one before.
    waiting: VecDeque<Respond>,
    /// Answers that wait for nothing.
    beside: VecDeque<Respond>,
    /// Answers of the conversation so far, less those that were taken back.
    answered: usize,
}

impl Actor {
    async fn run(mut self) {
        while let Some(command) = self.receive().await {
            self.take(command);
            loop {
                if self.answer_beside().await.is_none() {
                    return;
                }
                let Some(respond) = self.waiting.pop_front() else { break };
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
            Command::Commit { .. } => self.commit(),
            Command::Speculate { answer, .. } => {
                let heard = self.heard;
                self.commit();
                self.heard_before = heard;
                self.suspected = Some(answer.response);
                self.waiting.push_back(answer);
            }
            Command::Confirm { response } if self.suspected == Some(response) => self.suspected = None,
            Command::TakeBack { response } if self.suspected == Some(response) => {
                self.suspected = None;
                self.heard += self.heard_before;
                let begun = self.waiting.iter().all(|respond| respond.response != response);
                self.answered -= usize::from(begun);
                self.waiting.retain(|respond| respond.response != response);
            }
            Command::Insert { content, .. } => self.last = self.reply_to(content),
            Command::Tools(tools) => self.tools = tools,
            Command::Respond(respond) if respond.outside => self.beside.push_back(respond),
            Command::Respond(respond) => self.waiting.push_back(respond),
            _ => {}
        }
    }

    fn commit(&mut self) {
        self.last = format!("I heard {} ms.", self.heard * 1_000 / INPUT_RATE as usize);
        self.heard = 0;
    }

    fn reply_to(&mut self, content: Content) -> String {
        match content {
            Content::Text { text, .. } => format!("You wrote: {text}"),
            Content::Audio(samples) => format!("I heard {} ms.", samples.len() * 1_000 / INPUT_RATE as usize),
            Content::ToolCall { name, .. } => format!("I called {name}."),
            Content::ToolResult(result) => {
                self.called = true;
                format!("The tool says: {result}")
            }
        }
    }

    /// Makes all of the answers that are none of the conversation's.
    async fn answer_beside(&mut self) -> Option<()> {
        while let Some(respond) = self.beside.pop_front() {
            let response = respond.response;
            let text = match respond.input {
                Some(inputs) => {
                    let mut contents = inputs.into_iter().filter_map(|input| match input {
                        Input::Content(content) => Some(content),
                        Input::Item(_) => None,
                    });
                    contents.next_back().map_or_else(|| "You gave me nothing.".into(), |content| self.reply_to(content))
                }
                None => self.last.clone(),
            };
            self.tell(Event::Text { response, text }).await?;
            for frame in 0..if respond.audio { self.script.frames } else { 0 } {
                self.tell(Event::Audio { response, frame, samples: voice(frame), stamps: None }).await?;
            }
            self.tell(Event::SegmentFinished { response, reason: FinishReason::Stop, usage: Usage::default() }).await?;
        }
        Some(())
    }

    /// Calls the function of the script, if this answer is offered it; whether it did.
    async fn call(&mut self, respond: &Respond) -> Option<bool> {
        let tools = respond.tools.as_ref().unwrap_or(&self.tools);
        let Some((name, pieces)) = self.script.call.clone() else { return Some(false) };
        if self.called || !tools.iter().any(|tool| tool.name == name) {
            return Some(false);
        }
        let response = respond.response;
        self.tell(Event::ToolCall { response, call: 0, name }).await?;
        for arguments in pieces {
            self.tell(Event::ToolArguments { response, call: 0, arguments }).await?;
        }
        Some(true)
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
        let scripted = self.script.answers.get(self.answered).cloned();
        let scripted = scripted.unwrap_or(Scripted { text: None, frames: self.script.frames, hold: None });
        self.answered += 1;
        let accepted = Instant::now();
        let calls = self.call(respond).await?;
        if !calls {
            for piece in scripted.text.unwrap_or_else(|| self.last.clone()).split_inclusive(' ') {
                self.tell(Event::Text { response, text: piece.to_owned() }).await?;
            }
        }
        let first_token = Instant::now();
        let (mut frame, mut cancelled) = (0, false);
        let frames = if respond.audio && !calls { scripted.frames } else { 0 };
        while frame < frames && !cancelled {
            let gate = self.script.gate.clone();
            let permit = async {
                match &gate {
                    _ if scripted.hold == Some(frame) => std::future::pending().await,
                    // A closed gate lets everything through.
                    Some(gate) => drop(gate.acquire().await.map(tokio::sync::SemaphorePermit::forget)),
                    None => tokio::task::yield_now().await,
                }
            };
            tokio::select! {
                biased;
                command = self.receive() => {
                    let command = command?;
                    cancelled = match &command {
                        Command::Cancel { response: named } | Command::TakeBack { response: named } => {
                            *named == response
                        }
                        _ => false,
                    };
                    self.take(command);
                    self.answer_beside().await?;
                }
                () = permit => {
                    let now = Instant::now();
                    let stamps = Stamps { accepted, first_token, first_frame: now, first_samples: now };
                    let samples = voice(frame);
                    self.tell(Event::Audio { response, frame, samples, stamps: (frame == 0).then_some(stamps) }).await?;
                    self.frames.send_modify(|frames| *frames += 1);
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
