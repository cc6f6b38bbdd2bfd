//! Rules of decoding: which token follows, and whether a text is trusted. They are those of the `transcribe` of Whisper's
//! own package (`DecodingTask`, `ApplyTimestampRules`, its three thresholds).

use super::config::WhisperConfig;

/// Probability of no speech above which a text that is also unlikely counts as invented.
const NO_SPEECH: f32 = 0.6;
/// Average logarithm of the probability below which a text is unlikely.
const UNLIKELY: f32 = -1.0;
/// Ratio of a text's length to its compressed length above which it repeats itself.
const REPETITIVE: f32 = 2.4;

/// Tokens that may follow a text.
#[derive(Debug, Clone)]
pub struct DecodingRules {
    suppressed: Vec<u32>,
    suppressed_first: Vec<u32>,
    end: usize,
    no_timestamps: usize,
    max_initial_timestamp: usize,
}

/// A sampled token and the logarithm of its probability at temperature 1, among those that the rules leave.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ChosenToken {
    /// Id of the token.
    pub id: u32,
    /// Logarithm of its probability.
    pub log_probability: f32,
}

impl DecodingRules {
    /// Creates the rules of a model.
    pub fn new(config: &WhisperConfig) -> Self {
        Self {
            suppressed: config.suppressed.clone(),
            suppressed_first: config.suppressed_first.clone(),
            end: config.tokens.end as usize,
            no_timestamps: config.tokens.no_timestamps as usize,
            max_initial_timestamp: config.max_initial_timestamp,
        }
    }

    /// Sets the logits of tokens that may not follow `text` to minus infinity. With `timestamps`, texts stand between
    /// pairs of timestamps that never fall.
    pub fn apply(&self, logits: &mut [f32], text: &[u32], timestamps: bool) {
        for &id in self.suppressed.iter().chain(self.suppressed_first.iter().filter(|_| text.is_empty())) {
            logits[id as usize] = f32::NEG_INFINITY;
        }
        if timestamps {
            self.apply_timestamps(logits, text);
        }
    }

    fn apply_timestamps(&self, logits: &mut [f32], text: &[u32]) {
        let first = self.no_timestamps + 1;
        logits[self.no_timestamps] = f32::NEG_INFINITY;
        let is_time = |back: usize| text.iter().rev().nth(back).map(|id| *id as usize >= first);
        match (is_time(0), is_time(1)) {
            // A pair is complete, or the first timestamp stands: text follows, or a beginning follows an end.
            (Some(true), Some(true) | None) => logits[first..].fill(f32::NEG_INFINITY),
            (Some(true), Some(false)) => logits[..self.end].fill(f32::NEG_INFINITY),
            _ => {}
        }
        if let Some(last) = text.iter().rev().map(|id| *id as usize).find(|id| *id >= first) {
            // Times rise, but for the two of a pair's end and beginning.
            let ends = is_time(0) == Some(true) && is_time(1) == Some(false);
            let from = if ends { last } else { last + 1 };
            logits[first..from.max(first)].fill(f32::NEG_INFINITY);
        }
        if text.is_empty() {
            logits[..first].fill(f32::NEG_INFINITY);
            let after = (first + self.max_initial_timestamp + 1).min(logits.len());
            logits[after..].fill(f32::NEG_INFINITY);
        }
        // A timestamp follows if all of them together are more likely than any text.
        let text_best = logits[..first].iter().copied().fold(f32::NEG_INFINITY, f32::max);
        if log_sum_exp(&logits[first..]) > text_best {
            logits[..first].fill(f32::NEG_INFINITY);
        }
    }
}

/// Logarithm of the sum of exponentials.
fn log_sum_exp(logits: &[f32]) -> f32 {
    let highest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    if highest == f32::NEG_INFINITY {
        return highest;
    }
    highest + logits.iter().map(|logit| (logit - highest).exp()).sum::<f32>().ln()
}

