//! MiMo-Audio in published dimensions. Random weights hardly ever draw the token that stands for a patch, so its stages are
//! driven one by one: positions of the language model, each with the codes of a patch, and windows of the codec.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use repartee_engine::internals::{
    BatchEntry, Checkpoint, Element, Outbox, ResponseParams, Stage, StageItem, load_model,
};
use repartee_engine::{EngineConfig, WeightPolicy};
use repartee_engine_api::{AnswerForm, Role};
use repartee_report::ReportRow;

use super::speakers::drawn;

/// Name on the command line.
pub const NAME: &str = "mimo-int4";
const FOLDER: &str = "models/dimensions/mimo-audio-7b";
/// Positions of the prompt, of the response after its first ones, and of these.
const PROMPT: usize = 32;
const POSITIONS: usize = 10;
const WARM_UP: usize = 2;
/// Frames of a patch, and codes of a second.
const FRAMES: usize = 4;
const CODES_PER_SECOND: f64 = 25.0;
/// Codes before a window's new ones, once a response is long, and with those that are heard next.
const WINDOW: usize = 270;
const NEW: usize = 20;
/// Positions before the first window's codes, with text and patches in turns of five.
const FIRST: f64 = 30.0;

fn params() -> ResponseParams {
    ResponseParams {
        response: 1,
        seed: 7,
        voice: "default".to_owned(),
        audio: true,
        streamed: false,
        tools: Vec::new().into(),
        form: AnswerForm::Free,
        held: None,
        max_tokens: 1000,
        sampling: None,
    }
}

/// Runs the rows that a stage has ready; returns its time and whether there were any.
fn step(stage: &mut dyn Stage, out: &mut Outbox) -> Option<Duration> {
    let rows = stage.runnable_rows(0).rows.min(stage.max_rows());
    if rows == 0 {
        return None;
    }
    let begun = Instant::now();
    stage.launch(&[BatchEntry { slot: 0, rows }], out);
    stage.collect(out);
    Some(begun.elapsed())
}

/// Measures both stages.
pub fn measure(threads: usize) -> Result<Vec<ReportRow>> {
    let config = EngineConfig {
        sessions: 1,
        out_of_band: 0,
        session_tokens: 512,
        threads: Some(threads),
        weights: WeightPolicy::Int4,
        ..EngineConfig::default()
    };
    let mut model = load_model(&Checkpoint::open(drawn(FOLDER, None))?, &config)?;
    let (mut out, mut times) = (Outbox::new(), Vec::new());
    let [language, codec] = model.stages.get_disjoint_mut([0, 1]).context("MiMo-Audio has two stages")?;
    let elements = vec![Element::token(Role::User, u32::from(b'a')); PROMPT];
    let read = vec![false; elements.len()];
    let prompt = StageItem::Prompt { read, elements, response: Some(params()) };
    language.accept(0, prompt, &mut out);
    while times.len() < WARM_UP + POSITIONS {
        let Some(took) = step(language.as_mut(), &mut out) else { break };
        times.push(took.as_secs_f64());
    }
    ensure!(times.len() > 2 * WARM_UP, "the response ended after {} positions", times.len());
    let position = 1e3 * median(&mut times[WARM_UP..]);
    out.clear();

    codec.accept(0, StageItem::Begin(params()), &mut out);
    let (mut windows, mut last) = (Vec::new(), 0.0);
    for code in 0..(WINDOW + 2 * NEW) as u32 {
        let codes = (0..8).map(|book| (code * 7 + book) % 128).collect();
        codec.accept(0, StageItem::Codes(codes), &mut out);
        while let Some(took) = step(codec.as_mut(), &mut out) {
            last = took.as_secs_f64();
            windows.push(last);
        }
    }
    ensure!(!windows.is_empty(), "no window was decoded");
    println!("{NAME}: a position {position:.1} ms; windows {windows:.2?} s");
    let note = format!("published dimensions, random weights in int4; {threads} threads; no aim");
    let second = 1e3 * last / (NEW as f64 / CODES_PER_SECOND);
    let patches = CODES_PER_SECOND / FRAMES as f64;
    let first = FIRST * position + 1e3 * windows[0];
    let row = |name: &str, value, unit, more: &str| {
        ReportRow::without_peer(format!("{NAME}: {name}"), value, unit, format!("{note}{more}"))
    };
    Ok(vec![
        row("position with the codes of a patch", position, "ms", ""),
        row("windows for a second of sound", second, "ms", "; each of 20 new codes and those around them"),
        row(
            "RTF after the text's end",
            (patches * position + second) / 1e3,
            "",
            "; computed: 6.25 positions a second, and windows",
        ),
        row("time to the first sound", first, "ms", "; computed: 30 positions and the first window"),
    ])
}

fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
