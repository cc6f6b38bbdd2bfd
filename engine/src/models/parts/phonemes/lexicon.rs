//! Readings of words, and of their inflections.

use std::collections::HashMap;

use serde::Deserialize;

use super::stress::{PRIMARY, SECONDARY, StressLevel, is_vowel, stressed};
use crate::checkpoint::{Checkpoint, CheckpointError};

/// Folder of the lexicons.
const FOLDER: &str = "lexicon";
/// Vowels before an American t that becomes a flap between them.
const FLAPPING: &str = "AIOWYiuæɑəɛɪɹʊʌ";
/// Signs that are read as words.
const SIGNS: [(&str, &str); 6] =
    [("%", "percent"), ("&", "and"), ("+", "plus"), ("@", "at"), ("=", "equals"), ("#", "number")];

/// Accent of a voice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accent {
    /// American English, `us` in the names of files.
    American,
    /// British English, `gb` in the names of files.
    British,
}

impl Accent {
    /// Beginning of the names of its files.
    fn prefix(self) -> &'static str {
        match self {
            Self::American => "us",
            Self::British => "gb",
        }
    }
}

/// Use of a word in its sentence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WordUse {
    /// The words before it do not tell.
    #[default]
    Unknown,
    /// Verb, or a word in its place.
    Verb,
    /// Noun, or a word in its place.
    Noun,
    /// Participle, after a form of "be".
    Participle,
}

/// Place of a word: its use, and the sound after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WordPlace {
    /// Use of the word.
    pub word_use: WordUse,
    /// True if the next sound is a vowel, false if it is a consonant; `None` before a pause.
    pub before_vowel: Option<bool>,
    /// True if the next word is "to".
    pub before_to: bool,
}

/// Reading of a word, or one for each of its uses.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum WordEntry {
    One(String),
    Several(HashMap<String, Option<String>>),
}

impl WordEntry {
    fn pronunciation(&self, place: WordPlace) -> Option<&str> {
        let readings = match self {
            Self::One(reading) => return Some(reading),
            Self::Several(readings) => readings,
        };
        let named = |name: &str| readings.get(name).and_then(Option::as_deref);
        let used = match place.word_use {
            WordUse::Verb => named("VERB"),
            WordUse::Noun => named("NOUN").or_else(|| named("DT")),
            WordUse::Unknown | WordUse::Participle => None,
        };
        let last = place.before_vowel.is_none().then(|| named("None")).flatten();
        last.or(used).or_else(|| named("DEFAULT"))
    }
}

/// Lexicon of an accent: checked entries, and collected ones that are taken where those have none.
#[derive(Debug)]
pub struct Lexicon {
    /// Accent of the readings.
    pub accent: Accent,
    gold: HashMap<String, WordEntry>,
    silver: HashMap<String, WordEntry>,
}

impl Lexicon {
    /// Reads the lexicon of an accent.
    ///
    /// # Errors
    /// A file is missing or is no lexicon.
    pub fn load(checkpoint: &Checkpoint, accent: Accent) -> Result<Self, CheckpointError> {
        let folder = checkpoint.part(FOLDER)?;
        let read = |kind: &str| {
            let file = format!("{}_{kind}.json", accent.prefix());
            let entries: Option<HashMap<String, WordEntry>> = folder.json_file(&file)?;
            entries.ok_or_else(|| CheckpointError::FileMissing { file: folder.label(&file) })
        };
        Ok(Self { accent, gold: read("gold")?, silver: read("silver")? })
    }

    /// Creates a lexicon of some words.
    #[cfg(test)]
    pub fn of(accent: Accent, words: &[(&str, &str)]) -> Self {
        let entry = |&(word, reading): &(&str, &str)| (word.to_owned(), WordEntry::One(reading.to_owned()));
        Self { accent, gold: words.iter().map(entry).collect(), silver: HashMap::new() }
    }

