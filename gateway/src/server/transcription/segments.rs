//! Segments of a transcript: sentences where the times of words are known, else pieces of the sound.

use std::ops::Range;
use std::time::Duration;

use repartee_engine_api::{TimedWord, TranscriptDetails};
use serde::Serialize;

/// Longest segment.
const LONGEST: Duration = Duration::from_secs(10);
/// Pause between words that ends a segment.
const PAUSE: Duration = Duration::from_secs(1);
/// Ends of sentences.
const ENDS: [char; 8] = ['.', '!', '?', '…', '。', '！', '？', '؟'];
/// Marks that may stand behind the end of a sentence.
const CLOSING: [char; 7] = ['"', '\'', ')', ']', '”', '’', '»'];
/// Least average logarithm of a probability: numbers of JSON are finite.
const LEAST: f32 = -100.0;

/// Segment on the wire, as published.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct TranscriptSegment {
    id: usize,
    /// Begin of the piece of sound, in hundredths of a second.
    seek: u64,
    pub start: f64,
    pub end: f64,
    pub text: String,
    tokens: Vec<u32>,
    temperature: f64,
    avg_logprob: f64,
    compression_ratio: f64,
    no_speech_prob: f64,
}

/// Word on the wire, as published.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct TranscriptWord {
    word: String,
    start: f64,
    end: f64,
}

/// Seconds with milliseconds.
pub(super) fn seconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1_000.0).round() / 1_000.0
}

/// Rounds a number to five places.
fn rounded(number: f32) -> f64 {
    (f64::from(number) * 100_000.0).round() / 100_000.0
}

/// Words of a piece that begins at `begin`.
pub(super) fn words(begin: Duration, details: &TranscriptDetails) -> impl Iterator<Item = TranscriptWord> {
    details.words.iter().map(move |word| TranscriptWord {
        word: word.text.trim().to_owned(),
        start: seconds(begin + word.begin),
        end: seconds(begin + word.end),
    })
}

/// Segments of a piece with this text, numbered from `id` on.
pub(super) fn segments(
    id: usize,
    sound: &Range<Duration>,
    text: &str,
    details: Option<&TranscriptDetails>,
) -> Vec<TranscriptSegment> {
    if text.is_empty() {
        return Vec::new();
    }
    let quality = details.map(|details| details.quality).unwrap_or_default();
    let whole = TranscriptSegment {
        id,
        seek: u64::try_from(sound.start.as_millis() / 10).unwrap_or(u64::MAX),
        start: seconds(sound.start),
        end: seconds(sound.end),
        text: text.to_owned(),
        tokens: Vec::new(),
        temperature: rounded(quality.temperature),
        avg_logprob: rounded(quality.average.max(LEAST)),
        compression_ratio: rounded(quality.compression),
        no_speech_prob: rounded(quality.no_speech),
    };
    let Some(details) = details.filter(|details| !details.words.is_empty()) else { return vec![whole] };
    let parts = sentences(&details.words).into_iter().filter_map(|range| details.words.get(range));
    let segment = |(number, words): (usize, &[TimedWord])| TranscriptSegment {
        id: id + number,
        start: seconds(sound.start + words.first().map(|word| word.begin).unwrap_or_default()),
        end: seconds(sound.start + words.last().map(|word| word.end).unwrap_or_default()),
        text: words.iter().map(|word| word.text.as_str()).collect(),
        tokens: words.iter().flat_map(|word| word.tokens.iter().copied()).collect(),
        ..whole.clone()
    };
    parts.enumerate().map(segment).collect()
}

/// Ranges of words that make a segment each.
fn sentences(words: &[TimedWord]) -> Vec<Range<usize>> {
    let (mut found, mut first) = (Vec::new(), 0);
    for (at, pair) in words.windows(2).enumerate() {
        let [word, next] = pair else { continue };
        let begin = words.get(first).map(|word| word.begin).unwrap_or_default();
        let ends = word.text.trim_end().trim_end_matches(CLOSING).ends_with(ENDS);
        if ends || next.begin.saturating_sub(word.end) >= PAUSE || next.end.saturating_sub(begin) > LONGEST {
            found.push(first..at + 1);
            first = at + 1;
        }
    }
    found.push(first..words.len());
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(text: &str, begin: u64, end: u64) -> TimedWord {
        let [begin, end] = [begin, end].map(Duration::from_millis);
        TimedWord { text: text.to_owned(), tokens: vec![text.len() as u32], begin, end }
    }

    fn spans(words: Vec<TimedWord>) -> Vec<(f64, f64, String)> {
        let details = TranscriptDetails { words, ..TranscriptDetails::default() };
        let sound = Duration::from_secs(100)..Duration::from_secs(120);
        let found = segments(7, &sound, "any", Some(&details));
        assert!(found.iter().zip(7..).all(|(segment, id)| segment.id == id && segment.seek == 10_000));
        found.into_iter().map(|segment| (segment.start, segment.end, segment.text)).collect()
    }

    #[test]
    fn sentences_and_pauses_end_segments() {
        let found = spans(vec![
            word(" Hello", 200, 500),
            word(" you.\"", 500, 900),
            word(" It", 900, 1_000),
            word(" is", 2_100, 2_300),
        ]);
        let expected = [(100.2, 100.9, " Hello you.\""), (100.9, 101.0, " It"), (102.1, 102.3, " is")];
        assert_eq!(found, expected.map(|(start, end, text)| (start, end, text.to_owned())));
    }

    #[test]
    fn segments_are_at_most_ten_seconds() {
        let words = (0..40).map(|at| word(" la", at * 600, at * 600 + 550)).collect();
        let found = spans(words);
        assert!(found.len() == 3 && found.iter().all(|(start, end, _)| end - start <= 10.0), "{found:?}");
    }

    #[test]
    fn a_piece_without_words_is_a_segment() {
        let sound = Duration::ZERO..Duration::from_millis(1_500);
        let found = segments(0, &sound, "Hello.", None);
        assert_eq!((found[0].start, found[0].end, &*found[0].text, found.len()), (0.0, 1.5, "Hello.", 1));
        assert_eq!(segments(0, &sound, "", None), []);
    }
}
