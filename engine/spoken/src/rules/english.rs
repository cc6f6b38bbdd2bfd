//! Order of the rules for English text.

use super::abbreviations;
use super::addresses;
use super::dates;
use super::fallback;
use super::money;
use super::number::{behind_integer, slash_fraction};
use super::outcome::{RuleOutcome, SpokenWord, TokenWindow};
use super::phones;
use super::quantities::{self, Quantity};
use super::signs;
use super::times;
use super::units;
use crate::affixes::{Affixes, begins_with_digit};
use crate::token::Token;

/// Faces made of signs: silent.
const FACES: [&str; 12] = [":)", ":-)", ";)", ";-)", ":(", ":-(", ":D", ":-D", ":P", ":-P", "<3", "xD"];

/// Words behind which a number of four digits is a year.
const BEFORE_YEARS: [&str; 15] = [
    "in", "since", "from", "until", "till", "before", "after", "during", "around", "circa", "year", "early", "late",
    "mid", "spring",
];

/// True if a rule may change the token: otherwise it is spoken as it is written.
pub fn needs_rule(token: &Token) -> bool {
    let affixes = Affixes::of(&token.text);
    let plain = |c: char| c.is_alphabetic() || matches!(c, '\'' | '’' | '-');
    token.code
        || !affixes.core.contains(char::is_alphabetic)
        || !affixes.core.chars().all(plain)
        || affixes.lead.contains(['[', '{'])
        || affixes.trail.contains([']', '}'])
        || abbreviations::is_known(affixes.core)
        || abbreviations::may_be_initial(affixes)
        || dates::month(affixes.core).is_some()
}

/// Applies the first rule for the first tokens.
pub fn apply(window: &TokenWindow<'_>) -> RuleOutcome {
    let Some(token) = window.token(0) else { return RuleOutcome::None };
    if window.lacks(1) {
        return RuleOutcome::Wait;
    }
    if FACES.contains(&token.text.as_str()) {
        return RuleOutcome::one("");
    }
    if let Some(height) = feet_and_inches(window) {
        return RuleOutcome::one(height);
    }
    let affixes = Affixes::of(&token.text);
    if !token.code
        && let Some(words) = addresses::address(affixes.core)
    {
        return wrapped(affixes, &words);
    }
    let rules = [signs::alone, dates::named, phones::spaced, times::with_half, quantity, abbreviations::abbreviation];
    for rule in rules {
        let outcome = rule(window);
        if outcome != RuleOutcome::None {
            return outcome;
        }
    }
    if token.code
        && let Some(words) = addresses::address(affixes.core)
    {
        return wrapped(affixes, &words);
    }
    wrapped(affixes, &fallback::speak(affixes.core, token.code))
}

/// Puts the punctuation around a word again, but for brackets that only code has.
fn wrapped(affixes: Affixes<'_>, words: &str) -> RuleOutcome {
    let silent = |c: char| matches!(c, '[' | ']' | '{' | '}');
    let (lead, trail) = (affixes.lead.replace(silent, ""), affixes.trail.replace(silent, ""));
    // Punctuation without a word belongs to the word before.
    let word = SpokenWord::new(format!("{lead}{words}{trail}"));
    RuleOutcome::Spoken(vec![SpokenWord { glued: words.is_empty() && !word.text.is_empty(), ..word }])
}

/// Words of a height such as `5'10"`.
fn feet_and_inches(window: &TokenWindow<'_>) -> Option<String> {
    let Affixes { lead, core, trail } = window.affixes(0);
    let rest = trail.strip_prefix(['"', '”', '″'])?;
    let (feet, inches) = core.split_once(['\'', '’', '′'])?;
    let [feet, inches] = [feet, inches].map(|part| quantities::parse(part, false).filter(|part| part.value.is_some()));
    let (feet, inches) = (feet?, inches?);
    let feet = format!("{} {}", feet.words, units::unit("ft", feet.singular)?);
    let inch = if inches.singular { "inch" } else { "inches" };
    Some(format!("{lead}{feet} {} {inch}{rest}", inches.words))
}

