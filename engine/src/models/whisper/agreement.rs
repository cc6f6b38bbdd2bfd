//! Agreement of successive hypotheses: words that several of them have in common are stable. Of two, the second often
//! repeats what the first mistook at the edge of its sound; three are the default.

use repartee_engine_api::TextDelay;

/// Languages that do not separate words by spaces; each of their characters counts as a word.
const UNSPACED: [&str; 6] = ["zh", "ja", "th", "lo", "my", "yue"];

/// Number of words at the end of a hypothesis that more sound may change.
const OPEN_WORDS: usize = 2;

/// Upper bound of [`agreements`].
pub const MOST_AGREEMENTS: usize = 3;

/// Number of hypotheses before the last one that agree on a stable word; `None` if growing text is never stable.
pub fn agreements(delay: TextDelay) -> Option<usize> {
    match delay {
        TextDelay::Minimal => Some(0),
        TextDelay::Low => Some(1),
        TextDelay::Medium => Some(2),
        TextDelay::High => Some(MOST_AGREEMENTS),
        TextDelay::VeryHigh => None,
    }
}

/// Number of leading tokens of `text` that agree with each of `before`, whole words alone. The last words of `text` never count, because more sound may change them. `spelt` gives the text of tokens.
pub fn agreed(before: &[Vec<u32>], text: &[u32], language: Option<&str>, spelt: impl Fn(&[u32]) -> String) -> usize {
    let common = |other: &Vec<u32>| other.iter().zip(text).take_while(|(a, b)| a == b).count();
    let common = before.iter().map(common).min().unwrap_or(text.len());
    let unspaced = language.is_some_and(|language| UNSPACED.contains(&language));
    let words = (1..text.len()).rev().filter(|&at| is_boundary(text, at, unspaced, &spelt));
    words.skip(OPEN_WORDS - 1).find(|&end| end <= common).unwrap_or(0)
}

/// Index of the first token of each word.
pub fn word_begins(text: &[u32], language: Option<&str>, spelt: impl Fn(&[u32]) -> String) -> Vec<usize> {
    let unspaced = language.is_some_and(|language| UNSPACED.contains(&language));
    (0..text.len()).filter(|&at| at == 0 || is_boundary(text, at, unspaced, &spelt)).collect()
}

/// Index of the first token of the last word; 0 if there is one word alone.
pub fn last_word(text: &[u32], language: Option<&str>, spelt: impl Fn(&[u32]) -> String) -> usize {
    let unspaced = language.is_some_and(|language| UNSPACED.contains(&language));
    (1..text.len()).rev().find(|&end| is_boundary(text, end, unspaced, &spelt)).unwrap_or(0)
}

/// True if a word begins at token `at`, which is not the first.
fn is_boundary(text: &[u32], at: usize, unspaced: bool, spelt: &impl Fn(&[u32]) -> String) -> bool {
    let next = spelt(&text[at..=at]);
    if unspaced {
        // Tokens may be parts of a character.
        return !spelt(&text[..at]).ends_with(char::REPLACEMENT_CHARACTER)
            && !next.starts_with(char::REPLACEMENT_CHARACTER);
    }
    next.starts_with(' ') && next.len() > 1
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORDS: [&str; 8] = [" Hello", " wor", "ld", ".", " and", " more", "\u{FFFD}", "字"];

    fn spelt(ids: &[u32]) -> String {
        ids.iter().map(|id| WORDS[*id as usize]).collect()
    }

    #[test]
    fn whole_words_before_the_last_two_agree() {
        let count = |before: &[u32], text: &[u32]| agreed(&[before.to_vec(), text.to_vec()], text, Some("en"), spelt);
        assert_eq!(count(&[0, 1, 2, 4, 5], &[0, 1, 2, 4, 5]), 3, "the last words may change");
        assert_eq!(count(&[0, 1, 2, 3], &[0, 1, 2, 3, 4, 5]), 4);
        assert_eq!(count(&[0, 1], &[0, 1, 2, 4, 5, 0]), 1, "half of a word is none");
        assert_eq!(count(&[0, 1, 2, 3], &[0, 1, 2, 4, 5, 0]), 3, "the stop was not confirmed");
        assert_eq!(count(&[4, 1], &[0, 1, 4, 5]), 0);
        assert_eq!(count(&[], &[0]), 0);
    }

    #[test]
    fn every_hypothesis_agrees() {
        let text = [0, 1, 2, 4, 5];
        assert_eq!(agreed(&[], &text, Some("en"), spelt), 3, "the last words may change");
        assert_eq!(agreed(&[text.to_vec()], &text, Some("en"), spelt), 3);
        assert_eq!(agreed(&[vec![0, 4], text.to_vec()], &text, Some("en"), spelt), 1);
        assert_eq!(agreed(&[text.to_vec(), vec![0, 4]], &text, Some("en"), spelt), 1);
        assert_eq!(agreed(&[Vec::new(), text.to_vec(), text.to_vec()], &text, Some("en"), spelt), 0);
    }

    #[test]
    fn unspaced_languages_agree_by_characters() {
        let count = |text: &[u32], language| agreed(&[text.to_vec(), text.to_vec()], text, language, spelt);
        assert_eq!(count(&[7, 7, 7, 7], Some("ja")), 2);
        assert_eq!(count(&[7, 6, 6], Some("ja")), 0, "a token may be half a character");
        assert_eq!(count(&[7, 7, 7], None), 0);
    }

    #[test]
    fn the_last_word_is_found() {
        assert_eq!(last_word(&[0, 1, 2, 3], Some("en"), spelt), 1);
        assert_eq!(last_word(&[0], Some("en"), spelt), 0);
        assert_eq!(last_word(&[], Some("en"), spelt), 0);
    }
}
