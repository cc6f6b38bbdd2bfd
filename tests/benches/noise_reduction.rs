//! `make bench-noise`: noise reduction and gain on the frozen scenes of callers in noise and of soft callers. Each scene is heard as a call
//! hears it: the treatment gets all of the sound, the turn detector what it returns, and the model the voice with 300 ms on both sides.
//!
//! Measures by scene: right answers of the demo model, callers whose turn does not open, turns that open before or behind the voice, and the
//! median time from the voice's end to the turn's. For voices without a noise also the power of what the treatment changes in
//! them, relative to theirs, in dB.
//!
//! `NOISE_PEER` is the command of another treatment: it reads samples of 16 kHz from stdin, 32-bit floats, and writes as many.
//! `NOISE_TREATMENTS` names the treatments to run, if not all.

use std::io::Write as _;
use std::process::{Command as Program, Stdio};

use anyhow::{Context, Result, ensure};
use repartee_engine::{Engine, EngineConfig, Source};
use repartee_engine_api::{Command, Event, Respond, SpeechEngine};
use repartee_media::noise_reducer::{FAR_FIELD_DB, NEAR_FIELD_DB, NoiseReducer};
use repartee_media::resample::Resampler;
use repartee_media::vad::{TurnDetector, TurnEvent};
use repartee_report::{Report, ReportRow};
use repartee_tests::noise_scenes::{self, AFTER, BEFORE, NoiseScene, NoisySound, RATE};
use repartee_tests::questions::{self, Question};
use repartee_tests::tools;

/// Samples of a packet, 20 ms.
const PACKET: usize = RATE as usize / 50;
/// Sound around the voice that belongs to a turn, 300 ms.
const PADDING: usize = RATE as usize * 3 / 10;
/// Earliest begin of a turn before its voice, in ms: the padding and the tolerance of the detector.
const EARLIEST_MS: u64 = 450;

/// Treatment of the input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Treatment {
    /// The sound as it is.
    Nothing,
    /// Noise reduction of the published kinds.
    NearField,
    FarField,
    /// Gain that earlier turns of a soft caller would have set, as an automatic gain does: to -26 dBFS, by at most 20 dB. Voices beside a noise
    /// need none and are left out.
    Gain,
    /// The command of `NOISE_PEER`.
    Peer,
}

const TREATMENTS: [Treatment; 5] =
    [Treatment::Nothing, Treatment::NearField, Treatment::FarField, Treatment::Gain, Treatment::Peer];
/// Level to which a gain lifts voices, in dBFS, and the greatest gain, in dB.
const GAINED_DB: f32 = -26.0;
const MOST_GAIN_DB: f32 = 20.0;

impl Treatment {
    /// True if the treatment changes this scene.
    fn changes(self, scene: NoiseScene) -> bool {
        self != Self::Gain || matches!(scene, NoiseScene::Quiet(_))
    }

    /// Returns as many samples.
    fn apply(self, scene: NoiseScene, samples: &[f32]) -> Result<Vec<f32>> {
        match self {
            Self::Nothing => Ok(samples.to_vec()),
            Self::NearField => Ok(reduced(samples, NEAR_FIELD_DB)),
            Self::FarField => Ok(reduced(samples, FAR_FIELD_DB)),
            Self::Gain => Ok(gained(scene, samples)),
            Self::Peer => peer(samples),
        }
    }

    fn is_asked(self) -> bool {
        let named = std::env::var("NOISE_TREATMENTS").map_or(true, |names| names.contains(&format!("{self:?}")));
        named && (self != Self::Peer || std::env::var_os("NOISE_PEER").is_some())
    }
}

/// Lifts the voice of a quiet scene, with the room behind it.
fn gained(scene: NoiseScene, samples: &[f32]) -> Vec<f32> {
    let NoiseScene::Quiet(level_db) = scene else { return samples.to_vec() };
    let gain = 10_f32.powf((GAINED_DB - level_db).clamp(0.0, MOST_GAIN_DB) / 20.0);
    samples.iter().map(|sample| (gain * sample).clamp(-1.0, 1.0)).collect()
}

fn reduced(samples: &[f32], most_db: f32) -> Vec<f32> {
    let (mut reducer, mut out) = (NoiseReducer::new(most_db), Vec::new());
    for packet in samples.chunks(PACKET) {
        let mut packet = packet.to_vec();
        reducer.process(&mut packet);
        out.extend(packet);
    }
    reducer.flush(&mut out);
    out
}

fn peer(samples: &[f32]) -> Result<Vec<f32>> {
    let command = std::env::var("NOISE_PEER")?;
    let mut words = command.split_whitespace();
    let mut program = Program::new(words.next().context("NOISE_PEER is empty")?);
    let mut child = program.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let bytes: Vec<u8> = samples.iter().flat_map(|sample| sample.to_le_bytes()).collect();
    let mut input = child.stdin.take().context("no stdin")?;
    let writer = std::thread::spawn(move || input.write_all(&bytes));
    let output = child.wait_with_output()?;
    writer.join().ok().context("the writer panicked")??;
    let (floats, _) = output.stdout.as_chunks::<4>();
    let treated: Vec<f32> = floats.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
    ensure!(treated.len() == samples.len(), "{} samples in, {} out", samples.len(), treated.len());
    Ok(treated)
}

/// Counts of one scene.
#[derive(Debug, Default)]
struct Counts {
    right: usize,
    missed: usize,
    false_turns: usize,
    ends_ms: Vec<u64>,
    changes_db: Vec<f32>,
}

