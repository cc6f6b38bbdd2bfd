//! Percentiles, the table and the JSON file.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use serde::Serialize;

use crate::turn::CallLog;

/// A report as every benchmark here writes it.
#[derive(Debug, Serialize)]
pub struct Report {
    /// What was measured; the file's name too.
    pub name: &'static str,
    date: String,
    machine: String,
    /// The table.
    pub rows: Vec<Row>,
}

/// One measure.
#[derive(Debug, PartialEq, Serialize)]
pub struct Row {
    /// What.
    pub measure: String,
    /// Our figure.
    pub ours: f64,
    /// The figure of what it is compared with, in the same run.
    pub peer: Option<f64>,
    /// Above 1 means that ours is better.
    pub ratio: Option<f64>,
    /// Of both figures.
    pub unit: &'static str,
    /// What a reader has to know.
    pub note: String,
}

impl Row {
    /// A figure that stands alone.
    pub fn alone(measure: impl Into<String>, ours: f64, unit: &'static str, note: impl Into<String>) -> Self {
        Self { measure: measure.into(), ours, peer: None, ratio: None, unit, note: note.into() }
    }

    /// A figure of which less is better, beside a peer's.
    pub fn less_than(
        measure: impl Into<String>,
        ours: f64,
        peer: f64,
        unit: &'static str,
        note: impl Into<String>,
    ) -> Self {
        Self { peer: Some(peer), ratio: Some(peer / ours), ..Self::alone(measure, ours, unit, note) }
    }
}

impl Report {
    /// A report of today on this machine.
    pub fn new(name: &'static str, rows: Vec<Row>) -> Self {
        Self { name, date: today(), machine: machine(), rows }
    }

    /// Writes the file.
    pub fn write(&self, path: &Path) -> anyhow::Result<()> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        }
        fs::write(path, serde_json::to_string_pretty(self)?).with_context(|| path.display().to_string())
    }
}

/// Prints a load test's table and writes its file.
pub fn publish(title: &str, log: &CallLog, path: &Path) -> anyhow::Result<()> {
    let rows = rows(title, log);
    println!("{title}");
    for row in &rows {
        println!(
            "  {:<44} {:>10.1} {:<6} {}",
            row.measure,
            row.ours,
            row.unit,
            if row.note == title { "" } else { &row.note }
        );
    }
    Report::new("loadtest", rows).write(path)
}

fn rows(title: &str, log: &CallLog) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut add = |measure: String, ours, unit, note: &str| {
        rows.push(Row::alone(measure, ours, unit, note));
    };
    let series: [(&str, Vec<Duration>); 5] = [
        ("TTFP, commit to first sound", log.turns.iter().map(|turn| turn.from_commit).collect()),
        ("end of speech to first sound", log.turns.iter().map(|turn| turn.from_speech_end).collect()),
        ("barge-in, first voice to silence on the wire", log.barge_ins.clone()),
        ("call to open line", log.setup.clone()),
        ("lateness of our own frames", log.lateness.clone()),
    ];
    for (name, mut values) in series {
        values.sort();
        for percent in [50, 95, 99] {
            if let Some(value) = percentile(&values, percent) {
                add(format!("{name}, p{percent}"), value.as_secs_f64() * 1e3, "ms", title);
            }
        }
    }
    add("turns answered".to_owned(), log.turns.len() as f64, "turns", title);
    add("underruns".to_owned(), log.turns.iter().map(|turn| turn.underruns).sum::<u64>() as f64, "times", title);
    add("errors".to_owned(), log.errors.values().sum::<u64>() as f64, "times", title);
    for (error, &count) in &log.errors {
        add("error".to_owned(), count as f64, "times", error);
    }
    rows
}

/// The smallest value that `percent` of all do not exceed.
pub fn percentile(sorted: &[Duration], percent: usize) -> Option<Duration> {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.checked_sub(1)?).copied()
}

/// Processor and number of cores.
fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model =
        cpu.lines().find_map(|line| line.strip_prefix("model name")).map(|rest| rest.trim_matches([' ', '\t', ':']));
    format!("{cores} cores, {}", model.unwrap_or(std::env::consts::ARCH))
}

/// The date, UTC, as in 2026-11-21.
fn today() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    date(seconds / 86_400)
}

/// The Gregorian date of a day counted from 1970-01-01.
fn date(days: u64) -> String {
    let (mut year, mut rest) = (1970, days);
    let is_leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let length = |year| if is_leap(year) { 366 } else { 365 };
    while rest >= length(year) {
        rest -= length(year);
        year += 1;
    }
    let february = if is_leap(year) { 29 } else { 28 };
    let mut month = 1;
    for days in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if rest < days {
            break;
        }
        rest -= days;
        month += 1;
    }
    format!("{year:04}-{month:02}-{:02}", rest + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::turn::TurnTimes;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn percentiles_are_values_that_occurred() {
        let values: Vec<Duration> = (1..=200).map(|i| i * MS).collect();
        assert_eq!(
            [50, 95, 99, 100].map(|percent| percentile(&values, percent)),
            [100, 190, 198, 200].map(|i| Some(i * MS))
        );
        assert_eq!(percentile(&values[..1], 50), Some(MS));
        assert_eq!(percentile(&[], 50), None);
    }

    #[test]
    fn dates_are_right_over_leap_years() {
        for (days, expected) in [
            (0, "1970-01-01"),
            (789, "1972-02-29"),
            (11_016, "2000-02-29"),
            (20_778, "2026-11-21"),
            (47_541, "2100-03-01"),
        ] {
            assert_eq!(date(days), expected);
        }
    }

    #[test]
    fn a_report_lists_errors_and_measures() {
        let mut log = CallLog::default();
        log.turns.push(TurnTimes { from_commit: 80 * MS, from_speech_end: 580 * MS, underruns: 2 });
        log.error("refused");
        let rows = rows("title", &log);
        let value = |measure: &str| rows.iter().find(|row| row.measure == measure).map(|row| row.ours);
        assert_eq!(value("TTFP, commit to first sound, p95"), Some(80.0));
        assert_eq!(value("end of speech to first sound, p50"), Some(580.0));
        assert_eq!((value("underruns"), value("errors")), (Some(2.0), Some(1.0)));
        assert!(rows.iter().any(|row| row.note == "refused"));
    }
}
