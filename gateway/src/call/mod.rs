//! The task of one call: a [`Transport`] to the caller on one side, the engine on the other, the realtime session between.
//!
//! Every queue is bounded. While something waits to be sent, the call takes no input and reads no engine event, so a caller
//! that reads nothing stops its own session and nobody else's; the transport ends the call when nothing moves. Dropping the
//! task at any moment frees the session, because the engine sees its handle go.
//!
//! - `transport`: the connection to the caller
//! - `limits`: how long a call may last
//! - `services`: what a call shares with the others
//! - `input_pipeline`: the caller's audio: resampling and turn detection
//! - `packet_decoder`: Opus packets of a websocket
//! - `response_timing`: time to first packet and its parts

#[cfg(test)]
mod allocation_tests;
mod input_pipeline;
#[cfg(test)]
mod judge_tests;
mod limits;
mod packet_decoder;
mod response_timing;
mod services;
mod transport;

use std::collections::VecDeque;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::FutureExt as _;
use futures_util::future::{Fuse, FusedFuture as _};
use repartee_engine_api::{Command, SessionHandle, SubmitError};
use repartee_media::echo_guard::{EchoGuard, EchoLevel};
use repartee_media::level::is_audible;
use repartee_media::vad::TurnEvent;
use repartee_protocol::response::{Delta, PartRef};
use repartee_protocol::session::AudioFormat;
use repartee_protocol::{ClientEvent, ClientMessage, ErrorBody, ErrorKind, ServerEvent, ServerMessage};
use repartee_realtime::{Core, Delivery, Effect, Input, PlayoutReport, Setup, audio};
use tokio::sync::oneshot;

use crate::metrics::{Metrics, Stage};
use crate::turn_judge::TurnJudge;
use input_pipeline::InputPipeline;
use packet_decoder::PacketDecoder;
use response_timing::ResponseTiming;

pub use limits::CallLimits;
pub use response_timing::stages_since;
pub use services::CallServices;
pub use transport::{OpusFrame, OutboundMessage, Transport, TransportError, TransportEvent};

/// Events that may wait for the transport's queue before the engine is no longer read.
const BACKLOG: usize = 8;

/// Why a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallEnd {
    /// The caller hung up, or vanished.
    Hangup,
    /// The call was answered, and the caller was never reached.
    Unconnected,
    /// The caller read nothing for too long, or the connection broke.
    Unreachable,
    /// The caller sent a message that is too large to skip.
    Overflow,
    /// The call lasted as long as it may.
    Expired,
    /// The caller has sent nothing for as long as it may.
    Idle,
    /// The server goes down, or somebody else ended the call.
    Shutdown,
    /// A failure of ours.
    Failed,
}

impl CallEnd {
    fn label(self) -> &'static str {
        match self {
            Self::Hangup => "hangup",
            Self::Unconnected => "unconnected",
            Self::Unreachable => "unreachable",
            Self::Overflow => "overflow",
            Self::Expired => "expired",
            Self::Idle => "idle",
            Self::Shutdown => "shutdown",
            Self::Failed => "failed",
        }
    }
}

