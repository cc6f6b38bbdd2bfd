//! Rows of written and spoken text.

use super::spoken;

const ROWS: &str = include_str!("../data/rows.txt");

fn unescape(text: &str) -> String {
    let mut characters = text.chars();
    let mut result = String::new();
    while let Some(character) = characters.next() {
        let escaped = match character {
            '\\' => characters.next(),
            _ => {
                result.push(character);
                continue;
            }
        };
        result.push(match escaped {
            Some('n') => '\n',
            Some('t') => '\t',
            Some(other) => other,
            None => '\\',
        });
    }
    result
}

/// Returns the kind of each row, its written and its spoken text.
fn rows() -> Vec<(&'static str, String, String)> {
    let (mut kind, mut written, mut rows) = ("", None, Vec::new());
    for line in ROWS.lines() {
        if let Some(name) = line.strip_prefix("== ") {
            kind = name;
        } else if let Some(text) = line.strip_prefix('<') {
            assert_eq!(written, None, "every row is spoken");
            written = Some(unescape(text.strip_prefix(' ').unwrap_or(text)));
        } else if let Some(text) = line.strip_prefix('>') {
            let written = written.take().unwrap_or_else(|| panic!("{line} is not written"));
            rows.push((kind, written, unescape(text.strip_prefix(' ').unwrap_or(text))));
        }
    }
    rows
}

#[test]
fn every_row_is_spoken_as_frozen() {
    let rows = rows();
    assert!(rows.len() >= 280, "{} rows", rows.len());
    let wrong: Vec<String> = rows
        .into_iter()
        .filter_map(|(kind, written, expected)| {
            let found = spoken(&written);
            (found != expected).then(|| format!("{kind}: {written:?}\n  expected {expected:?}\n  found    {found:?}"))
        })
        .collect();
    assert!(wrong.is_empty(), "{} rows:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn spoken_text_stays_as_it_is() {
    // A text may be made speakable twice: before it is cut into sentences, and by the model that reads it.
    let changed: Vec<String> = rows()
        .into_iter()
        .filter_map(|(kind, _, expected)| {
            let found = spoken(&expected);
            (found != expected).then(|| format!("{kind}: {expected:?}\n  becomes {found:?}"))
        })
        .collect();
    assert!(changed.is_empty(), "{} rows:\n{}", changed.len(), changed.join("\n"));
}
