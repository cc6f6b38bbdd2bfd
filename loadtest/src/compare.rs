//! Two reports side by side.

use std::collections::BTreeMap;

use repartee_report::{Report, ReportRow};

/// Smallest relative difference that is marked.
const NOTABLE: f64 = 0.1;

/// Formats the rows of both reports: first value, second value, ratio. An asterisk marks a difference of a tenth or
/// more.
pub fn compare(first: &Report, second: &Report) -> String {
    let mut text = format!("  first:  {}\n  second: {}\n", first.origin(), second.origin());
    let key = |row: &ReportRow| (row.note.clone(), row.measure.clone());
    let others: BTreeMap<_, &ReportRow> = second.rows.iter().map(|row| (key(row), row)).collect();
    let mut note = "";
    for row in &first.rows {
        if row.note != note {
            note = &row.note;
            text += &format!("\n{note}\n");
        }
        let values = match others.get(&key(row)) {
            Some(other) => format!("{:>12.2} {:<8} {}", other.ours, row.unit, change(row.ours, other.ours)),
            None => format!("{:>12} {:<8}", "-", row.unit),
        };
        text += format!("  {:<50} {:>12.2} {values}", row.measure, row.ours).trim_end();
        text.push('\n');
    }
    let known: Vec<_> = first.rows.iter().map(key).collect();
    for row in second.rows.iter().filter(|row| !known.contains(&key(row))) {
        text += &format!("  {:<50} {:>12} {:>12.2} {:<8} {}\n", row.measure, "-", row.ours, row.unit, row.note);
    }
    text
}

fn change(first: f64, second: f64) -> String {
    if first == second {
        return String::new();
    }
    if first == 0.0 {
        return "*".to_owned();
    }
    let ratio = second / first;
    let mark = if (ratio - 1.0).abs() >= NOTABLE { " *" } else { "" };
    format!("x {ratio:.2}{mark}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_meet_by_measure_and_note() {
        let report = |rows: &[(&str, f64, &str)]| {
            Report::new(
                "load",
                rows.iter().map(|(name, value, note)| ReportRow::without_peer(*name, *value, "ms", *note)).collect(),
            )
        };
        let first = report(&[("a", 100.0, "x"), ("b", 100.0, "x"), ("a", 5.0, "y"), ("gone", 1.0, "y")]);
        let second = report(&[("a", 5.0, "y"), ("b", 105.0, "x"), ("a", 150.0, "x"), ("new", 2.0, "z")]);
        let text = compare(&first, &second);
        let line = |start: &str, value: &str| {
            text.lines().find(|line| line.trim().starts_with(start) && line.contains(value)).unwrap().to_owned()
        };
        assert!(line("a", "150.00").ends_with("x 1.50 *"));
        assert!(line("b", "105.00").ends_with("x 1.05"));
        assert!(line("a", "5.00 ms").ends_with("ms"));
        assert!(line("gone", "1.00").contains("  - "));
        assert!(line("new", "2.00").ends_with('z'));
    }
}
