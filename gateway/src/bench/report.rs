//! Report format that all benchmarks of this project share.

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

/// Results of one benchmark on one day and machine.
#[derive(Debug, Serialize)]
pub struct Report {
    name: String,
    date: String,
    machine: String,
    rows: Vec<ReportRow>,
}

/// Result of one measure.
#[derive(Debug, Clone, Serialize)]
pub struct ReportRow {
    measure: String,
    ours: f64,
    /// Value to compare with.
    peer: Option<f64>,
    /// `peer / ours`, where less is better: above 1 ours is better.
    ratio: Option<f64>,
    unit: &'static str,
    note: String,
}

impl Report {
    /// Creates a report with today's date and this machine.
    pub fn new(name: &str, rows: Vec<ReportRow>) -> Self {
        Self { name: name.to_owned(), date: today(), machine: machine(), rows }
    }
}

impl ReportRow {
    /// Creates a row without a comparison.
    pub fn without_peer(measure: impl Into<String>, ours: f64, unit: &'static str, note: impl Into<String>) -> Self {
        Self { measure: measure.into(), ours, peer: None, ratio: None, unit, note: note.into() }
    }

    /// Creates a row with a comparison; less is better.
    pub fn lower_is_better(
        measure: impl Into<String>,
        ours: f64,
        peer: f64,
        unit: &'static str,
        note: impl Into<String>,
    ) -> Self {
        Self { peer: Some(peer), ratio: Some(peer / ours), ..Self::without_peer(measure, ours, unit, note) }
    }

    /// Prints the row as a line of a table.
    pub fn print(&self) {
        let Self { measure, ours, peer, ratio, unit, note } = self;
        let peer = peer.map_or(String::new(), |peer| format!("{peer:.2}"));
        let ratio = ratio.map_or(String::new(), |ratio| format!("{ratio:.2} x"));
        println!("  {measure:<44} {ours:>9.2} {peer:>8} {unit:<7} {ratio:>7} {note}");
    }
}

/// Describes the machine: number of cores and processor model.
fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu.lines().find_map(|line| line.strip_prefix("model name"));
    format!("{cores} cores, {}", model.map_or(std::env::consts::ARCH, |rest| rest.trim_matches([' ', '\t', ':'])))
}

/// Today's date in UTC, such as 2026-11-21.
fn today() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    date(since / 86_400)
}

/// Gregorian date of a day counted from 1970-01-01.
fn date(days: u64) -> String {
    // Years begin in March, so that the leap day is the last one; 719,468 days lie between 0000-03-01 and 1970-01-01.
    let day = days + 719_468;
    let (era, of_era) = (day / 146_097, day % 146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (month, later) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    format!("{:04}-{month:02}-{day:02}", era * 400 + year + later)
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn a_row_has_the_schema_of_all_benchmarks() {
        let report = Report::new(
            "size",
            vec![ReportRow::lower_is_better("a", 2.0, 4.0, "ms", "b"), ReportRow::without_peer("c", 1.0, "", "")],
        );
        let value = serde_json::to_value(report).unwrap();
        let keys = |value: &serde_json::Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        assert_eq!(keys(&value), ["date", "machine", "name", "rows"]);
        assert_eq!(keys(&value["rows"][0]), ["measure", "note", "ours", "peer", "ratio", "unit"]);
        assert_eq!((&value["rows"][0]["ratio"], &value["rows"][1]["peer"]), (&2.0.into(), &serde_json::Value::Null));
    }
}
