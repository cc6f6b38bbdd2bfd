//! A report: its rows, and its JSON file.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::{fs, io};

use serde::{Deserialize, Deserializer, Serialize};
use time::OffsetDateTime;

/// Results of one benchmark on one day and machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Name of the benchmark, also the file's stem.
    pub name: String,
    /// Day of the run in UTC, such as 2026-11-21.
    date: String,
    /// Number of cores and processor model.
    machine: String,
    /// Measures of the report.
    pub rows: Vec<ReportRow>,
}

/// One measure, ours beside a peer's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReportRow {
    /// Name of the measure.
    pub measure: String,
    /// Our measured value; NaN, `null` in JSON, if there is none.
    #[serde(deserialize_with = "number_or_nan")]
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

/// Error of reading or writing a report.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// Report that cannot be read.
    #[error("cannot read the report {}; run the benchmark that writes it", path.display())]
    Unreadable {
        /// Path of the report.
        path: PathBuf,
        /// Error of the file system.
        source: io::Error,
    },
    /// File that is not a report.
    #[error("{} is not a report; run the benchmark that writes it again", path.display())]
    Invalid {
        /// Path of the file.
        path: PathBuf,
        /// Error of the JSON parser.
        source: serde_json::Error,
    },
    /// Report that cannot be written.
    #[error("cannot write the report {}; choose a folder that you may write to", path.display())]
    Unwritable {
        /// Path of the report.
        path: PathBuf,
        /// Error of the file system.
        source: io::Error,
    },
}

impl Report {
    /// Creates a report with today's date and this machine.
    pub fn new(name: &str, rows: Vec<ReportRow>) -> Self {
        let date = OffsetDateTime::now_utc().date().to_string();
        Self { name: name.to_owned(), date, machine: crate::machine::description(), rows }
    }

    /// Reads a report from JSON.
    pub fn read(path: &Path) -> Result<Self, ReportError> {
        let text = fs::read(path).map_err(|source| ReportError::Unreadable { path: path.into(), source })?;
        serde_json::from_slice(&text).map_err(|source| ReportError::Invalid { path: path.into(), source })
    }

    /// Writes the report as JSON and creates missing folders. Replaces an older report in one step: a reader sees the old
    /// or the new one, and an interrupted writer leaves the old one.
    pub fn write(&self, path: &Path) -> Result<(), ReportError> {
        let written = serde_json::to_string_pretty(self).map_err(io::Error::from).and_then(|mut text| {
            text.push('\n');
            replace(path, &text)
        });
        written.map_err(|source| ReportError::Unwritable { path: path.into(), source })
    }

    /// Returns date and machine as text.
    pub fn origin(&self) -> String {
        format!("{}, {}", self.date, self.machine)
    }
}

impl ReportRow {
    /// Creates a row without a peer.
    pub fn without_peer(
        measure: impl Into<String>,
        ours: f64,
        unit: impl Into<String>,
        note: impl Into<String>,
    ) -> Self {
        Self { measure: measure.into(), ours, peer: None, ratio: None, unit: unit.into(), note: note.into() }
    }

    /// Creates a row with a peer; less is better, so the ratio is `peer / ours`. Without a ratio unless both are above 0.
    pub fn lower_is_better(
        measure: impl Into<String>,
        ours: f64,
        peer: f64,
        unit: impl Into<String>,
        note: impl Into<String>,
    ) -> Self {
        let ratio = (ours > 0.0 && peer > 0.0).then(|| peer / ours);
        Self { peer: Some(peer), ratio, ..Self::without_peer(measure, ours, unit, note) }
    }
}

/// Writes a file under another name, then renames it. A device such as `/dev/null` is written to, never replaced.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    if fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        return fs::write(path, text);
    }
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    // The name has the process's number, so two writers do not share a draft.
    let mut draft = OsString::from(path);
    draft.push(format!(".{}.part", std::process::id()));
    fs::write(&draft, text)
        .and_then(|()| fs::rename(&draft, path))
        // The first error counts, not that of the removal.
        .inspect_err(|_| drop(fs::remove_file(&draft)))
}

/// Reads a number; JSON has `null` in place of NaN.
fn number_or_nan<'de, D: Deserializer<'de>>(value: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(value)?.unwrap_or(f64::NAN))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn rows() -> Vec<ReportRow> {
        vec![ReportRow::without_peer("a", 1.0, "ms", "b"), ReportRow::lower_is_better("c", 2.0, 4.0, "s", "d")]
    }

    #[test]
    fn report_has_the_schema_of_all_benchmarks() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/load.json");
        Report::new("load", rows()).write(&path).unwrap();
        let value: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        assert_eq!(keys(&value), ["date", "machine", "name", "rows"]);
        assert_eq!(keys(&value["rows"][0]), ["measure", "note", "ours", "peer", "ratio", "unit"]);
        assert_eq!((&value["rows"][0]["peer"], &value["rows"][1]["ratio"]), (&Value::Null, &2.0.into()));
        assert_eq!(Report::read(&path).unwrap().rows, rows());
    }

    #[test]
    fn date_is_a_calendar_day() {
        let date = Report::new("load", Vec::new()).date;
        let parts: Vec<&str> = date.split('-').collect();
        assert_eq!(parts.iter().map(|part| part.len()).collect::<Vec<_>>(), [4, 2, 2], "{date}");
        // A month and a day of one digit are padded.
        for (days, expected) in [(0, "1970-01-01"), (11_016, "2000-02-29"), (20_778, "2026-11-21")] {
            let day = OffsetDateTime::UNIX_EPOCH + time::Duration::days(days);
            assert_eq!(day.date().to_string(), expected);
        }
    }

    #[test]
    fn writing_replaces_and_leaves_no_draft() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("load.json");
        Report::new("load", Vec::new()).write(&path).unwrap();
        Report::new("load", rows()).write(&path).unwrap();
        assert_eq!(Report::read(&path).unwrap().rows.len(), 2);
        // Only a file is replaced.
        let taken = folder.path().join("taken");
        fs::create_dir(&taken).unwrap();
        let error = Report::new("load", rows()).write(&taken).unwrap_err();
        assert!(matches!(error, ReportError::Unwritable { .. }), "{error}");
        let mut names: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["load.json", "taken"]);
    }

    #[test]
    fn missing_value_is_read_as_nan() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("turns.json");
        let row = ReportRow::lower_is_better("delay", f64::NAN, 4.0, "ms", "");
        Report::new("turns", vec![row]).write(&path).unwrap();
        let read = Report::read(&path).unwrap();
        assert!(read.rows[0].ours.is_nan());
        assert_eq!(read.rows[0].ratio, None);
    }

    #[test]
    fn zero_has_no_ratio() {
        for (ours, peer) in [(0.0, 1.0), (1.0, 0.0), (0.0, 0.0), (-1.0, 1.0)] {
            assert_eq!(ReportRow::lower_is_better("a", ours, peer, "", "").ratio, None);
        }
    }

    #[test]
    fn errors_name_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("load.json");
        assert!(matches!(Report::read(&path), Err(ReportError::Unreadable { .. })));
        fs::write(&path, "{}").unwrap();
        let error = Report::read(&path).unwrap_err();
        assert!(matches!(error, ReportError::Invalid { .. }));
        assert!(error.to_string().contains("load.json"), "{error}");
    }
}
