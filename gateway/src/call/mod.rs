//! The task of one call: a [`Line`] to the caller on one side, the engine on the other, the conversation in between.
//!
//! Everything between is bounded. What waits to be sent keeps the call from listening and from reading the engine, so a
//! caller that takes nothing stops its own session and nobody else's; the line itself ends when nothing moves. Dropping
//! the task at any moment frees the session, for the engine sees its handle go.
//!
//! - `line`: the connection to the caller
//! - `microphone`: the caller's sound, brought to the model's rate and searched for turns
//! - `packets`: Opus of a caller who does not come over WebRTC
//! - `timing`: how long the caller waits

mod line;
mod microphone;
mod packets;
mod timing;

use std::collections::VecDeque;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::FutureExt as _;
use futures_util::future::{Fuse, FusedFuture as _};
use repartee_engine_api::{Command, SessionHandle, SubmitError};
use repartee_media::echo_guard::EchoGuard;
use repartee_media::level::is_audible;
use repartee_protocol::response::{Delta, PartRef};
use repartee_protocol::session::AudioFormat;
use repartee_protocol::{ClientEvent, ClientMessage, ErrorBody, ErrorKind, ServerEvent, ServerMessage};
use repartee_realtime::{Core, Delivery, Effect, Input, PlayoutReport, Setup, audio};

use crate::metrics::Metrics;
use microphone::Microphone;
use packets::Packets;
use timing::Timing;

pub use line::{Heard, Line, LineError, Outgoing};

/// Events that may wait for the line's own queue before the engine is not read any more.
const BACKLOG: usize = 8;

/// Why a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The caller hung up, or vanished.
    Hangup,
    /// The caller took nothing for too long, or the line broke.
    Unreachable,
    /// The caller sent more than can be read.
    Overflow,
    /// The server goes down, or somebody else ended the call.
    Shutdown,
    /// A failure of ours.
    Failed,
}

