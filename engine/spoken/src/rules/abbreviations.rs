//! Abbreviations.

use super::dates;
use super::outcome::{PreviousWord, RuleOutcome, SpokenWord, TokenWindow};
use crate::affixes::{Affixes, begins_with_digit, is_capitalised};
use crate::token::Token;

/// Condition of an abbreviation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Condition {
    /// A name follows: `Mr. Smith`. The full stop may be left out.
    Name,
    /// The full stop may be left out. It stays where a sentence may end.
    Always,
    /// The full stop may be left out, and the sentence goes on.
    Inside,
    /// A full stop follows. It stays where a sentence may end.
    Stop,
    /// A full stop follows, and the sentence goes on: `Sun.` may be a word.
    GoesOn,
    /// A full stop and a number follow: `No. 5`.
    Number,
    /// Part of a name stands before it: `Oak Ave.`
    BehindName,
}

use Condition::{Always, BehindName, GoesOn, Inside, Name, Number, Stop};

/// Abbreviations without their full stop, their words, and the condition. Of several conditions the first one that holds counts.
const ABBREVIATIONS: &[(&str, &str, Condition)] = &[
    ("Mr", "Mister", Inside),
    ("Mrs", "Missus", Inside),
    ("Dr", "Doctor", Name),
    ("Dr", "Drive", BehindName),
    ("Prof", "Professor", Name),
    ("St", "Street", BehindName),
    ("St", "Saint", Name),
    ("Mt", "Mount", Name),
    ("Ft", "Fort", Name),
    ("Rev", "Reverend", Name),
    ("Gen", "General", Name),
    ("Col", "Colonel", Name),
    ("Capt", "Captain", Name),
    ("Lt", "Lieutenant", Name),
    ("Sgt", "Sergeant", Name),
    ("Gov", "Governor", Name),
    ("Sen", "Senator", Name),
    ("Rep", "Representative", Name),
    ("Pres", "President", Name),
    ("Ave", "Avenue", BehindName),
    ("Blvd", "Boulevard", BehindName),
    ("Rd", "Road", BehindName),
    ("Ln", "Lane", BehindName),
    ("Hwy", "Highway", BehindName),
    ("Jr", "Junior", BehindName),
    ("Sr", "Senior", BehindName),
    ("Inc", "Incorporated", BehindName),
    ("Ltd", "Limited", BehindName),
    ("Corp", "Corporation", BehindName),
    ("Co", "Company", BehindName),
    ("Univ", "University", Stop),
    ("Dept", "Department", Stop),
    ("Ph.D", "PhD", Always),
    ("e.g", "for example", Inside),
    ("i.e", "that is", Inside),
    ("eg", "for example", Stop),
    ("ie", "that is", Stop),
    ("etc", "et cetera", Always),
    ("vs", "versus", Inside),
    ("cf", "compare", Stop),
    ("al", "al", Stop),
    ("viz", "namely", Stop),
    ("ca", "circa", Stop),
    ("approx", "approximately", Inside),
    ("est", "established", Number),
    ("a.k.a", "also known as", Inside),
    ("aka", "also known as", Inside),
    ("incl", "including", Inside),
    ("excl", "excluding", Inside),
    ("max", "maximum", GoesOn),
    ("Max", "Maximum", Number),
    ("min", "minimum", GoesOn),
    ("Min", "Minimum", Number),
    ("avg", "average", Always),
    ("Avg", "Average", Always),
    ("temp", "temperature", GoesOn),
    ("misc", "miscellaneous", Always),
    ("dept", "department", Stop),
    ("tsp", "teaspoon", GoesOn),
    ("tbsp", "tablespoon", GoesOn),
    ("No", "number", Number),
    ("no", "number", Number),
    ("Nos", "numbers", Number),
    ("Fig", "Figure", Number),
    ("fig", "figure", Number),
    ("Figs", "Figures", Number),
    ("Eq", "Equation", Number),
    ("eq", "equation", Number),
    ("Ch", "Chapter", Number),
    ("ch", "chapter", Number),
    ("Sec", "Section", Number),
    ("sec", "section", Number),
    ("Vol", "Volume", Number),
    ("vol", "volume", Number),
    ("p", "page", Number),
    ("pp", "pages", Number),
    ("Mon", "Monday", GoesOn),
    ("Tue", "Tuesday", GoesOn),
    ("Tues", "Tuesday", GoesOn),
    ("Wed", "Wednesday", GoesOn),
    ("Thu", "Thursday", GoesOn),
    ("Thur", "Thursday", GoesOn),
    ("Thurs", "Thursday", GoesOn),
    ("Fri", "Friday", GoesOn),
    ("Sat", "Saturday", GoesOn),
    ("Sun", "Sunday", GoesOn),
    ("w/", "with", Inside),
    ("w/o", "without", Inside),
    ("b/c", "because", Inside),
    ("and/or", "and or", Inside),
];

/// Words that often begin a sentence: behind an abbreviation of capitals, another capital is a name.
const STARTERS: [&str; 24] = [
    "A", "An", "And", "As", "At", "But", "For", "He", "However", "I", "If", "In", "It", "On", "She", "So", "That",
    "The", "There", "These", "They", "This", "We", "You",
];

