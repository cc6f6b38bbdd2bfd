//! Interruptions on a virtual clock, in steps of 20 ms: playout clock, echo of a simulated room, caller, echo canceller,
//! echo guard and turn detector. `tests/interruptions` has the recordings and the rooms.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use repartee_media::call_echo::CallEcho;
use repartee_media::echo_guard::{EchoGuard, EchoLevel};
use repartee_media::opus::{OpusDecoder, OpusEncoder};
use repartee_media::playout::{Playout, PlayoutOutput};
use repartee_media::sound_file;
use repartee_media::vad::{BargeInPolicy, RATE, TurnDetector, TurnEvent};
use serde::Deserialize;

/// Samples per millisecond.
const PER_MS: usize = RATE as usize / 1_000;
/// Offset of the caller's packets from the frames of the playback.
const PHASE_MS: usize = 7;
/// Level of the playback (root mean square).
const PLAYED: f32 = 0.1;
/// Level of the room's noise, -66 dBFS.
const NOISE: f32 = 5e-4;

/// Contents of `recordings.json`.
#[derive(Debug, Clone, Deserialize)]
pub struct Recordings {
    /// Answers to play.
    pub answers: Vec<Recording>,
    /// Speech with which callers interrupt.
    pub callers: Vec<Recording>,
    /// Backchannels of callers who listen.
    pub backchannels: Vec<Recording>,
    /// Rooms and levels of each set.
    pub conditions: Vec<RoomConditions>,
}

/// Data set of a recording: thresholds are chosen on one and judged on the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DataSet {
    /// Thresholds are chosen on this set.
    Chosen,
    /// Thresholds are judged on this set.
    Judged,
}

/// One recording of the list.
#[derive(Debug, Clone, Deserialize)]
pub struct Recording {
    /// Data set of the recording.
    pub set: DataSet,
    /// File name within the folder.
    pub file: String,
    /// Text of the speech.
    pub text: String,
    /// Leading silence in ms, which is cut.
    #[serde(default)]
    pub lead_ms: usize,
    /// Samples at [`RATE`], normalised to a level of one.
    #[serde(skip)]
    pub samples: Vec<f32>,
}

/// Rooms and levels of a data set.
#[derive(Debug, Clone, Deserialize)]
pub struct RoomConditions {
    /// Data set of the conditions.
    pub set: DataSet,
    /// Sound paths of the room: delay in ms and gain.
    pub room_ms: Vec<(usize, f32)>,
    /// Echo levels relative to the playback; `None` for headphones.
    pub echoes_db: Vec<Option<f32>>,
    /// Delays of the echo.
    pub delays_ms: Vec<usize>,
    /// Levels of the caller relative to the playback.
    pub callers_db: Vec<f32>,
    /// Starts of the caller's speech.
    pub begins_ms: Vec<usize>,
}

impl Recordings {
    /// Loads the recordings of one set in `folder`, with their samples.
    pub fn load(folder: &Path, set: DataSet) -> Result<Self> {
        let listed = std::fs::read_to_string(folder.join("recordings.json"))?;
        let mut all: Self = serde_json::from_str(&listed).context("recordings.json")?;
        for kind in [&mut all.answers, &mut all.callers, &mut all.backchannels] {
            kind.retain(|recording| recording.set == set);
            for recording in kind {
                let file = std::fs::read(folder.join(&recording.file)).context(recording.file.clone())?;
                recording.samples = sound_file::read(&file[..], RATE, Duration::from_secs(60))?;
                recording.samples.drain(..recording.samples.len().min(recording.lead_ms * PER_MS));
                let level = level(&recording.samples);
                recording.samples.iter_mut().for_each(|sample| *sample /= level);
            }
        }
        all.conditions.retain(|conditions| conditions.set == set);
        Ok(all)
    }
}

