//! `make bench-turns`: endpointing by fixed silence and by the turn-detection model, on recordings of people. A false
//! end is a turn that ends in a pause after which the speaker continues; the delay is the time from the end of the
//! voice to the end of the turn.
//!
//! Few of these recordings contain pauses, so pauses of the recording's room tone are inserted after each word in turn;
//! `tests/turns/pauses.json` lists the positions. The speech is fluent there, without the prosody before a natural
//! pause. Time is the audio's own clock; a judgement of the model takes [`ANSWER_MS`] of audio.

use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use repartee_engine::TurnModel;
use repartee_media::endpointing::Eagerness;
use repartee_media::sound_file;
use repartee_media::vad::{RATE, TurnDetector, TurnEvent, TurnSettings};
use repartee_report::{Report, ReportRow};
use repartee_tests::tools;
use serde::Deserialize;

/// Durations of the inserted pauses.
const PAUSES_MS: [usize; 3] = [400, 800, 1_600];
/// Room tone after each recording: longer than any endpointing delay.
const AFTER_MS: usize = 9_000;
/// Duration of audio until the model's judgement is available.
const ANSWER_MS: usize = 100;
const PER_MS: usize = (RATE / 1_000) as usize;
/// Samples of a frame of the voice detector.
const FRAME: usize = 256;

/// Endpointing policies: name, client settings, and true with the model.
const POLICIES: [(&str, TurnSettings, bool); 7] = [
    ("server_vad, 200 ms", silence(200), false),
    ("server_vad, 500 ms", silence(500), false),
    ("semantic_vad medium without a model (700 ms)", eager(Eagerness::Medium), false),
    ("semantic_vad low without a model (1200 ms)", eager(Eagerness::Low), false),
    ("semantic_vad high with the model", eager(Eagerness::High), true),
    ("semantic_vad medium with the model", eager(Eagerness::Medium), true),
    ("semantic_vad low with the model", eager(Eagerness::Low), true),
];
/// Index of the published default, the peer of the others.
const PEER: usize = 1;

const fn silence(silence_duration_ms: u64) -> TurnSettings {
    TurnSettings { threshold: 0.5, prefix_padding_ms: 300, silence_duration_ms, eagerness: None, pause_ms: None }
}

const fn eager(eagerness: Eagerness) -> TurnSettings {
    TurnSettings { eagerness: Some(eagerness), ..silence(500) }
}

/// A recording of a person, from `tests/turns/pauses.json`.
#[derive(Debug, Deserialize)]
struct Recording {
    file: String,
    said: String,
    pauses_ms: Vec<usize>,
}

fn main() -> Result<()> {
    let recordings: Vec<Recording> = serde_json::from_str(include_str!("../turns/pauses.json"))?;
    let people = tools::root().join("target/tools/people/usr/share/pocketsphinx/test/data");
    let mut judge = Judge::load()?;
    let mut results: Vec<Measured> = POLICIES.iter().map(|_| Measured::default()).collect();
    for recording in &recordings {
        let spoken = Spoken::read(&people.join(&recording.file))?;
        for ((name, settings, judged), measured) in POLICIES.iter().zip(&mut results) {
            let ends = turn_ends(&spoken.whole(), *settings, judged.then_some(&mut judge));
            measured.add_whole(&ends, spoken.voice_end);
            for (length, pause_ms) in PAUSES_MS.iter().enumerate() {
                for cut_ms in &recording.pauses_ms {
                    let sound = spoken.until_the_rest(cut_ms * PER_MS, *pause_ms);
                    let cut_short = !turn_ends(&sound, *settings, judged.then_some(&mut judge)).is_empty();
                    measured.pauses[length].1 += 1;
                    measured.pauses[length].0 += usize::from(cut_short);
                }
            }
            println!("{:<52} {name}: {ends:?}, voice ends at {}", recording.said, spoken.voice_end / PER_MS);
        }
    }
    let mut rows = Vec::new();
    for ((name, ..), measured) in POLICIES.iter().zip(&results) {
        measured.print(name);
        rows.extend(measured.rows(name, &results[PEER]));
    }
    judge.print();
    rows.push(judge.row());
    let path = tools::root().join("target/report/turns.json");
    Report::new("turns", rows).write(&path)?;
    println!("\n{}", path.display());
    Ok(())
}

