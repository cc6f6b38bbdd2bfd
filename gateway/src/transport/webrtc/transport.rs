//! The call's end of a WebRTC connection: packets in through the jitter buffer, sound out at the pace of the playout
//! clock, events over the data channel. Nothing here waits for the network: two tasks of their own do.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use repartee_engine_api::ResponseId;
use repartee_media::jitter::{JitterBuffer, JitterStats, Play};
use repartee_media::level::is_audible;
use repartee_media::opus::{FRAME, OpusDecoder, OpusEncoder, OpusError, RATES};
use repartee_media::playout::{Frame, Output, Playout, PushError};
use repartee_media::resample::Resampler;
use repartee_protocol::session::AudioFormat;
use repartee_realtime::{Delivery, PlayoutReport};
use tokio::sync::{mpsc, watch};
use tokio::time::{sleep_until, timeout};

use super::{Call, CallEvent, Quality, SendError};
use crate::call::{Heard, Line, LineError, Outgoing};
use crate::metrics::Metrics;
use crate::transport::sideband::{Commands, Publisher, Sidebands, sidebands};

/// Events that may wait for the data channel.
const EVENT_QUEUE: usize = 32;
/// Packets of 20 ms that may wait for the socket; more means that it is stuck, and late sound is worthless.
const PACKET_QUEUE: usize = 16;
/// Rate for voices that Opus cannot take as they are.
const FALLBACK_RATE: u32 = 48_000;

/// What a line goes by.
#[derive(Debug, Clone, Copy)]
pub struct LineSettings {
    /// Rate at which the model hears, in Hz.
    pub hears: u32,
    /// Rate at which the model speaks, in Hz.
    pub speaks: u32,
    /// A data channel that takes nothing for so long ends the call.
    pub stalled_after: Duration,
    /// Sound that the receiver is assumed to hold back before it plays it.
    pub receiver_buffer: Duration,
}

/// The call's end of a WebRTC connection.
#[derive(Debug)]
pub struct WebRtcLine {
    /// The connection; `None` in tests without one.
    call: Option<Arc<Call>>,
    metrics: Arc<Metrics>,
    sidebands: Sidebands,
    commands: Commands,
    receiver_buffer: Duration,
    /// What was counted of the caller's packets and reports so far.
    counted: (JitterStats, u64),
    events: mpsc::Receiver<CallEvent>,
    outlet: mpsc::Sender<Outgoing>,
    packets: mpsc::Sender<Packet>,
    /// Whether the data channel is open.
    open: watch::Sender<bool>,
    /// A message that waits until the call listens. No event is read behind it.
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
    /// A line over `call`. Must be called within a runtime.
    pub fn new(mut call: Call, settings: LineSettings, metrics: Arc<Metrics>) -> Result<Self, OpusError> {
        let events = std::mem::replace(&mut call.events, mpsc::channel(1).1);
        let (packets, voice) = mpsc::channel(PACKET_QUEUE);
        let call = Arc::new(call);
        let mut line = Self::over(events, packets, settings, metrics, |queue, opened, publisher| {
            tokio::spawn(write(call.clone(), queue, opened, publisher, settings.stalled_after));
        })?;
        // Both tasks end when the line is gone, and the call with them.
        tokio::spawn(speak(call.clone(), voice));
        line.call = Some(call);
        Ok(line)
    }

    /// A line whose packets come and go through queues; `write` is given the other ends of its events.
    fn over(
        events: mpsc::Receiver<CallEvent>,
        packets: mpsc::Sender<Packet>,
        settings: LineSettings,
        metrics: Arc<Metrics>,
        write: impl FnOnce(mpsc::Receiver<Outgoing>, watch::Receiver<bool>, Publisher),
    ) -> Result<Self, OpusError> {
        let rate = |rate| if RATES.contains(&rate) { rate } else { FALLBACK_RATE };
        let (hearing_rate, speaking_rate) = (rate(settings.hears), rate(settings.speaks));
        let (encoder, decoder) = (OpusEncoder::new(speaking_rate)?, OpusDecoder::new(hearing_rate)?);
        let (outlet, queue) = mpsc::channel(EVENT_QUEUE);
        let (open, opened) = watch::channel(false);
        let (sidebands, publisher, commands) = sidebands();
        write(queue, opened, publisher);
        Ok(Self {
            call: None,
            metrics,
            sidebands,
            commands,
            receiver_buffer: settings.receiver_buffer,
            counted: (JitterStats::default(), 0),
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
            model_rate: settings.speaks,
            speaking_rate,
            filter: None,
            sent_until: None,
            audible: None,
            underruns: 0,
        })
    }

    /// Where more clients attach to the call.
    pub fn sidebands(&self) -> Sidebands {
        self.sidebands.clone()
    }

    fn quality(&self) -> Quality {
        self.call.as_ref().map(|call| call.quality()).unwrap_or_default()
    }

    /// Counts what became of the caller's packets since the last time.
    fn account(&mut self) {
        let stats = self.jitter.stats();
        self.metrics.network.received(&self.counted.0, &stats);
        self.counted.0 = stats;
    }

    /// Counts a new report of the caller.
    fn report(&mut self) {
        let Quality { round_trip, jitter, loss, reports } = self.quality();
        if reports > self.counted.1 {
            self.counted.1 = reports;
            self.metrics.network.reported(round_trip, jitter, loss);
            self.account();
            if let Some(Err(error)) = loss.map(|share| self.encoder.expect_loss(share)) {
                tracing::error!(%error, "the encoder does not adapt to the network");
            }
        }
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
        self.report();
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
                // By the grid: a frame that leaves late follows the one before all the same, and silence told to the receiver
                // would be a hole in a word.
                let gap = self.sent_until.map_or(Duration::ZERO, |until| frame.due.saturating_duration_since(until));
                // An answer that ran dry for less than a frame sounds better late than torn.
                let gap = if gap < FRAME { Duration::ZERO } else { gap };
                let until = self.sent_until.filter(|_| gap.is_zero()).unwrap_or(frame.due);
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
            let now = now();
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
                command = self.commands.next(), if self.held.is_none() => Some(CallEvent::Message(command)),
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

    /// The sent cursor less what is still on its way or in the receiver's buffer.
    fn heard(&self) -> Option<(ResponseId, Duration)> {
        let (response, _, sent) = self.playout.current()?;
        let on_its_way = self.quality().round_trip.unwrap_or_default() / 2;
        Some((response, sent.saturating_sub(on_its_way + self.receiver_buffer)))
    }
}

impl Drop for WebRtcLine {
    fn drop(&mut self) {
        self.account();
        self.metrics.network.moves.inc_by(self.call.as_ref().map_or(0, |call| call.moves()));
    }
}

/// The time, which tests may stop.
fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// Publishes events, and sends them once the data channel is open. Without a data channel only sidebands hear them.
async fn write(
    call: Arc<Call>,
    mut queue: mpsc::Receiver<Outgoing>,
    mut opened: watch::Receiver<bool>,
    publisher: Publisher,
    stalled_after: Duration,
) {
    while let Some(Outgoing::Event(text)) = queue.recv().await {
        publisher.publish(&text);
        if !call.has_channel() {
            continue;
        }
        if opened.wait_for(|open| *open).await.is_err() {
            return;
        }
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

#[cfg(test)]
#[path = "line_tests.rs"]
mod tests;