/// One answer, with echo and caller while it plays.
#[derive(Debug, Clone, Copy)]
pub struct Scene<'a> {
    /// Samples of the answer, with a level of one.
    pub answer: &'a [f32],
    /// Samples of the caller, with a level of one; empty for silence.
    pub caller: &'a [f32],
    /// Level of the caller relative to the playback.
    pub caller_db: f32,
    /// Start of the caller's speech.
    pub begins_ms: usize,
    /// Echo level relative to the playback; `None` for headphones.
    pub echo_db: Option<f32>,
    /// Delay of the echo.
    pub delay_ms: usize,
    /// Sound paths of the room: delay in ms and gain.
    pub room: &'a [(usize, f32)],
    /// True if the playback can be paused, as over WebRTC.
    pub pausable: bool,
    /// True if the server cancels the echo.
    pub cancels: bool,
    /// Policy by which the caller interrupts.
    pub policy: BargeInPolicy,
}

/// Result of a scene. Times are in ms from its beginning.
#[derive(Debug, Clone, Default)]
pub struct SceneOutcome {
    /// Pauses of the playback: begin and end.
    pub pauses: Vec<(usize, usize)>,
    /// Time at which the interruption was announced.
    pub announced: Option<usize>,
    /// Times at which played frames left.
    pub frames_sent_ms: Vec<usize>,
}

impl SceneOutcome {
    /// Returns the time from the caller's first sample, at `begins_ms`, to the first silence: a pause, or the end.
    /// `None` if all was played.
    pub fn silent_after(&self, begins_ms: usize) -> Option<usize> {
        let paused = self.pauses.iter().map(|(begin, _)| *begin).filter(|begin| *begin >= begins_ms);
        let silent = paused.chain(self.announced).min()?;
        // A frame that has left plays to its end.
        let last = self.frames_sent_ms.iter().rfind(|left| **left <= silent)?;
        Some((last + 20).saturating_sub(begins_ms))
    }

    /// Returns the time from the caller's first sample, at `begins_ms`, to the end of the last frame before the
    /// announcement: later than [`Self::silent_after`] if a pause ended first. `None` without an announcement.
    pub fn last_sound_after(&self, begins_ms: usize) -> Option<usize> {
        let announced = self.announced?;
        let last = self.frames_sent_ms.iter().rfind(|left| **left <= announced)?;
        Some((last + 20).saturating_sub(begins_ms))
    }
}

/// An Opus encoder and decoder, as on a call.
struct OpusLoop {
    encoder: OpusEncoder,
    decoder: OpusDecoder,
}

impl OpusLoop {
    fn new() -> Result<Self> {
        Ok(Self { encoder: OpusEncoder::new(RATE)?, decoder: OpusDecoder::new(RATE)? })
    }

    fn pass(&mut self, frame: &[f32]) -> Result<Vec<f32>> {
        let packet = self.encoder.encode(frame)?;
        Ok(self.decoder.decode(&packet.payload)?)
    }
}