/// Words behind which a short month is one even where a sentence may end: `Mar.` may be a name.
const BEFORE_MONTHS: [&str; 10] = ["in", "of", "by", "since", "until", "last", "next", "from", "to", "this"];

/// True if the word may be an abbreviation.
pub fn is_known(core: &str) -> bool {
    ABBREVIATIONS.iter().any(|(short, ..)| *short == core)
        || (dates::month(core).is_some_and(|month| month != core))
        || letters(core).is_some()
}

/// Rule for an abbreviation.
pub fn abbreviation(window: &TokenWindow<'_>) -> RuleOutcome {
    let affixes = window.affixes(0);
    let ends = window.sentence_ends_before(1);
    if let Some((_, words, condition)) =
        ABBREVIATIONS.iter().find(|(short, _, condition)| *short == affixes.core && holds(*condition, window, affixes))
    {
        let keeps = ends && !matches!(condition, Name | Inside);
        let joins = matches!(condition, Name | Number);
        return one(affixes, words, keeps, joins);
    }
    let months = !ends || BEFORE_MONTHS.contains(&window.previous.word.as_str());
    if let Some(month) =
        dates::month(affixes.core).filter(|month| *month != affixes.core && affixes.has_stop() && months)
    {
        return one(affixes, month, ends, false);
    }
    match letters(affixes.core) {
        Some(words) => {
            let begins = |next: &Token| next.begins_line || STARTERS.contains(&Affixes::of(&next.text).core);
            let starter = window.token(1).is_none_or(begins);
            one(affixes, &words, starter, !starter && ends)
        }
        None => initial(window),
    }
}

fn holds(condition: Condition, window: &TokenWindow<'_>, affixes: Affixes<'_>) -> bool {
    let next = window.token(1).filter(|next| !next.begins_line).map_or("", |next| &next.text);
    let PreviousWord { word, capitalised, number } = window.previous;
    let numbered = *number || word.starts_with(|c: char| c.is_ascii_digit());
    let begins = STARTERS.iter().any(|starter| starter.eq_ignore_ascii_case(word));
    let behind_name = (*capitalised && !begins) || numbered || word == "&";
    let pause_only = affixes.trail == "." || affixes.trail.is_empty();
    match condition {
        // Between two names a title belongs to the second one, a street to the first.
        // Without a full stop only the shortest ones are told from words.
        Name if !affixes.has_stop() && affixes.core.len() > 2 => false,
        Name => pause_only && (is_capitalised(next) || matches!(next, "and" | "or" | "&")),
        BehindName => behind_name,
        Always | Inside => true,
        Stop => affixes.has_stop(),
        GoesOn => {
            affixes.has_stop()
                && (affixes.trail.len() > 1
                    || !window.sentence_ends_before(1)
                    || dates::month(Affixes::of(next).core).is_some())
        }
        Number => affixes.trail == "." && begins_with_digit(next),
    }
}

/// Writes out the abbreviation; its full stop is left out unless it `keeps` it.
fn one(affixes: Affixes<'_>, words: &str, keeps: bool, joins_next: bool) -> RuleOutcome {
    let trail = affixes.trail;
    // A full stop before another mark is one of the abbreviation.
    let trail = match trail.strip_prefix('.') {
        Some(rest) if !keeps || rest.starts_with([',', ';', ':', '.', '!', '?']) => rest,
        _ => trail,
    };
    let word = SpokenWord { joins_next, ..SpokenWord::new(format!("{}{words}{trail}", affixes.lead)) };
    RuleOutcome::Spoken(vec![word])
}

/// Letters with full stops between them: `U.S` is "U S".
fn letters(core: &str) -> Option<String> {
    let parts: Vec<&str> = core.split('.').collect();
    let single = |part: &&str| part.len() == 1 && part.chars().all(|c| c.is_ascii_alphabetic());
    if parts.len() < 2 || !parts.iter().all(single) {
        return None;
    }
    Some(super::times::half(core).map_or_else(|| parts.join(" "), str::to_owned))
}

/// Initial of a name: it stays, and belongs to the next word.
fn initial(window: &TokenWindow<'_>) -> RuleOutcome {
    let Some(token) = window.token(0) else { return RuleOutcome::None };
    let Affixes { core, trail, .. } = Affixes::of(&token.text);
    let letter = core.len() == 1 && core.starts_with(char::is_uppercase) && trail == ".";
    let named = window.token(1).is_some_and(|next| !next.begins_line && is_capitalised(&next.text));
    if !letter || !named {
        return RuleOutcome::None;
    }
    RuleOutcome::Spoken(vec![SpokenWord::new(token.text.clone()).joined()])
}

/// True for a capital letter with a full stop, perhaps an initial.
pub fn may_be_initial(affixes: Affixes<'_>) -> bool {
    affixes.trail == "." && affixes.core.len() == 1 && affixes.core.starts_with(char::is_uppercase)
}
