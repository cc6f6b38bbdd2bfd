//! Signs: alone, and within a word.

use super::outcome::{RuleOutcome, SpokenWord, TokenWindow};
use crate::affixes::begins_with_digit;
use crate::characters::is_arrow;

/// Signs and their names between two words.
const ALONE: &[(&str, &str)] = &[
    ("&", "and"),
    ("@", "at"),
    ("+", "plus"),
    ("=", "equals"),
    ("==", "equals"),
    ("×", "times"),
    ("*", "times"),
    ("÷", "divided by"),
    ("±", "plus or minus"),
    ("≈", "is about"),
    ("~", "is about"),
    ("≠", "is not equal to"),
    ("!=", "is not equal to"),
    ("≤", "is less than or equal to"),
    ("<=", "is less than or equal to"),
    ("≥", "is greater than or equal to"),
    (">=", "is greater than or equal to"),
    ("<", "is less than"),
    ("%", "percent"),
    ("°", "degrees"),
    ("§", "section"),
    ("--", "—"),
    ("---", "—"),
];

/// Signs and their names within a word, or around it.
const WITHIN: &[(char, &str)] = &[
    ('&', "and"),
    ('@', "at"),
    ('+', "plus"),
    ('=', "equals"),
    ('%', "percent"),
    ('/', "slash"),
    ('×', "times"),
    ('÷', "divided by"),
    ('±', "plus or minus"),
    ('≈', "is about"),
    ('≠', "is not equal to"),
    ('≤', "is less than or equal to"),
    ('≥', "is greater than or equal to"),
    ('²', "squared"),
    ('³', "cubed"),
    ('√', "the square root of"),
    ('∞', "infinity"),
    ('°', "degrees"),
    ('§', "section"),
    ('€', "euros"),
    ('£', "pounds"),
    // Without a name.
    ('$', ""),
    ('_', ""),
    ('*', ""),
    ('#', ""),
    ('~', ""),
    ('^', ""),
    ('`', ""),
    ('\\', ""),
    ('|', ""),
    ('<', ""),
    ('>', ""),
    ('[', ""),
    (']', ""),
    ('{', ""),
    ('}', ""),
    ('™', ""),
    ('®', ""),
    ('©', ""),
    ('†', ""),
    ('‡', ""),
];

/// Name of a sign within a word; empty for a sign without one.
pub fn within(sign: char) -> Option<&'static str> {
    WITHIN.iter().find(|(known, _)| *known == sign).map(|(_, name)| *name)
}

/// Rule for a sign that stands alone.
pub fn alone(window: &TokenWindow<'_>) -> RuleOutcome {
    let text = window.token(0).map_or("", |token| &token.text);
    let number_behind = window.token(1).is_some_and(|token| begins_with_digit(&token.text));
    let numbers = window.previous.number && number_behind;
    let arrow = matches!(text, "->" | "=>" | "-->" | "==>") || text.chars().all(is_arrow);
    let name = match text {
        "-" | "−" if numbers => "minus",
        // A range of times.
        "-" | "–" if number_behind && matches!(window.previous.word.as_str(), "am" | "pm") => "to",
        "-" => "—",
        "/" if numbers => "divided by",
        "/" => "slash",
        "–" if numbers => "to",
        ">" if window.previous.is_operand() => "is greater than",
        _ if arrow && numbers => "to",
        // A way through a menu.
        _ if arrow || text == ">" => return RuleOutcome::Spoken(vec![SpokenWord::pause(",")]),
        _ => match ALONE.iter().find(|(sign, _)| *sign == text) {
            Some((_, name)) => name,
            None => return RuleOutcome::None,
        },
    };
    RuleOutcome::one(name)
}