/// The turn-detection model with a cache of its judgements.
struct Judge {
    model: TurnModel,
    answers: HashMap<Vec<u32>, f32>,
    times: Vec<Duration>,
}

impl Judge {
    fn load() -> Result<Self> {
        let model = TurnModel::load(&tools::turn_model()?)?;
        Ok(Self { model, answers: HashMap::new(), times: Vec::new() })
    }

    fn probability(&mut self, turn: &[f32]) -> f32 {
        let key = turn.iter().map(|sample| sample.to_bits()).collect();
        *self.answers.entry(key).or_insert_with(|| {
            let begun = Instant::now();
            let probability = self.model.probability(turn);
            self.times.push(begun.elapsed());
            probability
        })
    }

    fn median_ms(&self) -> f64 {
        let mut times = self.times.clone();
        times.sort_unstable();
        times[times.len() / 2].as_secs_f64() * 1_000.0
    }

    fn print(&self) {
        println!("\none judgement: {:.0} ms at the median of {}", self.median_ms(), self.times.len());
    }

    fn row(&self) -> ReportRow {
        let note = format!("one thread, median of {}", self.times.len());
        ReportRow::without_peer("one judgement", self.median_ms(), "ms", note)
    }
}

/// A recording, and its room tone.
struct Spoken {
    samples: Vec<f32>,
    room: Vec<f32>,
    /// End of the voice, in samples.
    voice_end: usize,
}

impl Spoken {
    fn read(path: &Path) -> Result<Self> {
        let file = std::fs::read(path)
            .with_context(|| format!("{}: `scripts/setup.sh speech` fetches recordings of people", path.display()))?;
        let samples = match path.extension().is_some_and(|extension| extension == "wav") {
            true => sound_file::read(&file[..], RATE, Duration::from_secs(60))?,
            false => file.as_chunks().0.iter().map(|bytes| f32::from(i16::from_le_bytes(*bytes)) / 32_768.0).collect(),
        };
        let level =
            |part: &[f32]| part.iter().map(|sample| f64::from(*sample).powi(2)).sum::<f64>() / part.len() as f64;
        // Room tone: the quietest tenth of a second. Voice: 10 ms above a twentieth of the loudest.
        let quietest = samples.chunks_exact(100 * PER_MS).min_by(|a, b| level(a).total_cmp(&level(b)));
        let room = quietest.context("a recording is longer than 100 ms")?.to_vec();
        let short: Vec<f64> = samples.chunks_exact(10 * PER_MS).map(|part| level(part).sqrt()).collect();
        let loudest = short.iter().copied().fold(0.0, f64::max);
        let last = short.iter().rposition(|level| *level > loudest / 20.0).context("a recording has sound")?;
        let spoken = Self { samples, room, voice_end: (last + 1) * 10 * PER_MS };
        ensure!(loudest > 0.0, "{}: silence", path.display());
        Ok(spoken)
    }

    /// Returns `ms` of room tone, played forwards and backwards in turn, so there are no clicks.
    fn room(&self, ms: usize) -> impl Iterator<Item = f32> {
        self.room.iter().chain(self.room.iter().rev()).copied().cycle().take(ms * PER_MS)
    }

    fn whole(&self) -> Vec<f32> {
        self.samples.iter().copied().chain(self.room(AFTER_MS)).collect()
    }

    /// Returns the sound before `cut`, followed by a pause.
    fn until_the_rest(&self, cut: usize, pause_ms: usize) -> Vec<f32> {
        self.samples[..cut].iter().copied().chain(self.room(pause_ms)).collect()
    }
}