    /// Entry of a word as it is written, or with its first letter in the other case.
    fn entry<'a>(entries: &'a HashMap<String, WordEntry>, word: &str) -> Option<&'a WordEntry> {
        entries.get(word).or_else(|| {
            let mut letters = word.chars();
            let first = letters.next()?;
            let rest = letters.as_str();
            if rest.is_empty() || rest.chars().any(char::is_uppercase) {
                return None;
            }
            let other: String = if first.is_lowercase() {
                first.to_uppercase().chain(rest.chars()).collect()
            } else {
                first.to_lowercase().chain(rest.chars()).collect()
            };
            entries.get(&other)
        })
    }

    /// True if a word has an entry of its own.
    pub fn knows(&self, word: &str) -> bool {
        Self::entry(&self.gold, word).is_some() || Self::entry(&self.silver, word).is_some()
    }

    /// Names of the letters of a word, the last one stressed; `None` if a letter has no name.
    pub fn spelled(&self, word: &str) -> Option<String> {
        let name = |letter: char| match self.gold.get(&letter.to_uppercase().to_string())? {
            WordEntry::One(reading) => Some(stressed(reading, Some(StressLevel::Low))),
            WordEntry::Several(_) => None,
        };
        let names = word.chars().filter(|letter| letter.is_alphabetic()).map(name).collect::<Option<String>>()?;
        let last = names.rfind(SECONDARY)?;
        let after = last + SECONDARY.len_utf8();
        Some(format!("{}{PRIMARY}{}", &names[..last], &names[after..]))
    }

    /// Reading of a word, with apostrophes of the keyboard; `None` if neither the word nor its stem has one.
    pub fn pronunciation(&self, word: &str, place: WordPlace) -> Option<String> {
        if let Some(reading) = self.of_place(word, place) {
            return Some(reading);
        }
        if let Some((_, read_as)) = SIGNS.iter().find(|(sign, _)| *sign == word) {
            return self.look_up(read_as, None, place);
        }
        let lower = word.to_lowercase();
        let level = match word {
            _ if word == lower => None,
            _ if word == word.to_uppercase() => Some(StressLevel::Full),
            _ => Some(StressLevel::Half),
        };
        // A name that is also a common word reads as that word.
        let plain = if self.knows(word) { word } else { &lower };
        self.look_up(plain, level, place)
            .or_else(|| self.with_s(plain, level, place))
            .or_else(|| self.with_ed(plain, level, place))
            .or_else(|| self.with_ing(plain, level, place))
    }

    /// Reading of a word that its neighbours change.
    fn of_place(&self, word: &str, place: WordPlace) -> Option<String> {
        let reading = match word {
            // The letter, before a pause.
            "a" | "A" if place.before_vowel.is_none() => "ˈA",
            "a" | "A" => "ɐ",
            "an" | "An" => "ɐn",
            "I" => "ˌI",
            "am" if place.before_vowel.is_some() => "ɐm",
            "to" | "To" => match place.before_vowel {
                None => return self.look_up("to", None, place),
                Some(true) => "tʊ",
                Some(false) => "tə",
            },
            "in" | "In" => match place.before_vowel {
                None => "ˈɪn",
                Some(_) => "ɪn",
            },
            "the" | "The" => match place.before_vowel {
                Some(true) => "ði",
                _ => "ðə",
            },
            "used" | "Used" if place.before_to && place.word_use != WordUse::Participle => {
                match self.gold.get("used") {
                    Some(WordEntry::Several(readings)) => readings.get("VBD")?.as_deref()?,
                    _ => return None,
                }
            }
            _ => return None,
        };
        Some(reading.to_owned())
    }

    fn look_up(&self, word: &str, level: Option<StressLevel>, place: WordPlace) -> Option<String> {
        let found =
            [&self.gold, &self.silver].into_iter().find_map(|entries| Self::entry(entries, word)?.pronunciation(place));
        found.map(|reading| stressed(reading, level))
    }

    /// First of the stems that is known.
    fn stem(&self, stems: [Option<String>; 3], level: Option<StressLevel>, place: WordPlace) -> Option<String> {
        let known = stems.into_iter().flatten().find(|stem| stem.len() > 1 && self.knows(stem))?;
        self.look_up(&known, level, place)
    }

    fn with_s(&self, word: &str, level: Option<StressLevel>, place: WordPlace) -> Option<String> {
        let whole = word.strip_suffix('s').filter(|stem| stem.len() > 1)?;
        let cut = |ending: &str| word.strip_suffix(ending).map(str::to_owned);
        let stem = self.stem(
            [
                (!whole.ends_with('s')).then(|| whole.trim_end_matches('\'').to_owned()),
                cut("es").filter(|_| word.len() > 4 && !word.ends_with("ies")),
                cut("ies").filter(|_| word.len() > 4).map(|stem| stem + "y"),
            ],
            level,
            place,
        )?;
        Some(self.plural(&stem))
    }

    /// Reading of a stem with the ending -s.
    pub fn plural(&self, stem: &str) -> String {
        match stem.chars().last() {
            Some(last) if "ptkfθ".contains(last) => format!("{stem}s"),
            Some(last) if "szʃʒʧʤ".contains(last) => format!("{stem}{}z", self.weak()),
            _ => format!("{stem}z"),
        }
    }

    /// Vowel of an unstressed ending.
    fn weak(&self) -> char {
        if self.accent == Accent::British { 'ɪ' } else { 'ᵻ' }
    }

    fn with_ed(&self, word: &str, level: Option<StressLevel>, place: WordPlace) -> Option<String> {
        let whole = word.strip_suffix('d').filter(|stem| stem.len() > 2)?;
        let cut = whole.strip_suffix('e').filter(|stem| stem.len() > 2 && !stem.ends_with('e'));
        let stem = self.stem(
            [(!whole.ends_with('d')).then(|| whole.to_owned()), cut.map(str::to_owned), cut.and_then(doubled)],
            level,
            place,
        )?;
        let mut phonemes = stem.chars().rev();
        Some(match (phonemes.next()?, phonemes.next()) {
            (last, _) if "pkfθʃsʧ".contains(last) => format!("{stem}t"),
            ('d', _) => format!("{stem}{}d", self.weak()),
            ('t', before)
                if self.accent == Accent::American && before.is_some_and(|vowel| FLAPPING.contains(vowel)) =>
            {
                format!("{}ɾᵻd", stem.trim_end_matches('t'))
            }
            ('t', _) => format!("{stem}{}d", self.weak()),
            _ => format!("{stem}d"),
        })
    }

    fn with_ing(&self, word: &str, level: Option<StressLevel>, place: WordPlace) -> Option<String> {
        let cut = word.strip_suffix("ing").filter(|stem| stem.len() > 1)?;
        let level = level.or(Some(StressLevel::Half));
        let stem = self.stem(
            [Some(cut.to_owned()).filter(|stem| stem.len() > 2), Some(format!("{cut}e")), doubled(cut)],
            level,
            place,
        )?;
        let mut phonemes = stem.chars().rev();
        let flaps = phonemes.next() == Some('t') && phonemes.next().is_some_and(|vowel| FLAPPING.contains(vowel));
        Some(match self.accent {
            Accent::American if flaps => format!("{}ɾɪŋ", stem.trim_end_matches('t')),
            _ => format!("{stem}ɪŋ"),
        })
    }
}

