//! The examples of docs/cascade.md.

use super::spoken;

const PAGE: &str = include_str!("../../../../docs/cascade.md");

/// Rows of the page's table: the written text, in backquotes, and the spoken one.
fn examples() -> Vec<(String, String)> {
    let rows = PAGE.lines().skip_while(|line| !line.starts_with("| kind | written | spoken |")).skip(2);
    let rows = rows.take_while(|line| line.starts_with('|'));
    let unescaped = |text: &str| text.replace("\\n", "\n").replace('\u{1}', "|");
    rows.map(|row| {
        let row = row.replace("\\|", "\u{1}");
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [_, written, spoken] = cells[..] else { panic!("{row}") };
        (unescaped(written.trim_matches('`')), unescaped(spoken))
    })
    .collect()
}

#[test]
fn documented_examples_hold() {
    let examples = examples();
    assert!(examples.len() >= 12, "{examples:?}");
    for (written, expected) in examples {
        assert_eq!(spoken(&written), expected, "{written}");
    }
}
