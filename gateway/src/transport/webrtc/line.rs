//! The call's end of a WebRTC connection: packets in through the jitter buffer, sound out at the pace of the playout
//! clock, events over the data channel. Nothing here waits for the network: two tasks of their own do.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use repartee_engine::session::ResponseId;
use tokio::sync::{mpsc, watch};
use tokio::time::{sleep_until, timeout};

use super::{Call, CallEvent, SendError};
use crate::call::{Heard, Line, LineError, Outgoing, is_audible};
use crate::media::jitter::{JitterBuffer, Play};
use crate::media::opus::{FRAME, OpusDecoder, OpusEncoder, OpusError, RATES};
use crate::media::playout::{Frame, Output, Playout, PushError};
use crate::media::resample::Resampler;
use crate::protocol::session::AudioFormat;
use crate::session::{Delivery, PlayoutReport};

/// Events that may wait for the data channel.
const EVENT_QUEUE: usize = 32;
/// Packets of 20 ms that may wait for the socket; more means that it is stuck, and late sound is worthless.
const PACKET_QUEUE: usize = 16;
/// Sound that the receiver holds back before it plays it: what was sent so recently was not heard yet.
const RECEIVER_BUFFER: Duration = Duration::from_millis(60);
/// Rate for voices that Opus cannot take as they are.
const FALLBACK_RATE: u32 = 48_000;

/// The call's end of a WebRTC connection.
#[derive(Debug)]
pub struct WebRtcLine {
    events: mpsc::Receiver<CallEvent>,
    outlet: mpsc::Sender<Outgoing>,
    packets: mpsc::Sender<Packet>,
    /// Whether the data channel is open.
    open: watch::Sender<bool>,
    /// A message that came while the call did not listen. No event is read behind it.
    held: Option<String>,
    /// What [`Line::next`] will return first.
    ready: VecDeque<Heard>,
    // The caller's voice.
    jitter: JitterBuffer,
    decoder: OpusDecoder,
    hearing_rate: u32,
    /// When the jitter buffer has something to say without a further packet.
    jitter_due: Option<Instant>,
    // Our voice.
    encoder: OpusEncoder,
    playout: Playout,
    model_rate: u32,
    speaking_rate: u32,
    /// Brings the model's sound to a rate of Opus; made when an answer begins to sound.
    filter: Option<Resampler>,
    /// Until when sound was sent; the receiver's clock has to be told of the gap after it.
    sent_until: Option<Instant>,
    /// The newest answer of which something audible was sent.
    audible: Option<ResponseId>,
    underruns: u64,
}

/// One packet of our voice.
#[derive(Debug)]
struct Packet {
    payload: Bytes,
    /// Silence before it.
    gap: Duration,
}

impl WebRtcLine {
    /// A line over `call` for a model that hears and speaks at these rates, in Hz. A data channel that takes nothing
    /// for `stalled_after` ends the call. Must be called within a runtime.
    pub fn new(mut call: Call, hears: u32, speaks: u32, stalled_after: Duration) -> Result<Self, OpusError> {
        let rate = |rate| if RATES.contains(&rate) { rate } else { FALLBACK_RATE };
        let (hearing_rate, speaking_rate) = (rate(hears), rate(speaks));
        let (encoder, decoder) = (OpusEncoder::new(speaking_rate)?, OpusDecoder::new(hearing_rate)?);
        let events = std::mem::replace(&mut call.events, mpsc::channel(1).1);
        let (outlet, queue) = mpsc::channel(EVENT_QUEUE);
        let (packets, voice) = mpsc::channel(PACKET_QUEUE);
        let (open, opened) = watch::channel(false);
        let call = Arc::new(call);
        // Both end when the line is gone, and the call with them.
        tokio::spawn(write(call.clone(), queue, opened, stalled_after));
        tokio::spawn(speak(call, voice));
        Ok(Self {
            events,
            outlet,
            packets,
            open,
            held: None,
            ready: VecDeque::new(),
            jitter: JitterBuffer::new(),
            decoder,
            hearing_rate,
            jitter_due: None,
            encoder,
            playout: Playout::new(speaking_rate),
            model_rate: speaks,
            speaking_rate,
            filter: None,
            sent_until: None,
            audible: None,
            underruns: 0,
        })
    }

    /// Plays what is due.
    fn play(&mut self, now: Instant) {
        while let Some(output) = self.playout.poll(now) {
            match output {
                Output::Frame(frame) => self.send(&frame, now),
                Output::Drained { generation: response } => {
                    self.ready.push_back(Heard::Playout(PlayoutReport::Drained { response }));
                }
            }
        }
        if self.playout.underruns() > self.underruns {
            self.underruns = self.playout.underruns();
            self.ready.push_back(Heard::Underrun);
        }
    }

    fn send(&mut self, frame: &Frame, now: Instant) {
        let response = frame.generation;
        if frame.first {
            self.ready.push_back(Heard::Playout(PlayoutReport::Started { response }));
        }
        match self.encoder.encode(&frame.samples) {
            // The receiver keeps quiet by itself.
            Ok(packet) if packet.silent => {}
            Ok(packet) => {
                let gap = self.sent_until.map_or(Duration::ZERO, |until| now.saturating_duration_since(until));
                // Frames follow each other with the jitter of a timer, which is no silence.
                let gap = if gap < FRAME { Duration::ZERO } else { gap };
                let until = self.sent_until.filter(|_| gap.is_zero()).unwrap_or(now);
                self.sent_until = Some(until + FRAME);
                if self.packets.try_send(Packet { payload: packet.payload, gap }).is_err() {
                    tracing::debug!("the socket is stuck: a packet of speech was dropped");
                }
            }
            Err(error) => tracing::error!(%error, "a frame of speech could not be encoded"),
        }
        if self.audible < Some(response) && is_audible(&frame.samples) {
            self.audible = Some(response);
            self.ready.push_back(Heard::Audible { response, at: now });
        }
    }

