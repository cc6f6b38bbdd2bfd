//! Words that the lexicon does not know: two known words, names of letters, or letters sounded out.

use super::lexicon::{Accent, Lexicon, WordPlace};
use super::stress::{PRIMARY, StressLevel, is_vowel, marked, stressed};

/// Least letters of each half of a compound.
const LEAST_HALF: usize = 3;
/// Most letters of a word; a longer one is read in parts.
const LONGEST: usize = 40;

/// Sounds of letters in American English, the longest first where one begins with another.
const SOUNDS: &[(&str, &str)] = &[
    ("eigh", "A"),
    ("ough", "O"),
    ("augh", "ɔ"),
    ("tion", "ʃən"),
    ("sion", "ʒən"),
    ("cian", "ʃən"),
    ("ture", "ʧəɹ"),
    ("tch", "ʧ"),
    ("dge", "ʤ"),
    ("sch", "sk"),
    ("igh", "I"),
    ("eau", "O"),
    ("ous", "əs"),
    ("ch", "ʧ"),
    ("sh", "ʃ"),
    ("th", "θ"),
    ("ph", "f"),
    ("wh", "w"),
    ("ck", "k"),
    ("qu", "kw"),
    ("gh", "ɡ"),
    ("ng", "ŋ"),
    ("ee", "i"),
    ("ea", "i"),
    ("oo", "u"),
    ("ou", "W"),
    ("ow", "O"),
    ("oi", "Y"),
    ("oy", "Y"),
    ("ai", "A"),
    ("ay", "A"),
    ("au", "ɔ"),
    ("aw", "ɔ"),
    ("ie", "i"),
    ("ei", "A"),
    ("ey", "i"),
    ("oa", "O"),
    ("ue", "u"),
    ("ew", "u"),
    ("er", "əɹ"),
    ("ir", "ɜɹ"),
    ("ur", "ɜɹ"),
    ("ar", "ɑɹ"),
    ("or", "ɔɹ"),
    ("a", "æ"),
    ("b", "b"),
    ("c", "k"),
    ("d", "d"),
    ("e", "ɛ"),
    ("f", "f"),
    ("g", "ɡ"),
    ("h", "h"),
    ("i", "ɪ"),
    ("j", "ʤ"),
    ("k", "k"),
    ("l", "l"),
    ("m", "m"),
    ("n", "n"),
    ("o", "ɑ"),
    ("p", "p"),
    ("q", "k"),
    ("r", "ɹ"),
    ("s", "s"),
    ("t", "t"),
    ("u", "ʌ"),
    ("v", "v"),
    ("w", "w"),
    ("x", "ks"),
    ("y", "ɪ"),
    ("z", "z"),
];
/// First letters that are silent before the second.
const SILENT: [&str; 5] = ["kn", "wr", "gn", "ps", "pn"];
/// Vowels before a consonant and a last e.
const LONG: [(char, &str); 6] = [('a', "A"), ('e', "i"), ('i', "I"), ('o', "O"), ('u', "u"), ('y', "I")];
/// Letters without their marks.
const PLAIN: [(&str, &str); 12] = [
    ("àáâãåā", "a"),
    ("äæ", "ae"),
    ("çćč", "c"),
    ("èéêëēęě", "e"),
    ("ìíîïīı", "i"),
    ("ñńň", "n"),
    ("òóôõøō", "o"),
    ("öœ", "oe"),
    ("ùúûū", "u"),
    ("üű", "ue"),
    ("ýÿ", "y"),
    ("ßśšș", "s"),
];

/// Reading of a word that the lexicon does not know. Letters of other alphabets have no sound.
pub fn sounded(lexicon: &Lexicon, word: &str) -> String {
    let letters: String = word.chars().filter(|letter| letter.is_alphabetic()).collect();
    let capitals = letters.chars().count() > 1 && letters.chars().all(char::is_uppercase);
    let lower: String = letters.to_lowercase().chars().map(plain).collect();
    let lower: Vec<char> = lower.chars().filter(char::is_ascii_lowercase).collect();
    let vowels = lower.iter().any(|letter| "aeiouy".contains(*letter));
    if (capitals && lower.len() < 6) || !vowels || lower.len() == 1 {
        let text: String = lower.iter().collect();
        if let Some(names) = lexicon.spelled(&text) {
            return names;
        }
    }
    lower
        .chunks(LONGEST)
        .map(|word| compound(lexicon, word).unwrap_or_else(|| by_rules(word, lexicon.accent)))
        .collect()
}

/// Letter without its mark.
fn plain(letter: char) -> String {
    let found = PLAIN.iter().find(|(marked, _)| marked.contains(letter));
    found.map_or_else(|| letter.to_string(), |(_, plain)| (*plain).to_owned())
}

/// Reading of two known words, the first as long as possible.
fn compound(lexicon: &Lexicon, word: &[char]) -> Option<String> {
    let place = WordPlace { before_vowel: Some(false), ..WordPlace::default() };
    (LEAST_HALF..=word.len().saturating_sub(LEAST_HALF)).rev().find_map(|cut| {
        let halves = [&word[..cut], &word[cut..]].map(|half| half.iter().collect::<String>());
        let [first, second] =
            halves.each_ref().map(|half| lexicon.knows(half).then(|| lexicon.pronunciation(half, place)));
        Some(first?? + &stressed(&second??, Some(StressLevel::Lower)))
    })
}

