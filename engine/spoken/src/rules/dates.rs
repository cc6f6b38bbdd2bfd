//! Dates.

use super::number::whole;
use super::outcome::{RuleOutcome, TokenWindow};
use crate::affixes::is_capitalised;
use crate::numbers::{ordinal, year};

const MONTHS: [(&str, &[&str]); 12] = [
    ("January", &["Jan"]),
    ("February", &["Feb"]),
    ("March", &["Mar"]),
    ("April", &["Apr"]),
    ("May", &[]),
    ("June", &["Jun"]),
    ("July", &["Jul"]),
    ("August", &["Aug"]),
    ("September", &["Sep", "Sept"]),
    ("October", &["Oct"]),
    ("November", &["Nov"]),
    ("December", &["Dec"]),
];

/// Returns the full name of a month, written in full or short.
pub fn month(text: &str) -> Option<&'static str> {
    MONTHS.iter().find(|(name, short)| *name == text || short.contains(&text)).map(|(name, _)| *name)
}

/// Day of a month; `ordinal` is true if it is written with an ending.
fn day(text: &str) -> Option<(u64, bool)> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let ending = &text[digits.len()..];
    let day = whole(digits).filter(|day| digits.len() <= 2 && (1..=31).contains(day))?;
    matches!(ending, "" | "st" | "nd" | "rd" | "th").then_some((day, !ending.is_empty()))
}

/// Day or range of days behind a month.
fn days(text: &str) -> Option<String> {
    if let Some((from, to)) = text.split_once(['-', '–']) {
        return Some(format!("{} to {}", ordinal(day(from)?.0), ordinal(day(to)?.0)));
    }
    Some(ordinal(day(text)?.0))
}

fn four_digits(text: &str) -> Option<u64> {
    whole(text).filter(|year| text.len() == 4 && (1000..3000).contains(year))
}

/// Rule for a month and a day, a day and a month, or a month and a year, and for the year behind them.
pub fn named(window: &TokenWindow<'_>) -> RuleOutcome {
    let (first, second) = (window.affixes(0), window.affixes(1));
    let stop = |trail: &str| trail.is_empty() || trail == ".";
    if let Some(month) = month(first.core).filter(|_| stop(first.trail) && second.lead.is_empty()) {
        let month = format!("{}{month}", first.lead);
        if let Some(year_) = four_digits(second.core) {
            return RuleOutcome::joined([month, format!("{}{}", year(year_), second.trail)]);
        }
        let Some(day) = days(second.core) else { return RuleOutcome::None };
        return with_year(window, [month, day]);
    }
    let Some((day, ending)) = day(first.core).filter(|_| first.trail.is_empty() && second.lead.is_empty()) else {
        return RuleOutcome::None;
    };
    match month(second.core) {
        Some(month) => {
            let the = if ending || window.previous.word == "the" { "" } else { "the " };
            let day = format!("{}{the}{} of", first.lead, ordinal(day));
            with_year(window, [day, month.to_owned()])
        }
        None => RuleOutcome::None,
    }
}

/// Adds the year, if the third token is one.
fn with_year(window: &TokenWindow<'_>, [first, mut second]: [String; 2]) -> RuleOutcome {
    let (behind, year_) = (window.affixes(1), window.affixes(2));
    let short = month(behind.core).is_some_and(|name| name != behind.core);
    let dropped = short && behind.has_stop();
    if (behind.trail.is_empty() || behind.trail == "," || dropped) && window.lacks(2) {
        return RuleOutcome::Wait;
    }
    let goes_on = window.token(2).is_some_and(|token| !token.begins_line && !is_capitalised(&token.text));
    second.push_str(if dropped && goes_on { &behind.trail[1..] } else { behind.trail });
    match four_digits(year_.core).filter(|_| year_.lead.is_empty() && (dropped || matches!(behind.trail, "" | ","))) {
        Some(number) => RuleOutcome::joined([first, second, format!("{}{}", year(number), year_.trail)]),
        None => RuleOutcome::joined([first, second]),
    }
}

/// Returns the words of a date in digits, which is all of `text`: `2026-11-26`, `11/26/2026`, `26.11.2026`. With slashes the
/// month comes first, unless it cannot be a month.
pub fn digits(text: &str) -> Option<String> {
    let separator = text.chars().find(|c| !c.is_ascii_digit())?;
    let parts: Vec<&str> = text.split(separator).collect();
    let [first, second, third] = parts[..] else { return None };
    let (year_, month, day) = match separator {
        '-' if first.len() == 4 => (first, second, third),
        '/' if third.len() == 4 && whole(first)? > 12 => (third, second, first),
        '/' if third.len() == 4 => (third, first, second),
        '.' if third.len() == 4 => (third, second, first),
        _ => return None,
    };
    let (year_, month, day) = (four_digits(year_)?, whole(month)?, whole(day)?);
    let (name, _) = MONTHS.get(usize::try_from(month).ok()?.checked_sub(1)?)?;
    (1..=31).contains(&day).then(|| format!("{name} {}, {}", ordinal(day), year(year_)))
}
