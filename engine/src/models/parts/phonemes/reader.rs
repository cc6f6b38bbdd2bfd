//! Phonemes of a clause.

use super::lexicon::{Lexicon, WordPlace, WordUse, begins_with_vowel};
use super::sounds::sounded;
use super::stress::{PRIMARY, StressLevel, stressed, weight};

/// Marks of punctuation that a voice hears.
const MARKS: &str = ";:,.!?—…()“”";
/// Those that end what a word is spoken together with.
const PAUSES: &str = ";:,.!?—…";
/// Names of the digits.
const DIGITS: [&str; 10] = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"];
/// Words after which a word is a verb.
const BEFORE_VERBS: &[&str] = &[
    "to",
    "will",
    "would",
    "can",
    "could",
    "may",
    "might",
    "must",
    "shall",
    "should",
    "i",
    "you",
    "we",
    "they",
    "do",
    "does",
    "did",
    "don't",
    "doesn't",
    "didn't",
    "won't",
    "can't",
    "cannot",
    "couldn't",
    "wouldn't",
    "shouldn't",
    "let's",
    "not",
    "please",
    "who",
    "i'll",
    "you'll",
    "we'll",
    "they'll",
    "he'll",
    "she'll",
    "it'll",
];
/// Words after which a word is a noun.
const BEFORE_NOUNS: &[&str] = &[
    "the", "a", "an", "this", "that", "these", "those", "my", "your", "his", "its", "our", "their", "some", "any",
    "no", "each", "every", "of", "in", "on", "for", "with", "from", "at", "by",
];

/// Words after which a word is a participle.
const BEFORE_PARTICIPLES: &[&str] =
    &["is", "are", "was", "were", "be", "been", "being", "am", "i'm", "it's", "get", "got"];

/// Part of a clause.
#[derive(Debug, Clone, PartialEq, Eq)]
enum ClausePart {
    /// A word; the parts of a hyphenated one.
    Word(Vec<String>),
    /// A mark of punctuation.
    Mark(char),
    /// White space.
    Space,
}

/// Phonemes and marks of a clause. Letters of other alphabets than the Latin one have none.
pub fn phonemes(lexicon: &Lexicon, clause: &str) -> String {
    let parts = parts(clause);
    let words = |at: usize| match &parts[at] {
        ClausePart::Word(word) => Some(word),
        _ => None,
    };
    let mut readings = vec![String::new(); parts.len()];
    let (mut before_vowel, mut before_to) = (None, false);
    for at in (0..parts.len()).rev() {
        match &parts[at] {
            ClausePart::Space => readings[at].push(' '),
            ClausePart::Mark(mark) => {
                if PAUSES.contains(*mark) {
                    before_vowel = None;
                }
                readings[at].push(*mark);
            }
            ClausePart::Word(word) => {
                let before = (0..at).rev().take(2).find_map(words).and_then(|word| word.last());
                let place = WordPlace { word_use: word_use(before), before_vowel, before_to };
                readings[at] = read(lexicon, word, place);
                before_vowel = begins_with_vowel(&readings[at]).or(before_vowel);
                before_to = word.len() == 1 && word[0].eq_ignore_ascii_case("to");
            }
        }
    }
    let joined: String = readings.concat().split_whitespace().collect::<Vec<_>>().join(" ");
    joined.replace('ɾ', "T").replace('ʔ', "t")
}

/// Use of a word by the one before it.
fn word_use(before: Option<&String>) -> WordUse {
    let Some(before) = before.map(|word| word.to_lowercase()) else { return WordUse::Unknown };
    if BEFORE_VERBS.contains(&&before[..]) {
        WordUse::Verb
    } else if BEFORE_NOUNS.contains(&&before[..]) {
        WordUse::Noun
    } else if BEFORE_PARTICIPLES.contains(&&before[..]) {
        WordUse::Participle
    } else {
        WordUse::Unknown
    }
}

/// Reading of a word with all its parts.
fn read(lexicon: &Lexicon, parts: &[String], place: WordPlace) -> String {
    // A hyphenated word may have an entry of its own.
    let whole = parts.join("-");
    if parts.len() > 1 && lexicon.knows(&whole) {
        return lexicon.pronunciation(&whole, place).unwrap_or_default();
    }
    let mut next = place;
    let mut readings: Vec<String> = Vec::with_capacity(parts.len());
    for part in parts.iter().rev() {
        let reading = read_part(lexicon, part, next);
        next = WordPlace { before_vowel: begins_with_vowel(&reading), before_to: false, ..place };
        readings.insert(0, reading);
    }
    let stressed_parts = readings.iter().filter(|reading| reading.contains(PRIMARY)).count();
    if readings.len() == 2 && parts[0].chars().count() == 1 {
        readings[1] = stressed(&readings[1], Some(StressLevel::Lower));
    } else if stressed_parts > readings.len().div_ceil(2) {
        // The lighter half of the parts is spoken below the others.
        let mut order: Vec<usize> = (0..readings.len()).collect();
        order.sort_by_key(|&at| (readings[at].contains(PRIMARY), weight(&readings[at])));
        for &at in &order[..readings.len() / 2] {
            readings[at] = stressed(&readings[at], Some(StressLevel::Lower));
        }
    }
    readings.concat()
}

