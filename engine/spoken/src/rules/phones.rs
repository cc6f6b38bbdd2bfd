//! Phone numbers, and addresses and versions of several numbers with points.

use super::number::{split_digits, whole};
use super::outcome::{RuleOutcome, TokenWindow};
use crate::numbers::{cardinal, digits, integer};

/// Maximum number of tokens of a phone number.
const MAX_TOKENS: usize = 6;

/// Returns the groups of digits of `text`, with nothing but hyphens, points and brackets between them.
fn groups(text: &str) -> Option<Vec<&str>> {
    let groups: Vec<&str> = text.split(['-', '.', '(', ')', '‑']).filter(|group| !group.is_empty()).collect();
    groups.iter().all(|group| group.bytes().all(|b| b.is_ascii_digit())).then_some(groups)
}

fn lengths(groups: &[&str]) -> Vec<usize> {
    groups.iter().map(|group| group.len()).collect()
}

fn words(groups: &[&str]) -> String {
    groups.iter().map(|group| digits(group)).collect::<Vec<_>>().join(", ")
}

/// Returns the words of a phone number which is all of `text`: `555-123-4567`, `+1-800-555-0199`.
pub fn phone(text: &str) -> Option<String> {
    if let Some(rest) = text.strip_prefix('+') {
        let found = groups(rest).filter(|groups| groups.len() >= 3 && rest.len() >= 8)?;
        return Some(format!("plus {}", words(&found)));
    }
    let found = groups(text)?;
    matches!(lengths(&found)[..], [3, 3, 4] | [1, 3, 3, 4]).then(|| words(&found))
}

/// Rule for a phone number in several tokens: `(555) 123-4567`, `+1 800 555 0199`.
pub fn spaced(window: &TokenWindow<'_>) -> RuleOutcome {
    let Some(first) = window.token(0) else { return RuleOutcome::None };
    let country = first.text.strip_prefix('+').filter(|code| (1..=3).contains(&split_digits(code).0.len()));
    let area = first.text.strip_prefix('(').and_then(|text| text.strip_suffix(')')).filter(|text| text.len() == 3);
    let begins = match (country, area) {
        (Some(code), _) => whole(code).is_some(),
        (None, Some(area)) => whole(area).is_some(),
        (None, None) => false,
    };
    if !begins {
        return RuleOutcome::None;
    }
    let mut found = vec![digits(&first.text)];
    if country.is_some() {
        found[0].insert_str(0, "plus ");
    }
    let mut trail = "";
    for index in 1..MAX_TOKENS {
        if !trail.is_empty() {
            break;
        }
        if window.lacks(index) {
            return RuleOutcome::Wait;
        }
        let next = window.affixes(index);
        let text = window.token(index).map_or("", |token| &token.text);
        let body = &text[..text.len() - next.trail.trim_start_matches(')').len()];
        let Some(groups) = groups(body).filter(|groups| !groups.is_empty() && groups.iter().all(|g| g.len() <= 4))
        else {
            break;
        };
        found.push(words(&groups));
        trail = &text[body.len()..];
    }
    let enough = if country.is_some() { 3 } else { 2 };
    let count: usize = found.iter().map(|words| words.split(' ').count()).sum();
    if found.len() < enough || count < 7 {
        return RuleOutcome::None;
    }
    let last = found.len() - 1;
    RuleOutcome::joined(found.into_iter().enumerate().map(
        |(index, words)| {
            if index < last { words + "," } else { words + trail }
        },
    ))
}

/// Returns the words of numbers with points between them, at least three of them: `1.2.3`, `192.168.0.1`.
pub fn pointed(text: &str) -> Option<String> {
    let parts: Vec<&str> = text.split('.').collect();
    if parts.len() < 3 || !parts.iter().all(|part| whole(part).is_some()) {
        return None;
    }
    let bytes: Option<Vec<u64>> = parts.iter().map(|part| whole(part).filter(|&value| value < 256)).collect();
    let address = bytes.filter(|bytes| bytes.len() == 4);
    Some(match address {
        Some(bytes) => bytes.into_iter().map(cardinal).collect::<Vec<_>>().join(" dot "),
        None => parts.into_iter().map(integer).collect::<Vec<_>>().join(" point "),
    })
}
