//! The task of one call: a [`Line`] to the caller on one side, the engine on the other, the conversation in between.
//!
//! Everything between is bounded. What waits to be sent keeps the call from listening and from reading the engine, so a
//! caller that takes nothing stops its own session and nobody else's; the line itself ends when nothing moves. Dropping
//! the task at any moment frees the session, for the engine sees its handle go.

mod microphone;
mod timing;

use std::collections::VecDeque;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::FutureExt as _;
use futures_util::future::{Fuse, FusedFuture as _};
use repartee_engine::session::{Command, Event, ResponseId, Session, SubmitError};
use tokio::sync::mpsc;

use crate::media::pcm;
use crate::metrics::Metrics;
use crate::protocol::response::Delta;
use crate::protocol::session::AudioFormat;
use crate::protocol::{ClientEvent, ClientMessage, ErrorBody, ErrorKind, ServerEvent, ServerMessage};
use crate::session::{Core, Delivery, Effect, Input, PlayoutReport, Setup};
use microphone::Microphone;
use timing::Timing;

pub(crate) use timing::is_audible;

/// Events that may wait for the line's own queue before the engine is not read any more.
const BACKLOG: usize = 8;

/// A connection to one caller, as its call sees it. The line moves bytes and plays sound; it knows nothing of turns.
pub trait Line: Send {
    /// Who knows what the caller has heard.
    const DELIVERY: Delivery;

    /// What comes next. With `listen` false only the line's own clock goes on. Cancel safe.
    fn next(&mut self, listen: bool) -> impl Future<Output = Heard> + Send;

    /// Where events go. Closed once the caller is out of reach.
    fn outlet(&self) -> mpsc::Sender<Outgoing>;

    /// Takes sound of an answer at the model's output rate. A line without a clock returns what to send as a delta.
    fn speak(&mut self, response: ResponseId, samples: &[f32]) -> Result<Vec<u8>, LineError>;

    /// An answer has no more sound; returns the last delta, if the line sends deltas.
    fn speech_end(&mut self, response: ResponseId) -> Result<Vec<u8>, LineError>;

    /// Drops sound that was not played yet.
    fn clear(&mut self);

    /// Whether it takes more sound now.
    fn has_room(&self) -> bool;

    /// How sound is to be written from now on.
    fn configure(&mut self, output: AudioFormat) -> Result<(), LineError>;

    /// What the caller has heard of the answer being played.
    fn heard(&self) -> Option<(ResponseId, Duration)>;
}