fn main() -> Result<()> {
    let questions: Vec<Question> = questions::all()?.into_iter().filter(Question::is_in_domain).collect();
    let voices = noise_scenes::voices(&questions)?;
    let engine = Engine::start(Source::Folder(tools::root().join("models/demo")), &EngineConfig::default())?;
    let mut rows = Vec::new();
    for treatment in TREATMENTS.into_iter().filter(|treatment| treatment.is_asked()) {
        for scene in noise_scenes::scenes().filter(|scene| treatment.changes(*scene)) {
            let mut counts = Counts::default();
            let mut answers = Vec::new();
            for index in 0..questions.len() {
                let sound = noise_scenes::sound(scene, &voices, index);
                let treated = treatment.apply(scene, &sound.samples)?;
                counts.add_turns(&treated, sound.voice.len());
                if let NoiseScene::Quiet(_) = scene {
                    counts.changes_db.push(change_db(&sound, &treated));
                }
                answers.push(answer(&engine, &treated[BEFORE - PADDING..treated.len() - AFTER + PADDING])?);
            }
            counts.right = judged(&questions, &answers)?;
            println!("{treatment:?}, {scene}: {counts}");
            rows.extend(counts.rows(&format!("{treatment:?}, {scene}"), questions.len()));
        }
    }
    let path = tools::root().join("target/report/noise_reduction.json");
    Report::new("noise_reduction", rows).write(&path)?;
    println!("\n{}", path.display());
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn judged(questions: &[Question], answers: &[String]) -> Result<usize> {
    let pairs: Vec<_> = questions.iter().zip(answers.iter().map(String::as_str)).collect();
    Ok(questions::judge(&pairs).await?.into_iter().filter(|right| *right).count())
}

/// Text that the model answers to `sound`.
fn answer(engine: &Engine, sound: &[f32]) -> Result<String> {
    let mut resampler = Resampler::new(RATE, engine.info().input_rate)?;
    let mut samples = resampler.push(sound)?;
    samples.extend(resampler.flush()?);
    let session = engine.open()?;
    let respond = Respond { audio: false, ..Respond::new(0, 1) };
    for command in [Command::Append(samples), Command::Commit { item: 0 }, Command::Respond(respond)] {
        session.submit(command)?;
    }
    let mut text = String::new();
    loop {
        match session.next_event_blocking().context("the session ended")? {
            Event::Text { text: more, .. } => text += &more,
            Event::SegmentFinished { .. } => return Ok(text),
            Event::Failed { error, .. } => return Err(error.into()),
            _ => {}
        }
    }
}

/// Power of what the treatment changes in the voice, relative to the voice, in dB; a constant gain is no change.
fn change_db(sound: &NoisySound, treated: &[f32]) -> f32 {
    let range = BEFORE..BEFORE + sound.voice.len();
    let (before, after) = (&sound.samples[range.clone()], &treated[range]);
    let product = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(a * b)).sum::<f64>();
    let gain = product(before, after) / product(before, before).max(1e-12);
    let change: f64 = before.iter().zip(after).map(|(a, b)| (f64::from(*b) - gain * f64::from(*a)).powi(2)).sum();
    let kept = gain * gain * product(before, before);
    10.0 * (change / kept.max(1e-12)).max(1e-10).log10() as f32
}

impl Counts {
    /// Counts the turns of the sound, whose voice has `length` samples.
    fn add_turns(&mut self, treated: &[f32], length: usize) {
        let mut turns = TurnDetector::default();
        let ms = |samples: usize| samples as u64 * 1_000 / u64::from(RATE);
        let (begin, end) = (ms(BEFORE), ms(BEFORE + length));
        let (mut was_heard, mut in_voice, mut stopped) = (false, false, None);
        for event in treated.chunks(PACKET).flat_map(|packet| turns.push(packet)) {
            match event {
                TurnEvent::SpeechStarted { audio_start_ms: at } => {
                    in_voice = (begin - EARLIEST_MS..end).contains(&at);
                    was_heard |= in_voice;
                    self.false_turns += usize::from(!in_voice);
                }
                TurnEvent::SpeechStopped { audio_end_ms: at } if in_voice => stopped = Some(at),
                _ => {}
            }
        }
        self.missed += usize::from(!was_heard);
        // A turn that never ends counts as the end of the sound.
        if was_heard {
            self.ends_ms.push(stopped.unwrap_or(ms(treated.len())).saturating_sub(end));
        }
    }

    fn middle_ms(&self) -> u64 {
        let mut ends = self.ends_ms.clone();
        ends.sort_unstable();
        ends.get(ends.len() / 2).copied().unwrap_or_default()
    }

    fn middle_change_db(&self) -> Option<f32> {
        let mut changes = self.changes_db.clone();
        changes.sort_unstable_by(f32::total_cmp);
        changes.get(changes.len() / 2).copied()
    }

    fn rows(&self, scene: &str, asked: usize) -> Vec<ReportRow> {
        let note = format!("{asked} questions each");
        let row = |measure: &str, value: f64, unit: &str| {
            ReportRow::without_peer(format!("{scene}: {measure}"), value, unit, &note)
        };
        let mut rows = vec![
            row("right answers", self.right as f64, "answers"),
            row("callers whose turn does not open", self.missed as f64, "callers"),
            row("turns that open on noise", self.false_turns as f64, "turns"),
            row("end of the voice to end of the turn, p50", self.middle_ms() as f64, "ms"),
        ];
        rows.extend(self.middle_change_db().map(|db| row("change of the voice, p50", f64::from(db), "dB")));
        rows
    }
}

impl std::fmt::Display for Counts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { right, missed, false_turns, .. } = self;
        write!(f, "{right} right, {missed} missed, {false_turns} open on noise, end after {} ms", self.middle_ms())?;
        self.middle_change_db().map_or(Ok(()), |db| write!(f, ", changed by {db:.1} dB"))
    }
}
