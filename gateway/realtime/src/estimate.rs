//! Which words of an answer were heard, when its sound was cut short.

/// Finds the words that were heard.
pub trait WordEstimator: std::fmt::Debug + Send {
    /// The longest prefix of `text` in whole words that was heard in `heard_ms` of its sound. `made_ms` is how much
    /// sound was made, which is all of it if `whole`; text is made far ahead of its sound.
    fn heard<'a>(&self, text: &'a str, heard_ms: u64, made_ms: u64, whole: bool) -> &'a str;
}

/// Gives every word the time that its letters suggest, and punctuation a pause. Whole sound is shared out in these
/// proportions, so that a slow or a quick voice makes no difference; while sound is still being made, a common speaker's
/// pace is assumed.
///
/// A word is what stands between white space. In a script that writes none, a sentence counts once all of it was heard.
#[derive(Debug)]
pub struct SpokenPace;

// A common speaker's times, at some 170 words a minute. `make bench-heard` measures what becomes of them.
const BEFORE_FIRST_WORD_MS: u64 = 100;
const AFTER_LAST_WORD_MS: u64 = 200;
/// Of any word, however short.
const WORD_MS: u64 = 120;
const LETTER_MS: u64 = 30;
/// A digit is nearly a word of its own.
const DIGIT_MS: u64 = 200;
/// After a comma and the like.
const CLAUSE_PAUSE_MS: u64 = 150;
/// Between sentences.
const SENTENCE_PAUSE_MS: u64 = 500;

impl WordEstimator for SpokenPace {
    fn heard<'a>(&self, text: &'a str, heard_ms: u64, made_ms: u64, whole: bool) -> &'a str {
        let words = words(text);
        let common_ms = BEFORE_FIRST_WORD_MS + words.iter().map(|word| word.spoken_ms + word.rest_ms).sum::<u64>();
        let total_ms = if whole { made_ms } else { made_ms.max(common_ms) };
        if heard_ms >= total_ms {
            return text;
        }
        let mut heard = "";
        let mut at_ms = BEFORE_FIRST_WORD_MS;
        for word in words {
            at_ms += word.spoken_ms;
            // A word that was begun was not heard.
            if at_ms * total_ms > heard_ms * common_ms {
                break;
            }
            heard = &text[..word.end];
            at_ms += word.rest_ms;
        }
        heard
    }
}

struct Word {
    /// Where it ends in its text, in bytes.
    end: usize,
    /// How long a common speaker takes over it.
    spoken_ms: u64,
    /// How long nothing is said after it.
    rest_ms: u64,
}

fn words(text: &str) -> Vec<Word> {
    let mut words = Vec::new();
    let mut begin = 0;
    for piece in text.split_inclusive(char::is_whitespace) {
        let word = piece.trim_end();
        if !word.is_empty() {
            words.push(Word { end: begin + word.len(), spoken_ms: spoken_ms(word), rest_ms: rest_ms(word) });
        }
        begin += piece.len();
    }
    if let Some(last) = words.last_mut() {
        last.rest_ms = AFTER_LAST_WORD_MS;
    }
    words
}

fn spoken_ms(word: &str) -> u64 {
    let sounds = word.chars().filter(|c| c.is_alphanumeric());
    let sounds_ms: u64 = sounds.map(|c| if c.is_numeric() { DIGIT_MS } else { LETTER_MS }).sum();
    // A dash by itself is not spoken.
    if sounds_ms == 0 { 0 } else { WORD_MS + sounds_ms }
}

fn rest_ms(word: &str) -> u64 {
    let bare = word.trim_end_matches(['"', '\'', '”', '’', ')']);
    if bare.ends_with(['.', '!', '?', '…']) {
        SENTENCE_PAUSE_MS
    } else if bare.ends_with([',', ';', ':', '–', '—']) {
        CLAUSE_PAUSE_MS
    } else {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_words_were_heard() {
        let text = "The sky is blue.";
        // At a common pace the first word takes from 100 to 310 ms, and all of it 1140.
        let heard = |ms| SpokenPace.heard(text, ms, 1_140, true);
        assert_eq!(heard(0), "");
        assert_eq!(heard(309), "");
        assert_eq!(heard(310), "The");
        assert_eq!(heard(519), "The");
        assert_eq!(heard(520), "The sky");
        assert_eq!(heard(939), "The sky is");
        // The silence after the last word need not be heard.
        assert_eq!(heard(940), text);
        assert_eq!(heard(9_000), text);
    }

    #[test]
    fn long_words_take_longer_than_short_ones() {
        let heard = |text| SpokenPace.heard(text, 1_000, 2_000, true);
        assert_eq!(heard("an extraordinarily"), "an");
        assert_eq!(heard("extraordinarily an"), "");
        // "2026" is four words or so.
        assert_eq!(heard("2026 it is"), "");
        assert_eq!(heard("abcd it is"), "abcd");
    }

    #[test]
    fn punctuation_is_a_pause_after_its_word_and_not_a_part_of_it() {
        // 100 ms, "One" 210, a pause of 150, "two" 210, 200 ms.
        let heard = |ms| SpokenPace.heard("One, two", ms, 870, true);
        assert_eq!([309, 310, 460, 669, 670].map(heard), ["", "One,", "One,", "One,", "One, two"]);
        assert_eq!(SpokenPace.heard("\"One,\" two", 669, 870, true), "\"One,\"");
        // Nothing of a dash is spoken.
        assert_eq!(SpokenPace.heard("One — two", 310, 870, true), "One —");
        // Sentences lie further apart.
        let heard = |ms| SpokenPace.heard("One. Two.", ms, 1_220, true);
        assert_eq!([309, 310, 1_019, 1_020].map(heard), ["", "One.", "One.", "One. Two."]);
    }

    #[test]
    fn a_slow_voice_keeps_the_same_words_of_the_same_part_of_its_sound() {
        let text = "Yes, I am a small voice model that runs on your own machine.";
        for percent in 0..=100 {
            let heard = |total_ms: u64| SpokenPace.heard(text, total_ms * percent / 100, total_ms, true);
            assert_eq!(heard(3_000), heard(6_000), "{percent} %");
        }
    }

    #[test]
    fn text_ahead_of_its_sound_was_not_heard() {
        let text = "one two three four five six seven eight nine ten";
        assert_eq!(SpokenPace.heard(text, 400, 400, false), "one");
        assert_eq!(SpokenPace.heard(text, 9_000, 9_000, false), text);
    }

    #[test]
    fn more_sound_never_keeps_less_and_white_space_does_not_count() {
        let text = "  One,\n two  three — 4!  ";
        let mut before = "";
        for ms in 0..2_000 {
            let heard = SpokenPace.heard(text, ms, 1_500, true);
            assert!(heard.starts_with(before), "{ms}");
            assert_eq!(heard.trim_end() == heard, heard != text, "{ms}");
            before = heard;
        }
        assert_eq!(before, text);
    }

    #[test]
    fn nothing_breaks_on_texts_of_several_bytes_or_of_no_words() {
        for text in ["größe über Ähre 日本語 です", "", " ", "…", "— —"] {
            for ms in 0..40 {
                SpokenPace.heard(text, ms, 40, true);
                SpokenPace.heard(text, ms, ms, false);
            }
        }
    }
}
