//! Transport of a call over SIP, behind its session.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use repartee_engine_api::ResponseId;
use repartee_media::level::is_audible;
use repartee_media::opus::FRAME;
use repartee_media::playout::{Playout, PlayoutFrame, PlayoutOutput, PushError};
use repartee_media::resample::Resampler;
use repartee_protocol::session::AudioFormat;
use repartee_realtime::{Delivery, PlayoutReport};
use repartee_sip::CallMedia;
use rtc::rtp::Packet;
use rtc::shared::marshal::Unmarshal as _;
use tokio::sync::mpsc;
use tokio::time::sleep_until;

use super::codec::frame_rate;
use super::line::Line;
use super::protection::Protection;
use super::publish::publish;
use super::rtp_input::RtpInput;
use super::rtp_output::RtpOutput;
use super::sound_socket::{SoundPath, SoundSocket};
use crate::call::{OutboundMessage, PlayedFrames, Transport, TransportError, TransportEvent};
use crate::metrics::{DropCause, Metrics};
use crate::recording::call_recorder::CallRecorder;
use crate::telemetry::log;
use crate::transport::announced::AnnouncedRecording;
use crate::transport::sideband::{CommandReceiver, Sidebands, sidebands};

/// Name of the transport in metrics, logs and traces.
pub const NAME: &str = "sip";
/// Events that may wait for the sidebands.
const EVENT_QUEUE: usize = 32;
/// Largest packet of sound that is read, in bytes.
const MAX_PACKET: usize = 2_048;
/// Another side that sends nothing for this long, and does not hold the call, is gone.
const SILENT_AFTER: Duration = Duration::from_secs(30);
/// Assumed delay between our clock and the person's ear: nobody reports it.
const ASSUMED_DELAY: Duration = Duration::from_millis(150);

/// Transport of a telephone call over SIP.
#[derive(Debug)]
pub struct SipTransport {
    socket: SoundSocket,
    path: SoundPath,
    line: Line,
    media: CallMedia,
    /// SRTP; `None` for plain RTP.
    protection: Option<Protection>,
    input: RtpInput,
    output: RtpOutput,
    outbound: mpsc::Sender<OutboundMessage>,
    sidebands: Sidebands,
    commands: CommandReceiver,
    metrics: Arc<Metrics>,
    output_rate: u32,
    /// Rate of the frames, in Hz.
    rate: u32,
    playout: Playout,
    played: PlayedFrames,
    /// Resampler to the frames' rate, with the response whose audio it holds.
    resampler: Option<(ResponseId, Resampler)>,
    /// The newest response with audible sound.
    audible: Option<ResponseId>,
    underruns: u64,
    /// Events that [`Transport::next`] returns first.
    ready: VecDeque<TransportEvent>,
    /// Time of the other side's last packet, or of the end of hold.
    last_packet: Instant,
    /// Time of the other side's last sound or key, or of a sideband's last event.
    last_input: Option<Instant>,
    buffer: Vec<u8>,
    recording: AnnouncedRecording,
}

impl SipTransport {
    /// Creates the transport over a socket, for a model with these input and output rates. `signalling` is the address of
    /// the other side's agent. Must be called within a runtime.
    ///
    /// # Errors
    ///
    /// A codec or a resampler failed.
    pub fn new(
        socket: SoundSocket,
        line: Line,
        signalling: IpAddr,
        (input_rate, output_rate): (u32, u32),
        random: u64,
        metrics: Arc<Metrics>,
    ) -> Result<Self, TransportError> {
        let media = *line.media.borrow();
        let rate = frame_rate(media.codec, output_rate);
        let (outbound, events) = mpsc::channel(EVENT_QUEUE);
        let (sidebands, publisher, commands) = sidebands();
        let transport = Self {
            socket,
            path: SoundPath::new(signalling, media.remote),
            line,
            media,
            protection: media.keys.and_then(Protection::new),
            input: RtpInput::new(media, input_rate, metrics.clone())?,
            output: RtpOutput::new(media, rate, random, now())?,
            outbound,
            sidebands,
            commands,
            metrics,
            output_rate,
            rate,
            playout: Playout::new(rate),
            played: PlayedFrames::new(rate),
            resampler: None,
            audible: None,
            underruns: 0,
            ready: VecDeque::new(),
            last_packet: now(),
            last_input: None,
            buffer: vec![0; MAX_PACKET],
            recording: AnnouncedRecording::default(),
        };
        log::spawn(publish(events, publisher));
        Ok(transport)
    }

