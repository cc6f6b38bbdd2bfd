//! `make bench-heard`: how well the kept transcript of an interrupted answer matches what was heard of it. The demo model answers
//! all questions; every answer is cut each 80 ms, and the words that the gateway would keep are counted against the words that
//! had been said by then, as an independent recogniser times them (`tests/heard/word_times.py`). The peer is the plainest
//! estimator there is: all characters last equally long.
//!
//! Two things can be known when an answer is cut: all of its sound, because generating runs far ahead of speaking, or, at the
//! least, just what was heard. Both are measured.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use repartee_engine::{Engine, EngineConfig, Source};
use repartee_engine_api::{Command, Event, Respond, SpeechEngine};
use repartee_loadtest::report::{Report, Row};
use repartee_media::wav;
use repartee_realtime::estimate::{SpokenPace, WordEstimator};
use repartee_tests::{questions, tools};
use serde::Deserialize;

/// Between two cuts.
const STEP_MS: u64 = 80;
/// What the plainest estimator takes a character to last.
const MS_PER_CHARACTER: u64 = 67;

fn main() -> Result<()> {
    let answers = answers()?;
    let mut times = word_times(&answers)?;
    let mut measured = Vec::new();
    for answer in answers {
        let times = times.remove(&answer.recording).context("the recogniser did not report on a recording")?;
        measured.push(Measured::new(answer, times)?);
    }
    for Measured { answer, heard, hears_every_word, .. } in &measured {
        let verdict = if *hears_every_word { "   " } else { "not" };
        println!("{verdict} word for word: {} / {heard}", answer.text);
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
        rows.extend(compared("all sound made", &answers, &note, |_, sound_ms| (sound_ms, true)));
        rows.extend(compared("no sound made beyond the cut", &answers, &note, |cut_ms, _| (cut_ms, false)));
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

/// What the demo model answers to every question, recorded as 16-bit wav.
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
                Event::ToolCall { .. } | Event::ToolArguments { .. } | Event::Finished => {}
            }
        }
        let sound_ms = spoken.len() as u64 * 1_000 / u64::from(rate);
        std::fs::write(&recording, wav::encode(&spoken, rate)?)?;
        ensure!(!text.is_empty() && sound_ms > 0, "{}: no spoken answer", question.file);
        answers.push(Answer { text, sound_ms, recording });
    }
    Ok(answers)
}

/// A wav file at `rate`.
fn samples(path: &Path, rate: u32) -> Result<Vec<f32>> {
    Ok(wav::read(&std::fs::read(path)?[..], rate, Duration::from_secs(60))?)
}

/// What the recogniser says of a recording.
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

/// An answer and when its words had been said.
#[derive(Debug)]
struct Measured {
    answer: Answer,
    heard: String,
    /// The recogniser needs not be told the words.
    hears_every_word: bool,
    ends_ms: Vec<u64>,
}

impl Measured {
    fn new(answer: Answer, times: Times) -> Result<Self> {
        let said = plain(&answer.text);
        let told: Vec<String> = times.words.iter().flat_map(|timed| plain(&timed.word)).collect();
        // Counting needs the words one to one.
        ensure!(
            said == told && times.words.len() == answer.text.split_whitespace().count(),
            "the recogniser times other words than it was told: {said:?} / {told:?}"
        );
        let hears_every_word = plain(&times.heard) == said;
        let ends_ms = times.words.iter().map(|timed| timed.end_ms).collect();
        Ok(Self { answer, heard: times.heard, hears_every_word, ends_ms })
    }

    /// One long answer of all of them, from the one at `first` on: errors add up over it, which short answers do not show.
    fn joined(answers: &[Self], first: usize) -> Self {
        let in_turn = || answers.iter().cycle().skip(first).take(answers.len());
        let mut ends_ms = Vec::new();
        let mut sound_ms = 0;
        for Self { answer, ends_ms: more, .. } in in_turn() {
            ends_ms.extend(more.iter().map(|end_ms| sound_ms + end_ms));
            sound_ms += answer.sound_ms;
        }
        let sentences: Vec<&str> = in_turn().map(|Self { answer, .. }| answer.text.trim()).collect();
        Self {
            answer: Answer { text: sentences.join(" "), sound_ms, recording: PathBuf::new() },
            heard: String::new(),
            hears_every_word: false,
            ends_ms,
        }
    }
}

/// The words of `text` without case and punctuation; a recogniser may write digits.
fn plain(text: &str) -> Vec<String> {
    const DIGITS: [&str; 10] = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"];
    let words = text.split(|c: char| c.is_whitespace() || c == '-');
    words
        .map(|word| word.chars().filter(|c| c.is_alphanumeric()).collect::<String>().to_lowercase())
        .filter(|word| !word.is_empty())
        .map(|word| match word.parse::<usize>() {
            Ok(digit) if digit < DIGITS.len() => DIGITS[digit].to_owned(),
            _ => word,
        })
        .collect()
}