/// Sounds out letters by rules.
fn by_rules(word: &[char], accent: Accent) -> String {
    let whole: String = word.iter().collect();
    let mut reading = String::new();
    let mut at = usize::from(SILENT.iter().any(|silent| whole.starts_with(silent)));
    while at < word.len() {
        let (sound, length) = sound(&word[at..], at, word);
        reading.push_str(&sound);
        at += length;
    }
    let reading = marked(&reading, PRIMARY);
    if accent == Accent::British { british(&reading) } else { reading }
}

/// Sound of the first letters of `rest`, and their number; `at` is their place in `word`.
fn sound(rest: &[char], at: usize, word: &[char]) -> (String, usize) {
    let letter = rest[0];
    let is_vowel_letter = |letter: &char| "aeiouy".contains(*letter);
    let (before, last) = (at.checked_sub(1).map(|at| word[at]), rest.len() == 1);
    let soft = rest.get(1).is_some_and(|next| "eiy".contains(*next));
    match letter {
        // A doubled consonant sounds once.
        _ if before == Some(letter) && !is_vowel_letter(&letter) => return (String::new(), 1),
        // A last e is silent, and so is the vowel of -ed and -es after most consonants.
        'e' if last && word[..at].iter().any(is_vowel_letter) => return (String::new(), 1),
        _ if rest.len() == 3
            && rest[2] == 'e'
            && !is_vowel_letter(&rest[1])
            && before.is_none_or(|b| !is_vowel_letter(&b)) =>
        {
            if let Some((_, long)) = LONG.iter().find(|(vowel, _)| *vowel == letter) {
                return ((*long).to_owned(), 1);
            }
        }
        'c' if soft => return ("s".to_owned(), 1),
        'g' if soft && rest.len() > 2 || letter == 'g' && rest == ['g', 'e'] => return ("ʤ".to_owned(), 1),
        'y' if at == 0 && rest.get(1).is_some_and(is_vowel_letter) => return ("j".to_owned(), 1),
        'y' if last && word[..at].iter().any(is_vowel_letter) => return ("i".to_owned(), 1),
        'y' if last => return ("I".to_owned(), 1),
        'i' if last => return ("i".to_owned(), 1),
        'o' if last => return ("O".to_owned(), 1),
        'u' if last => return ("u".to_owned(), 1),
        'a' if last => return ("ə".to_owned(), 1),
        's' if last && before.is_some_and(|before| !"cfkpqstxh".contains(before)) => return ("z".to_owned(), 1),
        'x' if at == 0 => return ("z".to_owned(), 1),
        _ => {}
    }
    let matches = |(letters, _): &&(&str, &str)| {
        letters.chars().count() <= rest.len() && letters.chars().zip(rest).all(|(a, b)| a == *b)
    };
    // Every letter of the alphabet has a row.
    SOUNDS.iter().find(matches).map_or((String::new(), 1), |(letters, sound)| ((*sound).to_owned(), letters.len()))
}

/// British sounds of an American reading.
fn british(reading: &str) -> String {
    let mut out = String::new();
    let phonemes: Vec<char> = reading.chars().collect();
    for (at, &phoneme) in phonemes.iter().enumerate() {
        let next = phonemes[at + 1..].iter().find(|next| !"ˈˌ".contains(**next));
        let before_vowel = next.is_some_and(|next| is_vowel(*next));
        match phoneme {
            'O' => out.push('Q'),
            'i' | 'u' | 'ɔ' | 'ɜ' => out.extend([phoneme, 'ː']),
            'ɑ' if phonemes.get(at + 1) == Some(&'ɹ') => out.push_str("ɑː"),
            'ɑ' => out.push('ɒ'),
            // An r sounds before vowels alone.
            'ɹ' if !before_vowel && at > 0 && is_vowel(phonemes[at - 1]) => {}
            _ => out.push(phoneme),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lexicon(accent: Accent) -> Lexicon {
        let letters = [("N", "ˈɛn"), ("V", "vˈi"), ("I", "ˈI"), ("D", "dˈi"), ("A", "ˈA")];
        let words = [("real", "ɹˈil"), ("time", "tˈIm"), ("web", "wˈɛb"), ("socket", "sˈɑkᵻt")];
        Lexicon::of(accent, &[&letters[..], &words[..]].concat())
    }

    #[test]
    fn unknown_words_sound_by_rules() {
        let lexicon = lexicon(Accent::American);
        for (word, expected) in [
            ("realtime", "ɹˈiltˌIm"),
            ("websocket", "wˈɛbsˌɑkᵻt"),
            ("NVIDIA", "nvˈɪdɪə"),
            ("DNA", "dˌiˌɛnˈA"),
            ("nvd", "ˌɛnvˌidˈi"),
            ("blorp", "blˈɔɹp"),
            ("zate", "zˈAt"),
            ("knish", "nˈɪʃ"),
            ("tchotchke", "ʧˈɑʧk"),
            ("Müller", "mˈuləɹ"),
        ] {
            assert_eq!(sounded(&lexicon, word), expected, "{word}");
        }
        assert_eq!(sounded(&self::lexicon(Accent::British), "blorpo"), "blˈɔːpQ");
    }

    #[test]
    fn every_word_of_letters_has_a_sound() {
        let lexicon = lexicon(Accent::American);
        for first in 'a'..='z' {
            for second in 'a'..='z' {
                for word in [format!("{first}{second}"), format!("ba{first}{second}"), format!("{first}o{second}a")] {
                    assert!(!sounded(&lexicon, &word).is_empty(), "{word}");
                }
            }
        }
    }
}