    /// Returns the handle that attaches sideband clients to the call.
    pub fn sidebands(&self) -> Sidebands {
        self.sidebands.clone()
    }

    /// Adds a client event, as if a sideband client had sent it.
    pub fn push_event(&mut self, event: String) {
        self.ready.push_back(TransportEvent::Event(event));
    }

    /// Records the call, after a tone.
    pub fn record(&mut self, recorder: CallRecorder) {
        self.recording = AnnouncedRecording::new(recorder, self.rate);
    }

    /// Sends the sound that is due at `now`, and silence where there is none.
    fn play(&mut self, now: Instant) {
        // On hold the answer waits, and so it does for the tone.
        while self.media.sends
            && !self.recording.is_announcing()
            && let Some(output) = self.playout.poll(now)
        {
            match output {
                PlayoutOutput::Frame(frame) => self.send_frame(&frame, now),
                PlayoutOutput::Drained { generation: response } => {
                    self.ready.push_back(TransportEvent::Playout(PlayoutReport::Drained { response }));
                }
            }
        }
        if self.playout.underruns() > self.underruns {
            self.underruns = self.playout.underruns();
            self.ready.push_back(TransportEvent::Underrun);
        }
        while self.silence_due().is_some_and(|due| due <= now) {
            let packet = match self.recording.announce(now) {
                Some(tone) => self.output.packet(&tone, now),
                None => self.output.silence(now),
            };
            self.send(packet);
        }
    }

    fn silence_due(&self) -> Option<Instant> {
        let plays = self.playout.current().is_some() && !self.recording.is_announcing();
        self.output.silence_due(plays)
    }

    fn send_frame(&mut self, frame: &PlayoutFrame, now: Instant) {
        self.metrics.requests.headroom.frames.inc();
        if now.saturating_duration_since(frame.due) >= FRAME {
            self.metrics.requests.headroom.late_frames.inc();
        }
        let response = frame.generation;
        if frame.first {
            self.ready.push_back(TransportEvent::Playout(PlayoutReport::Started { response }));
        }
        self.played.push(frame.due, &frame.samples);
        self.recording.sent(now, &frame.samples, self.rate);
        let packet = self.output.packet(&frame.samples, now);
        let encoded = self::now();
        self.send(packet);
        if self.audible < Some(response) && is_audible(&frame.samples) {
            self.audible = Some(response);
            let sent = self::now();
            self.ready.push_back(TransportEvent::FirstAudible { response, due: now, encoded, sent });
        }
    }

    fn send(&mut self, packet: Result<Bytes, TransportError>) {
        match packet {
            Ok(packet) => {
                let packet = match &mut self.protection {
                    Some(protection) => protection.encrypt(&packet),
                    // Keys that the library refuses: nothing goes out in plain.
                    None => Some(packet).filter(|_| self.media.keys.is_none()),
                };
                let Some(packet) = packet else { return };
                if self.socket.socket.try_send_to(&packet, self.path.target()).is_err() {
                    self.metrics.network.dropped_audio(DropCause::Stalled, 1);
                }
            }
            Err(error) => tracing::warn!(%error, "a frame could not be encoded"),
        }
    }

    fn push(&mut self, response: ResponseId, samples: &[f32]) -> Result<(), TransportError> {
        match self.playout.push(response, response, samples) {
            // The response was cleared in the meantime.
            Ok(()) | Err(PushError::Stale) => Ok(()),
            Err(error @ PushError::Full) => Err(error.into()),
        }
    }

    /// Takes a datagram of sound; returns the key that it reports.
    fn on_packet(&mut self, length: usize, from: std::net::SocketAddr) -> Option<TransportEvent> {
        if !self.path.admits(from) {
            return None;
        }
        let mut bytes = Bytes::copy_from_slice(self.buffer.get(..length)?);
        // RTCP has types from 192 on, which RTP has not.
        if bytes.get(1).is_some_and(|kind| (192..=223).contains(kind)) {
            return None;
        }
        match &mut self.protection {
            Some(protection) => bytes = protection.decrypt(&bytes)?,
            None if self.media.keys.is_some() => return None,
            None => {}
        }
        let packet = Packet::unmarshal(&mut bytes).ok()?;
        let known = [Some(self.media.payload_type), self.media.key_type];
        if packet.header.version != 2 || !known.contains(&Some(packet.header.payload_type)) {
            return None;
        }
        self.path.note(from);
        self.last_packet = now();
        self.last_input = Some(self.last_packet);
        self.input.push(packet, self.last_packet).map(|key| TransportEvent::Key { key })
    }

