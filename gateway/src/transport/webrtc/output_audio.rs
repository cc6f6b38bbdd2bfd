//! Output audio of a WebRTC call: resampler and playout clock. The sending task encodes the frames; see
//! `packet_encoder`.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use repartee_engine_api::ResponseId;
use repartee_media::level::is_audible;
use repartee_media::opus::{CODEC_DELAY, FRAME};
use repartee_media::playout::{Playout, PlayoutFrame, PlayoutOutput, PushError};
use repartee_media::resample::Resampler;
use repartee_realtime::PlayoutReport;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use super::packet_encoder::{AudibleReport, LEAD_PACKETS, PlayoutCommand};
use crate::call::{PlayedFrames, TransportError, TransportEvent};
use crate::metrics::{DropCause, Metrics};

/// Reports of first audible packets that may wait: one for each response that begins.
const REPORTS: usize = 4;

/// Resampler and playout clock of one call.
#[derive(Debug)]
pub(super) struct OutputAudio {
    /// Queue to the encoder. Bounded: more waiting frames mean that the socket is stalled, and late audio is worthless.
    frames: mpsc::Sender<PlayoutCommand>,
    playout: Playout,
    /// Frames whose echo may come back.
    played: PlayedFrames,
    /// The model's output rate, in Hz.
    output_rate: u32,
    encode_rate: u32,
    /// Resampler from the model's output rate to the encoder's, with the response whose audio it holds; created with
    /// the first audio of a response.
    resampler: Option<(ResponseId, Resampler)>,
    /// The newest response with an audible packet.
    audible: Option<ResponseId>,
    /// Reports of first audible packets by the sending task.
    reports: (mpsc::Sender<TransportEvent>, mpsc::Receiver<TransportEvent>),
    /// End of the response's newest frame, which the codec's delay moves into the next packet. Updated only until the
    /// response is audible.
    codec_tail: Vec<f32>,
    underruns: u64,
    metrics: Arc<Metrics>,
}

impl OutputAudio {
    /// Creates a clock that takes samples at `output_rate`, and hands `frames` to an encoder at `encode_rate`.
    pub fn new(
        output_rate: u32,
        encode_rate: u32,
        frames: mpsc::Sender<PlayoutCommand>,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self {
            frames,
            playout: Playout::new(encode_rate),
            played: PlayedFrames::new(encode_rate),
            output_rate,
            encode_rate,
            resampler: None,
            audible: None,
            reports: mpsc::channel(REPORTS),
            codec_tail: Vec::new(),
            underruns: 0,
            metrics,
        }
    }

    /// Queues samples of a response for playout.
    pub fn push(&mut self, response: ResponseId, samples: &[f32]) -> Result<(), TransportError> {
        let resampler = match &mut self.resampler {
            Some((of, resampler)) if *of == response => resampler,
            other => &mut other.insert((response, Resampler::new(self.output_rate, self.encode_rate)?)).1,
        };
        queue(&mut self.playout, response, resampler.convert(samples)?)
    }

    /// Ends the audio of a response.
    pub fn end(&mut self, response: ResponseId) -> Result<(), TransportError> {
        if let Some((_, mut resampler)) = self.resampler.take_if(|(of, _)| *of == response) {
            let rest = resampler.flush()?;
            queue(&mut self.playout, response, &rest)?;
        }
        self.playout.end(response);
        Ok(())
    }

    /// Opens the caller's sound at `now` with silence; returns the time from which it can play.
    pub fn open(&self, now: Instant) -> Instant {
        self.queue_frame(PlayoutCommand::Open(now));
        now + FRAME * LEAD_PACKETS
    }

    /// Pauses the playback from `now` on; true if anything plays. Silence follows, so that the receiver conceals nothing.
    pub fn pause(&mut self, now: Instant) -> bool {
        let pauses = self.playout.pause(now);
        if pauses {
            self.queue_frame(PlayoutCommand::End);
        }
        pauses
    }

    /// Resumes a paused playback.
    pub fn resume(&mut self) {
        self.playout.resume();
    }

