//! Judged starts: who interrupts an answer, and who only listens. `tests/interruptions/starts.json` lists them.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use repartee_media::sound_file;
use repartee_media::vad::{BargeInPolicy, RATE};
use serde::Deserialize;

use super::interruptions::{Recordings, Scene, simulate};

/// Samples per millisecond.
const PER_MS: usize = RATE as usize / 1_000;
/// Longest time from the end of a start to its announcement, in ms.
const LATE_MS: usize = 500;
/// Longest part of a start that is said, in ms: what comes later decides nothing.
const LONGEST_MS: usize = 1_600;
/// Time behind a start until which the answer goes on, in ms.
const BEHIND_MS: usize = 1_500;
/// Languages of which training hears nothing.
const UNHEARD: [&str; 2] = ["pt", "hi"];

/// Start of a voice over an answer.
#[derive(Debug, Clone, Deserialize)]
pub struct Start {
    /// Language; "none" for synthesised coughs and the like, "people" for people's sounds.
    pub language: String,
    /// Name of the voice of Kokoro, or of the folder of a person's recordings.
    pub voice: String,
    /// Kind of the start, as listed in the folder's README.
    pub kind: String,
    file: String,
    /// Place in the file; all of it without one.
    #[serde(default)]
    at_ms: usize,
    ms: Option<usize>,
    /// Samples at [`RATE`], normalised to a level of one.
    #[serde(skip)]
    pub samples: Vec<f32>,
}

impl Start {
    /// True if it has to interrupt.
    pub fn interrupts(&self) -> bool {
        matches!(&*self.kind, "command" | "sentence" | "backchannel and sentence" | "interruption")
    }

    /// Group of the start in a table: who says what.
    pub fn group(&self) -> String {
        let who = match &*self.language {
            "none" => "synthesised",
            "people" => "people",
            "en" => "English",
            language if UNHEARD.contains(&language) => "languages that training does not hear",
            _ => "other languages",
        };
        format!("{}, {who}", self.kind)
    }
}

/// Loads the judged starts in `folder`. People's sounds come in a package, and are left out where it is not unpacked.
pub fn load(folder: &Path) -> Result<Vec<Start>> {
    let listed = std::fs::read_to_string(folder.join("starts.json"))?;
    let listed: Vec<Start> = serde_json::from_str(&listed).context("starts.json")?;
    let mut files: BTreeMap<String, Vec<f32>> = BTreeMap::new();
    let mut starts = Vec::new();
    for mut start in listed {
        let path = folder.join(&start.file);
        if start.language == "people" && !path.exists() {
            continue;
        }
        if !files.contains_key(&start.file) {
            let bytes = std::fs::read(&path).with_context(|| start.file.clone())?;
            files.insert(start.file.clone(), sound_file::read(&bytes[..], RATE, Duration::from_secs(120))?);
        }
        let sound = files.get(&start.file).map_or(&[][..], Vec::as_slice);
        let from = (start.at_ms * PER_MS).min(sound.len());
        let sound = &sound[from..start.ms.map_or(sound.len(), |ms| (from + ms * PER_MS).min(sound.len()))];
        start.samples = loud_part(sound);
        start.samples.truncate(LONGEST_MS * PER_MS);
        let level = (start.samples.iter().map(|at| at * at).sum::<f32>() / start.samples.len().max(1) as f32).sqrt();
        start.samples.iter_mut().for_each(|sample| *sample /= level.max(1e-9));
        starts.push(start);
    }
    Ok(starts)
}

/// Returns the part above a thirtieth of the peak.
fn loud_part(sound: &[f32]) -> Vec<f32> {
    let least = sound.iter().fold(0.0_f32, |peak, sample| peak.max(sample.abs())) / 30.0;
    let first = sound.iter().position(|sample| sample.abs() > least).unwrap_or(0);
    let last = sound.iter().rposition(|sample| sample.abs() > least).unwrap_or(0);
    sound[first..(last + 1).min(sound.len())].to_vec()
}

/// Results of a group of starts.
#[derive(Debug, Clone, Default)]
pub struct GroupResult {
    /// Starts that are to interrupt.
    pub is_to_interrupt: bool,
    /// Starts that interrupted, and all.
    pub interrupted: (usize, usize),
    /// Times from the first sample to the first silence of those that interrupted, in ms, sorted.
    pub silent_ms: Vec<usize>,
}

impl GroupResult {
    /// Adds the results of another group.
    pub fn add(&mut self, other: &Self) {
        self.is_to_interrupt |= other.is_to_interrupt;
        self.interrupted.0 += other.interrupted.0;
        self.interrupted.1 += other.interrupted.1;
        self.silent_ms.extend(&other.silent_ms);
        self.silent_ms.sort_unstable();
    }
}

/// Simulates every start once over an answer of `recordings`, beside an echo of `echo_db`, by `policy`. Every second caller is 10 dB softer than the
/// playback. Returns the results by group.
pub fn measure(
    recordings: &Recordings,
    starts: &[Start],
    echo_db: Option<f32>,
    pausable: bool,
    policy: BargeInPolicy,
) -> Result<BTreeMap<String, GroupResult>> {
    let conditions = recordings.conditions.first().context("there are no conditions")?;
    let mut groups: BTreeMap<String, GroupResult> = BTreeMap::new();
    for (number, start) in starts.iter().enumerate() {
        let begins_ms = conditions.begins_ms[number % conditions.begins_ms.len()];
        let answer = &recordings.answers[number % recordings.answers.len()].samples;
        let ends_ms = begins_ms + start.samples.len() / PER_MS;
        let outcome = simulate(&Scene {
            answer: &answer[..answer.len().min((ends_ms + BEHIND_MS) * PER_MS)],
            caller: &start.samples,
            caller_db: if number % 2 == 0 { 0.0 } else { -10.0 },
            begins_ms,
            echo_db,
            delay_ms: conditions.delays_ms[number % conditions.delays_ms.len()],
            room: &conditions.room_ms,
            pausable,
            cancels: true,
            policy,
        })?;
        let group = groups.entry(start.group()).or_default();
        group.is_to_interrupt = start.interrupts();
        group.interrupted.1 += 1;
        if outcome.announced.is_some_and(|at| (begins_ms..=ends_ms + LATE_MS).contains(&at)) {
            group.interrupted.0 += 1;
            group.silent_ms.extend(outcome.silent_after(begins_ms));
            group.silent_ms.sort_unstable();
        }
    }
    Ok(groups)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::root;

    #[test]
    fn judged_starts_are_complete() {
        let starts = load(&root().join("tests/interruptions")).unwrap();
        let count = |kind: &str| starts.iter().filter(|start| start.kind == kind && start.language != "people").count();
        assert_eq!([count("backchannel"), count("command")], [126, 102]);
        assert_eq!([count("sentence"), count("backchannel and sentence")], [40, 9]);
        assert_eq!(["cough", "throat", "breath", "laugh"].map(count), [6; 4]);
        for start in &starts {
            let ms = start.samples.len() / PER_MS;
            // A person's groan is the shortest.
            assert!((100..=LONGEST_MS).contains(&ms), "{} of {} lasts {ms} ms", start.kind, start.voice);
            assert!(start.samples.iter().all(|sample| sample.is_finite()));
        }
    }
}
