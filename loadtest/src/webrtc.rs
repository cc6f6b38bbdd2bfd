//! A caller over WebRTC. The server detects the end of the turn; times after the commit begin with its event.

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use bytes::Bytes;
use repartee::transport::webrtc::{Call, PeerEvent, WebRtcSettings, offer};
use repartee_media::jitter::{Action, JitterBuffer};
use repartee_media::opus::{FRAME, OpusDecoder, OpusEncoder};
use tokio::time::{Instant as Tick, interval, timeout};

use crate::Plan;
use crate::speech::{FRAME_SAMPLES, RATE};
use crate::turn::{CallLog, Turn};
use crate::wire::Event;

/// Jitter buffer of a browser, about.
pub(crate) const RECEIVE_BUFFER: Duration = Duration::from_millis(60);

/// Makes one call.
pub async fn call(plan: &Plan, caller: usize, log: &mut CallLog) -> anyhow::Result<()> {
    let begun = Instant::now();
    let (sdp, dialing) = offer(&WebRtcSettings::default()).await?;
    let mut webrtc_caller = Caller {
        call: dialing.accept(&plan.server.call(sdp).await?).await?,
        encoder: OpusEncoder::new(RATE)?,
        audio_receiver: AudioReceiver { jitter: JitterBuffer::new(), decoder: OpusDecoder::new(RATE)? },
    };
    timeout(plan.timeout, webrtc_caller.opened()).await.context("the data channel did not open in time")??;
    log.setup.push(begun.elapsed());
    for turn in 0..plan.turns {
        let frames = &plan.utterance(caller, turn).frames;
        let barge_in = &plan.utterance(caller, turn + 1).frames;
        let turned = async {
            match plan.interrupt_after {
                Some(after) => webrtc_caller.barge_in_turn(frames, barge_in, after, log).await,
                None => webrtc_caller.turn(frames, log).await,
            }
        };
        match timeout(plan.timeout, turned).await {
            Ok(done) => log.turn(&done?),
            Err(_) => bail!("no answer in time"),
        }
        if turn + 1 < plan.turns {
            webrtc_caller.pause(plan.pause, log).await?;
        }
    }
    webrtc_caller.call.close().await;
    Ok(())
}

/// A WebRTC call and its codecs.
pub(crate) struct Caller {
    pub(crate) call: Call,
    encoder: OpusEncoder,
    pub(crate) audio_receiver: AudioReceiver,
}

/// Jitter buffer and decoder of the received audio.
pub(crate) struct AudioReceiver {
    jitter: JitterBuffer,
    decoder: OpusDecoder,
}

impl Caller {
    /// Returns once messages may be sent. A microphone is on meanwhile.
    async fn opened(&mut self) -> anyhow::Result<()> {
        let mut ticks = interval(FRAME);
        loop {
            tokio::select! {
                _ = ticks.tick() => {
                    let packet = self.encoder.encode(&[0.0; FRAME_SAMPLES])?;
                    self.call.send_audio(packet.payload, FRAME).await?;
                }
                event = self.call.events.recv() => match event {
                    Some(PeerEvent::ChannelOpen) => return Ok(()),
                    Some(PeerEvent::Closed) | None => bail!("the call closed before its data channel opened"),
                    Some(_) => {}
                },
            }
        }
    }

    /// Sends `frames`, then silence until the response was played.
    async fn turn(&mut self, frames: &[Vec<f32>], log: &mut CallLog) -> anyhow::Result<Turn> {
        let mut turn = Turn::new(RECEIVE_BUFFER);
        let mut frames = frames.iter();
        let mut ticks = interval(FRAME);
        loop {
            tokio::select! {
                due = ticks.tick() => {
                    let frame = frames.next();
                    self.send_frame(frame.map(Vec::as_slice), due, log).await?;
                    if frames.len() == 0 && turn.speech_end.is_none() {
                        turn.speech_end = Some(Instant::now());
                    }
                }
                event = self.call.events.recv() => match event {
                    Some(PeerEvent::Message(text)) => match Event::read(&text)? {
                        Event::Committed => turn.committed = Some(Instant::now()),
                        Event::Error { error } => log.error(format!("error event: {error}")),
                        Event::Done { response } if response.status == "failed" => bail!("the answer failed"),
                        Event::Stopped => return Ok(turn),
                        _ => {}
                    },
                    Some(PeerEvent::Audio { sequence, timestamp, payload, arrival, .. }) => {
                        self.audio_receiver.push(sequence, timestamp, payload, arrival, &mut turn)?;
                    }
                    Some(PeerEvent::Closed) | None => bail!("the server hung up"),
                    Some(PeerEvent::Connected | PeerEvent::ChannelOpen) => {}
                },
            }
        }
    }

    /// Sends silence for a while; audio received meanwhile belongs to no turn.
    async fn pause(&mut self, duration: Duration, log: &mut CallLog) -> anyhow::Result<()> {
        let mut ticks = interval(FRAME);
        let end = Tick::now() + duration;
        loop {
            tokio::select! {
                due = ticks.tick() => {
                    if due >= end {
                        return Ok(());
                    }
                    self.send_frame(None, due, log).await?;
                }
                event = self.call.events.recv() => if let Some(PeerEvent::Closed) | None = event {
                    bail!("the server hung up");
                },
            }
        }
    }

    /// Sends one frame, or silence, that was due at `due`.
    pub(crate) async fn send_frame(
        &mut self,
        frame: Option<&[f32]>,
        due: Tick,
        log: &mut CallLog,
    ) -> anyhow::Result<()> {
        let packet = self.encoder.encode(frame.unwrap_or(&[0.0; FRAME_SAMPLES]))?;
        log.lateness.push(due.elapsed());
        self.call.send_audio(packet.payload, FRAME).await?;
        Ok(())
    }
}

impl AudioReceiver {
    /// Takes a packet, and adds all audio that is in order to the turn.
    pub(crate) fn push(
        &mut self,
        sequence: u16,
        timestamp: u32,
        payload: Bytes,
        arrival: Instant,
        turn: &mut Turn,
    ) -> anyhow::Result<()> {
        self.jitter.push(sequence, timestamp, payload, arrival);
        loop {
            let samples = match self.jitter.pop(arrival) {
                Action::Packet { payload, .. } => self.decoder.decode(&payload)?,
                Action::Fec { next, duration, .. } => self.decoder.decode_fec(&next, duration)?,
                Action::Conceal { duration, .. } => self.decoder.conceal(duration)?,
                Action::Silence { .. } | Action::Stall { .. } => continue,
                Action::Wait { .. } => return Ok(()),
            };
            turn.playback.push(&samples, arrival);
        }
    }
}