/// Reading of a word without hyphens.
fn read_part(lexicon: &Lexicon, word: &str, place: WordPlace) -> String {
    if word.chars().any(|letter| letter.is_ascii_digit()) {
        return digits(lexicon, word, place);
    }
    if let Some(reading) = lexicon.pronunciation(word, place) {
        return reading;
    }
    if let Some(plural) = word.strip_suffix('\'').and_then(|plural| lexicon.pronunciation(plural, place)) {
        return plural;
    }
    if word.contains('.') {
        return lexicon.spelled(word).unwrap_or_else(|| sounded(lexicon, word));
    }
    // A name such as O'Neill, or an ending after an apostrophe.
    match word.split_once('\'') {
        Some((first, rest)) if !first.is_empty() && !rest.is_empty() => {
            let known = |part: &str| lexicon.pronunciation(part, place).unwrap_or_else(|| sounded(lexicon, part));
            match rest {
                "s" => lexicon.plural(&known(first)),
                _ if first.chars().count() == 1 => {
                    lexicon.spelled(first).unwrap_or_else(|| sounded(lexicon, first)) + &known(rest)
                }
                _ => known(first) + &known(rest),
            }
        }
        _ => sounded(lexicon, word),
    }
}

/// Reads the digits of a word one by one, and the letters between them as words.
fn digits(lexicon: &Lexicon, word: &str, place: WordPlace) -> String {
    let named = |name: &str| lexicon.pronunciation(name, place).unwrap_or_else(|| sounded(lexicon, name));
    let mut readings = Vec::new();
    let mut letters = String::new();
    for sign in word.chars().chain([' ']) {
        if sign.is_alphabetic() {
            letters.push(sign);
            continue;
        }
        if !letters.is_empty() {
            readings.push(named(&std::mem::take(&mut letters)));
        }
        match sign {
            '-' | '−' if readings.is_empty() => readings.push(named("minus")),
            '.' => readings.push(named("point")),
            _ => readings.extend(sign.to_digit(10).map(|digit| named(DIGITS[digit as usize % DIGITS.len()]))),
        }
    }
    readings.join(" ")
}

/// Cuts a clause into words, marks and space.
fn parts(clause: &str) -> Vec<ClausePart> {
    let mut parts = Vec::new();
    for chunk in clause.split_whitespace() {
        if !parts.is_empty() {
            parts.push(ClausePart::Space);
        }
        cut(chunk, &mut parts);
    }
    parts
}

/// Cuts what stands between white space. A quotation mark opens before the words of it, and closes behind them.
fn cut(chunk: &str, parts: &mut Vec<ClausePart>) {
    let signs: Vec<char> = chunk.chars().map(|sign| if "‘’ʼ".contains(sign) { '\'' } else { sign }).collect();
    let digit = |at: usize| signs.get(at).is_some_and(char::is_ascii_digit);
    let letter = |at: usize| signs.get(at).is_some_and(|sign| sign.is_alphanumeric());
    let mut at = 0;
    while at < signs.len() {
        let sign = signs[at];
        let minus = "-−".contains(sign) && digit(at + 1) && (at == 0 || !letter(at - 1));
        if sign.is_alphanumeric() || minus || (sign == '\'' && letter(at + 1)) {
            let from = at;
            at += 1;
            // Apostrophes and, in numbers and initials, points belong to a word, and a hyphen joins two.
            while letter(at)
                || (at < signs.len() && "'-.,’_".contains(signs[at]) && letter(at + 1) && joins(signs[at], &signs, at))
            {
                at += 1;
            }
            // The plural's apostrophe, and the last point of initials.
            let initials = signs[from..at].contains(&'.') && !signs[from..at].iter().any(char::is_ascii_digit);
            if signs.get(at) == Some(&'\'') && signs[at - 1] == 's' || initials && signs.get(at) == Some(&'.') {
                at += 1;
            }
            parts.push(ClausePart::Word(word(&signs[from..at])));
            continue;
        }
        at += 1;
        match sign {
            '"' => {
                let closes = signs[..at - 1].iter().any(|sign| sign.is_alphanumeric());
                parts.push(ClausePart::Mark(if closes { '”' } else { '“' }));
            }
            '-' | '–' | '—' if signs.len() <= 2 || sign == '—' => parts.push(ClausePart::Mark('—')),
            '–' => parts.push(ClausePart::Mark('—')),
            _ if MARKS.contains(sign) => parts.push(ClausePart::Mark(sign)),
            '%' | '&' | '+' | '@' | '=' | '#' => {
                let separate = |parts: &mut Vec<ClausePart>| {
                    if !matches!(parts.last(), None | Some(ClausePart::Space)) {
                        parts.push(ClausePart::Space);
                    }
                };
                separate(parts);
                parts.push(ClausePart::Word(vec![sign.to_string()]));
                if at < signs.len() && letter(at) {
                    parts.push(ClausePart::Space);
                }
            }
            _ => {}
        }
    }
}