    /// Takes over a change of the sound. A failure of a codec ends the call.
    fn on_change(&mut self) -> Result<(), TransportError> {
        self.media = *self.line.media.borrow_and_update();
        self.last_packet = now();
        self.path.describe(self.media.remote);
        let is_same = |keys| self.protection.as_ref().is_some_and(|protection| protection.has(keys));
        if !self.media.keys.as_ref().is_some_and(is_same) {
            self.protection = self.media.keys.and_then(Protection::new);
        }
        self.input.change(self.media)?;
        self.output.change(self.media, now())
    }
}

impl Transport for SipTransport {
    const DELIVERY: Delivery = Delivery::Paced;
    const NAME: &'static str = NAME;

    async fn next(&mut self, accept_input: bool) -> TransportEvent {
        loop {
            let now = now();
            self.play(now);
            if accept_input {
                self.input.decode(now, &mut self.ready);
            }
            let withheld = |event: &TransportEvent| !accept_input && matches!(event, TransportEvent::Audio { .. });
            if let Some(place) = self.ready.iter().position(|event| !withheld(event))
                && let Some(event) = self.ready.remove(place)
            {
                self.recording.heard(now, &event);
                return event;
            }
            let playout = self.playout.next_deadline();
            let playout = playout.filter(|_| self.media.sends && !self.recording.is_announcing());
            let input = self.input.due().filter(|_| accept_input);
            let due = [playout, self.silence_due(), input].into_iter().flatten().min();
            let clock = async {
                match due {
                    Some(due) => sleep_until(due.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                received = self.socket.socket.recv_from(&mut self.buffer) => {
                    // An error is the network's news of an earlier packet.
                    if let Ok((length, from)) = received && let Some(event) = self.on_packet(length, from) {
                        return event;
                    }
                }
                changed = self.line.media.changed() => {
                    if changed.is_err() {
                        return TransportEvent::Closed;
                    }
                    if let Err(error) = self.on_change() {
                        tracing::error!(%error, "the changed sound of a telephone call cannot be served");
                        return TransportEvent::Closed;
                    }
                }
                Some(key) = self.line.keys.recv(), if accept_input => {
                    self.last_input = Some(self::now());
                    return TransportEvent::Key { key };
                }
                command = self.commands.next(), if accept_input => {
                    self.last_input = Some(self::now());
                    return TransportEvent::Event(command);
                }
                () = clock => {}
                () = sleep_until((self.last_packet + SILENT_AFTER).into()), if accept_input && self.media.receives => {
                    tracing::info!(silent_after = ?SILENT_AFTER, "the telephone sends nothing");
                    return TransportEvent::Closed;
                }
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
        // The format applies to events only: both sides agreed on the telephone's.
        Ok(())
    }

    fn push_audio(&mut self, response: ResponseId, samples: &[f32]) -> Result<Vec<u8>, TransportError> {
        let mut resampler = match self.resampler.take() {
            Some((of, resampler)) if of == response => resampler,
            _ => Resampler::new(self.output_rate, self.rate)?,
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

    fn played_frames(&mut self) -> Option<&mut PlayedFrames> {
        Some(&mut self.played)
    }

    fn clear_audio(&mut self) {
        self.playout.clear();
        self.resampler = None;
    }

    fn clear_response(&mut self, response: ResponseId) {
        self.playout.clear_generation(response);
        self.resampler.take_if(|(of, _)| *of == response);
    }

    fn has_capacity(&self) -> bool {
        !self.playout.is_full()
    }

    fn heard(&self) -> Option<(ResponseId, Duration)> {
        let (response, _, sent) = self.playout.current()?;
        // While nothing is sent, earlier packets still arrive.
        let waiting = ASSUMED_DELAY.saturating_sub(self.playout.quiet_for(now()));
        Some((response, sent.saturating_sub(waiting)))
    }
}

impl Drop for SipTransport {
    fn drop(&mut self) {
        self.input.count();
    }
}

/// Current time of the runtime's clock, which a test may stop.
fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}
