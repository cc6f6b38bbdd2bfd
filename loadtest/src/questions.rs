//! Questions, and the check of answers.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use crate::speech::{FRAME_SAMPLES, Utterance};

/// Pause between the questions of a long question, in frames; too short for any server to end the turn.
const PAUSE_FRAMES: usize = 6;
/// Most long questions that are made.
const LONG_QUESTIONS: usize = 12;

/// A question as sound, with the key of its answer.
#[derive(Debug)]
pub struct Question {
    /// Sound of the question.
    pub utterance: Utterance,
    /// Topic of the question; empty if unknown.
    pub topic: String,
    /// Words that a right answer contains, in this order; empty if unknown.
    key: Vec<String>,
}

/// An entry of `questions.json`.
#[derive(Debug, Deserialize)]
struct Entry {
    file: PathBuf,
    topic: String,
    #[serde(default)]
    key: Vec<String>,
}

/// Topic of questions to which "I don't know" is the right answer.
const UNKNOWN: &str = "unknown";
/// Topic of questions whose answer depends on earlier turns.
const MEMORY: &str = "memory";

impl Question {
    /// Creates a question without a known answer.
    pub fn of(utterance: Utterance) -> Self {
        Self { utterance, topic: String::new(), key: Vec::new() }
    }

    /// Returns true if `answer` is right; `None` if the right answer is unknown.
    pub fn is_right(&self, answer: &str) -> Option<bool> {
        let lower = answer.to_lowercase();
        let mut words = lower.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
        if self.topic == UNKNOWN {
            return Some(words.any(|word| word == "know"));
        }
        if self.key.is_empty() || self.topic == MEMORY {
            return None;
        }
        Some(self.key.iter().all(|wanted| words.any(|word| word == wanted)))
    }
}

/// Loads the questions of a folder: those of its `questions.json`, or its wav files. Keeps those about `topics`; all if
/// empty.
///
/// # Errors
/// The folder has no questions, or a file cannot be read.
pub fn load(folder: &Path, topics: &[String]) -> Result<Vec<Question>> {
    let list = folder.join("questions.json");
    let named = || list.display().to_string();
    let entries: Vec<Entry> = if list.exists() {
        serde_json::from_str(&std::fs::read_to_string(&list).with_context(named)?).with_context(named)?
    } else {
        let files = std::fs::read_dir(folder).with_context(|| folder.display().to_string())?;
        let names = files.filter_map(|file| file.ok().map(|file| PathBuf::from(file.file_name())));
        let mut names: Vec<PathBuf> = names.filter(|name| name.extension().is_some_and(|kind| kind == "wav")).collect();
        names.sort();
        names.into_iter().map(|file| Entry { file, topic: String::new(), key: Vec::new() }).collect()
    };
    ensure!(!entries.is_empty(), "{} holds no questions", folder.display());
    // Filters first: reading and encoding a question is slow.
    let wanted = entries.into_iter().filter(|entry| topics.is_empty() || topics.contains(&entry.topic));
    let question = |entry: Entry| -> Result<Question> {
        Ok(Question { utterance: Utterance::load(&folder.join(entry.file))?, topic: entry.topic, key: entry.key })
    };
    wanted.map(question).collect()
}

/// Joins `count` questions into each long question, with short pauses.
///
/// # Errors
/// The encoder fails.
pub fn long(questions: &[Question], count: usize) -> Result<Vec<Question>> {
    let made = (0..LONG_QUESTIONS.min(questions.len())).map(|first| {
        let mut samples = Vec::new();
        for n in 0..count {
            samples.extend_from_slice(&questions[(first + n) % questions.len()].utterance.samples);
            samples.resize(samples.len() + PAUSE_FRAMES * FRAME_SAMPLES, 0.0);
        }
        Ok(Question::of(Utterance::new(&samples)?))
    });
    made.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(topic: &str, key: &[&str]) -> Question {
        let utterance = Utterance::new(&[0.1; 4_800]).unwrap();
        Question { utterance, topic: topic.into(), key: key.iter().map(|word| (*word).into()).collect() }
    }

    #[test]
    fn answers_are_judged_by_words_in_order() {
        let sum = question("arithmetic", &["forty", "two"]);
        assert_eq!(sum.is_right("Six times seven is forty-two."), Some(true));
        assert_eq!(sum.is_right("Two and forty."), Some(false));
        assert_eq!(sum.is_right("It is forty three."), Some(false));
        assert_eq!(question("unknown", &[]).is_right("I don't know."), Some(true));
        assert_eq!(question("", &[]).is_right("Anything."), None);
        assert_eq!(question("memory", &["anna"]).is_right("I don't know your name."), None);
    }

    #[test]
    fn long_questions_hold_several() {
        let questions: Vec<_> = (0..3).map(|_| question("", &[])).collect();
        let long = long(&questions, 4).unwrap();
        assert_eq!(long.len(), 3);
        // Four of 200 ms, with 120 ms in between.
        assert_eq!(long[0].utterance.speech_end.as_millis(), 4 * 200 + 3 * 120);
    }
}
