//! A caller over WebRTC. The server finds the turn's end; times after the commit begin when it says so.

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use bytes::Bytes;
use repartee::transport::webrtc::{Call, CallEvent, WebRtcSettings, offer};
use repartee_media::jitter::{Action, JitterBuffer};
use repartee_media::opus::{FRAME, OpusDecoder, OpusEncoder};
use tokio::time::{Instant as Tick, interval, timeout};

use crate::Plan;
use crate::speech::{FRAME_SAMPLES, RATE};
use crate::turn::{CallLog, Turn};
use crate::wire::Event;

/// A browser keeps about this much before it plays.
pub(crate) const RECEIVE_BUFFER: Duration = Duration::from_millis(60);

/// Makes one call.
pub async fn call(plan: &Plan, caller: usize, log: &mut CallLog) -> anyhow::Result<()> {
    let begun = Instant::now();
    let (sdp, dialing) = offer(&WebRtcSettings::default()).await?;
    let mut caller_side = Caller {
        call: dialing.accept(&plan.server.call(sdp).await?).await?,
        encoder: OpusEncoder::new(RATE)?,
        hearing: Hearing { jitter: JitterBuffer::new(), decoder: OpusDecoder::new(RATE)? },
    };
    timeout(plan.timeout, caller_side.opened()).await.context("the line did not open in time")??;
    log.setup.push(begun.elapsed());
    for turn in 0..plan.turns {
        let frames = &plan.utterance(caller, turn).frames;
        let interruption = &plan.utterance(caller, turn + 1).frames;
        let turned = async {
            match plan.interrupt_after {
                Some(after) => caller_side.interrupted_turn(frames, interruption, after, log).await,
                None => caller_side.turn(frames, log).await,
            }
        };
        match timeout(plan.timeout, turned).await {
            Ok(done) => log.turn(&done?),
            Err(_) => bail!("no answer in time"),
        }
        if turn + 1 < plan.turns {
            caller_side.pause(plan.pause, log).await?;
        }
    }
    caller_side.call.close().await;
    Ok(())
}

pub(crate) struct Caller {
    pub(crate) call: Call,
    encoder: OpusEncoder,
    pub(crate) hearing: Hearing,
}

pub(crate) struct Hearing {
    jitter: JitterBuffer,
    decoder: OpusDecoder,
}

impl Caller {
    /// Waits until messages may be sent. A microphone is on meanwhile.
    async fn opened(&mut self) -> anyhow::Result<()> {
        let mut ticks = interval(FRAME);
        loop {
            tokio::select! {
                _ = ticks.tick() => {
                    let packet = self.encoder.encode(&[0.0; FRAME_SAMPLES])?;
                    self.call.send_audio(packet.payload, FRAME).await?;
                }
                event = self.call.events.recv() => match event {
                    Some(CallEvent::ChannelOpen) => return Ok(()),
                    Some(CallEvent::Closed) | None => bail!("the line closed before it opened"),
                    Some(_) => {}
                },
            }
        }
    }

    /// Says `frames`, then keeps the line open with silence until the answer was played.
    async fn turn(&mut self, frames: &[Vec<f32>], log: &mut CallLog) -> anyhow::Result<Turn> {
        let mut turn = Turn::new(RECEIVE_BUFFER);
        let mut frames = frames.iter();
        let mut ticks = interval(FRAME);
        loop {
            tokio::select! {
                due = ticks.tick() => {
                    let frame = frames.next();
                    self.say(frame.map(Vec::as_slice), due, log).await?;
                    if frames.len() == 0 && turn.speech_end.is_none() {
                        turn.speech_end = Some(Instant::now());
                    }
                }
                event = self.call.events.recv() => match event {
                    Some(CallEvent::Message(text)) => match Event::read(&text)? {
                        Event::Committed => turn.committed = Some(Instant::now()),
                        Event::Error { error } => log.error(format!("error event: {error}")),
                        Event::Done { response } if response.status == "failed" => bail!("the answer failed"),
                        Event::Stopped => return Ok(turn),
                        _ => {}
                    },
                    Some(CallEvent::Audio { sequence, timestamp, payload, arrival, .. }) => {
                        self.hearing.hear(sequence, timestamp, payload, arrival, &mut turn)?;
                    }
                    Some(CallEvent::Closed) | None => bail!("the server hung up"),
                    Some(CallEvent::Connected | CallEvent::ChannelOpen) => {}
                },
            }
        }
    }

    /// Says nothing for a while; what is heard meanwhile belongs to no turn.
    async fn pause(&mut self, duration: Duration, log: &mut CallLog) -> anyhow::Result<()> {
        let mut ticks = interval(FRAME);
        let end = Tick::now() + duration;
        loop {
            tokio::select! {
                due = ticks.tick() => {
                    if due >= end {
                        return Ok(());
                    }
                    self.say(None, due, log).await?;
                }
                event = self.call.events.recv() => if let Some(CallEvent::Closed) | None = event {
                    bail!("the server hung up");
                },
            }
        }
    }

    /// Sends one frame, or silence, that was due at `due`.
    pub(crate) async fn say(&mut self, frame: Option<&[f32]>, due: Tick, log: &mut CallLog) -> anyhow::Result<()> {
        let packet = self.encoder.encode(frame.unwrap_or(&[0.0; FRAME_SAMPLES]))?;
        log.lateness.push(due.elapsed());
        self.call.send_audio(packet.payload, FRAME).await?;
        Ok(())
    }
}

impl Hearing {
    /// Takes a packet, and lets the turn hear all that is in order.
    pub(crate) fn hear(
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
                Action::Silence { .. } => continue,
                Action::Wait { .. } => return Ok(()),
            };
            turn.ear.hear(&samples, arrival);
        }
    }
}
