//! Event handling of a call: from the transport to the realtime session, and the session's effects.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use repartee_engine_api::Command;
use repartee_media::call_echo::EchoFinding;
use repartee_media::echo_guard::{EchoGuard, EchoLevel};
use repartee_media::level::is_audible;
use repartee_media::vad::TurnEvent;
use repartee_protocol::response::{ContentDelta, PartRef};
use repartee_protocol::session::AudioFormat;
use repartee_protocol::{ClientEvent, ErrorBody, ErrorKind, ServerEvent, ServerMessage};
use repartee_realtime::audio::{self, EncodedAudio};
use repartee_realtime::{Delivery, Effect, PlayoutReport, RealtimeSession, SessionInput, SessionSetup};
use tokio::sync::oneshot;

use super::input_pipeline::InputPipeline;
use super::input_sound::InputSound;
use super::large_events::{self, AudioForm, ParsedMessage, PendingMessage};
use super::packet_decoder::PacketDecoder;
use super::response_timing::ResponseTiming;
use super::summary::CallSummary;
use super::{CallEnd, CallServices, OutboundMessage, Transport, TransportError, TransportEvent};
use crate::budget::call_budget::CallBudget;
use crate::headroom::Headroom;
use crate::long_work::CallerWork;
use crate::metrics::{CancellingCall, Metrics, TtfpStage};
use crate::turn_judge::TurnModelPool;

/// An open question to the turn-detection model: its number, and the receiver of the answer.
pub(super) type PendingJudgement = (u64, oneshot::Receiver<Option<f32>>);

/// State of one call.
pub(super) struct CallTask {
    pub(super) core: RealtimeSession,
    pub(super) input_pipeline: InputPipeline,
    /// Budget of the call's key.
    budget: CallBudget,
    /// The turn-detection model, if configured.
    judge: Option<TurnModelPool>,
    /// The open question: at most one, even if its pause is over.
    pub(super) judging: Option<PendingJudgement>,
    /// The large message that is being parsed. No other is taken meanwhile.
    pub(super) parsing: Option<PendingMessage>,
    /// Threads that parse large messages.
    long_work: CallerWork,
    /// Headroom of the machine.
    headroom: Headroom,
    /// Input and output rate of the model, in Hz.
    model_rate: u32,
    pub(super) output_rate: u32,
    /// Decodes Opus packets of a websocket.
    packet_decoder: PacketDecoder,
    /// Recent levels of our playback, and of its echo.
    pub(super) echo_guard: EchoGuard,
    /// The metric of calls that cancel their echo, while this one does.
    pub(super) cancelling: Option<CancellingCall>,
    /// Result of the search for an echo that was told last.
    pub(super) echo_finding: EchoFinding,
    /// A frame that was played; empty between pieces, kept for its memory.
    pub(super) played: Vec<f32>,
    pub(super) timing: ResponseTiming,
    /// Start of the voice whose turn begins with the current input.
    voice_began: Option<Instant>,
    /// While the playback is paused: time from the beginning of the voice to the pause.
    pause_latency: Option<Duration>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) summary: Arc<CallSummary>,
    /// Results of one piece of input; empty between pieces, kept for its memory.
    inputs: Vec<SessionInput>,
    /// Format of the caller's audio.
    input_format: AudioFormat,
    /// Messages that wait for room in the transport's queue.
    pub(super) outbound: VecDeque<OutboundMessage>,
    /// Commands that wait to be submitted. No input is taken while any wait, so they come from one input and at most
    /// one report of the playout clock.
    pub(super) commands: VecDeque<Command>,
    /// Reason of the call's end, once all waiting messages are sent.
    pub(super) closing: Option<CallEnd>,
}

