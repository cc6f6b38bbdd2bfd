//! One self-contained HTML page with all figures and plots: no scripts, no external files.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use repartee_report::{Report, ReportRow};

use super::plot::{Curve, escape, histogram, series, waterfall};
use super::{percentile, rows};
use crate::measure::log::ScenarioLog;
use crate::scenario::Scenario;

const STYLE: &str = include_str!("page.css");
const MIB: f64 = 1_048_576.0;

/// Writes the page of `report` and its runs.
pub fn write(path: &Path, report: &Report, runs: &[(Scenario, ScenarioLog)]) -> anyhow::Result<()> {
    std::fs::write(path, page(report, runs)).with_context(|| path.display().to_string())
}

/// Returns the page as HTML.
pub fn page(report: &Report, runs: &[(Scenario, ScenarioLog)]) -> String {
    let mut html = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
         <title>Load report</title><style>{STYLE}</style><main><h1>Load report</h1><p>{}</p>",
        escape(&report.origin())
    );
    html.push_str(&summary(runs));
    for (scenario, log) in runs {
        html.push_str(&section(scenario, log, &report.rows));
    }
    let known: Vec<&str> = runs.iter().map(|(scenario, _)| scenario.name.as_str()).collect();
    let others: Vec<&ReportRow> =
        report.rows.iter().filter(|row| !known.iter().any(|name| row.note.starts_with(name))).collect();
    if !others.is_empty() {
        let _ = write!(html, "<h2>More</h2>{}", table(&others));
    }
    html + "</main></html>\n"
}

fn ms(duration: Option<Duration>) -> String {
    duration.map_or("-".to_owned(), |duration| format!("{:.0}", duration.as_secs_f64() * 1e3))
}

/// Table with one line per scenario.
fn summary(runs: &[(Scenario, ScenarioLog)]) -> String {
    if runs.is_empty() {
        return String::new();
    }
    let mut html =
        "<table><tr><th>scenario<th>calls<th>turns<th>end of speech to sound p50<th>p95<th>p99<th>answers with a gap\
                    <th>errors</tr>"
            .to_owned();
    for (scenario, log) in runs {
        let sounds = log.sorted(|turn| Some(turn.to_sound));
        let _ = write!(
            html,
            "<tr><td><a href=\"#{0}\">{0}</a><td>{1}<td>{2}<td>{3} ms<td>{4} ms<td>{5} ms<td>{6:.1} %<td>{7}</tr>",
            escape(&scenario.name),
            log.calls.len(),
            log.turns.len(),
            ms(percentile(&sounds, 50)),
            ms(percentile(&sounds, 95)),
            ms(percentile(&sounds, 99)),
            log.gap_share() * 100.0,
            log.error_count(),
        );
    }
    html + "</table>"
}

fn section(scenario: &Scenario, log: &ScenarioLog, rows: &[ReportRow]) -> String {
    let name = escape(&scenario.name);
    let own: Vec<&ReportRow> = rows
        .iter()
        .filter(|row| row.note == scenario.name || row.note.starts_with(&format!("{}:", scenario.name)))
        .collect();
    format!(
        "<h2 id=\"{name}\">{name}</h2><p>{}</p><div class=\"plots\">{}</div><details><summary>All figures</summary>{}</details>",
        escape(&scenario.about),
        plots(log),
        table(&own)
    )
}

fn plots(log: &ScenarioLog) -> String {
    let millis = |sorted: &[Duration]| sorted.iter().map(|value| value.as_secs_f64() * 1e3).collect::<Vec<_>>();
    let mut html = stages(log);
    for (name, sorted) in rows::series(log).into_iter().filter(|(_, sorted)| !sorted.is_empty()) {
        html.push_str(&histogram(name, "ms", &millis(&sorted)));
    }
    let turns = log.turns.iter();
    let sounds = turns.map(|turn| (turn.speech_end.as_secs_f64(), turn.to_sound.as_secs_f64() * 1e3)).collect();
    let gaps = log.turns.iter().filter(|turn| !turn.answer.gaps.is_empty());
    let gaps = gaps.map(|turn| (turn.speech_end.as_secs_f64(), turn.to_sound.as_secs_f64() * 1e3)).collect();
    let clouds = [
        Curve { name: "answers", points: sounds, joined: false },
        Curve { name: "with a gap", points: gaps, joined: false },
    ];
    html.push_str(&series("End of speech to sound", "ms", &clouds));
    let samples = |of: &dyn Fn(&crate::measure::log::ResourceSample) -> Option<f64>| -> Vec<(f64, f64)> {
        log.samples.iter().filter_map(|sample| Some((sample.at.as_secs_f64(), of(sample)?))).collect()
    };
    let joined = |name, points| Curve { name, points, joined: true };
    html.push_str(&series("Calls", "", &[joined("in progress", samples(&|sample| Some(sample.calls as f64)))]));
    let server = joined("server", samples(&|sample| sample.server_cores));
    let own = joined("generator", samples(&|sample| Some(sample.own_cores)));
    html.push_str(&series("Processor", "cores", &[server, own]));
    let memory = samples(&|sample| sample.server_memory.map(|bytes| bytes as f64 / MIB));
    html.push_str(&series("Server's memory", "MiB", &[joined("resident", memory)]));
    html
}

/// Waterfalls of the median turn at the caller and of the server's own stages.
fn stages(log: &ScenarioLog) -> String {
    let median = |sorted: Vec<Duration>| percentile(&sorted, 50).map_or(0.0, |time| time.as_secs_f64() * 1e3);
    let within = log.sorted(|turn| Some(turn.to_sound.saturating_sub(turn.endpointing? + turn.ttfp?)));
    let heard = [
        ("endpointing".to_owned(), median(log.sorted(|turn| turn.endpointing))),
        ("TTFP".to_owned(), median(log.sorted(|turn| turn.ttfp))),
        ("to sound in packet".to_owned(), median(within)),
    ];
    let server: Vec<(String, f64)> = log.server_stages.iter().map(|(name, mean)| (name.clone(), mean * 1e3)).collect();
    waterfall("Waterfall, medians", &heard) + &waterfall("Server's own stages, means", &server)
}

fn table(rows: &[&ReportRow]) -> String {
    let mut html = "<table><tr><th>measure<th>value<th>unit<th>ratio<th>note</tr>".to_owned();
    for row in rows {
        let _ = write!(
            html,
            "<tr><td>{}<td>{:.2}<td>{}<td>{}<td>{}</tr>",
            escape(&row.measure),
            row.ours,
            escape(&row.unit),
            row.ratio.map_or(String::new(), |ratio| format!("{ratio:.2}")),
            escape(&row.note)
        );
    }
    html + "</table>"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_is_whole_and_self_contained() {
        let run = rows::tests::log();
        let mut figures = rows::of(&run.0, &run.1);
        figures.push(ReportRow::without_peer("knee", 8.0, "calls", "elsewhere"));
        let html = page(&Report::new("load", figures), &[run]);
        for part in
            ["Waterfall", "End of speech to sound", "polyline", "refused &lt;b&gt;", "elsewhere", "25.0 %", "memory"]
        {
            assert!(html.contains(part), "{part}");
        }
        for part in ["<script", "http:", "https:", "src=", "NaN", "inf"] {
            assert!(!html.contains(part), "{part}");
        }
        assert_eq!(html.matches("<svg").count(), html.matches("</svg>").count());
    }
}
