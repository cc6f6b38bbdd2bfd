//! Estimates the heard words of a response whose audio was truncated.
//!
//! Where the engine makes text speakable, durations are those of the spoken words, and what was heard is mapped back to the
//! written text: the spoken form is a function of the written one.

use std::borrow::Cow;

use repartee_spoken::{SpokenOptions, SpokenText, WrittenMap};

/// Estimator of the heard words of a response.
pub trait WordEstimator: std::fmt::Debug + Send {
    /// Returns the longest prefix of `text`, in whole words, that was heard in `heard_ms` of its audio. `audio_ms` is the
    /// duration of the audio generated so far, which is all of it if `complete`; text is generated far ahead of its audio.
    fn heard_prefix<'a>(&self, text: &'a str, heard_ms: u64, audio_ms: u64, complete: bool) -> &'a str;

    /// Learns the speech rate from a complete response: `text` took `audio_ms`.
    fn observe(&mut self, text: &str, audio_ms: u64);
}

/// Estimator by letter count: a word's duration depends on its number of letters, and punctuation adds a pause. Complete audio is
/// divided in these proportions, independent of the voice's speech rate. For incomplete audio, the rate comes from the call's
/// earlier responses, or is a default before the first.
///
/// A written word counts once all of its spoken words were heard: of "$3.50" as "three dollars and fifty cents" the last one.
///
/// White space separates words. In a script without white space, a sentence counts only if all of it was heard.
#[derive(Debug)]
pub struct SpeechRateEstimator {
    /// Duration of earlier responses' audio in ms, and their expected duration at the default rate.
    learnt_ms: u64,
    learnt_common_ms: u64,
    /// Form in which text is spoken; `None` if it is spoken as it is written.
    spoken: Option<SpokenOptions>,
}

impl Default for SpeechRateEstimator {
    /// Starts at the default rate, for text that is spoken as it is written.
    fn default() -> Self {
        Self::new(None)
    }
}

// Durations at the default rate, about 170 words per minute. `make bench-heard` measures the estimator's error.
const BEFORE_FIRST_WORD_MS: u64 = 100;
const AFTER_LAST_WORD_MS: u64 = 200;
/// Base duration of a word.
const WORD_MS: u64 = 120;
const LETTER_MS: u64 = 30;
/// Duration of a digit: nearly that of a word.
const DIGIT_MS: u64 = 200;
/// Pause after a comma or similar punctuation.
const CLAUSE_PAUSE_MS: u64 = 150;
/// Pause after a sentence.
const SENTENCE_PAUSE_MS: u64 = 500;

/// Weight of the default rate, as ms of speech before the first response.
const PRIOR_MS: u64 = 1_000;
/// Window of earlier responses in ms: the rate or the voice may change.
const REMEMBERED_MS: u64 = 60_000;

impl WordEstimator for SpeechRateEstimator {
    fn heard_prefix<'a>(&self, text: &'a str, heard_ms: u64, audio_ms: u64, complete: bool) -> &'a str {
        let spoken = SpokenForm::of(text, self.spoken.as_ref());
        let words = words(&spoken.text);
        let common_ms = common_ms(&words);
        let total_ms = if complete { audio_ms } else { audio_ms.max(self.expected_ms(common_ms)) };
        if heard_ms >= total_ms {
            return text;
        }
        let mut heard = 0;
        let mut at_ms = BEFORE_FIRST_WORD_MS;
        for word in words {
            at_ms += word.spoken_ms;
            // A word counts only if all of it was heard.
            if at_ms * total_ms > heard_ms * common_ms {
                break;
            }
            heard = word.end;
            at_ms += word.pause_ms;
        }
        // The line break that a pause stands for is no word.
        text.get(..spoken.written_end(heard)).unwrap_or(text).trim_end()
    }

    fn observe(&mut self, text: &str, audio_ms: u64) {
        let spoken = SpokenForm::of(text, self.spoken.as_ref());
        let words = words(&spoken.text);
        if words.is_empty() || audio_ms == 0 {
            return;
        }
        self.learnt_ms = self.learnt_ms.saturating_add(audio_ms);
        self.learnt_common_ms += common_ms(&words);
        if self.learnt_ms > REMEMBERED_MS {
            self.learnt_common_ms = (scaled(self.learnt_common_ms, REMEMBERED_MS, self.learnt_ms)).max(1);
            self.learnt_ms = REMEMBERED_MS;
        }
    }
}

