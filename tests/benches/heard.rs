//! `make bench-heard`: error of the truncated transcript of an interrupted answer. The demo model answers all
//! questions; every answer is cut each 80 ms, and the words that the gateway would keep are compared with the words
//! said by then, as timed by an independent recogniser (`tests/heard/word_times.py`). The peer is the simplest
//! estimator: all characters last equally long.
//!
//! At the cut the gateway knows either all of the sound, because generation runs far ahead of playback, or in the worst
//! case only the played part. Both are measured, the latter also after an earlier answer of the call, from which the
//! pace of the voice is known.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use repartee_engine::{Engine, EngineConfig, Source};
use repartee_engine_api::{Command, Event, Respond, SpeechEngine};
use repartee_media::sound_file;
use repartee_media::wav;
use repartee_realtime::estimate::{SpeechRateEstimator, WordEstimator};
use repartee_report::{Report, ReportRow};
use repartee_tests::word_errors::{STEP_MS, TimedWords, WordErrors, normalized_words};
use repartee_tests::{questions, tools};
use serde::Deserialize;

/// Duration of a character in the simplest estimator.
const MS_PER_CHARACTER: u64 = 67;

fn main() -> Result<()> {
    let answers = answers()?;
    let mut times = word_times(&answers)?;
    let mut measured = Vec::new();
    for answer in answers {
        let times = times.remove(&answer.recording).context("the recogniser did not report on a recording")?;
        measured.push(Measured::new(answer, times)?);
    }
    for Measured { spoken, heard, hears_every_word } in &measured {
        let verdict = if *hears_every_word { "   " } else { "not" };
        println!("{verdict} word for word: {} / {heard}", spoken.text);
    }

    let clear: Vec<&Measured> = measured.iter().filter(|answer| answer.hears_every_word).collect();
    let all: Vec<&Measured> = measured.iter().collect();
    let long: Vec<Measured> = (0..measured.len()).map(|first| Measured::joined(&measured, first)).collect();
    let clear_note = format!(
        "{} of {} answers: those that the recogniser hears word for word by itself; cut each {STEP_MS} ms",
        clear.len(),
        all.len()
    );
    let all_note = format!("all {} answers, whose words the recogniser was told; cut each {STEP_MS} ms", all.len());
    let long_note =
        format!("one answer of all {0} in a row, begun with each of the {0}; cut each {STEP_MS} ms", all.len());
    ensure!(!clear.is_empty(), "the recogniser heard no answer word for word");
    let mut rows = Vec::new();
    for (answers, note) in [(clear, clear_note), (all, all_note), (long.iter().collect(), long_note)] {
        let untaught = |_: usize| SpeechRateEstimator::default();
        let taught = |index: usize| {
            let mut pace = SpeechRateEstimator::default();
            let before = &measured[(index + measured.len() - 1) % measured.len()].spoken;
            pace.observe(&before.text, before.sound_ms);
            pace
        };
        rows.extend(compared("all sound made", &answers, &note, untaught, |_, sound_ms| (sound_ms, true)));
        rows.extend(compared("no sound made beyond the cut", &answers, &note, untaught, |cut_ms, _| (cut_ms, false)));
        rows.extend(compared("likewise, after an earlier answer", &answers, &note, taught, |cut_ms, _| {
            (cut_ms, false)
        }));
    }
    print(&rows);
    let path = tools::root().join("target/report/heard.json");
    Report::new("heard", rows).write(&path)?;
    println!("\n{}", path.display());
    Ok(())
}

/// A spoken answer.
#[derive(Debug)]
struct Answer {
    text: String,
    sound_ms: u64,
    recording: PathBuf,
}

/// Returns the demo model's answer to every question, recorded as 16-bit wav.
fn answers() -> Result<Vec<Answer>> {
    let engine = Engine::start(Source::Folder(tools::root().join("models/demo")), &EngineConfig::default())?;
    let folder = tools::recordings("heard")?;
    let mut answers = Vec::new();
    for question in questions::all()? {
        let session = engine.open()?;
        let sound = samples(&question.path(), engine.info().input_rate)?;
        for command in [Command::Append(sound), Command::Commit { item: 0 }, Command::Respond(Respond::new(0, 1))] {
            session.submit(command)?;
        }
        let rate = engine.info().output_rate;
        let recording = folder.join(&question.file);
        let (mut text, mut spoken) = (String::new(), Vec::new());
        loop {
            match session.next_event_blocking().context("the session ended")? {
                Event::Text { text: more, .. } => text += &more,
                Event::Audio { samples, .. } => spoken.extend(samples),
                Event::SegmentFinished { .. } => break,
                Event::Failed { error, .. } => return Err(error.into()),
                Event::InputText { .. }
                | Event::InputDetails { .. }
                | Event::ToolCall { .. }
                | Event::ToolArguments { .. }
                | Event::Finished => {}
            }
        }
        let sound_ms = spoken.len() as u64 * 1_000 / u64::from(rate);
        std::fs::write(&recording, wav::encode(&spoken, rate)?)?;
        ensure!(!text.is_empty() && sound_ms > 0, "{}: no spoken answer", question.file);
        answers.push(Answer { text, sound_ms, recording });
    }
    Ok(answers)
}

