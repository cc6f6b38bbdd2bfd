//! `decode bench-families`: the model families of [docs/families.md](../../../docs/families.md) compared with their
//! references, on small random checkpoints and on random weights of published dimensions;
//! `cargo bench --bench families -- NAME ...` measures some.
//!
//! The references do not stream, so comparable measures are the time per step of a language model, per second of
//! decoded sound and per second of the whole answer; our time to the first sound has no peer.
//!
//! - this page: Qwen3-TTS and Qwen2.5-Omni, whose references run here
//! - `speakers`: LFM2.5-Audio, CosyVoice3 and Ming beside torch, then Fun-Audio-Chat, Covo-Audio and Dynin-Omni; `mimo`:
//!   MiMo-Audio

mod mimo;
mod speakers;

use std::time::Duration;

use anyhow::{Result, ensure};
use repartee_engine::measure::{MeasuredTurn, StageMeasurement, TurnReport, measure};
use repartee_engine::{EngineConfig, Source, Synthetic};
use repartee_report::ReportRow;
use repartee_tests::side_by_side::{self, reference};
use repartee_tests::tools::root;
use serde::Deserialize;

/// One measured checkpoint.
struct Case {
    name: &'static str,
    folder: &'static str,
    family: Family,
    /// `None` for a checkpoint with weights.
    random: Option<Random>,
    /// Data types of the reference, except for its codec; ours uses the checkpoint's.
    dtypes: &'static [&'static str],
    /// True if it is measured when no name is given.
    usual: bool,
}

/// Random weights of published dimensions.
struct Random {
    /// Most layers of each stack; `None` for the published number.
    layers: Option<usize>,
}

#[derive(Clone, Copy, PartialEq)]
enum Family {
    Qwen3Tts,
    Qwen25Omni,
}

const CASES: &[Case] = &[
    Case {
        name: "tts-tiny",
        folder: "tests/parity/fixtures/tts_custom/checkpoint",
        family: Family::Qwen3Tts,
        random: None,
        dtypes: &["float32"],
        usual: true,
    },
    Case {
        name: "tts-0.6b",
        folder: "models/dimensions/qwen3-tts-12hz-0.6b",
        family: Family::Qwen3Tts,
        random: Some(Random { layers: None }),
        dtypes: &["float32", "bfloat16"],
        usual: true,
    },
    Case {
        name: "tts-1.7b",
        folder: "models/dimensions/qwen3-tts-12hz-1.7b",
        family: Family::Qwen3Tts,
        random: Some(Random { layers: None }),
        dtypes: &["bfloat16"],
        usual: false,
    },
    Case {
        name: "omni25-tiny",
        folder: "tests/parity/fixtures/omni25/checkpoint",
        family: Family::Qwen25Omni,
        random: None,
        dtypes: &["float32"],
        usual: true,
    },
    Case {
        name: "omni25-7b-cut",
        folder: "models/dimensions/qwen2.5-omni-7b",
        family: Family::Qwen25Omni,
        random: Some(Random { layers: Some(2) }),
        dtypes: &["bfloat16"],
        usual: true,
    },
];

/// Characters of the given text, and codec frames of the answer.
const CHARACTERS: u32 = 40;
const FRAMES: u32 = 25;
/// Seconds of input, text tokens of the answer, and its codes: three blocks of sound.
const HEARD: u64 = 2;
const TOKENS: u32 = 16;
const CODES: u32 = 36;

/// Output of the references' scripts.
#[derive(Debug, Deserialize)]
struct Reference {
    token_ms: Option<f64>,
    #[serde(alias = "code_ms")]
    frame_ms: f64,
    #[serde(alias = "token2wav_ms_per_second")]
    codec_ms_per_second: f64,
    answer_seconds: f64,
    audio_seconds: f64,
}

