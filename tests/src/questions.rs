//! The frozen questions of `tests/questions`: sound in voices that the demo model was not trained on, and the right
//! answers. The `README.md` there says how they were chosen.

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use repartee_testkit::random::Random;
use serde::Deserialize;

use crate::tools;

/// The topic of questions outside the domain.
const UNKNOWN: &str = "unknown";

/// A question and its right answer.
#[derive(Debug, Clone, Deserialize)]
pub struct Question {
    /// File name of the sound in `tests/questions`: 16 kHz, mono, 16 bit.
    pub file: String,
    /// Topic of the question.
    pub topic: String,
    /// Text of the question.
    pub text: String,
    /// Text of the right answer.
    pub answer: String,
}

impl Question {
    /// Returns the path of the sound.
    pub fn path(&self) -> PathBuf {
        folder().join(&self.file)
    }

    /// True if the model card claims an answer to it, other than "I don't know".
    pub fn is_in_domain(&self) -> bool {
        self.topic != UNKNOWN
    }
}

/// Returns all questions, in the order of the file.
pub fn all() -> Result<Vec<Question>> {
    let path = folder().join("questions.json");
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    serde_json::from_str(&text).with_context(|| path.display().to_string())
}

/// Returns the question whose sound is `file`.
pub fn named(file: &str) -> Result<Question> {
    all()?.into_iter().find(|question| question.file == file).with_context(|| format!("no question {file}"))
}

/// Shuffles `questions` with a seed from the clock. The seed is printed; `REPARTEE_TEST_SEED` sets it.
pub fn shuffled(mut questions: Vec<Question>) -> Result<Vec<Question>> {
    let seed = match std::env::var("REPARTEE_TEST_SEED") {
        Ok(seed) => seed.parse().context("REPARTEE_TEST_SEED is not a number")?,
        Err(_) => SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs(),
    };
    println!("REPARTEE_TEST_SEED={seed}");
    Random::new(seed).shuffle(&mut questions);
    Ok(questions)
}

/// Judges each text as an answer to its question, with the judge of the model card (`tests/questions/judge.py`).
/// Returns true for each right answer.
pub async fn judge(answers: &[(&Question, &str)]) -> Result<Vec<bool>> {
    let scratch = tempfile::NamedTempFile::new()?;
    let named: Vec<_> = answers.iter().map(|(question, text)| (&question.file, text)).collect();
    serde_json::to_writer(&scratch, &named)?;
    let mut judge = tools::python()?;
    judge.arg(folder().join("judge.py")).arg(scratch.path());
    let said = tools::output(&mut judge, Duration::from_secs(60)).await?;
    let right: Vec<bool> = serde_json::from_str(&said).context(said)?;
    ensure!(right.len() == answers.len(), "{} verdicts on {} answers", right.len(), answers.len());
    Ok(right)
}

fn folder() -> PathBuf {
    tools::root().join("tests/questions")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use repartee_media::sound_file;

    use super::*;

    #[test]
    fn every_question_has_its_sound() {
        for question in all().unwrap() {
            let wav =
                sound_file::decode(&std::fs::read(question.path()).unwrap()[..], Duration::from_secs(60)).unwrap();
            assert_eq!(wav.rate, 16_000, "{}", question.file);
        }
    }

    #[tokio::test]
    async fn only_own_answers_are_right() {
        let questions = all().unwrap();
        let pairs: Vec<_> =
            questions.iter().flat_map(|asked| questions.iter().map(move |other| (asked, other))).collect();
        let answers: Vec<_> = pairs.iter().map(|(asked, other)| (*asked, other.answer.as_str())).collect();
        for ((asked, other), right) in pairs.iter().zip(judge(&answers).await.unwrap()) {
            // Two questions of a topic may have the same answer.
            let may_differ = asked.topic == other.topic;
            assert!(
                right == (asked.file == other.file) || may_differ && asked.file != other.file,
                "{} by {:?}",
                asked.text,
                other.answer
            );
        }
    }

    #[tokio::test]
    async fn silence_is_no_right_answer() {
        let questions = all().unwrap();
        let answers: Vec<_> = questions.iter().map(|question| (question, "")).collect();
        assert!(judge(&answers).await.unwrap().iter().all(|right| !right));
    }
}