    /// Time since the last sent audio, at `now`.
    pub fn quiet_for(&self, now: Instant) -> Duration {
        self.playout.quiet_for(now)
    }

    /// Drops audio that was not played yet.
    pub fn clear(&mut self) {
        self.playout.clear();
        self.resampler = None;
    }

    /// Drops unplayed audio of one response.
    pub fn clear_response(&mut self, response: ResponseId) {
        self.playout.clear_generation(response);
        self.resampler.take_if(|(of, _)| *of == response);
    }

    /// True if the playout queue is full.
    pub fn is_full(&self) -> bool {
        self.playout.is_full()
    }

    /// Returns the time when [`Self::play`] has something to do.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.playout.next_deadline()
    }

    /// The response being played, and the duration of it that was sent.
    pub fn sent(&self) -> Option<(ResponseId, Duration)> {
        self.playout.current().map(|(response, _, sent)| (response, sent))
    }

    /// Waits for the next report of a response's first audible packet. Cancel safe.
    pub async fn first_audible(&mut self) -> TransportEvent {
        match self.reports.1.recv().await {
            Some(report) => report,
            // Cannot happen: `self` holds a sender.
            None => std::future::pending().await,
        }
    }

    /// Hands all frames due by `now` to the encoder, and appends playout events to `events`.
    pub fn play(&mut self, now: Instant, events: &mut VecDeque<TransportEvent>) {
        while let Some(output) = self.playout.poll(now) {
            match output {
                PlayoutOutput::Frame(frame) => self.send(frame, now, events),
                PlayoutOutput::Drained { generation: response } => {
                    self.queue_frame(PlayoutCommand::End);
                    events.push_back(TransportEvent::Playout(PlayoutReport::Drained { response }));
                }
            }
        }
        if self.playout.underruns() > self.underruns {
            self.underruns = self.playout.underruns();
            events.push_back(TransportEvent::Underrun);
        }
    }

    /// Frames that were played, of which the newest wait.
    pub fn played(&mut self) -> &mut PlayedFrames {
        &mut self.played
    }

    fn send(&mut self, frame: PlayoutFrame, now: Instant, events: &mut VecDeque<TransportEvent>) {
        self.played.push(frame.due, &frame.samples);
        self.metrics.requests.headroom.frames.inc();
        if now.saturating_duration_since(frame.due) >= FRAME {
            self.metrics.requests.headroom.late_frames.inc();
        }
        let response = frame.generation;
        if frame.first {
            events.push_back(TransportEvent::Playout(PlayoutReport::Started { response }));
        }
        let audible = self.audible < Some(response) && self.is_heard(&frame);
        let report = audible.then(|| AudibleReport { response, due: now, reports: self.reports.0.clone() });
        self.queue_frame(PlayoutCommand::Frame(frame, report));
        if audible {
            self.audible = Some(response);
        }
    }

    /// True if the packet of `frame` is audible to a receiver.
    fn is_heard(&mut self, frame: &PlayoutFrame) -> bool {
        let delay = (CODEC_DELAY.as_secs_f64() * f64::from(self.encode_rate)).round() as usize;
        if frame.first {
            self.codec_tail = vec![0.0; delay];
        }
        let (now, later) = frame.samples.split_at(frame.samples.len().saturating_sub(delay));
        let before = std::mem::replace(&mut self.codec_tail, later.to_vec());
        is_audible(&[before.as_slice(), now].concat())
    }

    fn queue_frame(&self, playing: PlayoutCommand) {
        if let Err(TrySendError::Full(PlayoutCommand::Frame(..))) = self.frames.try_send(playing) {
            self.metrics.network.dropped_audio(DropCause::Stalled, 1);
        }
    }
}

fn queue(playout: &mut Playout, response: ResponseId, samples: &[f32]) -> Result<(), TransportError> {
    match playout.push(response, response, samples) {
        // The response was cleared in the meantime.
        Ok(()) | Err(PushError::Stale) => Ok(()),
        Err(error @ PushError::Full) => Err(error.into()),
    }
}
