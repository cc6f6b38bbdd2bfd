//! Rows as a table on the terminal.

use std::fmt::Write as _;

use crate::report::ReportRow;

/// Prints rows as a table.
pub fn print(rows: &[ReportRow]) {
    print!("{}", table(rows));
}

/// Formats rows as a table with a head; the columns are as wide as their longest value. Empty without rows.
pub fn table(rows: &[ReportRow]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let number = |value: Option<f64>| value.map_or(String::new(), |value| format!("{value:.2}"));
    let head = ["", "ours", "peer", "unit", "ratio", ""].map(str::to_owned);
    let cells: Vec<[String; 6]> = rows
        .iter()
        .map(|row| {
            let ratio = row.ratio.map_or(String::new(), |ratio| format!("{ratio:.2} x"));
            [row.measure.clone(), number(Some(row.ours)), number(row.peer), row.unit.clone(), ratio, row.note.clone()]
        })
        .collect();
    let lines = || std::iter::once(&head).chain(&cells);
    let [measure, ours, peer, unit, ratio] = [0, 1, 2, 3, 4]
        .map(|column| lines().map(|line: &[String; 6]| line[column].chars().count()).max().unwrap_or_default());
    let mut text = String::new();
    for line in lines() {
        let padded = format!(
            "  {:<measure$}  {:>ours$}  {:>peer$}  {:<unit$}  {:>ratio$}  {}",
            line[0], line[1], line[2], line[3], line[4], line[5]
        );
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{}", padded.trim_end());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let rows = [
            ReportRow::lower_is_better("a long measure", 2.0, 1234.5, "ms", "beside it"),
            ReportRow::without_peer("b", 10.25, "words", ""),
        ];
        let expected = [
            "                   ours     peer  unit      ratio",
            "  a long measure   2.00  1234.50  ms     617.25 x  beside it",
            "  b               10.25           words",
        ];
        assert_eq!(table(&rows).lines().collect::<Vec<_>>(), expected);
        assert_eq!(table(&[]), "");
    }
}
