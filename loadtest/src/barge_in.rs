//! Barge-in: a caller who speaks into each response, and how long the response goes on after that.

use std::time::{Duration, Instant};

use anyhow::bail;
use repartee::transport::webrtc::PeerEvent;
use repartee_media::opus::FRAME;
use tokio::time::interval;

use crate::playback_meter::is_voiced;
use crate::turn::{CallLog, Turn};
use crate::webrtc::{Caller, RECEIVE_BUFFER};
use crate::wire::Event;

/// Packets in flight when the server reported the end may still arrive for so long.
const IN_FLIGHT: Duration = Duration::from_millis(200);

/// How far a turn has come.
enum Phase {
    /// The question is being sent, or its response awaited.
    Asking,
    /// The response is playing; the caller barges in at `until`.
    Listening { until: Instant },
    /// The caller speaks, since its first voiced frame.
    Interrupting { since: Option<Instant> },
    /// The server reported that it has stopped.
    Stopped { since: Instant, at: Instant },
    /// The barge-in is a question like any other.
    Asked,
}

impl Caller {
    /// Sends `question`, then `barge_in` at `after` from the first audible packet of the response, and plays the response to it.
    pub(crate) async fn barge_in_turn(
        &mut self,
        question: &[Vec<f32>],
        barge_in: &[Vec<f32>],
        after: Duration,
        log: &mut CallLog,
    ) -> anyhow::Result<Turn> {
        let mut turn = Turn::new(RECEIVE_BUFFER);
        let (mut frames, mut phase) = (question.iter(), Phase::Asking);
        let mut ticks = interval(FRAME);
        loop {
            tokio::select! {
                due = ticks.tick() => {
                    let frame = frames.next().map(Vec::as_slice);
                    self.send_frame(frame, due, log).await?;
                    let now = Instant::now();
                    match &mut phase {
                        Phase::Listening { until } if *until <= now => {
                            frames = barge_in.iter();
                            phase = Phase::Interrupting { since: None };
                        }
                        Phase::Interrupting { since: since @ None } if frame.is_some_and(is_voiced) => *since = Some(now),
                        Phase::Stopped { since, at } if now.saturating_duration_since(*at) >= IN_FLIGHT => {
                            let last = turn.playback.last_sound().unwrap_or(*since);
                            log.barge_ins.push(last.saturating_duration_since(*since));
                            turn = Turn::new(RECEIVE_BUFFER);
                            phase = Phase::Asked;
                        }
                        Phase::Asked if frames.len() == 0 && turn.speech_end.is_none() => turn.speech_end = Some(now),
                        _ => {}
                    }
                }
                event = self.call.events.recv() => match event {
                    Some(PeerEvent::Message(text)) => match (Event::read(&text)?, &phase) {
                        (Event::Cleared, Phase::Interrupting { since: Some(since) }) => {
                            phase = Phase::Stopped { since: *since, at: Instant::now() };
                        }
                        (Event::Committed, Phase::Asked) => turn.committed = Some(Instant::now()),
                        (Event::Stopped, Phase::Asked) => return Ok(turn),
                        (Event::Stopped, _) => bail!("the response ended before the barge-in"),
                        (Event::Error { error }, _) => log.error(format!("error event: {error}")),
                        (Event::Done { response }, _) if response.status == "failed" => bail!("the answer failed"),
                        _ => {}
                    },
                    Some(PeerEvent::Audio { sequence, timestamp, payload, arrival, .. }) => {
                        self.audio_receiver.push(sequence, timestamp, payload, arrival, &mut turn)?;
                        if let (Phase::Asking, Some(first)) = (&phase, turn.playback.first_sound()) {
                            phase = Phase::Listening { until: first + after };
                        }
                    }
                    Some(PeerEvent::Closed) | None => bail!("the server hung up"),
                    Some(PeerEvent::Connected | PeerEvent::ChannelOpen) => {}
                },
            }
        }
    }
}