/// A defect of ours in the handling of sound.
#[derive(Debug, thiserror::Error)]
pub enum LineError {
    /// The resampler refused.
    #[error(transparent)]
    Resample(#[from] crate::media::resample::ResampleError),
    /// The codec refused.
    #[error(transparent)]
    Opus(#[from] crate::media::opus::OpusError),
    /// The playout clock refused.
    #[error(transparent)]
    Playout(#[from] crate::media::playout::PushError),
}

/// What a line brings.
#[derive(Debug)]
pub enum Heard {
    /// An event as text.
    Event(String),
    /// A message that cannot be an event.
    Refused(ErrorBody),
    /// Sound of the caller.
    Sound {
        /// Mono samples in -1..1.
        samples: Vec<f32>,
        /// How many a second.
        rate: u32,
    },
    /// News from the playout clock.
    Playout(PlayoutReport),
    /// The first sound of an answer above the threshold of hearing left.
    Audible {
        /// Whose.
        response: ResponseId,
        /// When.
        at: Instant,
    },
    /// The playout clock found nothing to play.
    Underrun,
    /// The caller is gone.
    Closed,
}

/// What goes to the caller beside sound.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outgoing {
    /// An event as text.
    Event(String),
    /// The end, with a websocket close code and a reason for a person.
    Close(u16, &'static str),
}

/// Why a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The caller hung up, or vanished.
    Hangup,
    /// The caller took nothing for too long, or the line broke.
    Unreachable,
    /// The server goes down, or somebody else ended the call.
    Shutdown,
    /// A failure of ours.
    Failed,
}

/// Runs one call to its end, or until `stop`. After `drain`, which is when the server begins to go down, it goes on only as
/// long as a turn does. Dropping the future frees everything.
pub async fn run<L: Line>(
    mut line: L,
    session: Session,
    setup: Setup,
    metrics: Arc<Metrics>,
    drain: impl Future<Output = ()> + Send,
    stop: impl Future<Output = ()> + Send,
) -> Ended {
    let mut drain = pin!(drain.fuse());
    let mut stop = pin!(stop);
    let outlet = line.outlet();
    let microphone = Microphone::new(setup.model.input_rate);
    let timing = Timing::new(metrics.clone());
    let (core, effects) = Core::new(setup);
    let mut call = Call {
        core,
        microphone,
        timing,
        metrics,
        input_format: AudioFormat::default(),
        outbound: VecDeque::new(),
        commands: VecDeque::new(),
        closing: false,
    };
    call.apply(effects, &mut line);
    // A command that the engine has no room for at the moment.
    let mut submitting = pin!(Fuse::terminated());
    let ended = loop {
        while submitting.is_terminated()
            && let Some(command) = call.commands.pop_front()
        {
            if let Err(SubmitError::Full(command)) = session.submit(command) {
                submitting.set(session.submit_async(*command).fuse());
            }
        }
        if call.closing && call.outbound.is_empty() {
            break Ended::Failed;
        }
        let delivered = call.outbound.is_empty() && submitting.is_terminated();
        if drain.is_terminated() && delivered && call.core.is_idle() {
            break Ended::Shutdown;
        }
        let unheard = call.microphone.has_more();
        let listen = !call.closing && !unheard && delivered;
        tokio::select! {
            permit = outlet.reserve(), if !call.outbound.is_empty() => match permit {
                Ok(permit) => if let Some(text) = call.outbound.pop_front() {
                    permit.send(Outgoing::Event(text));
                },
                Err(_) => break Ended::Unreachable,
            },
            () = outlet.closed() => break Ended::Unreachable,
            _ = &mut submitting, if !submitting.is_terminated() => {}
            event = session.next_event(), if !call.closing && call.outbound.len() < BACKLOG && line.has_room() => {
                call.engine(event, &mut line);
            }
            heard = line.next(listen) => {
                if matches!(heard, Heard::Closed) {
                    break Ended::Hangup;
                }
                call.hear(heard, &mut line);
            }
            // One piece at a time, so that a long append delays nobody else.
            () = tokio::task::yield_now(), if unheard && call.outbound.is_empty() && submitting.is_terminated() => {
                call.listen(&mut line);
            }
            () = &mut drain, if !drain.is_terminated() => {}
            () = &mut stop => break Ended::Shutdown,
        }
    };
    let farewell = match ended {
        Ended::Hangup | Ended::Unreachable => None,
        Ended::Shutdown => Some(Outgoing::Close(1001, "the server is going away")),
        Ended::Failed => Some(Outgoing::Close(1011, "the session has failed")),
    };
    if let Some(farewell) = farewell {
        // No room means that the caller takes nothing anyway.
        let _ = outlet.try_send(farewell);
    }
    ended
}

struct Call {
    core: Core,
    microphone: Microphone,
    timing: Timing,
    metrics: Arc<Metrics>,
    /// How the client writes sound.
    input_format: AudioFormat,
    /// Events that wait for room in the line's queue.
    outbound: VecDeque<String>,
    /// Commands that wait to be handed over.
    commands: VecDeque<Command>,
    /// No more is done than to send what waits.
    closing: bool,
}

impl Call {
    fn hear<L: Line>(&mut self, heard: Heard, line: &mut L) {
        match heard {
            Heard::Event(text) => self.message(&text, line),
            Heard::Refused(error) => self.input(Input::Refused(error), line),
            Heard::Sound { samples, rate } => self.sound(samples, rate, line),
            Heard::Playout(report) => self.input(Input::Playout(report), line),
            Heard::Audible { response, at } => self.timing.audible(response, at),
            Heard::Underrun => self.metrics.underruns.inc(),
            // Handled by the caller.
            Heard::Closed => {}
        }
    }

    fn message<L: Line>(&mut self, text: &str, line: &mut L) {
        let message = match ClientMessage::parse(text) {
            Ok(message) => message,
            Err(error) => return self.input(Input::Refused(*error), line),
        };
        match message.event {
            ClientEvent::InputAppend(append) => match self.decode(&append.audio) {
                Ok(samples) => self.sound(samples, self.input_format.rate(), line),
                Err(error) => self.input(Input::Refused(error.about(message.event_id)), line),
            },
            ClientEvent::InputCommit | ClientEvent::InputClear => {
                // What is still inside the filters belongs to this turn.
                match self.microphone.flush() {
                    Ok(inputs) => self.inputs(inputs, line),
                    Err(error) => self.defect(&error.into()),
                }
                self.input(Input::Client(message), line);
            }
            _ => self.input(Input::Client(message), line),
        }
    }

    fn decode(&self, audio: &str) -> Result<Vec<f32>, ErrorBody> {
        let refuse = |message: String| ErrorBody::invalid(ErrorKind::InvalidAudio, message).at("audio");
        let bytes = STANDARD.decode(audio).map_err(|error| refuse(format!("`audio` is not base64: {error}")))?;
        match self.input_format {
            AudioFormat::Pcm { .. } => pcm::decode_i16le(&bytes).map_err(|error| refuse(error.to_string())),
            AudioFormat::Pcmu => Ok(pcm::decode_mulaw(&bytes)),
            AudioFormat::Pcma => Ok(pcm::decode_alaw(&bytes)),
        }
    }

    fn sound<L: Line>(&mut self, samples: Vec<f32>, rate: u32, line: &mut L) {
        match self.microphone.take(samples, rate) {
            Ok(inputs) => self.inputs(inputs, line),
            Err(error) => self.defect(&error.into()),
        }
    }

    /// Works on one piece of the sound that was taken.
    fn listen<L: Line>(&mut self, line: &mut L) {
        match self.microphone.listen() {
            Ok(inputs) => self.inputs(inputs, line),
            Err(error) => self.defect(&error.into()),
        }
        self.timing.endpointing(self.microphone.endpointing());
    }

    fn engine<L: Line>(&mut self, event: Option<Event>, line: &mut L) {
        match event {
            Some(event) => {
                if let Event::Audio { response, stamps: Some(stamps), .. } = &event {
                    self.timing.stamped(*response, *stamps);
                }
                self.input(Input::Engine(event), line);
            }
            None => self.input(Input::EngineEnded, line),
        }
    }

    fn inputs<L: Line>(&mut self, inputs: Vec<Input>, line: &mut L) {
        for input in inputs {
            self.input(input, line);
        }
    }

    fn input<L: Line>(&mut self, input: Input, line: &mut L) {
        if self.closing {
            return;
        }
        let now = Instant::now();
        if let Some((response, heard)) = line.heard() {
            let heard_ms = u64::try_from(heard.as_millis()).unwrap_or(u64::MAX);
            let report = Input::Playout(PlayoutReport::Position { response, heard_ms });
            let effects = self.core.handle(report, now);
            self.apply(effects, line);
        }
        let effects = self.core.handle(input, now);
        self.apply(effects, line);
    }

    fn apply<L: Line>(&mut self, effects: Vec<Effect>, line: &mut L) {
        for effect in effects {
            match effect {
                Effect::Send(message) => self.send(&message),
                Effect::Engine(command) => self.commands.push_back(command),
                Effect::Configure(wiring) => {
                    self.input_format = wiring.input;
                    self.microphone.configure(wiring.turns);
                    if let Err(error) = line.configure(wiring.output) {
                        self.defect(&error);
                    }
                }
                Effect::EndTurn => self.microphone.end_turn(),
                Effect::Asked { response, since } => self.timing.asked(response, since),
                Effect::Speak { event_id, response, name, samples } => match line.speak(response, &samples) {
                    Ok(bytes) => {
                        self.delta(event_id, name, &bytes);
                        if L::DELIVERY == Delivery::Unpaced && is_audible(&samples) {
                            self.timing.audible(response, Instant::now());
                        }
                    }
                    Err(error) => self.defect(&error),
                },
                Effect::SpeechEnd { event_id, response, name } => match line.speech_end(response) {
                    Ok(bytes) => self.delta(event_id, name, &bytes),
                    Err(error) => self.defect(&error),
                },
                Effect::ClearPlayout => line.clear(),
                Effect::Answered(status) => self.metrics.turns.with_label_values(&[status.as_str()]).inc(),
                Effect::Erred(code) => self.metrics.errors.with_label_values(&[&code]).inc(),
                Effect::Close => self.closing = true,
            }
        }
    }

    fn delta(&mut self, event_id: String, name: crate::protocol::response::PartName, bytes: &[u8]) {
        if !bytes.is_empty() {
            let event = ServerEvent::AudioDelta(Delta { name, delta: STANDARD.encode(bytes) });
            self.send(&ServerMessage { event_id, event });
        }
    }

    fn send(&mut self, message: &ServerMessage) {
        match serde_json::to_string(message) {
            Ok(text) => self.outbound.push_back(text),
            Err(error) => {
                tracing::error!(event = message.event.kind(), %error, "an event could not be written");
                self.closing = true;
            }
        }
    }

    /// A defect of ours ends the call.
    fn defect(&mut self, error: &LineError) {
        tracing::error!(%error, "the call's sound could not be handled");
        self.metrics.errors.with_label_values(&[ErrorKind::Internal.code()]).inc();
        self.closing = true;
    }
}
