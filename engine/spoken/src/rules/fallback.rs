//! Words of letters, digits and signs that no other rule is for: each sign has its name, and each number its words.

use super::number::{WrittenNumber, split_digits};
use super::{quantities, signs};
use crate::characters::is_arrow;

/// Returns the spoken form of a word without its punctuation. `code` is true in a code span.
pub fn speak(text: &str, code: bool) -> String {
    let text = text.replace("()", "");
    let mut words = String::new();
    let mut rest = text.as_str();
    let dashes = rest.len() - rest.trim_start_matches('-').len();
    if (code || dashes == 2) && rest[dashes..].starts_with(char::is_alphabetic) {
        rest = &rest[dashes..];
        words.push_str(&"dash ".repeat(dashes.min(2)));
    }
    let mut before = None;
    while let Some(next) = rest.chars().next() {
        let behind = &rest[next.len_utf8()..];
        let follows = behind.chars().next();
        let taken = if let Some(name) = signs::within(next) {
            let name = special(next, before, follows).unwrap_or(name);
            separate(&mut words);
            words.push_str(name);
            separate(&mut words);
            next.len_utf8()
        } else if is_arrow(next) {
            separate(&mut words);
            words.push_str("to ");
            next.len_utf8()
        } else if next.is_alphanumeric() {
            let length = run_length(rest);
            let run = &rest[..length];
            match quantities::parse(run, false).filter(|_| next.is_ascii_digit()) {
                Some(quantity) => words.push_str(&quantity.words),
                None => words.push_str(run),
            }
            length
        } else {
            let number = follows.is_some_and(|c| c.is_ascii_digit());
            let letters = before.is_some_and(char::is_alphabetic) && follows.is_some_and(char::is_alphabetic);
            match next {
                '-' | '–' | '‑' if number && before.is_some_and(char::is_alphanumeric) => words.push(' '),
                '-' | '–' if number && before == Some('.') => words.push_str(" to "),
                ',' if number => words.push_str(", "),
                '.' if code && letters => words.push_str(" dot "),
                _ => words.push(next),
            }
            next.len_utf8()
        };
        before = rest[..taken].chars().next_back();
        rest = &rest[taken..];
    }
    words.trim_end().to_owned()
}

/// Name of a sign that has another one here: `C#`, `#word`.
fn special(sign: char, before: Option<char>, behind: Option<char>) -> Option<&'static str> {
    let operands = before.is_some_and(char::is_alphanumeric) && behind.is_some_and(char::is_alphanumeric);
    match sign {
        '#' if before.is_some_and(char::is_uppercase) && behind.is_none() => Some("sharp"),
        '#' if before.is_none() && behind.is_some_and(char::is_alphabetic) => Some("hashtag"),
        '^' if operands => Some("to the power of"),
        '<' if operands => Some("is less than"),
        '>' if operands => Some("is greater than"),
        _ => None,
    }
}

/// Length in bytes of the letters and digits that `text` begins with; a number's separators are a part of it.
fn run_length(text: &str) -> usize {
    let number = WrittenNumber::parse(text).map_or(0, |(_, rest)| text.len() - rest.len());
    let is_part = |c: char| signs::within(c).is_none() && (c.is_alphanumeric() || c == '\'' || c == '’');
    // A time holds a colon.
    let minutes = text[number..].strip_prefix(':').map_or(0, |minutes| split_digits(minutes).0.len());
    let number = if number > 0 && minutes == 2 { number + 3 } else { number };
    let rest = &text[number..];
    let letters = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
    number + letters
}

/// Adds a space, unless one is there.
fn separate(words: &mut String) {
    if !words.is_empty() && !words.ends_with(' ') {
        words.push(' ');
    }
}