/// Runs one call to its end, or until `stop`. After `drain`, which is when the server begins to go down, it goes on only as
/// long as a turn does. Dropping the future frees everything.
pub async fn run<T: Transport>(
    mut transport: T,
    session: SessionHandle,
    setup: Setup,
    services: CallServices,
    drain: impl Future<Output = ()> + Send,
    stop: impl Future<Output = ()> + Send,
) -> CallEnd {
    let mut drain = pin!(drain.fuse());
    let mut stop = pin!(stop);
    let outbound = transport.outbound();
    let begun = now();
    let limits = services.limits;
    let (mut call, effects) = Call::new(setup, services);
    call.apply(effects, &mut transport);
    let expiry = limits.longest.and_then(|longest| now().checked_add(longest));
    // When something last went on besides the caller's silence, and whether it does not now.
    let (mut busy, mut was_idle) = (now(), false);
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
            break CallEnd::Shutdown;
        }
        let is_idle = call.core.is_idle();
        if !(is_idle && was_idle) {
            busy = now();
        }
        was_idle = is_idle;
        let silent_since = busy.max(transport.last_input().unwrap_or(busy));
        let hang_up = limits.idle.filter(|_| is_idle).and_then(|idle| silent_since.checked_add(idle));
        let input_pending = call.input_pipeline.has_more();
        let open = call.closing.is_none();
        let accept_input = open && !input_pending && delivered;
        call.timing.reading(call.outbound.len() < BACKLOG && transport.has_room());
        let room = open && call.outbound.len() < BACKLOG && transport.has_room();
        tokio::select! {
            permit = outbound.reserve(), if !call.outbound.is_empty() => match permit {
                Ok(permit) => if let Some(outgoing) = call.outbound.pop_front() {
                    permit.send(outgoing);
                },
                Err(_) => break CallEnd::Unreachable,
            },
            () = outbound.closed() => break CallEnd::Unreachable,
            _ = &mut submitting, if !submitting.is_terminated() => {}
            event = session.next_event(), if room && call.core.wants_engine_events() => {
                let news = event.map_or(Input::EngineEnded, Input::Engine);
                call.input(news, &mut transport);
            }
            () = std::future::ready(()), if room && call.core.has_pending_event() => call.input(Input::PendingEvent, &mut transport),
            () = until(call.core.deadline()), if open => call.input(Input::Time, &mut transport),
            () = until(expiry), if open => call.end(CallEnd::Expired, &mut transport),
            () = until(hang_up), if open => call.end(CallEnd::Idle, &mut transport),
            event = transport.next(accept_input) => {
                if matches!(event, TransportEvent::Closed) {
                    break if transport.was_connected() { CallEnd::Hangup } else { CallEnd::Unconnected };
                }
                call.on_event(event, &mut transport);
            }
            // One piece at a time, so that a long append delays nobody else.
            () = tokio::task::yield_now(), if input_pending && call.outbound.is_empty() && submitting.is_terminated() => {
                call.process_input(&mut transport);
            }
            answer = judged(&mut call.judging), if open => call.judged(answer, &mut transport),
            () = &mut drain, if !drain.is_terminated() => {}
            () = &mut stop => break CallEnd::Shutdown,
        }
    };
    let close_message = match ended {
        CallEnd::Hangup | CallEnd::Unconnected | CallEnd::Unreachable => None,
        CallEnd::Expired => Some(OutboundMessage::Close(1000, "the call has lasted as long as it may")),
        CallEnd::Idle => Some(OutboundMessage::Close(1000, "nothing was said for too long")),
        CallEnd::Shutdown => Some(OutboundMessage::Close(1001, "the server is going away")),
        CallEnd::Failed => Some(OutboundMessage::Close(1011, "the session has failed")),
        CallEnd::Overflow => Some(OutboundMessage::Close(1009, "the message is too large")),
    };
    if let Some(close_message) = close_message {
        // No room means that the caller takes nothing anyway.
        let _ = outbound.try_send(close_message);
    }
    let lasted = now().saturating_duration_since(begun);
    call.metrics.call(T::NAME, ended.label(), lasted);
    call.timing.ended(ended, now());
    tracing::info!(transport = T::NAME, ended = ended.label(), seconds = lasted.as_secs(), "a call ended");
    ended
}

/// A question to the turn-detection model that is not answered yet: its number, and where the answer comes.
type Judging = (u64, oneshot::Receiver<Option<f32>>);

struct Call {
    core: Core,
    input_pipeline: InputPipeline,
    /// The turn-detection model, where there is one.
    judge: Option<TurnJudge>,
    /// At most one question at a time, also where its pause is over.
    judging: Option<Judging>,
    /// Decodes Opus packets that come over a websocket.
    packet_decoder: PacketDecoder,
    /// Recent levels of our playback, and how it comes back.
    echo_guard: EchoGuard,
    timing: ResponseTiming,
    /// When the voice began that begins a turn at this moment.
    voice_began: Option<Instant>,
    /// While the playback is paused: how long after the beginning of the voice that was.
    silenced: Option<Duration>,
    metrics: Arc<Metrics>,
    /// What came of a piece of input; empty between the pieces, whose memory it keeps.
    inputs: Vec<Input>,
    /// The format of the caller's audio.
    input_format: AudioFormat,
    /// What waits for room in the transport's queue.
    outbound: VecDeque<OutboundMessage>,
    /// Commands that wait to be submitted. No input is taken while any wait, so they are those of one input and at most one
    /// report of the playout clock.
    commands: VecDeque<Command>,
    /// Why the call ends once everything that waits was sent.
    closing: Option<CallEnd>,
}

