//! Judge of the language: tells English text from text in another language, word by word.

/// Language of a text, for the rules that make it speakable. Layout, emoji and code blocks are left out in every language; only
/// English text has rules for numbers, signs, addresses and abbreviations. Other text is left as it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SpokenLanguage {
    /// English, until the text shows otherwise: see [`crate`].
    #[default]
    Detected,
    /// English throughout: every rule holds.
    English,
    /// Another language throughout.
    Other,
}

/// Common English words that are no words of the languages below.
const ENGLISH: &[&str] = &[
    "about", "after", "and", "any", "are", "because", "been", "before", "but", "by", "can", "could", "does", "from",
    "get", "has", "have", "he", "here", "his", "how", "i", "i'm", "if", "into", "it", "it's", "its", "just", "like",
    "make", "many", "may", "more", "most", "my", "not", "now", "of", "one", "only", "or", "other", "our", "out", "she",
    "should", "some", "than", "that", "that's", "the", "their", "them", "then", "there", "these", "they", "this", "to",
    "two", "use", "were", "what", "when", "where", "which", "while", "who", "with", "would", "you", "you're", "your",
];

/// Common words of other languages that are written in Latin letters, as far as they are no English words.
const OTHER: &[&str] = &[
    // German
    "aber", "auch", "auf", "aus", "bei", "bitte", "das", "dass", "dem", "den", "der", "des", "doch", "dir", "du", "ein",
    "eine", "einen", "er", "ich", "ihr", "ist", "hier", "kann", "mehr", "mit", "nach", "nicht", "noch", "nur", "oder",
    "sehr", "sich", "sie", "sind", "und", "uns", "unter", "von", "vor", "wenn", "werden", "wie", "wir", "wird", "zu",
    "zum", "zur", // French
    "au", "aux", "avec", "ce", "cette", "dans", "de", "elle", "est", "il", "je", "la", "le", "les", "leur", "mais",
    "nous", "ou", "par", "pas", "pour", "que", "qui", "sont", "sur", "tout", "une", "vous",
    // Spanish, Portuguese, Italian
    "che", "como", "con", "da", "del", "della", "di", "dos", "el", "ele", "en", "es", "esta", "este", "gli", "los",
    "las", "lo", "mas", "muy", "na", "non", "nos", "os", "para", "pero", "por", "se", "si", "sono", "su", "sua", "um",
    "uma", "un", "una", // Dutch, Swedish, Danish, Norwegian
    "af", "av", "det", "een", "ett", "het", "hij", "ik", "inte", "ikke", "jag", "jeg", "maar", "med", "naar", "niet",
    "och", "og", "ook", "som", "te", "voor", "wij", "zijn", // Polish, Turkish, Indonesian
    "bir", "dan", "dengan", "dla", "ile", "ini", "itu", "jest", "nie", "oraz", "bu", "untuk", "ve", "yang",
];

/// Maximum number of points for one language.
const MOST: i8 = 3;

/// Counts points: one for each common English word, one against English for each common word of another language, and for each
/// word with letters that English does not have. Text is English while it has a point.
#[derive(Debug, Clone)]
pub struct LanguageJudge {
    language: SpokenLanguage,
    points: i8,
}

impl LanguageJudge {
    /// Makes a judge; a text begins with one point.
    pub fn new(language: SpokenLanguage) -> Self {
        Self { language, points: 1 }
    }

    /// Adds a word. `begins_line` is true for the first word of a line: a line begins with at least none and at most two points.
    pub fn add(&mut self, word: &str, begins_line: bool) {
        if begins_line {
            self.points = self.points.clamp(0, 2);
        }
        self.points = (self.points + evidence(word)).clamp(1 - MOST, MOST);
    }

    /// True if a word is English, from the words before it and these, which follow.
    pub fn is_english<'a>(&self, words: impl IntoIterator<Item = &'a str>) -> bool {
        match self.language {
            SpokenLanguage::English => true,
            SpokenLanguage::Other => false,
            SpokenLanguage::Detected => self.points + words.into_iter().map(evidence).sum::<i8>() > 0,
        }
    }
}

/// Returns the evidence of a word: 1 for English, -1 for another language, 0 for neither.
fn evidence(word: &str) -> i8 {
    let word = word.trim_matches(|c: char| !c.is_alphabetic());
    let mut letters = word.chars().filter(|c| c.is_alphabetic());
    let foreign = |c: char| !c.is_ascii() && !matches!(c, 'µ' | 'º' | 'ª' | 'Ω' | 'π');
    if letters.any(foreign) {
        // A single letter may be a variable.
        let single = word.chars().count() == 1 && !crate::characters::is_unspaced(word.chars().next().unwrap_or(' '));
        return if single { 0 } else { -1 };
    }
    // An abbreviation in capitals is no word of a language.
    if word.len() > 1 && word.chars().all(|c| c.is_ascii_uppercase()) {
        return 0;
    }
    let word = word.to_ascii_lowercase().replace('’', "'");
    if ENGLISH.contains(&word.as_str()) {
        1
    } else if OTHER.contains(&word.as_str()) {
        -1
    } else {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Judges the last word of a text.
    fn english(text: &str) -> bool {
        let mut judge = LanguageJudge::new(SpokenLanguage::Detected);
        for line in text.lines() {
            for (index, word) in line.split(' ').enumerate() {
                judge.add(word, index == 0);
            }
        }
        judge.is_english([])
    }

    #[test]
    fn common_words_tell_the_language() {
        for text in ["Price", "Das is the word", "The café", "α and β are angles", "C'est la vie is what they said"]
        {
            assert!(english(text), "{text}");
        }
        for text in ["Das", "El precio", "Цена", "价", "Preço final", "C'est la vie", "Äpfel"] {
            assert!(!english(text), "{text}");
        }
    }

    #[test]
    fn each_line_may_change_the_language() {
        assert!(english("Das ist nicht der Text\nThis"));
        assert!(!english("This is what it is and that is all\nDas ist"));
        assert!(!english("Das ist nicht der Text\n5"));
    }

    #[test]
    fn lists_are_disjoint() {
        let twice: Vec<_> = ENGLISH.iter().filter(|word| OTHER.contains(word)).collect();
        assert!(twice.is_empty(), "{twice:?}");
    }
}
