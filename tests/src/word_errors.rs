//! Errors of a word estimator, in words.

use repartee_realtime::estimate::WordEstimator;

/// Between two cuts of a response, in ms.
pub const STEP_MS: u64 = 80;

/// A spoken response, and when each of its words ends.
#[derive(Debug)]
pub struct TimedWords {
    /// Its text.
    pub text: String,
    /// Its duration.
    pub sound_ms: u64,
    /// The end of each word.
    pub ends_ms: Vec<u64>,
}

/// The words of `text` without case and punctuation; a recogniser may write digits.
pub fn normalized_words(text: &str) -> Vec<String> {
    const DIGITS: [&str; 10] = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"];
    let words = text.split(|c: char| c.is_whitespace() || c == '-');
    words
        .map(|word| word.chars().filter(|c| c.is_alphanumeric()).collect::<String>().to_lowercase())
        .filter(|word| !word.is_empty())
        .map(|word| match word.parse::<usize>() {
            Ok(digit) if digit < DIGITS.len() => DIGITS[digit].to_owned(),
            _ => word,
        })
        .collect()
}

/// Words kept more than were said, at each cut; sorted by size.
#[derive(Debug)]
pub struct WordErrors(Vec<i64>);

impl WordErrors {
    /// Cuts each response every [`STEP_MS`], and asks the estimator beside it. `made` says of a cut and the sound's length how much sound was made by then, and whether
    /// that is all.
    pub fn of<'a, E: WordEstimator>(
        responses: impl IntoIterator<Item = (E, &'a TimedWords)>,
        made: impl Fn(u64, u64) -> (u64, bool),
    ) -> Self {
        let mut errors = Vec::new();
        for (estimator, TimedWords { text, sound_ms, ends_ms }) in responses {
            for cut_ms in (0..=*sound_ms).step_by(STEP_MS as usize) {
                let (made_ms, whole) = made(cut_ms, *sound_ms);
                let kept = estimator.heard_prefix(text, cut_ms, made_ms, whole).split_whitespace().count();
                let said = ends_ms.iter().filter(|end_ms| **end_ms <= cut_ms).count();
                errors.push(kept as i64 - said as i64);
            }
        }
        errors.sort_by_key(|error| error.abs());
        Self(errors)
    }

    /// The smallest error that `percent` of all do not exceed.
    pub fn percentile(&self, percent: usize) -> f64 {
        let rank = (self.0.len() * percent).div_ceil(100);
        self.0[rank - 1].abs() as f64
    }

    /// The mean size.
    pub fn mean(&self) -> f64 {
        self.0.iter().map(|error| error.abs()).sum::<i64>() as f64 / self.0.len() as f64
    }

    /// The mean: above 0 for words kept that were not said.
    pub fn bias(&self) -> f64 {
        self.0.iter().sum::<i64>() as f64 / self.0.len() as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_count_words_kept_against_words_said() {
        #[derive(Debug)]
        struct Keeps(&'static str);
        impl WordEstimator for Keeps {
            fn heard_prefix<'a>(&self, text: &'a str, _: u64, _: u64, _: bool) -> &'a str {
                &text[..self.0.len()]
            }

            fn observe(&mut self, _: &str, _: u64) {}
        }
        let spoken = TimedWords { text: "one two".to_owned(), sound_ms: 320, ends_ms: vec![STEP_MS, 3 * STEP_MS] };
        // Said at the five cuts: 0, 1, 1, 2 and 2 words.
        let errors = |kept| WordErrors::of([(Keeps(kept), &spoken)], |_, sound_ms| (sound_ms, true));
        let one = errors("one");
        assert_eq!((one.percentile(50), one.percentile(100), one.mean(), one.bias()), (1.0, 1.0, 0.6, -0.2));
        let none = errors("");
        assert_eq!((none.percentile(50), none.percentile(100), none.mean(), none.bias()), (1.0, 2.0, 1.2, -1.2));
        assert_eq!(errors("one two").bias(), 0.8);
    }

    #[test]
    fn digits_and_words_are_the_same_and_other_words_are_not() {
        assert_eq!(normalized_words("3 plus 4 is 7."), normalized_words("Three plus four is seven."));
        assert_eq!(normalized_words("One-two, three!"), ["one", "two", "three"]);
        assert_ne!(normalized_words("You're welcome."), normalized_words("You are welcome."));
    }
}
