//! The frozen turns of `tests/turns`, as sounds to judge.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use repartee_media::acoustics::Acoustics;
use repartee_media::sound_file;
use repartee_media::vad::{Earshot, RATE, VoiceDetector};
use repartee_tests::tools;
use serde::Deserialize;

/// Room tone in a pause, in ms: the longest pause that is judged, and time for a detector to notice it.
const PAUSE_MS: usize = 1_700;
/// Room tone after a turn: longer than any endpointing delay.
pub const AFTER_MS: usize = 5_000;
/// Longest sound before a pause or an end, in ms.
const BEFORE_MS: usize = 10_000;
/// Duration of a recording's room tone, in ms; it is repeated.
const ROOM_MS: usize = 50;
/// Samples of a millisecond.
pub const PER_MS: usize = (RATE / 1_000) as usize;
/// Samples of a frame of the voice detector.
pub const FRAME: usize = 256;

/// Kind of a pause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PauseKind {
    /// Between clauses of a sentence.
    Clause,
    /// Search for a word, with or without a filler.
    Hesitation,
    /// Between items of a list.
    List,
    /// Between groups of a number.
    Number,
    /// Between letters of a spelled name.
    Spelled,
    /// After a sentence, before another one of the same turn.
    Sentence,
    /// After a word of fluent speech, without the intonation of a pause.
    Splice,
}

impl PauseKind {
    /// True for pauses inside a sentence, which a listener can hear coming.
    pub fn is_inside(self) -> bool {
        !matches!(self, Self::Sentence | Self::Splice)
    }
}

/// A pause of a turn.
#[derive(Debug, Clone, Copy, Deserialize)]
struct FrozenPause {
    at_ms: usize,
    kind: PauseKind,
}

/// A turn of `tests/turns/set.json`.
#[derive(Debug, Deserialize)]
struct FrozenTurn {
    /// Path of the recording: in `tests/turns`, or in `target/tools`.
    file: String,
    speaker: String,
    /// End of the voice.
    voice_end_ms: usize,
    pauses: Vec<FrozenPause>,
}

/// A turn up to a pause or to its end, followed by room tone.
#[derive(Debug)]
pub struct JudgedSound {
    /// Path of the recording.
    pub file: String,
    /// Samples at [`RATE`].
    pub samples: Vec<f32>,
    /// End of the voice, in samples.
    pub voice_end: usize,
    /// Kind of the pause; `None` at the turn's end.
    pub kind: Option<PauseKind>,
    /// Probability of a voice in each frame and its acoustics, by the detector of a call.
    pub voice: Vec<(f32, Option<Acoustics>)>,
}

impl JudgedSound {
    fn new(file: &str, samples: Vec<f32>, voice_end: usize, kind: Option<PauseKind>) -> Self {
        let mut detector = Earshot::default();
        let mut hear = |frame: &[f32; FRAME]| (detector.probability(frame), detector.acoustics());
        let voice = samples.as_chunks().0.iter().map(&mut hear).collect();
        Self { file: file.to_owned(), samples, voice_end, kind, voice }
    }
}

/// All frozen turns.
#[derive(Debug)]
pub struct TurnSet {
    pub sounds: Vec<JudgedSound>,
    /// Number of turns by speaker.
    speakers: BTreeMap<String, usize>,
}

impl TurnSet {
    /// Reads the recordings, and makes a sound of each pause and each end.
    pub fn load() -> Result<Self> {
        let list = tools::root().join("tests/turns/set.json");
        let list = std::fs::read(&list).with_context(|| list.display().to_string())?;
        let turns: Vec<FrozenTurn> = serde_json::from_slice(&list)?;
        let (mut sounds, mut speakers) = (Vec::new(), BTreeMap::new());
        for turn in turns {
            *speakers.entry(turn.speaker.clone()).or_default() += 1;
            let recording = Recording::read(&turn.file)?;
            for pause in &turn.pauses {
                sounds.push(recording.until(pause.at_ms * PER_MS, PAUSE_MS, Some(pause.kind))?);
            }
            sounds.push(recording.until(turn.voice_end_ms * PER_MS, AFTER_MS, None)?);
        }
        Ok(Self { sounds, speakers })
    }

    /// Returns the number of sounds of a kind.
    fn count(&self, is_counted: impl Fn(Option<PauseKind>) -> bool) -> usize {
        self.sounds.iter().filter(|sound| is_counted(sound.kind)).count()
    }
}

impl fmt::Display for TurnSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [inside, sentences, splices] =
            [PauseKind::is_inside, |kind| kind == PauseKind::Sentence, |kind| kind == PauseKind::Splice]
                .map(|is_counted: fn(PauseKind) -> bool| self.count(|kind| kind.is_some_and(is_counted)));
        write!(
            f,
            "{} turns of {} speakers; {inside} pauses inside sentences, {sentences} between them, {splices} splices",
            self.count(|kind| kind.is_none()),
            self.speakers.len()
        )
    }
}

/// A recording and its room tone.
struct Recording {
    file: String,
    samples: Vec<f32>,
    room: Vec<f32>,
}

impl Recording {
    fn read(file: &str) -> Result<Self> {
        let root = tools::root();
        let path = [root.join("tests/turns"), root.join("target/tools")].map(|folder| folder.join(file));
        let path = path.into_iter().find(|path| path.exists()).with_context(|| {
            format!("{file}: `scripts/setup.sh speech turns` and tests/turns/recordings.py fetch recordings of people")
        })?;
        let samples = read(&path)?;
        // Room tone: the quietest stretch. Some recordings have no more of it.
        let level = |part: &[f32]| part.iter().map(|sample| f64::from(*sample).powi(2)).sum::<f64>();
        let stretches = samples.windows(ROOM_MS * PER_MS).step_by(10 * PER_MS);
        let quietest = stretches.min_by(|a, b| level(a).total_cmp(&level(b)));
        let room = quietest.context("a recording is longer than its room tone")?.to_vec();
        Ok(Self { file: file.to_owned(), samples, room })
    }

    /// Returns the sound before `end`, followed by `ms` of room tone, played forwards and backwards in turn, so there
    /// are no clicks.
    fn until(&self, end: usize, ms: usize, kind: Option<PauseKind>) -> Result<JudgedSound> {
        ensure!(end <= self.samples.len(), "a pause lies behind the recording's end");
        let room = self.room.iter().chain(self.room.iter().rev()).copied().cycle().take(ms * PER_MS);
        let spoken = &self.samples[end.saturating_sub(BEFORE_MS * PER_MS)..end];
        Ok(JudgedSound::new(&self.file, spoken.iter().copied().chain(room).collect(), spoken.len(), kind))
    }
}

/// Returns the samples of a sound file, or of raw 16-bit ones.
fn read(path: &Path) -> Result<Vec<f32>> {
    let file = std::fs::read(path).with_context(|| path.display().to_string())?;
    if path.extension().is_some_and(|extension| extension == "raw") {
        return Ok(file.as_chunks().0.iter().map(|bytes| f32::from(i16::from_le_bytes(*bytes)) / 32_768.0).collect());
    }
    sound_file::read(&file, RATE, Duration::from_secs(120)).with_context(|| path.display().to_string())
}