impl CallTask {
    /// Creates a call; returns it with its first effects.
    pub(super) fn new(setup: SessionSetup, services: CallServices) -> (Self, Vec<Effect>) {
        let CallServices {
            limits,
            budget,
            metrics,
            summary,
            judge,
            long_work,
            headroom,
            trace,
            cancels_echo,
            barge_in,
        } = services;
        let (model_rate, output_rate) = (setup.model.input_rate, setup.model.output_rate);
        let turn_model = judge.as_ref().map(TurnModelPool::kind);
        let sound = InputSound::new(setup.model.input_rate, cancels_echo);
        let input_pipeline = InputPipeline::new(sound, turn_model, limits.longest_turn).with_barge_in(barge_in);
        let timing = ResponseTiming::new(metrics.clone(), trace, output_rate);
        let echo_guard = EchoGuard::new(output_rate);
        let packet_decoder = PacketDecoder::new(setup.model.input_rate);
        let (core, effects) = RealtimeSession::new(setup);
        let call = Self {
            core,
            input_pipeline,
            budget,
            judge,
            judging: None,
            parsing: None,
            long_work,
            headroom,
            model_rate,
            output_rate,
            packet_decoder,
            echo_guard,
            cancelling: None,
            echo_finding: EchoFinding::default(),
            played: Vec::new(),
            timing,
            voice_began: None,
            pause_latency: None,
            metrics,
            summary,
            inputs: Vec::new(),
            input_format: AudioFormat::default(),
            outbound: VecDeque::new(),
            commands: VecDeque::new(),
            closing: None,
        };
        (call, effects)
    }

    pub(super) fn on_event<T: Transport>(&mut self, event: TransportEvent, transport: &mut T) {
        match event {
            TransportEvent::Event(text) => match large_events::parse(text, self.audio_form(), &self.long_work) {
                Ok(message) => self.on_message(message, transport),
                Err(pending) => self.parsing = Some(pending),
            },
            TransportEvent::Invalid(error) => self.input(SessionInput::Refused(error), transport),
            TransportEvent::Unreadable(error, end) => {
                self.input(SessionInput::Refused(error), transport);
                self.closing.get_or_insert(end);
            }
            TransportEvent::OpusPacket(packet) => match self.packet_decoder.decode(self.input_format, &packet) {
                Ok((samples, rate)) => self.push_audio(samples, rate, transport),
                Err(error) => self.input(SessionInput::Refused(error), transport),
            },
            TransportEvent::Audio { samples, rate } => self.push_audio(samples, rate, transport),
            TransportEvent::Playout(report) => self.input(SessionInput::Playout(report), transport),
            TransportEvent::FirstAudible { response, due, encoded, sent } => {
                let stages = [(TtfpStage::Playout, due), (TtfpStage::Opus, encoded), (TtfpStage::Wire, sent)];
                let waited = self.timing.audible(response, stages);
                waited.into_iter().for_each(|wait| self.summary.add_wait(wait));
            }
            TransportEvent::Key { key } => {
                // Before 1970 a clock is wrong anyway.
                let received_at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
                self.input(SessionInput::Key { key, received_at }, transport);
            }
            TransportEvent::Underrun => self.metrics.underruns.inc(),
            // Handled by the caller.
            TransportEvent::Closed | TransportEvent::Broken(_) => {}
        }
    }

    /// Handles a parsed message.
    pub(super) fn on_message<T: Transport>(&mut self, message: ParsedMessage, transport: &mut T) {
        let message = match message {
            ParsedMessage::Event(message) => *message,
            ParsedMessage::EventWithAudio(message, audio) => {
                if let Err(error) = self.budget.check_event(&message.event, now()) {
                    let error = error.with_event_id(message.event_id);
                    return self.input(SessionInput::Refused(error), transport);
                }
                self.input(SessionInput::ItemAudio(audio), transport);
                *message
            }
            ParsedMessage::Audio { samples, rate } => return self.push_audio(samples, rate, transport),
            ParsedMessage::Encoded(audio) => return self.push_encoded(audio, transport),
            ParsedMessage::Refused(error) => return self.input(SessionInput::Refused(*error), transport),
        };
        if let Err(error) = self.budget.check_event(&message.event, now()) {
            return self.input(SessionInput::Refused(error.with_event_id(message.event_id)), transport);
        }
        match message.event {
            ClientEvent::InputAppend(append) => match self.decode_opus(&append.audio) {
                Ok((samples, rate)) => self.push_audio(samples, rate, transport),
                Err(error) => self.input(SessionInput::Refused(error.with_event_id(message.event_id)), transport),
            },
            ClientEvent::InputCommit | ClientEvent::InputClear => {
                // Samples still inside the resamplers belong to this turn.
                match self.input_pipeline.flush() {
                    Ok(inputs) => self.inputs(inputs, transport),
                    Err(error) => self.fail(&error.into()),
                }
                self.budget.set_waiting(self.input_pipeline.waiting());
                self.input(SessionInput::Client(message), transport);
            }
            _ => self.input(SessionInput::Client(message), transport),
        }
    }