/// Reads a wav file at `rate`.
fn samples(path: &Path, rate: u32) -> Result<Vec<f32>> {
    Ok(sound_file::read(&std::fs::read(path)?[..], rate, Duration::from_secs(60))?)
}

/// Output of the recogniser for one recording.
#[derive(Debug, Deserialize)]
struct Times {
    heard: String,
    words: Vec<TimedWord>,
}

#[derive(Debug, Deserialize)]
struct TimedWord {
    word: String,
    end_ms: u64,
}

#[tokio::main(flavor = "current_thread")]
async fn word_times(answers: &[Answer]) -> Result<HashMap<PathBuf, Times>> {
    let mut command = tools::python()?;
    command.arg(tools::root().join("tests/heard/word_times.py"));
    for answer in answers {
        command.arg(&answer.recording).arg(&answer.text);
    }
    let said = tools::output(&mut command, Duration::from_secs(180)).await?;
    serde_json::from_str(&said).context(said)
}

/// An answer with the times of its words.
#[derive(Debug)]
struct Measured {
    spoken: TimedWords,
    heard: String,
    /// True if the recogniser transcribes every word without being told the text.
    hears_every_word: bool,
}

impl Measured {
    fn new(answer: Answer, times: Times) -> Result<Self> {
        let said = normalized_words(&answer.text);
        let told: Vec<String> = times.words.iter().flat_map(|timed| normalized_words(&timed.word)).collect();
        // The count needs the same words one to one.
        ensure!(
            said == told && times.words.len() == answer.text.split_whitespace().count(),
            "the recogniser times other words than it was told: {said:?} / {told:?}"
        );
        let hears_every_word = normalized_words(&times.heard) == said;
        let ends_ms = times.words.iter().map(|timed| timed.end_ms).collect();
        let spoken = TimedWords { text: answer.text, sound_ms: answer.sound_ms, ends_ms };
        Ok(Self { spoken, heard: times.heard, hears_every_word })
    }

    /// Joins all answers, from index `first` on, into a long one: errors accumulate over it, which short answers do not
    /// show.
    fn joined(answers: &[Self], first: usize) -> Self {
        let in_turn = || answers.iter().cycle().skip(first).take(answers.len());
        let mut ends_ms = Vec::new();
        let mut sound_ms = 0;
        for Self { spoken, .. } in in_turn() {
            ends_ms.extend(spoken.ends_ms.iter().map(|end_ms| sound_ms + end_ms));
            sound_ms += spoken.sound_ms;
        }
        let sentences: Vec<&str> = in_turn().map(|Self { spoken, .. }| spoken.text.trim()).collect();
        let spoken = TimedWords { text: sentences.join(" "), sound_ms, ends_ms };
        Self { spoken, heard: String::new(), hears_every_word: false }
    }
}

/// Compares our errors with the peer's over all cuts of `answers`. `estimator` makes the estimator for the answer at an
/// index. `made` maps the cut and the sound's duration to the duration generated by then, and to true if that is the
/// whole sound.
fn compared(
    title: &str,
    answers: &[&Measured],
    note: &str,
    estimator: impl Fn(usize) -> SpeechRateEstimator,
    made: impl Fn(u64, u64) -> (u64, bool),
) -> Vec<ReportRow> {
    let spoken = || answers.iter().map(|answer| &answer.spoken).enumerate();
    let ours = WordErrors::of(spoken().map(|(index, spoken)| (estimator(index), spoken)), &made);
    let peer = WordErrors::of(spoken().map(|(_, spoken)| (EvenPace, spoken)), &made);
    let row = |measure: &str, of: fn(&WordErrors) -> f64| ReportRow {
        // There is no ratio to an error of zero words.
        peer: Some(of(&peer)),
        ..ReportRow::without_peer(format!("{title}: {measure}"), of(&ours), "words", note)
    };
    vec![
        row("median error", |errors| errors.percentile(50)),
        row("p95 error", |errors| errors.percentile(95)),
        row("worst error", |errors| errors.percentile(100)),
        row("mean error", WordErrors::mean),
        row("bias, above 0 for words kept that were not said", WordErrors::bias),
    ]
}

/// Estimator in which all characters last equally long.
#[derive(Debug)]
struct EvenPace;

impl WordEstimator for EvenPace {
    fn observe(&mut self, _text: &str, _audio_ms: u64) {}

    fn heard_prefix<'a>(&self, text: &'a str, heard_ms: u64, made_ms: u64, whole: bool) -> &'a str {
        let characters = text.chars().count() as u64;
        let total_ms = if whole { made_ms } else { made_ms.max(characters * MS_PER_CHARACTER) };
        if heard_ms >= total_ms {
            return text;
        }
        let Some((cut, next)) = text.char_indices().nth((characters * heard_ms / total_ms) as usize) else {
            return text;
        };
        if next.is_whitespace() {
            return &text[..cut];
        }
        text[..cut].rfind(char::is_whitespace).map_or("", |space| &text[..space])
    }
}

fn print(rows: &[ReportRow]) {
    let mut note = "";
    for row in rows {
        if row.note != note {
            note = &row.note;
            println!("\n{note}\n  {:<80} {:>6} {:>6}", "", "ours", "peer");
        }
        println!("  {:<80} {:>6.2} {:>6.2} {}", row.measure, row.ours, row.peer.unwrap_or_default(), row.unit);
    }
}