/// Stem of a verb whose last consonant is doubled before an ending.
fn doubled(stem: &str) -> Option<String> {
    let mut letters = stem.chars().rev();
    let (last, before) = (letters.next()?, letters.next()?);
    (last == before && "bcdgklmnprstvxz".contains(last)).then(|| stem[..stem.len() - last.len_utf8()].to_owned())
}

/// True if a reading begins with a vowel, false with a consonant; `None` if it has neither.
pub fn begins_with_vowel(reading: &str) -> Option<bool> {
    reading
        .chars()
        .find(|phoneme| phoneme.is_alphabetic() && !"ˈˌː".contains(*phoneme))
        .map(|first| is_vowel(first) || first == 'ɐ')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lexicon(accent: Accent) -> Lexicon {
        let words = [
            ("cat", "kˈæt"),
            ("bus", "bˈʌs"),
            ("city", "sˈɪɾi"),
            ("play", "plˈA"),
            ("wait", "wˈAt"),
            ("stop", "stˈɑp"),
            ("make", "mˈAk"),
            ("need", "nˈid"),
            ("to", "tu"),
            ("percent", "pəɹsˈɛnt"),
            ("and", "ænd"),
            ("U", "jˈu"),
            ("S", "ˈɛs"),
            ("Paris", "pˈɛɹəs"),
            ("the", "ði"),
        ];
        Lexicon::of(accent, &words)
    }

    #[test]
    fn inflections_have_the_reading_of_their_stem() {
        let lexicon = lexicon(Accent::American);
        let place = WordPlace { before_vowel: Some(false), ..WordPlace::default() };
        for (word, expected) in [
            ("cats", "kˈæts"),
            ("buses", "bˈʌsᵻz"),
            ("cities", "sˈɪɾiz"),
            ("cat's", "kˈæts"),
            ("plays", "plˈAz"),
            ("played", "plˈAd"),
            ("waited", "wˈAɾᵻd"),
            ("stopped", "stˈɑpt"),
            ("needed", "nˈidᵻd"),
            ("making", "mˈAkɪŋ"),
            ("waiting", "wˈAɾɪŋ"),
            ("stopping", "stˈɑpɪŋ"),
            ("paris", "pˈɛɹəs"),
            ("Cat", "kˈæt"),
            ("AND", "ˈænd"),
            ("%", "pəɹsˈɛnt"),
        ] {
            assert_eq!(lexicon.pronunciation(word, place).as_deref(), Some(expected), "{word}");
        }
        assert_eq!(lexicon.pronunciation("dog", place), None);
        let british = self::lexicon(Accent::British);
        assert_eq!(british.pronunciation("waited", place).as_deref(), Some("wˈAtɪd"));
    }

    #[test]
    fn neighbours_change_small_words() {
        let lexicon = lexicon(Accent::American);
        let before = |before_vowel| WordPlace { before_vowel, ..WordPlace::default() };
        assert_eq!(lexicon.pronunciation("the", before(Some(true))).as_deref(), Some("ði"));
        assert_eq!(lexicon.pronunciation("the", before(Some(false))).as_deref(), Some("ðə"));
        assert_eq!(lexicon.pronunciation("to", before(Some(false))).as_deref(), Some("tə"));
        assert_eq!(lexicon.pronunciation("to", before(None)).as_deref(), Some("tu"));
    }

    #[test]
    fn letters_have_their_names() {
        let lexicon = lexicon(Accent::American);
        assert_eq!(lexicon.spelled("US").as_deref(), Some("jˌuˈɛs"));
        assert_eq!(lexicon.spelled("X"), None);
    }
}
