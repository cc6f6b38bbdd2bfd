//! Words of a text with their times.

use std::time::Duration;

use repartee_engine_api::TimedWord;

use super::agreement::word_begins;

/// Length of a long word, as a multiple of the median: a pause behind it counts to none.
const LONG: u32 = 2;
/// Bounds of the longest word.
const LONGEST: (Duration, Duration) = (Duration::from_millis(400), Duration::from_millis(1_400));

/// Words of the first `kept` tokens of a text in a language. `times` are the begins of the tokens, and of the end of the text;
/// of those that are missing the begin is `end`. `spelt` gives the text of tokens.
pub fn timed_words(
    text: &[u32],
    kept: usize,
    language: Option<&str>,
    (times, end): (&[Duration], Duration),
    spelt: impl Fn(&[u32]) -> String,
) -> Vec<TimedWord> {
    let begins = word_begins(text, language, &spelt);
    let ends = begins.iter().copied().skip(1).chain([text.len()]);
    let time = |token: usize| times.get(token).copied().unwrap_or(end);
    let words = begins.iter().zip(ends).filter(|(begin, _)| **begin < kept).map(|(&begin, end)| {
        let tokens = &text[begin..end.min(kept)];
        TimedWord { text: spelt(tokens), tokens: tokens.to_vec(), begin: time(begin), end: time(end).max(time(begin)) }
    });
    let mut words: Vec<TimedWord> = words.filter(|word| !word.text.is_empty()).collect();
    let mut lengths: Vec<Duration> = words.iter().map(|word| word.end - word.begin).collect();
    lengths.sort_unstable();
    if let Some(median) = lengths.get(lengths.len() / 2) {
        let longest = (*median * LONG).clamp(LONGEST.0, LONGEST.1);
        words.iter_mut().for_each(|word| word.end = word.end.min(word.begin + longest));
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKENS: [&str; 5] = [" Hello", " wor", "ld", ".", " and"];

    fn words(text: &[u32], kept: usize, begins: &[u64]) -> Vec<(String, u128, u128)> {
        let times: Vec<Duration> = begins.iter().map(|ms| Duration::from_millis(*ms)).collect();
        let spelt = |ids: &[u32]| ids.iter().map(|id| TOKENS[*id as usize]).collect();
        let words = timed_words(text, kept, Some("en"), (&times, Duration::from_secs(9)), spelt);
        words.into_iter().map(|word| (word.text, word.begin.as_millis(), word.end.as_millis())).collect()
    }

    #[test]
    fn words_span_their_tokens() {
        let found = words(&[0, 1, 2, 3, 4], 5, &[100, 400, 500, 600, 700, 1_000]);
        let expected = [(" Hello", 100, 400), (" world.", 400, 700), (" and", 700, 1_000)];
        assert_eq!(found, expected.map(|(text, begin, end)| (text.to_owned(), begin, end)));
        assert_eq!(words(&[0, 1, 2, 3, 4], 4, &[100, 400, 500, 600, 700, 1_000])[..], found[..2]);
    }

    #[test]
    fn a_pause_belongs_to_no_word() {
        let found = words(&[0, 4, 0], 3, &[100, 300, 5_000, 5_200]);
        assert_eq!(found[1], (" and".to_owned(), 300, 700), "the pause is cut off");
        let late = words(&[0, 4], 2, &[100]);
        assert_eq!(late[1], (" and".to_owned(), 9_000, 9_000), "tokens without a time stand at the end");
    }
}