/// Plays a scene to its end, or until the interruption is announced.
pub fn simulate(scene: &Scene<'_>) -> Result<SceneOutcome> {
    let mut turns = TurnDetector::default().with_barge_in(scene.policy);
    let (mut guard, mut playout) = (EchoGuard::new(RATE), Playout::new(RATE));
    let (mut down, mut up, mut noise) = (OpusLoop::new()?, OpusLoop::new()?, Noise(1));
    let answer: Vec<f32> = scene.answer.iter().map(|sample| sample * PLAYED).collect();
    let caller_gain = PLAYED * 10_f32.powf(scene.caller_db / 20.0);
    let energy: f32 = scene.room.iter().map(|(_, gain)| gain * gain).sum();
    let echo_gain = scene.echo_db.map_or(0.0, |db| 10_f32.powf(db / 20.0)) / energy.sqrt();
    let start = Instant::now();
    playout.push(1, 1, &answer)?;
    playout.end(1);
    guard.push_playback(&answer, start);
    let mut echo = CallEcho::new();
    if !scene.pausable && scene.cancels {
        echo.push_playback(&answer, RATE, start)?;
    }
    let (mut outcome, mut paused) = (SceneOutcome::default(), None);
    // Sound that has left the loudspeaker.
    let mut aired: Vec<f32> = Vec::new();
    // The scene ends a second after the end of answer and caller.
    let said = scene.begins_ms + scene.caller.len() / PER_MS;
    for ms in (0..).step_by(20) {
        let at = |ms: usize| start + Duration::from_millis(ms as u64);
        // The playback has its own clock, which a pause shifts.
        for ms in ms..ms + 20 {
            while let Some(output) = playout.poll(at(ms)) {
                if let PlayoutOutput::Frame(played) = output {
                    if scene.pausable && scene.cancels {
                        echo.push_playback(&played.samples, RATE, played.due)?;
                    }
                    aired.resize(aired.len().max(ms * PER_MS), 0.0);
                    aired.extend(down.pass(&played.samples)?);
                    outcome.frames_sent_ms.push(ms);
                }
            }
        }
        if playout.current().is_none() && ms > said + 1_000 {
            break;
        }
        let mut near: Vec<f32> = (ms * PER_MS..(ms + 20) * PER_MS)
            .map(|now| {
                let heard = scene.room.iter().map(|(delay, gain)| {
                    let from = now.checked_sub((scene.delay_ms + delay) * PER_MS);
                    gain * from.and_then(|from| aired.get(from)).unwrap_or(&0.0)
                });
                let spoken = now.checked_sub(scene.begins_ms * PER_MS);
                let spoken = spoken.and_then(|at| scene.caller.get(at)).unwrap_or(&0.0);
                echo_gain * heard.sum::<f32>() + caller_gain * spoken + NOISE * noise.next()
            })
            .collect();
        near.iter_mut().for_each(|sample| *sample = sample.clamp(-1.0, 1.0));
        // A packet is sent when it is full, and arrives in the middle of a playback frame.
        let (ms, now) = (ms + 20 + PHASE_MS, at(ms + 20 + PHASE_MS));
        let mut near = up.pass(&near)?;
        echo.note_input(Duration::from_millis(20), now);
        if echo.begin_piece() {
            echo.cancel(&mut near, &mut Vec::new());
        } else {
            let mut heard = Vec::new();
            echo.flush(&mut heard, &mut Vec::new());
            echo.hear(&near);
            heard.append(&mut near);
            near = heard;
        }
        guard.push_input(&near, RATE, now);
        turns.set_echo_level(guard.echo_level(now).or(playout.current().map(|_| EchoLevel::NONE)));
        turns.set_pausable(scene.pausable && playout.current().is_some());
        turns.set_unpausable(!scene.pausable && playout.current().is_some());
        for event in turns.push(&near) {
            match event {
                TurnEvent::PossibleBargeIn { .. } if playout.pause(now) => {
                    guard.pause(now);
                    paused = Some(ms);
                }
                TurnEvent::BargeInDismissed { .. } => {
                    playout.resume();
                    guard.resume(now);
                    outcome.pauses.extend(paused.take().map(|from| (from, ms)));
                }
                TurnEvent::SpeechStarted { .. } if playout.current().is_some() => {
                    outcome.pauses.extend(paused.take().map(|from| (from, ms)));
                    outcome.announced = Some(ms);
                    return Ok(outcome);
                }
                _ => {}
            }
        }
    }
    Ok(outcome)
}

/// White-noise generator.
struct Noise(u32);

impl Noise {
    /// Returns a uniform sample, with a level of about one.
    fn next(&mut self) -> f32 {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        ((self.0 >> 8) as f32 / 8_388_608.0 - 1.0) * 1.73
    }
}

fn level(samples: &[f32]) -> f32 {
    (samples.iter().map(|sample| sample * sample).sum::<f32>() / samples.len().max(1) as f32).sqrt()
}