impl Call {
    /// A call and its first effects.
    fn new(setup: Setup, services: CallServices) -> (Self, Vec<Effect>) {
        let CallServices { metrics, judge, trace, .. } = services;
        let output_rate = setup.model.output_rate;
        let input_pipeline = InputPipeline::new(setup.model.input_rate, judge.is_some());
        let timing = ResponseTiming::new(metrics.clone(), trace, output_rate);
        let echo_guard = EchoGuard::new(output_rate);
        let packet_decoder = PacketDecoder::new(setup.model.input_rate);
        let (core, effects) = Core::new(setup);
        let call = Self {
            core,
            input_pipeline,
            judge,
            judging: None,
            packet_decoder,
            echo_guard,
            timing,
            voice_began: None,
            silenced: None,
            metrics,
            inputs: Vec::new(),
            input_format: AudioFormat::default(),
            outbound: VecDeque::new(),
            commands: VecDeque::new(),
            closing: None,
        };
        (call, effects)
    }

    fn on_event<T: Transport>(&mut self, event: TransportEvent, transport: &mut T) {
        match event {
            TransportEvent::Event(text) => self.on_message(&text, transport),
            TransportEvent::Invalid(error) => self.input(Input::Refused(error), transport),
            TransportEvent::TooLarge(error) => {
                self.input(Input::Refused(error), transport);
                self.closing.get_or_insert(CallEnd::Overflow);
            }
            TransportEvent::OpusPacket(packet) => match self.packet_decoder.decode(self.input_format, &packet) {
                Ok((samples, rate)) => self.push_audio(samples, rate, transport),
                Err(error) => self.input(Input::Refused(error), transport),
            },
            TransportEvent::Audio { samples, rate } => self.push_audio(samples, rate, transport),
            TransportEvent::Playout(report) => self.input(Input::Playout(report), transport),
            TransportEvent::FirstAudible { response, due, encoded, sent } => {
                let stages = [(Stage::Playout, due), (Stage::Opus, encoded), (Stage::Wire, sent)];
                self.timing.audible(response, stages);
            }
            TransportEvent::Underrun => self.metrics.underruns.inc(),
            // Handled by the caller.
            TransportEvent::Closed => {}
        }
    }

    fn on_message<T: Transport>(&mut self, text: &str, transport: &mut T) {
        let message = match ClientMessage::parse(text) {
            Ok(message) => message,
            Err(error) => return self.input(Input::Refused(*error), transport),
        };
        match message.event {
            ClientEvent::InputAppend(append) => match self.decode(&append.audio) {
                Ok((samples, rate)) => self.push_audio(samples, rate, transport),
                Err(error) => self.input(Input::Refused(error.about(message.event_id)), transport),
            },
            ClientEvent::InputCommit | ClientEvent::InputClear => {
                // What is still inside the filters belongs to this turn.
                match self.input_pipeline.flush() {
                    Ok(inputs) => self.inputs(inputs, transport),
                    Err(error) => self.fail(&error.into()),
                }
                self.input(Input::Client(message), transport);
            }
            _ => self.input(Input::Client(message), transport),
        }
    }

    fn decode(&mut self, audio: &str) -> Result<(Vec<f32>, u32), ErrorBody> {
        match self.input_format {
            AudioFormat::Opus => self.packet_decoder.decode(AudioFormat::Opus, &audio::bytes(audio)?),
            format => Ok((audio::decode(audio, format)?, format.rate())),
        }
    }

    fn push_audio<T: Transport>(&mut self, samples: Vec<f32>, rate: u32, transport: &mut T) {
        self.echo_guard.hear(&samples, rate, now());
        self.set_playback();
        match self.input_pipeline.push(samples, rate) {
            Ok(inputs) => self.inputs(inputs, transport),
            Err(error) => self.fail(&error.into()),
        }
    }