impl SpeechRateEstimator {
    /// Starts at the default rate; `None` for text that is spoken as it is written.
    pub fn new(spoken: Option<SpokenOptions>) -> Self {
        Self { learnt_ms: PRIOR_MS, learnt_common_ms: PRIOR_MS, spoken }
    }

    /// Converts `common_ms` at the default rate to the duration at the learnt rate.
    fn expected_ms(&self, common_ms: u64) -> u64 {
        scaled(common_ms, self.learnt_ms, self.learnt_common_ms)
    }
}

/// Returns `ms * numerator / denominator`, saturating; `denominator` must not be zero.
fn scaled(ms: u64, numerator: u64, denominator: u64) -> u64 {
    let scaled = u128::from(ms) * u128::from(numerator) / u128::from(denominator);
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

/// Duration of `words` at the default rate, including the silence before and after.
fn common_ms(words: &[Word]) -> u64 {
    BEFORE_FIRST_WORD_MS + words.iter().map(|word| word.spoken_ms + word.pause_ms).sum::<u64>()
}

/// Spoken form of a written text.
struct SpokenForm<'a> {
    text: Cow<'a, str>,
    /// `None` if it is the written text.
    map: Option<WrittenMap>,
}

impl<'a> SpokenForm<'a> {
    fn of(text: &'a str, spoken: Option<&SpokenOptions>) -> Self {
        let Some(options) = spoken else { return Self { text: Cow::Borrowed(text), map: None } };
        let (mut form, mut map) = (SpokenText::new(options.clone()), WrittenMap::default());
        let mut pieces = form.push(text);
        pieces.extend(form.finish());
        pieces.iter().for_each(|piece| map.push(piece));
        map.finish(text.len());
        Self { text: pieces.into_iter().map(|piece| piece.text).collect::<String>().into(), map: Some(map) }
    }

    /// Length of the written text, in bytes, of which `spoken` bytes were heard.
    fn written_end(&self, spoken: usize) -> usize {
        self.map.as_ref().map_or(spoken, |map| map.written_end(spoken))
    }
}

struct Word {
    /// End of the word in the text, in bytes.
    end: usize,
    /// Duration of the word, in ms.
    spoken_ms: u64,
    /// Duration of the pause after the word, in ms.
    pause_ms: u64,
}

fn words(text: &str) -> Vec<Word> {
    let mut words = Vec::new();
    let mut begin = 0;
    for piece in text.split_inclusive(char::is_whitespace) {
        let word = piece.trim_end();
        if !word.is_empty() {
            words.push(Word { end: begin + word.len(), spoken_ms: spoken_ms(word), pause_ms: pause_ms(word) });
        }
        begin += piece.len();
    }
    if let Some(last) = words.last_mut() {
        last.pause_ms = AFTER_LAST_WORD_MS;
    }
    words
}

fn spoken_ms(word: &str) -> u64 {
    let sounds = word.chars().filter(|c| c.is_alphanumeric());
    let sounds_ms: u64 = sounds.map(|c| if c.is_numeric() { DIGIT_MS } else { LETTER_MS }).sum();
    // A single dash is not spoken.
    if sounds_ms == 0 { 0 } else { WORD_MS + sounds_ms }
}

