//! An engine without a thread: the test ticks it, and its clock goes as the test says. The same commands at the same
//! ticks give the same run.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use repartee_engine::checkpoint::Checkpoint;
use repartee_engine::scheduler::{Gauges, Scheduler, Tick};
use repartee_engine::stage::Model;
use repartee_engine::{EngineConfig, Source, models};
use repartee_engine_api::{
    Command, Event, FinishReason, Peer, Respond, SessionError, SessionHandle, Usage, Wake, link,
};

/// A clock that stands still until it is moved.
#[derive(Clone)]
pub struct Time {
    start: Instant,
    passed: Arc<AtomicU64>,
}

impl Time {
    pub fn new() -> Self {
        Self { start: Instant::now(), passed: Arc::default() }
    }

    pub fn now(&self) -> Instant {
        self.start + Duration::from_millis(self.passed.load(Ordering::Relaxed))
    }

    pub fn pass(&self, duration: Duration) {
        self.passed.fetch_add(duration.as_millis() as u64, Ordering::Relaxed);
    }
}

/// See the module's description.
pub struct Driven<T> {
    pub scheduler: Scheduler<T>,
    pub time: Time,
    arrivals: flume::Sender<Peer>,
    gauges: Arc<Gauges>,
    wake: Wake,
}

/// A real model.
pub fn serve(folder: &Path, config: &EngineConfig) -> Driven<repartee_kernels::cpu::Tensor> {
    let checkpoint = Checkpoint::open(Source::Folder(folder.to_path_buf())).unwrap();
    drive(models::load(&checkpoint, config).unwrap(), config)
}

/// Any model.
pub fn drive<T>(model: Model<T>, config: &EngineConfig) -> Driven<T> {
    let (arrivals, arriving) = flume::bounded(model.lanes.sessions);
    let gauges = Arc::new(Gauges::default());
    let time = Time::new();
    let clock = time.clone();
    let clock = Box::new(move || clock.now());
    let scheduler = Scheduler::with_clock(model, config, arriving, Arc::clone(&gauges), clock);
    let (wake, _) = Wake::new();
    Driven { scheduler, time, arrivals, gauges, wake }
}

impl<T> Driven<T> {
    pub fn open(&self) -> SessionHandle {
        let (session, peer) = link(self.wake.clone());
        self.gauges.open.fetch_add(1, Ordering::Relaxed);
        self.arrivals.try_send(peer).expect("tick first: more sessions arrive than there are lanes");
        session
    }

    /// Ticks until nothing moves.
    pub fn settle(&mut self) {
        while self.scheduler.tick() == Tick::Moved {}
    }

    /// Ticks `n` times.
    pub fn ticks(&mut self, n: usize) {
        for _ in 0..n {
            self.scheduler.tick();
        }
    }

    /// Sends a command and lets it be taken; the engine may go on as far as it can.
    pub fn send(&mut self, session: &SessionHandle, command: Command) {
        submit(session, command);
        self.settle();
    }

    /// Asks, and reads until the answer is complete.
    pub fn answer(&mut self, session: &SessionHandle, request: Respond) -> Result<Answer, SessionError> {
        let response = request.response;
        submit(session, Command::Respond(request));
        self.listen(session, response)
    }

    /// Reads until an answer is complete. News of other answers is a defect.
    pub fn listen(&mut self, session: &SessionHandle, response: u64) -> Result<Answer, SessionError> {
        let mut answer = Answer::default();
        loop {
            let Some(event) = session.try_next_event() else {
                assert_eq!(self.scheduler.tick(), Tick::Moved, "answer {response} does not come: {answer:?}");
                continue;
            };
            match answer.take(response, event) {
                Ok(false) => {}
                Ok(true) => return Ok(answer),
                Err(error) => return Err(error),
            }
        }
    }

    /// Ends everything and says what is still held: nothing, if all is well.
    pub fn left_behind(&mut self) -> (usize, usize) {
        self.settle();
        (self.scheduler.sessions(), self.scheduler.held())
    }
}

/// Hands a command over.
pub fn submit(session: &SessionHandle, command: Command) {
    session.submit(command).unwrap();
}

/// What came of an answer.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Answer {
    pub text: String,
    pub samples: Vec<f32>,
    pub calls: Vec<(String, String)>,
    pub reason: Option<FinishReason>,
    pub usage: Usage,
}

impl Answer {
    /// Takes an event; whether the answer is complete.
    pub fn take(&mut self, number: u64, event: Event) -> Result<bool, SessionError> {
        match event {
            Event::Text { response, text } => {
                assert_eq!(response, number);
                self.text += &text;
            }
            Event::Audio { response, samples, .. } => {
                assert_eq!(response, number);
                self.samples.extend(samples);
            }
            Event::ToolCall { response, call, name } => {
                assert_eq!((response, call as usize), (number, self.calls.len()));
                self.calls.push((name, String::new()));
            }
            Event::ToolArguments { response, call, arguments } => {
                assert_eq!(response, number);
                self.calls[call as usize].1 += &arguments;
            }
            Event::SegmentFinished { response, reason, usage } => {
                assert_eq!(response, number);
                self.reason = Some(reason);
                self.usage = usage;
                return Ok(true);
            }
            Event::Failed { response, error } => {
                assert!(response.is_none_or(|response| response == number));
                return Err(error);
            }
            Event::Finished => panic!("the stream ended before answer {number}"),
        }
        Ok(false)
    }

    /// The same but for what it found cached, which is no part of what was said.
    pub fn said(&self) -> (&str, &[f32], Option<FinishReason>, u32) {
        (&self.text, &self.samples, self.reason, self.usage.input_audio_tokens + self.usage.input_text_tokens)
    }
}