impl Family {
    /// Returns the environment variable of the reference's Python, and its script.
    fn reference(self) -> (&'static str, &'static str) {
        match self {
            Self::Qwen3Tts => ("REPARTEE_TTS_PYTHON", "tests/parity/qwen3_tts/bench_reference.py"),
            Self::Qwen25Omni => ("REPARTEE_REFERENCE_PYTHON", "tests/parity/qwen2_5_omni/bench_reference.py"),
        }
    }

    fn turn(self, sound: f64) -> MeasuredTurn {
        let (heard, text_tokens) = match self {
            Self::Qwen3Tts => (0, CHARACTERS),
            Self::Qwen25Omni => (HEARD, TOKENS),
        };
        MeasuredTurn { input: Duration::from_secs(heard), text_tokens, sound: Duration::from_secs_f64(sound), seed: 7 }
    }

    fn arguments(self) -> Vec<String> {
        let arguments: &[(&str, String)] = match self {
            Self::Qwen3Tts => &[("--characters", CHARACTERS.to_string()), ("--frames", FRAMES.to_string())],
            Self::Qwen25Omni => {
                &[("--heard", HEARD.to_string()), ("--tokens", TOKENS.to_string()), ("--codes", CODES.to_string())]
            }
        };
        arguments.iter().flat_map(|(name, value)| [(*name).to_owned(), value.clone()]).collect()
    }

    /// Returns the stages that decode codes into sound.
    fn codec(self) -> &'static [&'static str] {
        match self {
            Self::Qwen3Tts => &["code2wav"],
            Self::Qwen25Omni => &["dit", "bigvgan"],
        }
    }
}

impl Case {
    fn source(&self) -> Source {
        let folder = root().join(self.folder);
        match &self.random {
            None => Source::Folder(folder),
            Some(Random { layers }) => Source::Synthetic(Synthetic { folder, seed: 1, layers: *layers, skewed: false }),
        }
    }

    fn reference(&self, dtype: &str, threads: usize) -> Result<Reference> {
        let (python, script) = self.family.reference();
        let mut arguments: Vec<String> = vec![root().join(self.folder).display().to_string()];
        arguments.extend(["--threads".to_owned(), threads.to_string(), "--dtype".to_owned(), dtype.to_owned()]);
        arguments.extend(self.family.arguments());
        if let Some(Random { layers }) = &self.random {
            // Large models are slow, and vary less.
            arguments.extend(["--random", "--repeats", "2"].map(str::to_owned));
            arguments.extend(layers.iter().flat_map(|layers| ["--layers".to_owned(), layers.to_string()]));
        }
        reference(python, script, arguments)
    }

    /// Describes the weights, for a note.
    fn weights(&self) -> String {
        match &self.random {
            None => "a small random checkpoint".to_owned(),
            Some(Random { layers: None }) => "published dimensions, random weights".to_owned(),
            Some(Random { layers: Some(most) }) => {
                format!("CUT: published widths, only {most} layers of each stack, random weights")
            }
        }
    }