    /// Tells the turn detector of our playback: how loud its echo may be, and whether it can be paused.
    fn set_playback(&mut self) {
        let level = self.echo_guard.echo_level(now());
        let level = level.or(self.core.is_responding().then_some(EchoLevel::NONE));
        self.input_pipeline.set_playback(level, self.core.is_pausable());
    }

    /// Processes one piece of the input.
    fn process_input<T: Transport>(&mut self, transport: &mut T) {
        self.set_playback();
        let mut inputs = std::mem::take(&mut self.inputs);
        match self.input_pipeline.process(&mut inputs) {
            Ok(()) => self.inputs(inputs.drain(..), transport),
            Err(error) => self.fail(&error.into()),
        }
        self.inputs = inputs;
        self.timing.endpointing(self.input_pipeline.endpointing(), now());
        self.ask(transport);
    }

    /// Asks the turn-detection model what there is to ask, unless it has a question of this call.
    fn ask<T: Transport>(&mut self, transport: &mut T) {
        let (Some(judge), None) = (&self.judge, &self.judging) else { return };
        let Some(question) = self.input_pipeline.question() else { return };
        match judge.judge(question.turn) {
            Some(answer) => self.judging = Some((question.id, answer)),
            None => self.answer(question.id, None, "busy", transport),
        }
    }

    /// Takes the model's answer.
    fn judged<T: Transport>(&mut self, answer: Option<f32>, transport: &mut T) {
        if let Some((id, _)) = self.judging.take() {
            let outcome = if answer.is_some() { "continued" } else { "failed" };
            self.answer(id, answer, outcome, transport);
            // A pause that began meanwhile.
            self.ask(transport);
        }
    }

    fn answer<T: Transport>(&mut self, id: u64, answer: Option<f32>, outcome: &str, transport: &mut T) {
        let ended = self.input_pipeline.judged(id, answer);
        let outcome = if ended.is_some() { "ended" } else { outcome };
        self.metrics.turn_judgements.with_label_values(&[outcome]).inc();
        self.inputs(ended, transport);
        self.timing.endpointing(self.input_pipeline.endpointing(), now());
    }

    fn inputs<T: Transport>(&mut self, inputs: impl IntoIterator<Item = Input>, transport: &mut T) {
        for input in inputs {
            self.input(input, transport);
        }
    }

    fn input<T: Transport>(&mut self, input: Input, transport: &mut T) {
        if self.closing.is_some() {
            return;
        }
        let now = now();
        if let Some((response, heard)) = transport.heard() {
            let heard_ms = u64::try_from(heard.as_millis()).unwrap_or(u64::MAX);
            let report = Input::Playout(PlayoutReport::Position { response, heard_ms });
            let effects = self.core.handle(report, now);
            self.apply(effects, transport);
        }
        if matches!(input, Input::Turn(TurnEvent::SpeechStarted { .. } | TurnEvent::PossibleBargeIn { .. })) {
            self.voice_began = now.checked_sub(self.input_pipeline.onset());
        }
        let effects = self.core.handle(input, now);
        self.apply(effects, transport);
        self.voice_began = None;
    }