/// Logarithm of the probability of `id`.
pub fn log_probability(logits: &[f32], id: u32) -> f32 {
    logits[id as usize] - log_sum_exp(logits)
}

/// Most likely of `ids`; the first on a tie, `None` without any.
pub fn most_likely(logits: &[f32], ids: impl Iterator<Item = u32>) -> Option<u32> {
    ids.fold(None, |best: Option<u32>, id| match best {
        Some(best) if logits[best as usize] >= logits[id as usize] => Some(best),
        _ => Some(id),
    })
}

/// Chooses the most likely token, or at a temperature draws one with the random number `uniform` in 0..1; `None` if
/// logits are not finite.
pub fn choose(logits: &[f32], temperature: f32, uniform: f32) -> Option<ChosenToken> {
    if logits.iter().any(|logit| logit.is_nan() || *logit == f32::INFINITY) {
        return None;
    }
    let total = log_sum_exp(logits);
    if total == f32::NEG_INFINITY {
        return None;
    }
    let greedy = most_likely(logits, 0..logits.len() as u32)?;
    let id = if temperature > 0.0 {
        let scaled: Vec<f32> = logits.iter().map(|logit| logit / temperature).collect();
        let highest = scaled[greedy as usize];
        let weights = || scaled.iter().map(|logit| f64::from((logit - highest).exp()));
        let mut left = f64::from(uniform) * weights().sum::<f64>();
        let drawn = weights().position(|weight| {
            left -= weight;
            left < 0.0
        });
        drawn.map_or(greedy, |drawn| drawn as u32)
    } else {
        greedy
    };
    Some(ChosenToken { id, log_probability: logits[id as usize] - total })
}

/// Properties of a decoded text.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TextQuality {
    /// Probability of no speech.
    pub no_speech: f32,
    /// Mean of the logarithms of its tokens' probabilities, the end included.
    pub average: f32,
    /// Its length divided by its compressed length.
    pub compression: f32,
    /// True if the model ended it; false at a limit.
    pub complete: bool,
}

/// Judgement of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextVerdict {
    /// The text is what was said.
    Trusted,
    /// Nothing was said: the text is invented.
    Silence,
    /// The text repeats itself or is unlikely: it is decoded again at a higher temperature.
    Doubtful,
}

impl TextQuality {
    /// Judges a text by the thresholds.
    pub fn verdict(&self) -> TextVerdict {
        if self.no_speech > NO_SPEECH && self.average < UNLIKELY {
            TextVerdict::Silence
        } else if self.is_repetitive() || self.average < UNLIKELY {
            TextVerdict::Doubtful
        } else {
            TextVerdict::Trusted
        }
    }

    /// True if the text repeats itself, or did not end.
    pub fn is_repetitive(&self) -> bool {
        self.compression > REPETITIVE || !self.complete
    }
}

/// Length of a text divided by its length after compression as zlib does it.
pub fn compression_ratio(text: &str) -> f32 {
    if text.is_empty() {
        return 0.0;
    }
    let compressed = miniz_oxide::deflate::compress_to_vec_zlib(text.as_bytes(), ZLIB_LEVEL);
    text.len() as f32 / compressed.len() as f32
}

/// Level of zlib's compression if none is named.
const ZLIB_LEVEL: u8 = 6;

