//! Barge-in: a caller who speaks into each answer, and how long the answer goes on after that.

use std::time::{Duration, Instant};

use anyhow::bail;
use repartee::transport::webrtc::CallEvent;
use repartee_media::opus::FRAME;
use tokio::time::interval;

use crate::ear::is_voiced;
use crate::turn::{CallLog, Turn};
use crate::webrtc::{Caller, RECEIVE_BUFFER};
use crate::wire::Event;

/// Packets that were on their way when the server told of the end may still arrive for so long.
const IN_FLIGHT: Duration = Duration::from_millis(200);

/// How far a turn has come.
enum Phase {
    /// The question is being asked, or its answer waited for.
    Asking,
    /// The answer is heard; it is interrupted at this moment.
    Listening { until: Instant },
    /// The caller speaks into the answer, since its first voiced frame.
    Interrupting { since: Option<Instant> },
    /// The server says that it has stopped.
    Stopped { since: Instant, at: Instant },
    /// The interruption is a question like any other.
    Asked,
}

impl Caller {
    /// Asks `question`, speaks `interruption` into the answer `after` its first sound, and hears the answer to that.
    pub(crate) async fn interrupted_turn(
        &mut self,
        question: &[Vec<f32>],
        interruption: &[Vec<f32>],
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
                    self.say(frame, due, log).await?;
                    let now = Instant::now();
                    match &mut phase {
                        Phase::Listening { until } if *until <= now => {
                            frames = interruption.iter();
                            phase = Phase::Interrupting { since: None };
                        }
                        Phase::Interrupting { since: since @ None } if frame.is_some_and(is_voiced) => *since = Some(now),
                        Phase::Stopped { since, at } if now.saturating_duration_since(*at) >= IN_FLIGHT => {
                            let last = turn.ear.last_sound().unwrap_or(*since);
                            log.interruptions.push(last.saturating_duration_since(*since));
                            turn = Turn::new(RECEIVE_BUFFER);
                            phase = Phase::Asked;
                        }
                        Phase::Asked if frames.len() == 0 && turn.speech_end.is_none() => turn.speech_end = Some(now),
                        _ => {}
                    }
                }
                event = self.call.events.recv() => match event {
                    Some(CallEvent::Message(text)) => match (Event::read(&text)?, &phase) {
                        (Event::Cleared, Phase::Interrupting { since: Some(since) }) => {
                            phase = Phase::Stopped { since: *since, at: Instant::now() };
                        }
                        (Event::Committed, Phase::Asked) => turn.committed = Some(Instant::now()),
                        (Event::Stopped, Phase::Asked) => return Ok(turn),
                        (Event::Stopped, _) => bail!("the answer was over before it was interrupted"),
                        (Event::Error { error }, _) => log.error(format!("error event: {error}")),
                        (Event::Done { response }, _) if response.status == "failed" => bail!("the answer failed"),
                        _ => {}
                    },
                    Some(CallEvent::Audio { sequence, timestamp, payload, arrival, .. }) => {
                        self.hearing.hear(sequence, timestamp, payload, arrival, &mut turn)?;
                        if let (Phase::Asking, Some(first)) = (&phase, turn.ear.first_sound()) {
                            phase = Phase::Listening { until: first + after };
                        }
                    }
                    Some(CallEvent::Closed) | None => bail!("the server hung up"),
                    Some(CallEvent::Connected | CallEvent::ChannelOpen) => {}
                },
            }
        }
    }
}
