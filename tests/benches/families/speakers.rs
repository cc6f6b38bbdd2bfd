//! LFM2.5-Audio, CosyVoice3, Ming, Fun-Audio-Chat, Covo-Audio and Dynin-Omni in published dimensions with random weights:
//! the real-time factor of an answer, its first sound, and steps beside torch on the same sizes. No published package of
//! these families runs here, so the peers are torch derivations and transformers' layers; a step without one stands beside
//! the machine's floor.

use std::time::Duration;

use anyhow::{Result, ensure};
use repartee_engine::measure::{MeasuredTurn, StageMeasurement, TurnReport, measure};
use repartee_engine::{EngineConfig, Source, Synthetic, Timeouts, WeightPolicy};
use repartee_report::ReportRow;
use repartee_tests::side_by_side::reference;
use repartee_tests::tools::root;
use serde::Deserialize;

use super::{each, took};

/// One measured family, with weights in one format.
pub struct SpeakerCase {
    /// Name on the command line.
    pub name: &'static str,
    folder: &'static str,
    /// Most layers of each stack; `None` for the published number.
    layers: Option<usize>,
    weights: WeightPolicy,
    /// Seconds heard, tokens (characters of a given text), and seconds of sound.
    turn: (u64, u32, f64),
    /// Stage of the language model, kind of its rows, and name of its row.
    language: (&'static str, &'static str, &'static str),
    /// Stages that make sound, and name of their row.
    sound: (&'static [&'static str], &'static str),
    peer: Option<Peer>,
    aims: &'static str,
    /// True if it is measured when no name is given; others take many minutes.
    pub usual: bool,
}

/// Script of a peer.
struct Peer {
    script: &'static str,
    dtypes: &'static [&'static str],
    note: &'static str,
}

const LFM2: &str = "models/dimensions/lfm2.5-audio-1.5b";
const COSYVOICE3: &str = "models/dimensions/fun-cosyvoice3-0.5b";
const FLOW: (&[&str], &str) = (&["flow"], "flow for a second of sound");
const FLOW_PEER: Option<Peer> = Some(Peer {
    script: "tests/parity/cosyvoice3/bench_reference.py",
    dtypes: &["float32", "bfloat16"],
    note: "the peer solves all chunks at once with the same mask, ours one after another",
});

