//! An engine without a thread, ticked by the test on a virtual clock. Equal commands at equal ticks give equal runs.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use repartee_engine::internals::{Checkpoint, Gauges, Model, Scheduler, Tick, load_model};
use repartee_engine::{EngineConfig, Source};
use repartee_engine_api::{
    Command, EngineUsage, Event, FinishReason, Respond, SessionError, SessionHandle, SessionPeer, Tenant, WakeSignal,
    link,
};

/// Virtual clock of a test.
#[derive(Clone)]
pub struct Time {
    start: Instant,
    passed: Arc<AtomicU64>,
}

impl Default for Time {
    fn default() -> Self {
        Self::new()
    }
}

impl Time {
    /// Starts at the real time of now.
    pub fn new() -> Self {
        Self { start: Instant::now(), passed: Arc::default() }
    }

    /// Returns the current virtual time.
    pub fn now(&self) -> Instant {
        self.start + Duration::from_millis(self.passed.load(Ordering::Relaxed))
    }

    /// Advances by a duration.
    pub fn pass(&self, duration: Duration) {
        self.passed.fetch_add(duration.as_millis() as u64, Ordering::Relaxed);
    }
}

/// An engine ticked by the test.
pub struct Driven {
    /// Ticks the sessions.
    pub scheduler: Scheduler,
    /// Virtual clock of the ticks.
    pub time: Time,
    arrivals: flume::Sender<SessionPeer>,
    gauges: Arc<Gauges>,
    wake: WakeSignal,
}

/// Loads a checkpoint into an engine.
pub fn serve(folder: &Path, config: &EngineConfig) -> Driven {
    let checkpoint = Checkpoint::open(Source::Folder(folder.to_path_buf())).unwrap();
    drive(load_model(&checkpoint, config).unwrap(), config)
}

/// Creates an engine for any model.
pub fn drive(model: Model, config: &EngineConfig) -> Driven {
    drive_with(model, config, Arc::default())
}

/// Like [`drive`], with gauges that the test reads.
pub fn drive_with(model: Model, config: &EngineConfig, gauges: Arc<Gauges>) -> Driven {
    let (arrivals, arriving) = flume::bounded(model.slots.sessions);
    let time = Time::new();
    let clock = time.clone();
    let clock = Box::new(move || clock.now());
    let scheduler = Scheduler::with_clock(model, config, arriving, Arc::clone(&gauges), clock);
    let (wake, _) = WakeSignal::new();
    Driven { scheduler, time, arrivals, gauges, wake }
}

impl Driven {
    /// Opens a session.
    pub fn open(&self) -> SessionHandle {
        self.open_for(&Tenant::default())
    }

    /// Opens a session of a tenant.
    pub fn open_for(&self, tenant: &Tenant) -> SessionHandle {
        let (session, mut peer) = link(self.wake.clone());
        peer.tenant = tenant.clone();
        self.gauges.open.fetch_add(1, Ordering::Relaxed);
        self.arrivals.try_send(peer).expect("tick first: more sessions arrive than there are slots");
        session
    }

    /// Ticks until nothing is runnable.
    pub fn settle(&mut self) {
        while self.scheduler.tick() == Tick::Moved {}
    }

    /// Ticks `n` times.
    pub fn ticks(&mut self, n: usize) {
        for _ in 0..n {
            self.scheduler.tick();
        }
    }

    /// Submits a command and ticks until nothing is runnable.
    pub fn send(&mut self, session: &SessionHandle, command: Command) {
        submit(session, command);
        self.settle();
    }

    /// Requests a response and reads it to its end.
    pub fn respond(&mut self, session: &SessionHandle, request: Respond) -> Result<Response, SessionError> {
        let response = request.response;
        submit(session, Command::Respond(request));
        self.listen(session, response)
    }

    /// Reads a response to its end. Events of other responses fail the test.
    pub fn listen(&mut self, session: &SessionHandle, response: u64) -> Result<Response, SessionError> {
        let mut read = Response::default();
        loop {
            let Some(event) = session.try_next_event() else {
                assert_eq!(self.scheduler.tick(), Tick::Moved, "response {response} does not end: {read:?}");
                continue;
            };
            match read.take(response, event) {
                Ok(false) => {}
                Ok(true) => return Ok(read),
                Err(error) => return Err(error),
            }
        }
    }

    /// Ticks until nothing is runnable; returns the numbers of sessions and of resources still held.
    pub fn left_behind(&mut self) -> (usize, usize) {
        self.settle();
        (self.scheduler.sessions(), self.scheduler.held())
    }
}

/// Submits a command; panics if it is refused.
pub fn submit(session: &SessionHandle, command: Command) {
    session.submit(command).unwrap();
}

/// Events of one response, combined.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Response {
    /// Text of the response.
    pub text: String,
    /// Samples of the response.
    pub samples: Vec<f32>,
    /// Function calls: name and arguments.
    pub calls: Vec<(String, String)>,
    /// Reason of the end; `None` before it.
    pub reason: Option<FinishReason>,
    /// Tokens of the prompt and of the response.
    pub usage: EngineUsage,
}

impl Response {
    /// Adds an event; true if the response is complete.
    pub fn take(&mut self, number: u64, event: Event) -> Result<bool, SessionError> {
        match event {
            Event::Text { response, text } => {
                assert_eq!(response, number);
                self.text += &text;
            }
            Event::InputText { response, text, stable, .. } => {
                assert_eq!(response, Some(number));
                assert_eq!(text.get(..self.text.len()), Some(&*self.text), "text that was stable stays");
                assert!(self.text.len() <= stable && stable <= text.len(), "{stable} bytes of {text:?}");
                self.text = text[..stable].to_owned();
            }
            Event::InputDetails { response, .. } => assert_eq!(response, number),
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
            Event::Finished => panic!("the stream ended before response {number}"),
        }
        Ok(false)
    }

    /// Output without the usage that depends on the cache.
    pub fn output(&self) -> (&str, &[f32], Option<FinishReason>, u32) {
        (&self.text, &self.samples, self.reason, self.usage.input_audio_tokens + self.usage.input_text_tokens)
    }
}