fn pause_ms(word: &str) -> u64 {
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
    fn only_whole_words_count() {
        let text = "The sky is blue.";
        // At the default rate the first word lasts from 100 to 310 ms, and the text 1140 ms.
        let heard = |ms| SpeechRateEstimator::default().heard_prefix(text, ms, 1_140, true);
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
        let heard = |text| SpeechRateEstimator::default().heard_prefix(text, 1_000, 2_000, true);
        assert_eq!(heard("an extraordinarily"), "an");
        assert_eq!(heard("extraordinarily an"), "");
        // "2026" is four words or so.
        assert_eq!(heard("2026 it is"), "");
        assert_eq!(heard("abcd it is"), "abcd");
    }

    #[test]
    fn punctuation_is_a_pause_after_its_word() {
        // 100 ms, "One" 210, a pause of 150, "two" 210, 200 ms.
        let heard = |ms| SpeechRateEstimator::default().heard_prefix("One, two", ms, 870, true);
        assert_eq!([309, 310, 460, 669, 670].map(heard), ["", "One,", "One,", "One,", "One, two"]);
        assert_eq!(SpeechRateEstimator::default().heard_prefix("\"One,\" two", 669, 870, true), "\"One,\"");
        // A dash is not spoken.
        assert_eq!(SpeechRateEstimator::default().heard_prefix("One — two", 310, 870, true), "One —");
        // The pause between sentences is longer.
        let heard = |ms| SpeechRateEstimator::default().heard_prefix("One. Two.", ms, 1_220, true);
        assert_eq!([309, 310, 1_019, 1_020].map(heard), ["", "One.", "One.", "One. Two."]);
    }

    #[test]
    fn estimate_does_not_depend_on_pace() {
        let text = "Yes, I am a small voice model that runs on your own machine.";
        for percent in 0..=100 {
            let heard = |total_ms: u64| {
                SpeechRateEstimator::default().heard_prefix(text, total_ms * percent / 100, total_ms, true)
            };
            assert_eq!(heard(3_000), heard(6_000), "{percent} %");
        }
    }

    #[test]
    fn text_ahead_of_its_audio_is_unheard() {
        let text = "one two three four five six seven eight nine ten";
        assert_eq!(SpeechRateEstimator::default().heard_prefix(text, 400, 400, false), "one");
        assert_eq!(SpeechRateEstimator::default().heard_prefix(text, 9_000, 9_000, false), text);
    }

    #[test]
    fn pace_is_learnt_from_whole_responses() {
        let text = "one two three four five six seven eight nine ten";
        let kept = |pace: &SpeechRateEstimator| pace.heard_prefix(text, 1_200, 1_200, false).split(' ').count();
        let mut pace = SpeechRateEstimator::default();
        let at_common_pace = kept(&pace);
        for _ in 0..20 {
            pace.observe("a slow voice", 2 * common_ms(&words("a slow voice")));
        }
        assert!(kept(&pace) <= at_common_pace / 2 + 1, "{}", kept(&pace));
        // A quick voice replaces it within a minute or two.
        for _ in 0..300 {
            pace.observe("a quick voice", common_ms(&words("a quick voice")) / 2);
        }
        assert!(kept(&pace) >= at_common_pace + 2, "{}", kept(&pace));
        for (text, ms) in [("", 1_000), ("silence", 0), ("endless", u64::MAX)] {
            pace.observe(text, ms);
            pace.heard_prefix("two words", 1_000, 1_000, false);
        }
    }

    #[test]
    fn more_audio_never_keeps_fewer_words() {
        let text = "  One,\n two  three — 4!  ";
        let mut before = "";
        for ms in 0..2_000 {
            let heard = SpeechRateEstimator::default().heard_prefix(text, ms, 1_500, true);
            assert!(heard.starts_with(before), "{ms}");
            assert_eq!(heard.trim_end() == heard, heard != text, "{ms}");
            before = heard;
        }
        assert_eq!(before, text);
    }

    #[test]
    fn spoken_words_map_back_to_the_written_text() {
        let text = "It costs **$3.50**, see [the list](https://a.example/list):\n\n- 2 km of wool\n- more \u{1F600}";
        // "It costs three dollars and fifty cents, see the list: two kilometers of wool. more"
        let estimator = SpeechRateEstimator::new(Some(SpokenOptions::default()));
        let heard: Vec<&str> = (0..=8_000).map(|ms| estimator.heard_prefix(text, ms, 8_000, true)).collect();
        let mut steps = heard.clone();
        steps.dedup();
        let list = "list](https://a.example/list):";
        let ends = ["", "It", "costs", "**$3.50**,", "see", "[the", list, "- 2", "km", "of", "wool"];
        let expected: Vec<&str> =
            ends.iter().map(|end| &text[..text.find(end).unwrap() + end.len()]).chain([text]).collect();
        assert_eq!(steps, expected);
        // Five words and a pause take longer than one word.
        let lasts = |prefix: &str| heard.iter().filter(|heard| **heard == prefix).count();
        assert!(lasts("It costs") > 4 * lasts("It"), "{} ms, {} ms", lasts("It costs"), lasts("It"));
        // As it is written, a mark of Markdown is a word.
        let written = SpeechRateEstimator::default();
        assert_eq!(written.heard_prefix("- **2** km", 600, 1_000, true), "- **2**");
    }

    #[test]
    fn multibyte_and_empty_texts_are_handled() {
        for text in ["größe über Ähre 日本語 です", "", " ", "…", "— —"] {
            for ms in 0..40 {
                SpeechRateEstimator::default().heard_prefix(text, ms, 40, true);
                SpeechRateEstimator::default().heard_prefix(text, ms, ms, false);
            }
        }
    }
}