    fn measure(&self, threads: usize) -> Result<Vec<ReportRow>> {
        let Self { name, family, dtypes, .. } = self;
        let peers = dtypes.iter().map(|dtype| Ok((*dtype, self.reference(dtype, threads)?)));
        let peers = peers.collect::<Result<Vec<_>>>()?;
        println!("{name}: the reference: {peers:.2?}");
        // The same duration of sound as the reference.
        let sound = peers.first().map_or(0.0, |(_, peer)| peer.audio_seconds);
        let config = EngineConfig {
            sessions: 1,
            out_of_band: 0,
            session_tokens: 512,
            threads: Some(threads),
            ..EngineConfig::default()
        };
        let ours = measure(self.source(), &config, family.turn(sound))?;
        println!("{name}: ours: {:.2?}\n  {:.2?}", ours.sequential, ours.parallel);
        let made = ours.sequential.sound.as_secs_f64();
        ensure!(made > 0.0, "{name} said nothing");
        let codec: f64 = family.codec().iter().map(|stage| took(&ours, |row| row.stage == *stage).0).sum();
        let text = took(&ours, |row| row.at == 1 && row.kind == "decode");
        let frame = took(&ours, |row| row.stage == "talker" && row.kind == "decode");
        let answer = &ours.parallel;
        let (whole, sound) = (answer.whole.as_secs_f64(), answer.sound.as_secs_f64());
        let mut rows = Vec::new();
        for (dtype, peer) in &peers {
            let note = format!("{}; {threads} threads each; peer in {dtype}", self.weights());
            let mut add = |measure: &str, ours: f64, peer: f64, unit, more: &str| {
                rows.push(ReportRow::lower_is_better(
                    format!("{name}: {measure}"),
                    ours,
                    peer,
                    unit,
                    format!("{note}{more}"),
                ));
            };
            if let Some(peer) = peer.token_ms {
                add("thinker token", each(text), peer, "ms", "");
            }
            let step = match family {
                Family::Qwen3Tts => "codec frame (talker step and code predictor)",
                Family::Qwen25Omni => "code (talker step)",
            };
            add(step, each(frame), peer.frame_ms, "ms", "");
            let (decoding, more) = match family {
                Family::Qwen3Tts => ("second of code2wav", "; ours frame by frame, the peer's in one decode"),
                Family::Qwen25Omni => {
                    ("second of token2wav", "; ours in windows of four blocks for each block, the peer's in one solve")
                }
            };
            add(decoding, 1e3 * codec / made, peer.codec_ms_per_second, "ms", more);
            let hears = match family {
                Family::Qwen3Tts => "",
                Family::Qwen25Omni => "; ours hears the question while it is spoken, the peer after it",
            };
            let more = format!("; {sound:.2} s of sound, the peer's {:.2} s{hears}", peer.audio_seconds);
            add("RTF of the whole answer", whole / sound, peer.answer_seconds / peer.audio_seconds, "", &more);
        }
        let waits: Vec<String> =
            peers.iter().map(|(dtype, peer)| format!("{:.0} ms in {dtype}", 1e3 * peer.answer_seconds)).collect();
        let note = format!(
            "{}; engine alone, from the request; the peer does not stream: its sound is there after {}",
            self.weights(),
            waits.join(", ")
        );
        let first = 1e3 * answer.first_sound.as_secs_f64();
        rows.push(ReportRow::without_peer(format!("{name}: time to the first sound"), first, "ms", note));
        Ok(rows)
    }
}

/// Sums seconds and rows of the stages that `which` selects, in the turn with sequential stages.
fn took(measured: &TurnReport, which: impl Fn(&StageMeasurement) -> bool) -> (f64, f64) {
    let rows = measured.stages.iter().filter(|row| which(row));
    rows.fold((0.0, 0.0), |(seconds, rows), row| (seconds + row.took.as_secs_f64(), rows + row.rows as f64))
}

/// Returns milliseconds per row.
fn each((seconds, rows): (f64, f64)) -> f64 {
    1e3 * seconds / rows.max(1.0)
}

fn main() -> Result<()> {
    // `cargo bench` adds its own option.
    let names: Vec<String> = std::env::args().skip(1).filter(|name| !name.starts_with('-')).collect();
    let others = speakers::CASES.iter().map(|case| case.name).chain([mimo::NAME]);
    let known: Vec<&str> = CASES.iter().map(|case| case.name).chain(others).collect();
    if let Some(unknown) = names.iter().find(|name| !known.contains(&name.as_str())) {
        anyhow::bail!("there is no `{unknown}`: {}", known.join(", "));
    }
    let threads = std::thread::available_parallelism()?.get();
    let mut rows = Vec::new();
    let wanted = |name: &str, usual: bool| (names.is_empty() && usual) || names.iter().any(|other| other == name);
    for case in CASES.iter().filter(|case| wanted(case.name, case.usual)) {
        rows.extend(case.measure(threads)?);
    }
    for case in speakers::CASES.iter().filter(|case| wanted(case.name, case.usual)) {
        rows.extend(case.measure(threads)?);
    }
    if wanted(mimo::NAME, true) {
        rows.extend(mimo::measure(threads)?);
    }
    side_by_side::finish("families", rows)
}
