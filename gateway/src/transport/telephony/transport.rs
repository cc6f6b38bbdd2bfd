//! The [`Transport`] of a telephone call: mu-law in and out, at the pace of the playout clock.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::ws::Message;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::{Sink, Stream, StreamExt as _};
use repartee_engine_api::ResponseId;
use repartee_media::level::is_audible;
use repartee_media::opus::FRAME;
use repartee_media::pcm;
use repartee_media::playout::{Playout, PlayoutFrame, PlayoutOutput, PushError};
use repartee_media::resample::Resampler;
use repartee_protocol::session::AudioFormat;
use repartee_protocol::{ErrorBody, ErrorKind};
use repartee_realtime::{Delivery, PlayoutReport};
use tokio::sync::mpsc;
use tokio::time::sleep_until;

use super::marks::SentMarks;
use super::messages::{Mark, Payload, ProviderMessage, RATE, StreamMessage, StreamStart};
use super::stream::{AudibleReport, QueuedMessage, now, write};
use crate::call::{CallEnd, OutboundMessage, Transport, TransportError, TransportEvent};
use crate::metrics::{DropCause, Metrics};
use crate::recording::call_recorder::CallRecorder;
use crate::transport::announced::AnnouncedRecording;
use crate::transport::ping_limit::PingLimit;
use crate::transport::sideband::{CommandReceiver, Sidebands, sidebands};
use crate::transport::websocket::{FrameFault, fault, is_overflow};

/// Name of the transport in metrics, logs and traces.
pub const NAME: &str = "telephone";
/// Events that may wait for the sidebands.
const EVENT_QUEUE: usize = 32;
/// Messages that may wait for the socket; more means a stalled socket, and late sound is useless.
const SOUND_QUEUE: usize = 32;
/// Reports of first audible sounds that may wait: one for each response that begins.
const REPORTS: usize = 4;
/// A provider that sends nothing for this long is gone: it sends sound all the time.
const SILENT_AFTER: Duration = Duration::from_secs(30);
/// Unreadable messages after which the call ends.
const MAX_UNREADABLE: u32 = 16;

/// Transport of a telephone call whose messages come from `R`.
#[derive(Debug)]
pub struct TelephonyTransport<R> {
    incoming: R,
    outbound: mpsc::Sender<OutboundMessage>,
    sound: mpsc::Sender<QueuedMessage>,
    sidebands: Sidebands,
    commands: CommandReceiver,
    metrics: Arc<Metrics>,
    output_rate: u32,
    playout: Playout,
    /// Resampler to the telephone's rate, with the response whose audio it holds.
    resampler: Option<(ResponseId, Resampler)>,
    marks: SentMarks,
    /// Response and position of the last sent sound.
    sent: Option<(ResponseId, Duration)>,
    /// The newest response with audible sound.
    audible: Option<ResponseId>,
    reports: (mpsc::Sender<TransportEvent>, mpsc::Receiver<TransportEvent>),
    underruns: u64,
    /// Events that [`Transport::next`] returns first.
    ready: VecDeque<TransportEvent>,
    /// Time of the provider's last message.
    last_message: Instant,
    /// Time of the caller's last sound or key, or of a sideband's last event.
    last_input: Option<Instant>,
    pings: PingLimit,
    unreadable: u32,
    recording: AnnouncedRecording,
}

impl<R> TelephonyTransport<R> {
    /// Creates the transport over the two halves of a socket whose call has begun, for a model with this output rate;
    /// also returns the writing task: spawn it. It ends with the call, or once the socket takes nothing for
    /// `stalled_after`.
    pub fn new<S>(
        (incoming, sink): (R, S),
        start: StreamStart,
        output_rate: u32,
        stalled_after: Duration,
        metrics: Arc<Metrics>,
    ) -> (Self, impl Future<Output = ()> + Send)
    where
        S: Sink<Message, Error = axum::Error> + Unpin + Send,
    {
        let (outbound, events) = mpsc::channel(EVENT_QUEUE);
        let (sound, messages) = mpsc::channel(SOUND_QUEUE);
        let (sidebands, publisher, commands) = sidebands();
        let writer = write(sink, start.stream_sid, messages, events, publisher, stalled_after);
        let transport = Self {
            incoming,
            outbound,
            sound,
            sidebands,
            commands,
            metrics,
            output_rate,
            playout: Playout::new(RATE),
            resampler: None,
            marks: SentMarks::default(),
            sent: None,
            audible: None,
            reports: mpsc::channel(REPORTS),
            underruns: 0,
            ready: VecDeque::new(),
            last_message: now(),
            last_input: None,
            pings: PingLimit::new(tokio::time::Instant::now()),
            unreadable: 0,
            recording: AnnouncedRecording::default(),
        };
        (transport, writer)
    }

    /// Returns the handle that attaches sideband clients to the call.
    pub fn sidebands(&self) -> Sidebands {
        self.sidebands.clone()
    }