    /// Decodes what is due of the caller's voice.
    fn decode(&mut self, now: Instant) {
        loop {
            let decoded = match self.jitter.pop(now) {
                Play::Packet { payload, .. } => self.decoder.decode(&payload),
                Play::Fec { next, duration, .. } => self.decoder.decode_fec(&next, duration),
                Play::Conceal { duration, .. } => self.decoder.conceal(duration),
                Play::Silence { duration } => {
                    Ok(vec![0.0; (duration.as_secs_f64() * f64::from(self.hearing_rate)).round() as usize])
                }
                Play::Wait { until } => {
                    self.jitter_due = until;
                    return;
                }
            };
            match decoded {
                Ok(samples) => self.ready.push_back(Heard::Sound { samples, rate: self.hearing_rate }),
                // Whoever sends nonsense is not heard.
                Err(error) => tracing::debug!(%error, "a packet of the caller could not be decoded"),
            }
        }
    }

    /// Notes an event; returns what the call has to know.
    fn take(&mut self, event: Option<CallEvent>) -> Option<Heard> {
        match event {
            Some(CallEvent::Connected) => None,
            Some(CallEvent::ChannelOpen) => {
                self.open.send_replace(true);
                None
            }
            Some(CallEvent::Audio { sequence, timestamp, payload, arrival, .. }) => {
                self.jitter.push(sequence, timestamp, payload, arrival);
                None
            }
            Some(CallEvent::Message(text)) => {
                self.held = Some(text);
                None
            }
            Some(CallEvent::Closed) | None => Some(Heard::Closed),
        }
    }

    fn push(&mut self, response: ResponseId, samples: &[f32]) -> Result<(), LineError> {
        match self.playout.push(response, response, samples) {
            // Cleared in the meantime: not wanted any more.
            Ok(()) | Err(PushError::Stale) => Ok(()),
            Err(error @ PushError::Full) => Err(error.into()),
        }
    }
}

impl Line for WebRtcLine {
    const DELIVERY: Delivery = Delivery::Paced;

    async fn next(&mut self, listen: bool) -> Heard {
        loop {
            let now = Instant::now();
            self.play(now);
            if listen {
                self.decode(now);
            }
            let deaf = |heard: &Heard| !listen && matches!(heard, Heard::Sound { .. });
            if self.ready.front().is_some_and(|heard| !deaf(heard))
                && let Some(heard) = self.ready.pop_front()
            {
                return heard;
            }
            if listen && let Some(text) = self.held.take() {
                return Heard::Event(text);
            }
            let due = [self.playout.next_deadline(), self.jitter_due.filter(|_| listen)].into_iter().flatten().min();
            let clock = async {
                match due {
                    Some(due) => sleep_until(due.into()).await,
                    None => std::future::pending().await,
                }
            };
            let event = tokio::select! {
                event = self.events.recv(), if self.held.is_none() => event,
                () = clock => continue,
            };
            if let Some(heard) = self.take(event) {
                return heard;
            }
        }
    }

    fn outlet(&self) -> mpsc::Sender<Outgoing> {
        self.outlet.clone()
    }

    fn begin(&mut self, _: ResponseId, _: AudioFormat) -> Result<(), LineError> {
        // Formats are a matter of websockets: here it is Opus.
        Ok(())
    }

    fn speak(&mut self, response: ResponseId, samples: &[f32]) -> Result<Vec<u8>, LineError> {
        let filter = match &mut self.filter {
            Some(filter) => filter,
            None => self.filter.insert(Resampler::new(self.model_rate, self.speaking_rate)?),
        };
        let samples = filter.push(samples)?;
        self.push(response, &samples)?;
        Ok(Vec::new())
    }

    fn speech_end(&mut self, response: ResponseId) -> Result<Vec<u8>, LineError> {
        if let Some(mut filter) = self.filter.take() {
            let rest = filter.flush()?;
            self.push(response, &rest)?;
        }
        self.playout.end(response);
        Ok(Vec::new())
    }

    fn clear(&mut self) {
        self.playout.clear();
        self.filter = None;
    }

    fn has_room(&self) -> bool {
        !self.playout.is_full()
    }

    fn heard(&self) -> Option<(ResponseId, Duration)> {
        self.playout.current().map(|(response, _, sent)| (response, sent.saturating_sub(RECEIVER_BUFFER)))
    }
}

/// Sends events, once the data channel is open.
async fn write(
    call: Arc<Call>,
    mut queue: mpsc::Receiver<Outgoing>,
    mut opened: watch::Receiver<bool>,
    stalled_after: Duration,
) {
    if opened.wait_for(|open| *open).await.is_err() {
        return;
    }
    while let Some(Outgoing::Event(text)) = queue.recv().await {
        match timeout(stalled_after, call.send_message(&text)).await {
            Ok(Ok(())) => {}
            Ok(Err(error @ SendError::TooLarge { .. })) => tracing::warn!(%error, "an event was not sent"),
            Ok(Err(SendError::NotOpen | SendError::Closed)) => return,
            Err(_) => return tracing::info!(?stalled_after, "closed a caller that takes nothing"),
        }
    }
}

/// Sends sound.
async fn speak(call: Arc<Call>, mut packets: mpsc::Receiver<Packet>) {
    while let Some(Packet { payload, gap }) = packets.recv().await {
        if !gap.is_zero() {
            call.skip_audio(gap);
        }
        if call.send_audio(payload, FRAME).await.is_err() {
            return;
        }
    }
}