/// Rule for a quantity and what belongs to it: a magnitude, a unit, a fraction, or the end of a range.
fn quantity(window: &TokenWindow<'_>) -> RuleOutcome {
    let (affixes, next) = (window.affixes(0), window.affixes(1));
    let is_year = BEFORE_YEARS.contains(&window.previous.word.as_str());
    let apostrophe = affixes.lead.trim_end_matches(['\'', '’', '‘']);
    let decade = affixes.core.strip_suffix('s').is_some_and(|digits| digits.len() == 2);
    let lead = if decade { apostrophe } else { affixes.lead };
    let lead = lead.replace(['[', '{'], "");
    let trail = affixes.trail.replace([']', '}'], "");
    if let Some(times) = factor(window, affixes, next) {
        return RuleOutcome::one(format!("{lead}{times}{trail}"));
    }
    let Some(found) = quantities::parse(affixes.core, is_year) else { return RuleOutcome::None };
    let first = format!("{lead}{}", found.words);
    let alone = || RuleOutcome::one(format!("{first}{trail}"));
    if !affixes.trail.is_empty() || !next.lead.is_empty() || window.token(1).is_none_or(|token| token.begins_line) {
        return alone();
    }
    if let (Some(money), Some(name)) = (&found.money, money::magnitude(next.core)) {
        let name = format!("{name} {}{}", money.plural, next.trail);
        return RuleOutcome::joined([format!("{lead}{}", money.amount), name]);
    }
    if !found.takes_unit {
        return alone();
    }
    if matches!(next.core, "–" | "—") {
        if window.lacks(2) {
            return RuleOutcome::Wait;
        }
        if window.token(2).is_some_and(|token| begins_with_digit(&token.text)) {
            let to = SpokenWord::new("to").joined();
            return RuleOutcome::Spoken(vec![SpokenWord::new(first).joined(), to]);
        }
        return alone();
    }
    if let Some(parts) = slash_fraction(next.core).filter(|(above, below)| found.value.is_some() && above < below) {
        if next.trail.is_empty() && window.lacks(2) {
            return RuleOutcome::Wait;
        }
        let mut words = vec![first, format!("and {}{}", behind_integer(parts), next.trail)];
        let behind = window.affixes(2);
        if next.trail.is_empty()
            && behind.lead.is_empty()
            && let Some(unit) = units::unit(behind.core, false)
        {
            words.push(format!("{unit}{}", stop(window, 2, behind)));
        }
        return RuleOutcome::joined(words);
    }
    match units::unit(next.core, found.singular) {
        // The full stop of a short unit may be that of the sentence.
        Some(_) if next.has_stop() && window.lacks(2) => RuleOutcome::Wait,
        Some(unit) => RuleOutcome::joined([first, format!("{unit}{}", stop(window, 1, next))]),
        None => alone(),
    }
}

/// Punctuation behind the unit at an index: its full stop is left out where the sentence goes on.
fn stop<'a>(window: &TokenWindow<'a>, index: usize, affixes: Affixes<'a>) -> &'a str {
    let drops = affixes.has_stop() && !window.sentence_ends_before(index + 1);
    if drops { &affixes.trail[1..] } else { affixes.trail }
}

/// Words of a factor such as `3x`, before a word: in a formula it is a product.
fn factor(window: &TokenWindow<'_>, affixes: Affixes<'_>, next: Affixes<'_>) -> Option<String> {
    let number = affixes.core.strip_suffix(['x', '×'])?;
    let word = next.core.starts_with(char::is_alphabetic) && next.core.chars().count() > 1;
    let before_word = word || window.token(1).is_none() || !affixes.trail.is_empty();
    let Quantity { words, .. } = quantities::parse(number, false)?;
    before_word.then(|| format!("{words} times"))
}
