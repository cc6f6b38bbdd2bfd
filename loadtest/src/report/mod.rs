//! Reports: rows of figures in the schema of all benchmarks here, and a page with plots.
//!
//! | file | what it does |
//! |---|---|
//! | `rows` | the rows of a scenario |
//! | `plot` | plots as SVG |
//! | `page` | one HTML page with all figures |

pub mod page;
pub mod plot;
pub mod rows;

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

/// A report in the schema of all benchmarks here.
#[derive(Debug, Serialize, Deserialize)]
pub struct Report {
    /// Name of the benchmark, also the file's stem.
    pub name: String,
    date: String,
    machine: String,
    /// Measures of the report.
    pub rows: Vec<ReportRow>,
}

/// One measure, ours beside a peer's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReportRow {
    /// Name of the measure.
    pub measure: String,
    /// Our measured value.
    pub ours: f64,
    /// Value of the peer, in the same run.
    pub peer: Option<f64>,
    /// Ratio of the two values; above 1, ours is better.
    pub ratio: Option<f64>,
    /// Unit of both values.
    pub unit: String,
    /// Conditions of the measurement.
    pub note: String,
}

impl ReportRow {
    /// Creates a row without a peer.
    pub fn without_peer(measure: impl Into<String>, ours: f64, unit: &'static str, note: impl Into<String>) -> Self {
        Self { measure: measure.into(), ours, peer: None, ratio: None, unit: unit.to_owned(), note: note.into() }
    }

    /// Creates a row with a peer; less is better, so the ratio is `peer / ours`.
    pub fn lower_is_better(
        measure: impl Into<String>,
        ours: f64,
        peer: f64,
        unit: &'static str,
        note: impl Into<String>,
    ) -> Self {
        Self { peer: Some(peer), ratio: Some(peer / ours), ..Self::without_peer(measure, ours, unit, note) }
    }
}

impl Report {
    /// Creates a report with today's date and this machine.
    pub fn new(name: &str, rows: Vec<ReportRow>) -> Self {
        Self { name: name.to_owned(), date: today(), machine: machine(), rows }
    }

    /// Reads a report from JSON.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let named = || path.display().to_string();
        serde_json::from_str(&fs::read_to_string(path).with_context(named)?).with_context(named)
    }

    /// Returns date and machine as text.
    pub fn origin(&self) -> String {
        format!("{}, {}", self.date, self.machine)
    }

    /// Writes the report as JSON and creates missing folders.
    pub fn write(&self, path: &Path) -> anyhow::Result<()> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        }
        fs::write(path, serde_json::to_string_pretty(self)?).with_context(|| path.display().to_string())
    }
}

/// Prints rows as a table.
pub fn print(rows: &[ReportRow]) {
    for row in rows {
        let peer = row.peer.map_or(String::new(), |peer| format!("{peer:.2}"));
        let ratio = row.ratio.map_or(String::new(), |ratio| format!("{ratio:.2} x"));
        println!("  {:<50} {:>10.2} {peer:>10} {:<8} {ratio:>8} {}", row.measure, row.ours, row.unit, row.note);
    }
}

/// Returns the percentile by nearest rank, a value that occurred; `None` if `sorted` is empty.
pub fn percentile(sorted: &[Duration], percent: usize) -> Option<Duration> {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.checked_sub(1)?).copied()
}

/// Number of cores and processor model.
fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model =
        cpu.lines().find_map(|line| line.strip_prefix("model name")).map(|rest| rest.trim_matches([' ', '\t', ':']));
    format!("{cores} cores, {}", model.unwrap_or(std::env::consts::ARCH))
}

/// Today's date in UTC, as in 2026-11-21.
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
    fn report_has_the_schema_of_all_benchmarks() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/load.json");
        let rows =
            vec![ReportRow::without_peer("a", 1.0, "ms", "b"), ReportRow::lower_is_better("c", 2.0, 4.0, "s", "d")];
        Report::new("load", rows.clone()).write(&path).unwrap();
        let value: serde_json::Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        let keys = |value: &serde_json::Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        assert_eq!(keys(&value), ["date", "machine", "name", "rows"]);
        assert_eq!(keys(&value["rows"][0]), ["measure", "note", "ours", "peer", "ratio", "unit"]);
        assert_eq!((&value["rows"][0]["peer"], &value["rows"][1]["ratio"]), (&serde_json::Value::Null, &2.0.into()));
        assert_eq!(Report::read(&path).unwrap().rows, rows);
    }
}
