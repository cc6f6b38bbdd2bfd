//! The questions of `tests/questions`: sound in voices that the demo model never heard, and the right answers.

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use repartee_testkit::random::Random;
use serde::Deserialize;

use crate::tools;

/// A question and what a right answer holds.
#[derive(Debug, Clone, Deserialize)]
pub struct Question {
    /// Name of the sound in `tests/questions`: 16 kHz, mono, 16 bit.
    pub file: String,
    /// What is asked.
    pub text: String,
    /// The answer as the reference implementation gives it.
    pub answer: String,
    /// Ways to write the word that decides the answer, in lower case: a recogniser may write digits.
    pub key: Vec<String>,
}

impl Question {
    /// Where its sound is.
    pub fn path(&self) -> PathBuf {
        folder().join(&self.file)
    }

    /// Whether the word that decides the answer is among the words of `text`.
    pub fn is_answered_by(&self, text: &str) -> bool {
        let lower = text.to_lowercase();
        let mut words = lower.split(|c: char| !c.is_alphanumeric());
        words.any(|word| self.key.iter().any(|key| key == word))
    }
}

/// All questions, in the order of the file.
pub fn all() -> Result<Vec<Question>> {
    let path = folder().join("questions.json");
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    serde_json::from_str(&text).with_context(|| path.display().to_string())
}

/// The question asked by `file`.
pub fn named(file: &str) -> Result<Question> {
    all()?.into_iter().find(|question| question.file == file).with_context(|| format!("no question {file}"))
}

/// `count` questions in an order that differs from run to run. The seed is printed; `REPARTEE_TEST_SEED` sets it.
pub fn shuffled(count: usize) -> Result<Vec<Question>> {
    let seed = match std::env::var("REPARTEE_TEST_SEED") {
        Ok(seed) => seed.parse().context("REPARTEE_TEST_SEED is not a number")?,
        Err(_) => SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs(),
    };
    println!("REPARTEE_TEST_SEED={seed}");
    let mut questions = all()?;
    Random::new(seed).shuffle(&mut questions);
    questions.truncate(count);
    Ok(questions)
}

fn folder() -> PathBuf {
    tools::root().join("tests/questions")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use repartee_media::wav;

    use super::*;

    #[test]
    fn every_question_has_a_sound_and_own_key() {
        let questions = all().unwrap();
        for question in &questions {
            let wav = wav::decode(&std::fs::read(question.path()).unwrap()[..], Duration::from_secs(60)).unwrap();
            assert_eq!(wav.rate, 16_000, "{}", question.file);
            for other in &questions {
                let own = question.file == other.file;
                assert_eq!(question.is_answered_by(&other.answer), own, "{} by {}", question.file, other.answer);
            }
        }
    }

    #[test]
    fn keys_match_whole_words_in_any_case() {
        let question = named("three-plus-four.wav").unwrap();
        assert!(question.is_answered_by("3 plus 4 is 7."));
        assert!(question.is_answered_by("It is SEVEN!"));
        assert!(!question.is_answered_by("Seventeen, or 70."));
    }
}