/// True if a sign at `at` joins the letters on both sides to one word.
fn joins(sign: char, signs: &[char], at: usize) -> bool {
    let digits = signs[at - 1].is_ascii_digit() && signs[at + 1].is_ascii_digit();
    match sign {
        ',' => digits,
        // Initials are single letters.
        '.' => {
            let alone = |at: usize| at == 0 || !signs[at - 1].is_alphanumeric();
            digits || (alone(at - 1) && signs.get(at + 2).is_none_or(|after| !after.is_alphanumeric()))
        }
        _ => true,
    }
}

/// Parts of a word between its hyphens; a number keeps its sign.
fn word(signs: &[char]) -> Vec<String> {
    let text: String = signs.iter().filter(|sign| **sign != ',').collect();
    let (sign, rest) = match text.strip_prefix(['-', '−']) {
        Some(rest) => ("-", rest),
        None => ("", &text[..]),
    };
    let mut parts: Vec<String> = rest.split(['-', '_']).filter(|part| !part.is_empty()).map(str::to_owned).collect();
    if let Some(first) = parts.first_mut() {
        first.insert_str(0, sign);
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::super::lexicon::Accent;
    use super::*;

    fn lexicon() -> Lexicon {
        let words = [
            ("hello", "həlˈO"),
            ("world", "wˈɜɹld"),
            ("the", "ði"),
            ("apple", "ˈæpᵊl"),
            ("well", "wˈɛl"),
            ("known", "nˈOn"),
            ("minus", "mˈInəs"),
            ("five", "fˈIv"),
            ("two", "tˈu"),
            ("point", "pˈYnt"),
            ("percent", "pəɹsˈɛnt"),
            ("it's", "ɪts"),
            ("O", "ˈO"),
            ("U", "jˈu"),
            ("S", "ˈɛs"),
            ("N", "ˈɛn"),
            ("degrees", "dəɡɹˈiz"),
            ("water", "wˈɔɾəɹ"),
        ];
        Lexicon::of(Accent::American, &words)
    }

    #[test]
    fn clauses_have_phonemes_and_marks() {
        for (clause, expected) in [
            ("Hello, world!", "həlˈO, wˈɜɹld!"),
            ("the apple; the world", "ði ˈæpᵊl; ðə wˈɜɹld"),
            ("a well-known world", "ɐ wˌɛlnˈOn wˈɜɹld"),
            ("-5.2 degrees", "mˈInəs fˈIv pˈYnt tˈu dəɡɹˈiz"),
            ("5%", "fˈIv pəɹsˈɛnt"),
            ("\"Hello\" (world)", "“həlˈO” (wˈɜɹld)"),
            ("the U.S. world", "ðə jˌuˈɛs wˈɜɹld"),
            ("O’Neill", "ˈOnˈAl"),
            ("hello - world", "həlˈO — wˈɜɹld"),
            ("water", "wˈɔTəɹ"),
            ("the worlds' apple (a)", "ðə wˈɜɹldz ˈæpᵊl (ˈA)"),
            ("it's   😀 world", "ɪts wˈɜɹld"),
        ] {
            assert_eq!(phonemes(&lexicon(), clause), expected, "{clause}");
        }
    }

    #[test]
    fn letters_of_other_alphabets_are_silent() {
        assert_eq!(phonemes(&lexicon(), "мир, 世界"), ",");
        assert_eq!(phonemes(&lexicon(), ""), "");
    }

    #[test]
    fn any_text_is_read() {
        let signs = ["a", "Z", "'", "-", ".", ",", "5", " ", "\"", "é", "%", "—", "’", "s", "_", "世", "\u{1F600}"];
        for a in signs {
            for b in signs {
                for c in signs {
                    for d in ["", "x", "'", "-", "."] {
                        let text = format!("{a}{b}{c}{d}");
                        let read = phonemes(&lexicon(), &text);
                        assert_eq!(read, phonemes(&lexicon(), &text.clone()));
                        let letters = text.chars().any(|sign| sign.is_ascii_alphanumeric());
                        assert!(!letters || read.chars().any(char::is_alphabetic), "`{text}` is silent");
                    }
                }
            }
        }
    }
}