    fn apply<T: Transport>(&mut self, effects: Vec<Effect>, transport: &mut T) {
        for effect in effects {
            match effect {
                Effect::Send(message) => self.send(&message),
                Effect::Engine(command) => self.command(command),
                Effect::Configure(settings) => {
                    self.input_format = settings.input;
                    self.input_pipeline.configure(settings.turns);
                    self.resume(transport);
                }
                Effect::EndTurn => {
                    self.input_pipeline.end_turn();
                    self.resume(transport);
                }
                Effect::PausePlayout => {
                    if transport.pause_audio() {
                        self.echo_guard.pause(now());
                        self.silenced = self.voice_began.map(|began| now().saturating_duration_since(began));
                    }
                }
                Effect::ResumePlayout => self.resume(transport),
                Effect::ResponseRequested { response, since } => self.timing.requested(response, since),
                Effect::Stamps { response, stamps } => self.timing.stamped(response, stamps),
                Effect::AudioStart { response, format } => {
                    if let Err(error) = transport.begin_audio(response, format) {
                        self.fail(&error);
                    }
                }
                Effect::Audio { event_id, response, part, samples } => {
                    let now = now();
                    self.echo_guard.push(&samples, now);
                    self.timing.generated(response, samples.len(), now);
                    let encoded = transport.push_audio(response, &samples);
                    self.send_audio(event_id, part, encoded, transport);
                    if T::DELIVERY == Delivery::Unpaced && is_audible(&samples) {
                        self.timing.audible(response, [(Stage::Wire, now)]);
                    }
                }
                Effect::AudioEnd { event_id, response, part } => {
                    self.timing.complete(response);
                    let encoded = transport.end_audio(response);
                    self.send_audio(event_id, part, encoded, transport);
                }
                Effect::ClearPlayout => {
                    // A websocket's client drops its audio itself, whenever it hears of it.
                    if let Some(began) = self.voice_began.filter(|_| T::DELIVERY == Delivery::Paced)
                        && transport.heard().is_some()
                    {
                        let now_silent = || now().saturating_duration_since(began);
                        self.metrics.barge_in.observe(self.silenced.take().unwrap_or_else(now_silent).as_secs_f64());
                    }
                    self.silenced = None;
                    self.echo_guard.clear(now());
                    transport.clear_audio();
                }
                // The echo guard keeps what plays on.
                Effect::ClearResponse(response) => {
                    self.resume(transport);
                    transport.clear_response(response);
                }
                Effect::CountResponse(status) => self.metrics.turns.with_label_values(&[status.as_str()]).inc(),
                Effect::CountSpeculation { committed } => {
                    let outcome = if committed { "committed" } else { "aborted" };
                    self.metrics.speculations.with_label_values(&[outcome]).inc();
                }
                Effect::NotServed(what) => tracing::info!(what, "the client asked for what is not served"),
                Effect::CountError(code) => self.metrics.errors.with_label_values(&[&code]).inc(),
                Effect::Close => self.close(),
            }
        }
    }

    /// Goes on with a paused playback.
    fn resume<T: Transport>(&mut self, transport: &mut T) {
        transport.resume_audio();
        self.echo_guard.resume(now());
        self.silenced = None;
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

    /// Sends audio as the transport has encoded it.
    fn send_audio<T: Transport>(
        &mut self,
        event_id: String,
        part: PartRef,
        encoded: Result<Vec<u8>, TransportError>,
        transport: &mut T,
    ) {
        match encoded {
            Ok(bytes) if !bytes.is_empty() => {
                let event = ServerEvent::AudioDelta(Delta { at: part, delta: STANDARD.encode(bytes) });
                self.send(&ServerMessage { event_id, event });
            }
            Ok(_) => self.outbound.extend(transport.take_frames().into_iter().map(OutboundMessage::OpusFrame)),
            Err(error) => self.fail(&error),
        }
    }

    fn send(&mut self, message: &ServerMessage) {
        match serde_json::to_string(message) {
            Ok(text) => self.outbound.push_back(OutboundMessage::Event(message.event.kind(), text)),
            Err(error) => {
                tracing::error!(event = message.event.kind(), %error, "an event could not be written");
                self.close();
            }
        }
    }

    /// Ends a call whose time is up, once the caller has been told.
    fn end<T: Transport>(&mut self, ended: CallEnd, transport: &mut T) {
        let (kind, message) = match ended {
            CallEnd::Idle => (ErrorKind::SessionIdle, "Nothing was said for as long as this server waits."),
            _ => (ErrorKind::SessionExpired, "Your session hit the maximum duration of this server."),
        };
        self.input(Input::Refused(ErrorBody::invalid(kind, message)), transport);
        self.closing.get_or_insert(ended);
    }

    /// An internal error ends the call.
    fn fail(&mut self, error: &TransportError) {
        tracing::error!(%error, "the call's audio could not be processed");
        self.metrics.errors.with_label_values(&[ErrorKind::Internal.code()]).inc();
        self.close();
    }

    fn close(&mut self) {
        self.closing.get_or_insert(CallEnd::Failed);
    }
}

/// The answer to the question that is open; never without one.
async fn judged(judging: &mut Option<Judging>) -> Option<f32> {
    match judging {
        Some((_, answer)) => answer.await.ok().flatten(),
        None => std::future::pending().await,
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