/// Families by their format of weights, in the order in which they are measured.
pub const CASES: &[SpeakerCase] = &[
    SpeakerCase {
        name: "lfm2.5-int4",
        folder: LFM2,
        layers: None,
        weights: WeightPolicy::Int4,
        turn: (5, 24, 3.0),
        language: ("language_model", "decode", "position with the codes of a frame"),
        sound: (&["detokenizer"], "detokenizer for a second of sound"),
        peer: None,
        aims: "aims: RTF 0.6, first sound 600 ms after 5 s of speech",
        usual: true,
    },
    SpeakerCase {
        name: "lfm2.5-bf16",
        folder: LFM2,
        layers: None,
        weights: WeightPolicy::Bf16,
        turn: (5, 12, 1.0),
        language: ("language_model", "decode", "position with the codes of a frame"),
        sound: (&["detokenizer"], "detokenizer for a second of sound"),
        peer: Some(Peer {
            script: "tests/parity/lfm2_audio/bench_reference.py",
            dtypes: &["bfloat16"],
            note: "the peer is transformers' Lfm2 layers with a head, without the codes of a frame",
        }),
        aims: "the same bytes as the peer's",
        usual: true,
    },
    SpeakerCase {
        name: "cosyvoice3-bf16",
        folder: COSYVOICE3,
        layers: None,
        weights: WeightPolicy::Bf16,
        turn: (0, 60, 5.0),
        language: ("speech_lm", "decode", "code"),
        sound: FLOW,
        peer: FLOW_PEER,
        aims: "aims: RTF 1.6, first sound 1.7 s",
        usual: true,
    },
    SpeakerCase {
        name: "cosyvoice3-int8",
        folder: COSYVOICE3,
        layers: None,
        weights: WeightPolicy::Int8,
        turn: (0, 60, 5.0),
        language: ("speech_lm", "decode", "code"),
        sound: FLOW,
        peer: None,
        aims: "aims: RTF 1.0, first sound 1.7 s",
        usual: true,
    },
    SpeakerCase {
        name: "ming-bf16",
        folder: "models/dimensions/ming-omni-tts-0.5b",
        layers: None,
        weights: WeightPolicy::Bf16,
        turn: (0, 60, 1.2),
        language: ("speech_lm", "decode", "step with the solve of a patch, 0.32 s"),
        sound: (&["vae"], "decoder of latents for a second of sound"),
        peer: Some(Peer {
            script: "tests/parity/ming/bench_reference.py",
            dtypes: &["float32", "bfloat16"],
            note: "the peer is a step of transformers' Qwen2 and the derivation's solve",
        }),
        aims: "no aim",
        usual: true,
    },
    SpeakerCase {
        name: "fun-audio-chat-int4",
        folder: "models/dimensions/fun-audio-chat-8b",
        layers: None,
        weights: WeightPolicy::Int4,
        turn: (5, 8, 1.6),
        language: ("language_model", "decode", "position with its group of codes, 0.2 s"),
        sound: FLOW,
        peer: None,
        aims: "no aim",
        usual: true,
    },
    SpeakerCase {
        name: "covo-audio-int4",
        folder: "models/dimensions/covo-audio-chat-7b",
        layers: None,
        weights: WeightPolicy::Int4,
        turn: (2, 6, 0.5),
        language: ("language_model", "decode", "token or code"),
        sound: (&["flow", "bigvgan"], "flow and vocoder for a second of sound"),
        peer: None,
        aims: "no aim",
        usual: false,
    },
    SpeakerCase {
        name: "dynin-omni-cut",
        folder: "models/dimensions/dynin-omni",
        layers: Some(1),
        weights: WeightPolicy::Int4,
        turn: (0, 20, 4.0),
        language: ("speech_lm", "solver step", "refinement step of a block, 2.56 s"),
        sound: (&["uvits"], "vocoder for a second of sound"),
        peer: None,
        aims: "no aim",
        usual: false,
    },
];

/// Output of a peer's script.
#[derive(Debug, Deserialize)]
struct PeerFigures {
    /// Time of a step of the language model, in ms.
    step_ms: Option<f64>,
    /// Time of the sound's stages for a second of sound, in ms.
    sound_ms_per_second: Option<f64>,
}

impl SpeakerCase {
    /// Settings of the engine.
    fn config(&self, threads: usize) -> EngineConfig {
        EngineConfig {
            sessions: 1,
            out_of_band: 0,
            session_tokens: 512,
            threads: Some(threads),
            weights: self.weights,
            // A block of Dynin-Omni takes minutes.
            timeouts: Timeouts { stage_s: 600, ..Timeouts::default() },
            ..EngineConfig::default()
        }
    }

    fn note(&self, threads: usize) -> String {
        let weights = format!("{:?}", self.weights).to_lowercase();
        let size = match self.layers {
            None => "published dimensions".to_owned(),
            Some(most) => format!("CUT: published widths, only {most} layers of each stack"),
        };
        format!("{size}, random weights in {weights}; {threads} threads; {}", self.aims)
    }