    fn decode_opus(&mut self, audio: &str) -> Result<(Vec<f32>, u32), ErrorBody> {
        self.packet_decoder.decode(AudioFormat::Opus, &audio::bytes(audio)?)
    }

    /// Takes sound from the budget of the call's key; false if it is to be dropped.
    fn take_sound<T: Transport>(&mut self, sound: Duration, transport: &mut T) -> bool {
        let waiting = self.input_pipeline.waiting() + sound;
        let taken = self.budget.take_sound(sound, waiting, now());
        let fits = taken.is_ok();
        if let Err(Some(error)) = taken {
            self.input(SessionInput::Refused(error), transport);
        }
        fits
    }

    fn push_audio<T: Transport>(&mut self, samples: Vec<f32>, rate: u32, transport: &mut T) {
        let sound = Duration::from_secs_f64(samples.len() as f64 / f64::from(rate.max(1)));
        if !self.take_sound(sound, transport) {
            return;
        }
        self.note_input(sound);
        self.set_playback();
        match self.input_pipeline.push(samples, rate) {
            Ok(inputs) => self.inputs(inputs, transport),
            Err(error) => self.fail(&error.into()),
        }
    }

    /// Queues audio that came at once; it is decoded piece by piece.
    fn push_encoded<T: Transport>(&mut self, audio: EncodedAudio, transport: &mut T) {
        if !self.take_sound(audio.duration(), transport) {
            return;
        }
        self.note_input(audio.duration());
        match self.input_pipeline.push_encoded(audio) {
            Ok(inputs) => self.inputs(inputs, transport),
            Err(error) => self.fail(&error.into()),
        }
    }

    /// Form of the caller's audio in events, and of the audio that the model takes.
    fn audio_form(&self) -> AudioForm {
        AudioForm { format: self.input_format, model_rate: self.model_rate }
    }

    /// Passes the echo level of our playback to the turn detector, and whether the playback can be paused or plays at the client.
    fn set_playback(&mut self) {
        let now = now();
        let level = self.echo_guard.echo_level(now);
        let level = level.or(self.core.is_responding().then_some(EchoLevel::NONE));
        self.input_pipeline.set_playback(level, self.core.is_pausable(), self.core.is_unpausable(now));
    }

    /// Processes one piece of the input.
    pub(super) fn process_input<T: Transport>(&mut self, transport: &mut T) {
        self.input_pipeline.load();
        match self.next_piece(transport) {
            Ok(sound) => {
                self.set_playback();
                let mut inputs = std::mem::take(&mut self.inputs);
                self.input_pipeline.detect(sound, &mut inputs);
                self.inputs(inputs.drain(..), transport);
                self.inputs = inputs;
            }
            Err(error) => self.fail(&error),
        }
        self.budget.set_waiting(self.input_pipeline.waiting());
        self.timing.endpointing(self.input_pipeline.endpointing(), now());
        self.ask(transport);
    }

    /// Sends the next question to the turn-detection model, unless one of this call is open.
    fn ask<T: Transport>(&mut self, transport: &mut T) {
        let (Some(judge), None) = (&self.judge, &self.judging) else { return };
        let Some(question) = self.input_pipeline.question() else { return };
        match judge.judge(question.turn) {
            Some(answer) => self.judging = Some((question.id, answer)),
            None => self.apply_prediction(question.id, None, "busy", transport),
        }
    }