    /// Records the call, after a tone, which the provider plays before anything else.
    pub fn record(&mut self, recorder: CallRecorder) {
        self.recording = AnnouncedRecording::new(recorder, RATE);
        let mut at = now();
        while let Some(frame) = self.recording.announce(at) {
            at += FRAME;
            let payload = STANDARD.encode(pcm::encode_mulaw(&frame));
            self.queue(StreamMessage::Media { media: Payload { payload } }, None);
        }
    }

    /// Adds a client event before those of the sidebands.
    pub fn push_event(&mut self, event: String) {
        self.ready.push_back(TransportEvent::Event(event));
    }

    fn queue(&self, message: StreamMessage, report: Option<AudibleReport>) {
        let is_sound = matches!(message, StreamMessage::Media { .. });
        if self.sound.try_send(QueuedMessage { message, report }).is_err() && is_sound {
            self.metrics.network.dropped_audio(DropCause::Stalled, 1);
        }
    }

    /// Sends the sound that is due at `now`.
    fn play(&mut self, now: Instant) {
        while let Some(output) = self.playout.poll(now) {
            match output {
                PlayoutOutput::Frame(frame) => self.send(&frame, now),
                PlayoutOutput::Drained { generation: response } => {
                    let sent = self.sent.filter(|(of, _)| *of == response).map_or(Duration::ZERO, |(_, sent)| sent);
                    self.mark(response, sent, true);
                    self.ready.push_back(TransportEvent::Playout(PlayoutReport::Drained { response }));
                }
            }
        }
        if self.playout.underruns() > self.underruns {
            self.underruns = self.playout.underruns();
            self.ready.push_back(TransportEvent::Underrun);
        }
    }

    fn send(&mut self, frame: &PlayoutFrame, now: Instant) {
        self.metrics.requests.headroom.frames.inc();
        if now.saturating_duration_since(frame.due) >= FRAME {
            self.metrics.requests.headroom.late_frames.inc();
        }
        let response = frame.generation;
        if frame.first {
            self.ready.push_back(TransportEvent::Playout(PlayoutReport::Started { response }));
        }
        self.recording.sent(now, &frame.samples, RATE);
        let payload = STANDARD.encode(pcm::encode_mulaw(&frame.samples));
        let audible = self.audible < Some(response) && is_audible(&frame.samples);
        let report = audible.then(|| AudibleReport {
            response,
            due: now,
            encoded: super::stream::now(),
            reports: self.reports.0.clone(),
        });
        if audible {
            self.audible = Some(response);
        }
        self.queue(StreamMessage::Media { media: Payload { payload } }, report);
        let sent = self.playout.current().map_or(Duration::ZERO, |(_, _, sent)| sent);
        self.sent = Some((response, sent));
        self.mark(response, sent, false);
    }

    fn mark(&mut self, response: ResponseId, sent: Duration, last: bool) {
        if let Some(mark) = self.marks.after(response, sent, last) {
            self.queue(StreamMessage::Mark { mark }, None);
        }
    }

    /// Drops the sound that waits at the provider.
    fn clear_provider(&mut self) {
        self.marks.clear();
        self.queue(StreamMessage::Clear, None);
    }

    fn push(&mut self, response: ResponseId, samples: &[f32]) -> Result<(), TransportError> {
        match self.playout.push(response, response, samples) {
            // The response was cleared in the meantime.
            Ok(()) | Err(PushError::Stale) => Ok(()),
            Err(error @ PushError::Full) => Err(error.into()),
        }
    }

    /// Converts a message of the provider to an event; `None` if the call has nothing to do.
    fn read(&mut self, message: Option<Result<Message, axum::Error>>) -> Option<TransportEvent> {
        self.last_message = now();
        let text = match message {
            Some(Ok(Message::Text(text))) => text,
            Some(Ok(Message::Ping(_) | Message::Pong(_))) if self.pings.admit(tokio::time::Instant::now()) => {
                return None;
            }
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => {
                tracing::info!("the provider sent too many pings");
                return Some(TransportEvent::Closed);
            }
            Some(Ok(Message::Binary(_))) => return self.unreadable("it is binary"),
            Some(Err(error)) if is_overflow(&error) => {
                let message = format!("a message of a media stream holds at most {} bytes", super::stream::MAX_MESSAGE);
                return Some(TransportEvent::Unreadable(
                    ErrorBody::invalid(ErrorKind::TooLarge, message),
                    CallEnd::Overflow,
                ));
            }
            Some(Err(error)) => {
                return Some(match fault(&error) {
                    Some(FrameFault::Protocol) => TransportEvent::Broken(CallEnd::BadFrame),
                    Some(FrameFault::Text) => TransportEvent::Broken(CallEnd::BadText),
                    None => TransportEvent::Closed,
                });
            }
            Some(Ok(Message::Close(_))) | None => return Some(TransportEvent::Closed),
        };
        match serde_json::from_str(&text) {
            Ok(ProviderMessage::Media { media }) if media.track == "outbound" => None,
            Ok(ProviderMessage::Media { media }) => match STANDARD.decode(&media.payload) {
                Ok(bytes) => {
                    self.last_input = Some(self.last_message);
                    Some(TransportEvent::Audio { samples: pcm::decode_mulaw(&bytes), rate: RATE })
                }
                Err(_) => self.unreadable("its payload is not base64"),
            },
            Ok(ProviderMessage::Dtmf { dtmf }) => {
                self.last_input = Some(self.last_message);
                let key = dtmf.digit.to_ascii_uppercase();
                if !matches!(key, '0'..='9' | '*' | '#' | 'A'..='D') {
                    return self.unreadable("a telephone has no such key");
                }
                Some(TransportEvent::Key { key })
            }
            Ok(ProviderMessage::Mark { mark: Mark { name } }) => {
                self.marks.came_back(&name, self.last_message);
                None
            }
            Ok(ProviderMessage::Stop) => Some(TransportEvent::Closed),
            // A second `start` cannot change the call.
            Ok(ProviderMessage::Connected | ProviderMessage::Start { .. } | ProviderMessage::Unknown) => None,
            Err(error) => self.unreadable(&error.to_string()),
        }
    }

