//! Times of the day and durations with colons.

use super::number::{split_digits, whole};
use super::outcome::{RuleOutcome, TokenWindow};
use crate::numbers::cardinal;

/// Returns "AM" or "PM" for a half of the day as it is written behind a time.
pub fn half(text: &str) -> Option<&'static str> {
    match text.to_ascii_lowercase().as_str() {
        "am" | "a.m" | "a.m." => Some("AM"),
        "pm" | "p.m" | "p.m." => Some("PM"),
        _ => None,
    }
}

/// Time of the day.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Clock {
    hour: u64,
    minute: Option<u64>,
    second: Option<u64>,
    half: Option<&'static str>,
}

impl Clock {
    /// Parses a time which is all of `text`: `3:30`, `3pm`, `15:45:10`. A number alone is a time only if `bare`.
    fn parse(text: &str, bare: bool) -> Option<Self> {
        let (hour, mut rest) = split_digits(text);
        let hour = whole(hour).filter(|_| hour.len() <= 2)?;
        let mut parts = [None, None];
        for part in &mut parts {
            if let Some(behind) = rest.strip_prefix(':') {
                let (digits, behind) = split_digits(behind);
                *part = Some(whole(digits).filter(|&value| digits.len() == 2 && value < 60)?);
                rest = behind;
            }
        }
        let [minute, second] = parts;
        let half = if rest.is_empty() { None } else { Some(half(rest)?) };
        let most = if half.is_some() { 12 } else { 24 };
        (hour <= most && (bare || minute.is_some() || half.is_some())).then_some(Self { hour, minute, second, half })
    }

    /// Returns the words; `halved` is true if a half of the day follows.
    fn words(&self, halved: bool) -> String {
        let hour = cardinal(self.hour);
        let halved = halved || self.half.is_some();
        let mut words = match (self.minute, self.second) {
            (None, _) => hour,
            (Some(0), None) if halved => hour,
            (Some(0), None) if (1..=12).contains(&self.hour) => format!("{hour} o'clock"),
            (Some(0), None) => format!("{hour} hundred"),
            (Some(minute), _) => format!("{hour} {}", sixtieths(minute)),
        };
        for part in [self.second.map(sixtieths), self.half.map(str::to_owned)].into_iter().flatten() {
            words.push(' ');
            words.push_str(&part);
        }
        words
    }
}

fn sixtieths(number: u64) -> String {
    if number < 10 { format!("oh {}", cardinal(number)) } else { cardinal(number) }
}

/// Returns the words of a time or of a range of times, which is all of `text`; `halved` is true if a half of the day follows.
pub fn time(text: &str, halved: bool) -> Option<String> {
    if let Some(clock) = Clock::parse(text, halved) {
        return Some(clock.words(halved));
    }
    if let Some((from, to)) = text.split_once(['-', '–']) {
        let (from, to) = (Clock::parse(from, true)?, Clock::parse(to, halved)?);
        return Some(format!("{} to {}", from.words(to.half.is_some()), to.words(halved)));
    }
    let (left, right) = text.split_once(':')?;
    Some(format!("{} to {}", cardinal(whole(left)?), cardinal(whole(right)?)))
}

/// Rule for a time and the half of the day behind it: `3:30 pm`, `10 a.m.`
pub fn with_half(window: &TokenWindow<'_>) -> RuleOutcome {
    let (clock, half_) = (window.affixes(0), window.affixes(1));
    let (true, true, Some(half_word)) = (clock.trail.is_empty(), half_.lead.is_empty(), half(half_.core)) else {
        return RuleOutcome::None;
    };
    let Some(words) = time(clock.core, true) else { return RuleOutcome::None };
    let dotted = half_.core.contains('.') && half_.has_stop();
    if dotted && window.lacks(2) {
        return RuleOutcome::Wait;
    }
    let trail = if dotted && !window.sentence_ends_before(2) { &half_.trail[1..] } else { half_.trail };
    RuleOutcome::joined([format!("{}{words}", clock.lead), format!("{half_word}{trail}")])
}