    /// Handles the model's answer.
    pub(super) fn judged<T: Transport>(&mut self, answer: Option<f32>, transport: &mut T) {
        if let Some((id, _)) = self.judging.take() {
            let outcome = if answer.is_some() { "continued" } else { "failed" };
            self.apply_prediction(id, answer, outcome, transport);
            // Asks about a pause that began in the meantime.
            self.ask(transport);
        }
    }

    fn apply_prediction<T: Transport>(&mut self, id: u64, answer: Option<f32>, outcome: &str, transport: &mut T) {
        let boundary = self.input_pipeline.judged(id, answer);
        let is_end = |input: &SessionInput| matches!(input, SessionInput::Turn(TurnEvent::SpeechStopped { .. }));
        let ended = boundary.iter().any(is_end);
        let outcome = if ended { "ended" } else { outcome };
        self.metrics.turn_judgements.with_label_values(&[outcome]).inc();
        self.inputs(boundary, transport);
        self.timing.endpointing(self.input_pipeline.endpointing(), now());
    }

    fn inputs<T: Transport>(&mut self, inputs: impl IntoIterator<Item = SessionInput>, transport: &mut T) {
        for input in inputs {
            self.input(input, transport);
        }
    }

    pub(super) fn input<T: Transport>(&mut self, input: SessionInput, transport: &mut T) {
        if self.closing.is_some() {
            return;
        }
        if matches!(input, SessionInput::Turn(TurnEvent::Paused { .. })) && self.headroom.sheds_speculation() {
            return;
        }
        let now = now();
        if let Some((response, heard)) = transport.heard() {
            let heard_ms = u64::try_from(heard.as_millis()).unwrap_or(u64::MAX);
            let report = SessionInput::Playout(PlayoutReport::Position { response, heard_ms });
            let effects = self.core.handle(report, now);
            self.apply(effects, transport);
        }
        if matches!(input, SessionInput::Turn(TurnEvent::SpeechStarted { .. } | TurnEvent::PossibleBargeIn { .. })) {
            self.voice_began = now.checked_sub(self.input_pipeline.onset());
        }
        let effects = self.core.handle(input, now);
        self.apply(effects, transport);
        self.voice_began = None;
    }