    /// Measures ours and the peer, one after the other.
    pub fn measure(&self, threads: usize) -> Result<Vec<ReportRow>> {
        let name = self.name;
        let (heard, text_tokens, sound) = self.turn;
        let (input, sound) = (Duration::from_secs(heard), Duration::from_secs_f64(sound));
        let turn = MeasuredTurn { input, text_tokens, sound, seed: 7 };
        let ours = measure(drawn(self.folder, self.layers), &self.config(threads), turn)?;
        println!("{name}: {:.2?}\n  {:.2?}", ours.sequential, ours.parallel);
        for row in &ours.stages {
            println!("  {} {}: {} steps, {} rows, {:.2?}", row.stage, row.kind, row.steps, row.rows, row.took);
        }
        ensure!(!ours.sequential.sound.is_zero(), "{name} said nothing");
        let (answer, note) = (&ours.parallel, self.note(threads));
        let seconds = answer.sound.as_secs_f64();
        let more = format!("{note}; {seconds:.2} s of sound; {} MB resident", ours.resident >> 20);
        let alone = |measure: &str, value, unit, note: &str| {
            ReportRow::without_peer(format!("{name}: {measure}"), value, unit, note)
        };
        let mut rows = vec![
            alone("RTF of the whole answer", answer.whole.as_secs_f64() / seconds, "", &more),
            alone("time to the first sound", 1e3 * answer.first_sound.as_secs_f64(), "ms", &note),
        ];
        let (stage, kind, step_name) = self.language;
        let of_language = |row: &StageMeasurement| row.stage == stage && row.kind == kind;
        let (step, floor) = (each(took(&ours, of_language)), each(floor(&ours, of_language)));
        let made = self.made(&ours);
        let making =
            self.sound.0.iter().map(|stage| took(&ours, |row| row.stage == *stage).0).sum::<f64>() * 1e3 / made;
        let mut peers = Vec::new();
        for (dtype, peer) in self.peer.iter().flat_map(|peer| peer.dtypes.iter().map(move |dtype| (dtype, peer))) {
            let arguments = ["--threads".to_owned(), threads.to_string(), "--dtype".to_owned(), (*dtype).to_owned()];
            let arguments = std::iter::once(root().join(self.folder).display().to_string()).chain(arguments);
            let found: PeerFigures = reference("REPARTEE_REFERENCE_PYTHON", peer.script, arguments)?;
            println!("{name}: the peer in {dtype}: {found:.2?}");
            peers.push((found, format!("{note}; peer in {dtype}: {}", peer.note)));
        }
        for (label, value, of) in [
            (step_name, step, (|peer: &PeerFigures| peer.step_ms) as fn(&PeerFigures) -> Option<f64>),
            (self.sound.1, making, |peer: &PeerFigures| peer.sound_ms_per_second),
        ] {
            let beside = peers.iter().filter_map(|(found, note)| Some((of(found)?, note)));
            let compared: Vec<ReportRow> = beside
                .map(|(peer, note)| {
                    ReportRow::lower_is_better(format!("{name}: {label}"), value, peer, "ms", note.clone())
                })
                .collect();
            rows.extend(match (compared.is_empty(), label == step_name) {
                (false, _) => compared,
                (true, false) => vec![alone(label, value, "ms", &note)],
                (true, true) => {
                    let note = format!("{note}; peer: the nearer floor, of reading the weights or of multiplying");
                    vec![ReportRow::lower_is_better(format!("{name}: {label}"), value, floor, "ms", note)]
                }
            });
        }
        if self.sound == FLOW {
            rows.push(alone("share of the machine's peak of products in the flow", 100.0 * share(&ours), "%", &note));
        }
        Ok(rows)
    }

    /// Seconds of sound that its stages made: a solve of ten steps is a second, of which a part may not be heard.
    fn made(&self, ours: &TurnReport) -> f64 {
        if self.sound == FLOW {
            let solves = took(ours, |row| row.stage == "flow").1 / 10.0;
            return solves.max(1.0);
        }
        ours.sequential.sound.as_secs_f64()
    }
}

/// Sums the nearer floors, in seconds, and the rows of the stages that `which` selects.
fn floor(ours: &TurnReport, which: impl Fn(&StageMeasurement) -> bool) -> (f64, f64) {
    let rows = ours.stages.iter().filter(|row| which(row));
    rows.fold((0.0, 0.0), |(seconds, count), row| {
        let (reading, multiplying) = ours.machine.lower_bound(row.products);
        (seconds + reading.max(multiplying), count + row.rows as f64)
    })
}

/// Share of the measured peak at which the flow's steps compute, with everything between their products.
fn share(ours: &TurnReport) -> f64 {
    let rows = ours.stages.iter().filter(|row| row.stage == "flow");
    let (least, took) = rows.fold((0.0, 0.0), |(least, took), row| {
        (least + ours.machine.lower_bound(row.products).1, took + row.took.as_secs_f64())
    });
    least / took
}

/// Random weights of a folder's dimensions, with at most so many layers of each stack.
pub fn drawn(folder: &str, layers: Option<usize>) -> Source {
    Source::Synthetic(Synthetic { folder: root().join(folder), seed: 1, layers, skewed: false })
}