/// Returns the ends of the turns in `sound`, in samples.
fn turn_ends(sound: &[f32], settings: TurnSettings, mut judge: Option<&mut Judge>) -> Vec<usize> {
    let mut turns = TurnDetector::default();
    if judge.is_some() {
        turns = turns.with_turn_model();
    }
    turns.configure(settings);
    let mut ends = Vec::new();
    let mut answer: Option<(usize, u64, f32)> = None;
    for (index, frame) in sound.chunks(FRAME).enumerate() {
        let position = index * FRAME;
        if let Some((_, id, probability)) = answer.take_if(|(due, ..)| *due <= position)
            && turns.on_prediction(id, Some(probability)).is_some()
        {
            ends.push(position);
        }
        let stopped = turns.push(frame).into_iter().filter(|event| matches!(event, TurnEvent::SpeechStopped { .. }));
        ends.extend(stopped.map(|event| event.sample() as usize));
        if let (Some(judge), None) = (&mut judge, &answer)
            && let Some(question) = turns.next_query()
        {
            let probability = judge.probability(&question.turn);
            answer = Some((position + FRAME + ANSWER_MS * PER_MS, question.id, probability));
        }
    }
    ends
}

/// Results of one policy.
#[derive(Debug, Default)]
struct Measured {
    /// False ends and pauses, by duration of the pause.
    pauses: [(usize, usize); PAUSES_MS.len()],
    /// False ends in the speakers' own pauses.
    own: usize,
    delays_ms: Vec<usize>,
}

impl Measured {
    fn add_whole(&mut self, ends: &[usize], voice_end: usize) {
        self.own += ends.iter().filter(|end| **end < voice_end).count();
        if let Some(last) = ends.last().filter(|end| **end >= voice_end) {
            self.delays_ms.push((last - voice_end) / PER_MS);
            self.delays_ms.sort_unstable();
        }
    }

    fn delay_ms(&self, percent: usize) -> f64 {
        let last = self.delays_ms.len().saturating_sub(1);
        self.delays_ms.get((last * percent).div_ceil(100)).map_or(f64::NAN, |delay| *delay as f64)
    }

    fn share(&self, length: usize) -> f64 {
        let (wrong, all) = self.pauses[length];
        100.0 * wrong as f64 / all as f64
    }

    fn print(&self, name: &str) {
        let shares: Vec<String> = (0..PAUSES_MS.len())
            .map(|length| format!("{:>3} of {}", self.pauses[length].0, self.pauses[length].1))
            .collect();
        println!(
            "{name:<46} false ends in pauses of {PAUSES_MS:?} ms: {}; own {}; delay {:.0} ms at the median, {:.0} at most",
            shares.join(", "),
            self.own,
            self.delay_ms(50),
            self.delay_ms(100)
        );
    }

    fn rows(&self, name: &str, peer: &Self) -> Vec<ReportRow> {
        let note = format!("beside {}; {} recordings", POLICIES[PEER].0, self.delays_ms.len());
        let row = |measure: String, ours: f64, peer: f64, unit: &str| {
            ReportRow::lower_is_better(format!("{name}: {measure}"), ours, peer, unit, &note)
        };
        let mut rows: Vec<ReportRow> = PAUSES_MS
            .iter()
            .enumerate()
            .map(|(length, ms)| {
                row(format!("false ends in pauses of {ms} ms"), self.share(length), peer.share(length), "%")
            })
            .collect();
        rows.push(row("false ends in the speakers' own pauses".into(), self.own as f64, peer.own as f64, "turns"));
        for (measure, percent) in [("delay, median", 50), ("delay, longest", 100)] {
            rows.push(row(measure.into(), self.delay_ms(percent), peer.delay_ms(percent), "ms"));
        }
        rows
    }
}