    /// Reports a message that cannot be read; the sidebands see it. Too many end the call.
    fn unreadable(&mut self, problem: &str) -> Option<TransportEvent> {
        self.unreadable += 1;
        if self.unreadable > MAX_UNREADABLE {
            tracing::info!("the provider sent too many unreadable messages");
            return Some(TransportEvent::Closed);
        }
        let message = format!("a message of the media stream cannot be read: {problem}");
        Some(TransportEvent::Invalid(ErrorBody::invalid(ErrorKind::InvalidValue, message)))
    }
}

impl<R: Stream<Item = Result<Message, axum::Error>> + Unpin + Send> Transport for TelephonyTransport<R> {
    const DELIVERY: Delivery = Delivery::Paced;
    const NAME: &'static str = NAME;

    async fn next(&mut self, accept_input: bool) -> TransportEvent {
        loop {
            self.play(now());
            // Until input is accepted only the playout clock runs.
            let withheld = |event: &TransportEvent| !accept_input && matches!(event, TransportEvent::Event(_));
            if let Some(place) = self.ready.iter().position(|event| !withheld(event))
                && let Some(event) = self.ready.remove(place)
            {
                return event;
            }
            let clock = async {
                match self.playout.next_deadline() {
                    Some(due) => sleep_until(due.into()).await,
                    None => std::future::pending().await,
                }
            };
            let message = tokio::select! {
                message = self.incoming.next(), if accept_input => message,
                command = self.commands.next(), if accept_input => {
                    self.last_input = Some(now());
                    return TransportEvent::Event(command);
                }
                Some(report) = self.reports.1.recv() => return report,
                () = clock => continue,
                () = sleep_until((self.last_message + SILENT_AFTER).into()), if accept_input => {
                    tracing::info!(silent_after = ?SILENT_AFTER, "the provider sends nothing");
                    return TransportEvent::Closed;
                }
            };
            if let Some(event) = self.read(message) {
                self.recording.heard(self.last_message, &event);
                return event;
            }
        }
    }

    fn last_input(&self) -> Option<Instant> {
        self.last_input
    }

    fn outbound(&self) -> mpsc::Sender<OutboundMessage> {
        self.outbound.clone()
    }

    fn begin_audio(&mut self, _: ResponseId, _: AudioFormat) -> Result<(), TransportError> {
        // The format applies to events only: a telephone gets mu-law.
        Ok(())
    }

    fn push_audio(&mut self, response: ResponseId, samples: &[f32]) -> Result<Vec<u8>, TransportError> {
        let mut resampler = match self.resampler.take() {
            Some((of, resampler)) if of == response => resampler,
            _ => Resampler::new(self.output_rate, RATE)?,
        };
        let pushed = self.push(response, resampler.convert(samples)?);
        self.resampler = Some((response, resampler));
        pushed.map(|()| Vec::new())
    }

    fn end_audio(&mut self, response: ResponseId) -> Result<Vec<u8>, TransportError> {
        if let Some((_, mut resampler)) = self.resampler.take_if(|(of, _)| *of == response) {
            let rest = resampler.flush()?;
            self.push(response, &rest)?;
        }
        self.playout.end(response);
        Ok(Vec::new())
    }

    fn pause_audio(&mut self) -> bool {
        self.playout.pause(now())
    }

    fn resume_audio(&mut self) {
        self.playout.resume();
    }

    fn clear_audio(&mut self) {
        self.playout.clear();
        self.resampler = None;
        self.clear_provider();
    }

    fn clear_response(&mut self, response: ResponseId) {
        let plays = self.playout.current().is_some_and(|(current, ..)| current == response);
        self.playout.clear_generation(response);
        self.resampler.take_if(|(of, _)| *of == response);
        if plays {
            self.clear_provider();
        }
    }

    fn has_capacity(&self) -> bool {
        !self.playout.is_full()
    }

    fn heard(&self) -> Option<(ResponseId, Duration)> {
        let (response, _, sent) = self.playout.current()?;
        Some((response, self.marks.heard(response, sent, now())))
    }
}

#[cfg(test)]
#[path = "transport_tests.rs"]
mod tests;