/// Runs one call to its end, or until `stop`. After `drain`, which is when the server begins to go down, it goes on only as
/// long as a turn does. Dropping the future frees everything.
pub async fn run<L: Line>(
    mut line: L,
    session: SessionHandle,
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
    let echo_guard = EchoGuard::new(setup.model.output_rate);
    let packets = Packets::new(setup.model.input_rate);
    let (core, effects) = Core::new(setup);
    let mut call = Call {
        core,
        microphone,
        packets,
        echo_guard,
        timing,
        metrics,
        input_format: AudioFormat::default(),
        outbound: VecDeque::new(),
        commands: VecDeque::new(),
        closing: None,
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
        if let Some(ended) = call.closing.filter(|_| call.outbound.is_empty()) {
            break ended;
        }
        let delivered = call.outbound.is_empty() && submitting.is_terminated();
        if drain.is_terminated() && delivered && call.core.is_idle() {
            break Ended::Shutdown;
        }
        let unheard = call.microphone.has_more();
        let open = call.closing.is_none();
        let listen = open && !unheard && delivered;
        let room = open && call.outbound.len() < BACKLOG && line.has_room();
        tokio::select! {
            permit = outlet.reserve(), if !call.outbound.is_empty() => match permit {
                Ok(permit) => if let Some(outgoing) = call.outbound.pop_front() {
                    permit.send(outgoing);
                },
                Err(_) => break Ended::Unreachable,
            },
            () = outlet.closed() => break Ended::Unreachable,
            _ = &mut submitting, if !submitting.is_terminated() => {}
            event = session.next_event(), if room && call.core.wants_engine_events() => {
                let news = event.map_or(Input::EngineEnded, Input::Engine);
                call.input(news, &mut line);
            }
            () = std::future::ready(()), if room && call.core.has_pending_event() => call.input(Input::PendingEvent, &mut line),
            () = until(call.core.deadline()), if open => call.input(Input::Time, &mut line),
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
        Ended::Overflow => Some(Outgoing::Close(1009, "the message is too large")),
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
    /// Opus of the caller that did not come over WebRTC.
    packets: Packets,
    /// Recent levels of our playback.
    echo_guard: EchoGuard,
    timing: Timing,
    metrics: Arc<Metrics>,
    /// How the client writes sound.
    input_format: AudioFormat,
    /// What waits for room in the line's queue.
    outbound: VecDeque<Outgoing>,
    /// Commands that wait to be handed over. Nothing is heard while any wait, so they are those of one input and, at most, one
    /// report of the playout clock.
    commands: VecDeque<Command>,
    /// No more is done than to send what waits; why.
    closing: Option<Ended>,
}

impl Call {
    fn hear<L: Line>(&mut self, heard: Heard, line: &mut L) {
        match heard {
            Heard::Event(text) => self.message(&text, line),
            Heard::Refused(error) => self.input(Input::Refused(error), line),
            Heard::Overflow(error) => {
                self.input(Input::Refused(error), line);
                self.closing.get_or_insert(Ended::Overflow);
            }
            Heard::Packet(packet) => match self.packets.decode(self.input_format, &packet) {
                Ok((samples, rate)) => self.sound(samples, rate, line),
                Err(error) => self.input(Input::Refused(error), line),
            },
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
                Ok((samples, rate)) => self.sound(samples, rate, line),
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

    fn decode(&mut self, audio: &str) -> Result<(Vec<f32>, u32), ErrorBody> {
        match self.input_format {
            AudioFormat::Opus => self.packets.decode(AudioFormat::Opus, &audio::bytes(audio)?),
            format => Ok((audio::decode(audio, format)?, format.rate())),
        }
    }

    fn sound<L: Line>(&mut self, samples: Vec<f32>, rate: u32, line: &mut L) {
        self.set_playback_level();
        match self.microphone.take(samples, rate) {
            Ok(inputs) => self.inputs(inputs, line),
            Err(error) => self.defect(&error.into()),
        }
    }

    /// Tells the microphone how loud our playback is.
    fn set_playback_level(&mut self) {
        let level = self.echo_guard.playback_level(now());
        self.microphone.set_playback_level(level.or(self.core.is_responding().then_some(0.0)));
    }

    /// Works on one piece of the sound that was taken.
    fn listen<L: Line>(&mut self, line: &mut L) {
        self.set_playback_level();
        match self.microphone.listen() {
            Ok(inputs) => self.inputs(inputs, line),
            Err(error) => self.defect(&error.into()),
        }
        self.timing.endpointing(self.microphone.endpointing());
    }

    fn inputs<L: Line>(&mut self, inputs: Vec<Input>, line: &mut L) {
        for input in inputs {
            self.input(input, line);
        }
    }

    fn input<L: Line>(&mut self, input: Input, line: &mut L) {
        if self.closing.is_some() {
            return;
        }
        let now = now();
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
                Effect::Engine(command) => self.command(command),
                Effect::Configure(settings) => {
                    self.input_format = settings.input;
                    self.microphone.configure(settings.turns);
                }
                Effect::EndTurn => self.microphone.end_turn(),
                Effect::ResponseRequested { response, since } => self.timing.asked(response, since),
                Effect::Stamps { response, stamps } => self.timing.stamped(response, stamps),
                Effect::AudioStart { response, format } => {
                    if let Err(error) = line.begin(response, format) {
                        self.defect(&error);
                    }
                }
                Effect::Audio { event_id, response, part, samples } => {
                    let now = now();
                    self.echo_guard.push(&samples, now);
                    let written = line.speak(response, &samples);
                    self.written(event_id, part, written, line);
                    if L::DELIVERY == Delivery::Unpaced && is_audible(&samples) {
                        self.timing.audible(response, now);
                    }
                }
                Effect::AudioEnd { event_id, response, part } => {
                    let written = line.speech_end(response);
                    self.written(event_id, part, written, line);
                }
                Effect::ClearPlayout => {
                    self.echo_guard.clear(now());
                    line.clear();
                }
                Effect::CountResponse(status) => self.metrics.turns.with_label_values(&[status.as_str()]).inc(),
                Effect::CountSpeculation { committed } => {
                    let outcome = if committed { "confirmed" } else { "taken_back" };
                    self.metrics.suspected.with_label_values(&[outcome]).inc();
                }
                Effect::CountError(code) => self.metrics.errors.with_label_values(&[&code]).inc(),
                Effect::Close => self.close(),
            }
        }
    }

    fn command(&mut self, command: Command) {
        // Only the newest position counts.
        if let (Command::Played { response, .. }, Some(Command::Played { response: before, .. })) =
            (&command, self.commands.back())
            && response == before
        {
            self.commands.pop_back();
        }
        self.commands.push_back(command);
    }

    /// Sends what the line made of sound.
    fn written<L: Line>(&mut self, event_id: String, part: PartRef, written: Result<Vec<u8>, LineError>, line: &mut L) {
        match written {
            Ok(bytes) if !bytes.is_empty() => {
                let event = ServerEvent::AudioDelta(Delta { at: part, delta: STANDARD.encode(bytes) });
                self.send(&ServerMessage { event_id, event });
            }
            Ok(_) => self.outbound.extend(line.packets().into_iter().map(Outgoing::Packet)),
            Err(error) => self.defect(&error),
        }
    }

    fn send(&mut self, message: &ServerMessage) {
        match serde_json::to_string(message) {
            Ok(text) => self.outbound.push_back(Outgoing::Event(text)),
            Err(error) => {
                tracing::error!(event = message.event.kind(), %error, "an event could not be written");
                self.close();
            }
        }
    }

    /// A defect of ours ends the call.
    fn defect(&mut self, error: &LineError) {
        tracing::error!(%error, "the call's sound could not be handled");
        self.metrics.errors.with_label_values(&[ErrorKind::Internal.code()]).inc();
        self.close();
    }

    fn close(&mut self) {
        self.closing.get_or_insert(Ended::Failed);
    }
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
        None => std::future::pending().await,
    }
}

/// The runtime's clock, which a test may stop.
fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}