/// Ours and the peer's errors over all cuts of `answers`. `made` says of a cut and the sound's length how much sound was made when
/// the answer was cut, and whether that is all.
fn compared(title: &str, answers: &[&Measured], note: &str, made: impl Fn(u64, u64) -> (u64, bool)) -> Vec<Row> {
    let [ours, peer] =
        [&SpokenPace as &dyn WordEstimator, &EvenPace].map(|estimator| Errors::of(estimator, answers, &made));
    let row = |measure: &str, of: fn(&Errors) -> f64| Row {
        measure: format!("{title}: {measure}"),
        ours: of(&ours),
        peer: Some(of(&peer)),
        // An error of no words has no ratio.
        ratio: None,
        unit: "words",
        note: note.to_owned(),
    };
    vec![
        row("median error", |errors| errors.percentile(50)),
        row("p95 error", |errors| errors.percentile(95)),
        row("worst error", |errors| errors.percentile(100)),
        row("mean error", Errors::mean),
        row("bias, above 0 for words kept that were not said", Errors::bias),
    ]
}

/// Words kept more than were said, at each cut; sorted by size.
#[derive(Debug)]
struct Errors(Vec<i64>);

impl Errors {
    fn of(estimator: &dyn WordEstimator, answers: &[&Measured], made: impl Fn(u64, u64) -> (u64, bool)) -> Self {
        let mut errors = Vec::new();
        for Measured { answer, ends_ms, .. } in answers {
            for cut_ms in (0..=answer.sound_ms).step_by(STEP_MS as usize) {
                let (made_ms, whole) = made(cut_ms, answer.sound_ms);
                let kept = estimator.heard(&answer.text, cut_ms, made_ms, whole).split_whitespace().count();
                let said = ends_ms.iter().filter(|end_ms| **end_ms <= cut_ms).count();
                errors.push(kept as i64 - said as i64);
            }
        }
        errors.sort_by_key(|error| error.abs());
        Self(errors)
    }

    /// The smallest error that `percent` of all do not exceed.
    fn percentile(&self, percent: usize) -> f64 {
        let rank = (self.0.len() * percent).div_ceil(100);
        self.0[rank - 1].abs() as f64
    }

    fn mean(&self) -> f64 {
        self.0.iter().map(|error| error.abs()).sum::<i64>() as f64 / self.0.len() as f64
    }

    fn bias(&self) -> f64 {
        self.0.iter().sum::<i64>() as f64 / self.0.len() as f64
    }
}

/// All characters last equally long.
#[derive(Debug)]
struct EvenPace;

impl WordEstimator for EvenPace {
    fn heard<'a>(&self, text: &'a str, heard_ms: u64, made_ms: u64, whole: bool) -> &'a str {
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

fn print(rows: &[Row]) {
    let mut note = "";
    for row in rows {
        if row.note != note {
            note = &row.note;
            println!("\n{note}\n  {:<80} {:>6} {:>6}", "", "ours", "peer");
        }
        println!("  {:<80} {:>6.2} {:>6.2} {}", row.measure, row.ours, row.peer.unwrap_or_default(), row.unit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_words_kept_more_or_less_than_were_said() {
        #[derive(Debug)]
        struct Keeps(&'static str);
        impl WordEstimator for Keeps {
            fn heard<'a>(&self, text: &'a str, _: u64, _: u64, _: bool) -> &'a str {
                &text[..self.0.len()]
            }
        }
        let answer = Answer { text: "one two".to_owned(), sound_ms: 320, recording: PathBuf::new() };
        let measured =
            Measured { answer, heard: String::new(), hears_every_word: true, ends_ms: vec![STEP_MS, 3 * STEP_MS] };
        // Said at the five cuts: 0, 1, 1, 2 and 2 words.
        let errors = |kept| Errors::of(&Keeps(kept), &[&measured], |_, sound_ms| (sound_ms, true));
        let one = errors("one");
        assert_eq!((one.percentile(50), one.percentile(100), one.mean(), one.bias()), (1.0, 1.0, 0.6, -0.2));
        let none = errors("");
        assert_eq!((none.percentile(50), none.percentile(100), none.mean(), none.bias()), (1.0, 2.0, 1.2, -1.2));
        assert_eq!(errors("one two").bias(), 0.8);
    }

    #[test]
    fn digits_and_words_are_the_same_and_other_words_are_not() {
        assert_eq!(plain("3 plus 4 is 7."), plain("Three plus four is seven."));
        assert_eq!(plain("One-two, three!"), ["one", "two", "three"]);
        assert_ne!(plain("You're welcome."), plain("You are welcome."));
    }
}
