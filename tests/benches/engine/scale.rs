//! Threads of one engine under many callers: how much more sound they make together than one thread, and the share of the
//! work that they do not share.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use repartee_engine::measure::{MeasuredTurn, measure_concurrent};
use repartee_engine::{EngineConfig, Source};
use repartee_report::{Report, ReportRow};
use repartee_tests::tools;

/// Sessions whose turns end at the same moment.
const SESSIONS: usize = 64;
/// Measurements of each number of threads, of which the fastest counts: others may disturb one.
const REPEATS: usize = 3;

/// Measures 1, 2, 4 and so on up to all threads of this machine; writes `target/report/scale.json`.
pub fn rows(model: &Path) -> Result<Vec<ReportRow>> {
    let most = std::thread::available_parallelism()?.get();
    let counts = (0..).map(|power| 1 << power).take_while(|threads| *threads < most).chain([most]);
    let threads: Vec<usize> = counts.collect();
    let mut fastest = vec![f64::INFINITY; threads.len()];
    // One number after another, so that a slow minute meets all of them.
    for _ in 0..REPEATS {
        for (fastest, threads) in fastest.iter_mut().zip(&threads) {
            *fastest = fastest.min(for_a_second(model, *threads)?);
        }
    }
    let alone = *fastest.first().context("a machine has a thread")?;
    let mut rows = Vec::new();
    for (together, threads) in fastest.iter().zip(&threads) {
        let gain = alone / together;
        let note = format!("for a second of sound, {SESSIONS} turns at once; peer: one thread");
        rows.push(ReportRow::lower_is_better(format!("scale_{threads}"), *together, alone, "ms", note));
        if *threads > 1 {
            let most = *threads as f64;
            // By Amdahl's law: gain = 1 / (serial + (1 - serial) / threads).
            let serial = 100.0 * (most / gain - 1.0) / (most - 1.0);
            let note = format!("share of the work that {threads} threads do not share, by Amdahl's law");
            rows.push(ReportRow::without_peer(format!("scale_serial_{threads}"), serial, "%", note));
        }
    }
    Report::new("scale", rows.clone()).write(&tools::root().join("target/report/scale.json"))?;
    Ok(rows)
}

/// Milliseconds for a second of sound of all sessions together, from the commit to the end of the last answer.
fn for_a_second(model: &Path, threads: usize) -> Result<f64> {
    let config = EngineConfig { threads: Some(threads), session_tokens: 512, ..EngineConfig::default() };
    let turn = MeasuredTurn { input: Duration::from_secs(2), text_tokens: 40, sound: Duration::from_secs(5), seed: 7 };
    let runs = measure_concurrent(Source::Folder(model.to_owned()), &config, turn, &[SESSIONS])?.runs;
    let run = runs.first().context("the turns ran")?;
    Ok(1e3 * run.whole.as_secs_f64() / run.sound.as_secs_f64())
}