/// True if a text says two or more words twice in succession.
pub fn repeats_words(text: &str) -> bool {
    let words: Vec<String> = text
        .split_whitespace()
        .map(|word| word.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect())
        .filter(|word: &String| !word.is_empty())
        .collect();
    (2..=words.len() / 2).any(|count| words.windows(2 * count).any(|pair| pair[..count] == pair[count..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Text 0..10, end 10, no timestamps 12, timestamps 13..20.
    fn rules() -> DecodingRules {
        DecodingRules {
            suppressed: vec![3],
            suppressed_first: vec![10],
            end: 10,
            no_timestamps: 12,
            max_initial_timestamp: 2,
        }
    }

    /// Ids that may follow a text, all being equally likely, with `likely` above them.
    fn allowed(text: &[u32], timestamps: bool, likely: usize) -> Vec<usize> {
        let mut logits = [0.0; 20];
        logits[likely] = 9.0;
        rules().apply(&mut logits, text, timestamps);
        (0..20).filter(|&id| logits[id] > f32::NEG_INFINITY).collect()
    }

    #[test]
    fn suppressed_tokens_never_follow() {
        assert!(!allowed(&[], false, 0).contains(&3) && !allowed(&[], false, 0).contains(&10));
        assert!(!allowed(&[1], false, 0).contains(&3) && allowed(&[1], false, 0).contains(&10));
    }

    #[test]
    fn timestamps_stand_in_rising_pairs() {
        assert_eq!(allowed(&[], true, 0), [13, 14, 15], "a text begins with an early timestamp");
        let text: Vec<usize> = (0..12).filter(|id| *id != 3).collect();
        assert_eq!(allowed(&[14], true, 0), text, "text follows the first");
        assert_eq!(allowed(&[14, 1], true, 0), [&text[..], &[15, 16, 17, 18, 19]].concat(), "an end is later");
        assert_eq!(allowed(&[14, 1, 16], true, 10), [10, 11, 16, 17, 18, 19], "a beginning may be as late as the end");
        assert_eq!(allowed(&[14, 1, 16, 16], true, 0), text);
        assert_eq!(allowed(&[14, 1], true, 18), [15, 16, 17, 18, 19], "likely timestamps exclude text");
    }

    #[test]
    fn a_choice_is_the_most_likely_or_drawn() {
        let logits = [1.0, 3.0, 3.0, f32::NEG_INFINITY];
        let greedy = choose(&logits, 0.0, 0.9).unwrap();
        assert_eq!(greedy.id, 1);
        let expected = 3.0 - (1f32.exp() + 2.0 * 3f32.exp()).ln();
        assert!((greedy.log_probability - expected).abs() < 1e-6);
        let drawn = |uniform| choose(&logits, 1.0, uniform).unwrap().id;
        assert_eq!([drawn(0.0), drawn(0.05), drawn(0.3), drawn(0.6), drawn(0.999_999)], [0, 0, 1, 2, 2]);
        assert_eq!(choose(&[f32::NAN, 1.0], 0.0, 0.0), None);
        assert_eq!(choose(&[f32::NEG_INFINITY; 2], 0.0, 0.0), None);
    }

    #[test]
    fn thresholds_tell_invented_text() {
        let good = TextQuality { no_speech: 0.1, average: -0.3, compression: 1.2, complete: true };
        assert_eq!(good.verdict(), TextVerdict::Trusted);
        assert_eq!(TextQuality { no_speech: 0.9, ..good }.verdict(), TextVerdict::Trusted, "likely text was said");
        assert_eq!(TextQuality { no_speech: 0.9, average: -1.2, ..good }.verdict(), TextVerdict::Silence);
        assert_eq!(TextQuality { average: -1.2, ..good }.verdict(), TextVerdict::Doubtful);
        assert_eq!(TextQuality { compression: 2.5, ..good }.verdict(), TextVerdict::Doubtful);
        assert_eq!(TextQuality { complete: false, ..good }.verdict(), TextVerdict::Doubtful);
    }

    #[test]
    fn repetition_compresses() {
        assert!(compression_ratio("The quick brown fox jumps over the lazy dog.") < 1.2);
        assert!(compression_ratio(&"thank you ".repeat(12)) > 2.4);
        assert_eq!(compression_ratio(""), 0.0);
    }

    #[test]
    fn repeated_words_are_found() {
        assert!(repeats_words("What does a dog say? What does a dog say?"));
        assert!(repeats_words("so, five five Five five."));
        assert!(!repeats_words("five five"), "a word may be said twice");
        assert!(!repeats_words("- - - -") && !repeats_words("the dog and the cow"));
    }
}
