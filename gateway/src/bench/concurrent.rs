//! Benchmark of concurrent sessions.

use std::time::Duration;

use repartee_engine::measure::{ConcurrentRun, MeasuredTurn, TurnPhase, measure_concurrent};
use repartee_engine::{EngineConfig, Source};
use repartee_report::ReportRow;

use super::options::{Routing, SizeOptions, weights};

/// Measures `source` on the configured device, prints the stages' times and returns the figures.
pub fn rows(
    options: &SizeOptions,
    source: &Source,
    engine: &EngineConfig,
    turn: MeasuredTurn,
) -> anyhow::Result<Vec<ReportRow>> {
    let counts = if options.sessions.is_empty() { &[1][..] } else { &options.sessions };
    let mut rows = Vec::new();
    for (source, routing) in options.sources(source) {
        let measured = measure_concurrent(source, engine, turn, counts)?;
        let suffix = if routing == Some(Routing::Skewed) { "_skewed" } else { "" };
        let layers = options.layers.filter(|_| routing.is_some());
        let size = layers.map_or_else(String::new, |layers| format!("; ONLY {layers} LAYERS of each stack"));
        let note = format!("{}, {}, until ready{size}", engine.device, weights(engine));
        rows.push(ReportRow::without_peer(format!("loading{suffix}"), measured.loading.as_secs_f64(), "s", note));
        for crowd in &measured.runs {
            print(crowd, engine);
            rows.extend(figures(crowd, suffix, &size));
        }
        let note = format!("memory of the process after the turns{size}");
        rows.push(ReportRow::without_peer(
            format!("resident{suffix}"),
            measured.resident as f64 / f64::from(1 << 30),
            "GiB",
            note,
        ));
    }
    Ok(rows)
}

/// Quantile `share` of ascending numbers, by nearest rank; `None` for none.
fn quantile<T: Copy>(ascending: &[T], share: f64) -> Option<T> {
    let at = (ascending.len() as f64 * share).ceil() as usize;
    ascending.get(at.saturating_sub(1)).copied()
}

fn figures(crowd: &ConcurrentRun, suffix: &str, size: &str) -> Vec<ReportRow> {
    let sessions = crowd.sessions;
    let name = |measure: &str| format!("{measure}_{sessions}{suffix}");
    let milliseconds = |time: Duration| 1e3 * time.as_secs_f64();
    let mut rows = Vec::new();
    for (measure, share) in [("ttfp_p50", 0.5), ("ttfp_p95", 0.95)] {
        if let Some(time) = quantile(&crowd.first_sound, share) {
            let note = format!("commit to first sound, {sessions} at the same moment{size}");
            rows.push(ReportRow::without_peer(name(measure), milliseconds(time), "ms", note));
        }
    }
    for (measure, share) in [("rtf_p50", 0.5), ("rtf_p95", 0.95)] {
        if let Some(rtf) = quantile(&crowd.rtf, share) {
            let note = format!("commit to the end of each answer; peer: real time{size}");
            rows.push(ReportRow::lower_is_better(name(measure), rtf, 1.0, "", note));
        }
    }
    let together = crowd.sound.as_secs_f64() / crowd.whole.as_secs_f64();
    rows.push(ReportRow::without_peer(
        name("sound_each_second"),
        together,
        "s",
        format!("of all sessions together{size}"),
    ));
    let answer = crowd.stages.iter().filter(|row| row.phase == TurnPhase::Answer && row.steps > 0);
    for row in answer.filter(|row| matches!(row.kind, "decode" | "window")) {
        let (steps, each) = (row.steps as f64, row.rows as f64 / row.steps as f64);
        let note = format!("a step of {each:.1} rows, of {steps:.0}, beside other stages{size}");
        rows.push(ReportRow::without_peer(
            name(&format!("{}_{}", row.stage, row.kind)),
            milliseconds(row.took) / steps,
            "ms",
            note,
        ));
    }
    rows
}

fn print(crowd: &ConcurrentRun, engine: &EngineConfig) {
    let heard = crowd.listening.as_secs_f64();
    println!(
        "\n{} sessions on {}, weights = {}: {heard:.2} s of computing while listening",
        crowd.sessions,
        engine.device,
        weights(engine)
    );
    println!("  {:<10}{:<10}{:<12}{:>7}{:>8}{:>9}{:>9}", "", "stage", "rows", "steps", "rows", "s", "ms/step");
    for row in &crowd.stages {
        let seconds = row.took.as_secs_f64();
        println!(
            "  {:<10}{:<10}{:<12}{:>7}{:>8}{seconds:>9.3}{:>9.3}",
            match row.phase {
                TurnPhase::Listening => "listening",
                TurnPhase::Answer => "answer",
            },
            row.stage,
            row.kind,
            row.steps,
            row.rows,
            1e3 * seconds / row.steps.max(1) as f64,
        );
    }
}