    pub(super) fn apply<T: Transport>(&mut self, effects: Vec<Effect>, transport: &mut T) {
        for effect in effects {
            match effect {
                Effect::Send(mut message) => {
                    if let ServerEvent::RateLimitsUpdated(limits) = &mut message.event {
                        limits.rate_limits = self.budget.rate_limits(now());
                    }
                    self.send(&message);
                }
                Effect::Engine(command) => self.command(command),
                Effect::Configure(settings) => {
                    self.input_format = settings.input;
                    self.input_pipeline.configure(settings.turns);
                    self.input_pipeline.reduce_noise(settings.noise_reduction);
                    self.resume(transport);
                }
                Effect::ResetTurnDetector => {
                    self.input_pipeline.end_turn();
                    self.resume(transport);
                }
                Effect::PausePlayout => {
                    if transport.pause_audio() {
                        self.echo_guard.pause(now());
                        self.pause_latency = self.voice_began.map(|began| now().saturating_duration_since(began));
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
                    self.note_answer::<T>(&samples, now);
                    self.budget.count_answer_sound(self.timing.generated(response, samples.len(), now));
                    let encoded = transport.push_audio(response, &samples);
                    self.send_audio(event_id, part, encoded, transport);
                    if T::DELIVERY == Delivery::Unpaced && is_audible(&samples) {
                        let waited = self.timing.audible(response, [(TtfpStage::Wire, now)]);
                        waited.into_iter().for_each(|wait| self.summary.add_wait(wait));
                    }
                }
                Effect::AudioEnd { event_id, response, part } => {
                    self.timing.complete(response);
                    let encoded = transport.end_audio(response);
                    self.send_audio(event_id, part, encoded, transport);
                }
                Effect::ClearPlayout => {
                    // A websocket's client drops its audio by itself, at a time unknown here: only paced transports are
                    // measured.
                    if let Some(began) = self.voice_began.filter(|_| T::DELIVERY == Delivery::Paced)
                        && transport.heard().is_some()
                    {
                        let now_silent = || now().saturating_duration_since(began);
                        self.metrics
                            .barge_in
                            .observe(self.pause_latency.take().unwrap_or_else(now_silent).as_secs_f64());
                    }
                    self.pause_latency = None;
                    self.clear_playback();
                    transport.clear_audio();
                }
                // The echo guard keeps its levels: other responses play on.
                Effect::ClearResponse(response) => {
                    self.resume(transport);
                    transport.clear_response(response);
                }
                Effect::CountResponse(status) => {
                    self.summary.count_response(status);
                    self.metrics.responses.with_label_values(&[status.as_str()]).inc();
                }
                Effect::CountUsage(usage) => self.budget.count_usage(&usage),
                Effect::CountSpeculation { committed } => {
                    let outcome = if committed { "committed" } else { "aborted" };
                    self.metrics.speculations.with_label_values(&[outcome]).inc();
                }
                Effect::Unsupported(what) => {
                    tracing::info!(what, "the client asked for something that is not supported")
                }
                Effect::CountError(code) => {
                    self.summary.count_error();
                    self.metrics.errors.with_label_values(&[&code]).inc();
                }
                Effect::Close => self.close(),
            }
        }
    }

    /// Resumes a paused playback.
    fn resume<T: Transport>(&mut self, transport: &mut T) {
        transport.resume_audio();
        self.echo_guard.resume(now());
        self.pause_latency = None;
    }

    fn command(&mut self, command: Command) {
        self.budget.count_command(&command, self.model_rate, now());
        self.metrics.held_answers.count(&command);
        // Only the newest position counts.
        if let (Command::Played { response, .. }, Some(Command::Played { response: before, .. })) =
            (&command, self.commands.back())
            && response == before
        {
            self.commands.pop_back();
        }
        self.commands.push_back(command);
    }

    /// Sends audio that the transport has encoded.
    fn send_audio<T: Transport>(
        &mut self,
        event_id: String,
        part: PartRef,
        encoded: Result<Vec<u8>, TransportError>,
        transport: &mut T,
    ) {
        match encoded {
            Ok(bytes) if !bytes.is_empty() => {
                let event = ServerEvent::AudioDelta(ContentDelta { part_ref: part, delta: STANDARD.encode(bytes) });
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
                tracing::error!(event = message.event.kind(), %error, "an event could not be serialised");
                self.close();
            }
        }
    }

    /// Ends a call after a time limit, with an error event to the caller.
    pub(super) fn end<T: Transport>(&mut self, ended: CallEnd, transport: &mut T) {
        let (kind, message) = match ended {
            CallEnd::Idle => (ErrorKind::SessionIdle, "The session was idle for longer than this server allows."),
            _ => (ErrorKind::SessionExpired, "Your session hit the maximum duration of this server."),
        };
        self.input(SessionInput::Refused(ErrorBody::invalid(kind, message)), transport);
        self.closing.get_or_insert(ended);
    }

    /// Ends the call after an internal error.
    pub(super) fn fail(&mut self, error: &TransportError) {
        tracing::error!(%error, "the call's audio could not be processed");
        self.metrics.errors.with_label_values(&[ErrorKind::Internal.code()]).inc();
        self.close();
    }

    fn close(&mut self) {
        self.closing.get_or_insert(CallEnd::Failed);
    }
}

/// Current time of the runtime's clock, which a test may stop.
pub(super) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

#[cfg(test)]
#[path = "allocation_tests.rs"]
mod allocation_tests;
#[cfg(test)]
#[path = "judge_tests.rs"]
mod judge_tests;
