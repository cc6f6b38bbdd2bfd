//! Properties over random text.

use proptest::prelude::*;
use repartee_spoken::{
    ClauseBounds, ClauseSplitter, ReasoningFilter, ReasoningMarks, SpokenPiece, WordBounds, WrittenMap,
};

use super::{pieces, spoken};

/// Text out of what rules are for: Markdown, numbers, signs, words of several languages, and any characters.
const WRITTEN: &str = "(\
    [a-zA-Z]{1,7}|[a-z]{1,5}|[0-9.,:/%$€-]{1,6}|[0-9]{1,4}| |  |\n|\n\n|\n- |\n1\\. |\n# |\n> |\n\\| | \\| |\n```\n|\
    \\*\\*|\\*|__|_|`|```|~~|\\[|\\]|\\]\\(|\\(|\\)|!\\[|<br>|<|>|&amp;|&|\\\\|\\$|°C|km|June |Dr\\. |e\\.g\\. |etc\\. |\
    the |and |das |est |你好。|[äßéñ]{1,3}|🎉|❌|️|#|@|\\+|=|→|½|\"|“|”|https://a\\.com/b |[.!?,;:]|\\PC\
    ){0,60}";

/// Cuts `text` at the nearest borders of characters.
fn parts<'a>(text: &'a str, cuts: &[prop::sample::Index]) -> Vec<&'a str> {
    let borders: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
    let mut ends: Vec<usize> = cuts.iter().map(|cut| *cut.get(&borders)).collect();
    ends.push(text.len());
    ends.sort_unstable();
    let mut from = 0;
    ends.into_iter().map(|to| &text[std::mem::replace(&mut from, to)..to]).collect()
}

fn clauses(pieces: Vec<SpokenPiece>, bounds: ClauseBounds) -> Vec<repartee_spoken::Clause> {
    let mut splitter = ClauseSplitter::new(bounds);
    let mut clauses: Vec<_> = pieces.into_iter().flat_map(|piece| splitter.push(piece)).collect();
    clauses.extend(splitter.finish());
    clauses
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    #[test]
    fn any_split_gives_the_same_pieces(
        text in WRITTEN,
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
    ) {
        prop_assert_eq!(pieces(parts(&text, &cuts)), pieces([text.as_str()]));
    }

    #[test]
    fn any_text_is_spoken(text in any::<String>()) {
        let characters: Vec<String> = text.chars().map(String::from).collect();
        prop_assert_eq!(pieces(characters.iter().map(String::as_str)), pieces([text.as_str()]));
    }

    #[test]
    fn pieces_follow_the_written_text(text in prop_oneof![WRITTEN, any::<String>()]) {
        let mut end = 0;
        for piece in pieces([text.as_str()]) {
            prop_assert!(!piece.text.trim().is_empty(), "{:?}", &piece);
            prop_assert!(piece.written.start >= end && piece.written.start < piece.written.end, "{:?} behind {}", &piece, end);
            end = piece.written.end;
            prop_assert!(text.is_char_boundary(piece.written.start) && text.is_char_boundary(end), "{:?}", &piece);
        }
        prop_assert!(end <= text.len());
    }

    #[test]
    fn map_is_monotone_and_complete(text in WRITTEN) {
        let mut map = WrittenMap::default();
        let pieces = pieces([text.as_str()]);
        pieces.iter().for_each(|piece| map.push(piece));
        map.finish(text.len());
        let ends: Vec<usize> = (0..=map.spoken_len()).map(|spoken| map.written_end(spoken)).collect();
        prop_assert!(ends.is_sorted(), "{:?}", &ends);
        prop_assert_eq!(ends.last(), Some(&text.len()));
        let mut spoken = 0;
        for (index, piece) in pieces.iter().enumerate() {
            spoken += piece.text.len();
            // The last piece takes the silent text behind it.
            let end = if index + 1 == pieces.len() { text.len() } else { piece.written.end };
            prop_assert_eq!(map.written_end(spoken), end);
            prop_assert!(map.written_end(spoken - 1) < end);
        }
    }

    #[test]
    fn plain_words_stand_for_themselves(words in prop::collection::vec("[a-z]{3,9}", 1..30)) {
        // No word is a common word of another language, or an abbreviation: those have rules.
        let words: Vec<String> = words.into_iter().map(|word| format!("{word}qu")).collect();
        let text = words.join(" ");
        let pieces = pieces([text.as_str()]);
        prop_assert_eq!(pieces.len(), words.len());
        for (piece, word) in pieces.iter().zip(&words) {
            prop_assert_eq!(&text[piece.written.clone()], word);
            prop_assert_eq!(piece.text.trim_start(), word);
        }
    }

    #[test]
    fn every_integer_has_words(number in any::<u64>()) {
        let spoken = spoken(&format!("There are {number} of them."));
        prop_assert!(!spoken.contains(|c: char| c.is_ascii_digit()), "{}", spoken);
    }

    #[test]
    fn emphasis_does_not_change_words(text in "([a-z]{2,7} ){1,8}[a-z]{2,7}", mark in "\\*{1,3}|_{1,2}|~~") {
        prop_assert_eq!(spoken(&format!("{mark}{text}{mark}")), spoken(&text));
        prop_assert_eq!(spoken(&format!("{mark}{text}")), spoken(&text));
    }

    #[test]
    fn no_reasoning_text_comes_out(
        parts_ in prop::collection::vec(("[a-z <>/\n]{0,12}", "[A-Z <>/\n]{0,12}"), 0..6),
        closed in any::<bool>(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
    ) {
        let mut text: String = parts_.iter().map(|(said, thought)| format!("{said}<think>{thought}</think>")).collect();
        if !closed {
            text.push_str("<think>NEVER");
        }
        let filtered = |parts: Vec<&str>| {
            let mut filter = ReasoningFilter::new(ReasoningMarks::default()).unwrap();
            let visible: String = parts.into_iter().map(|part| filter.push(part)).collect();
            visible + &filter.finish()
        };
        let visible = filtered(vec![text.as_str()]);
        prop_assert!(!visible.contains(char::is_uppercase), "{:?} of {:?}", &visible, &text);
        prop_assert_eq!(filtered(parts(&text, &cuts)), visible.clone());
        // Nothing but reasoning text, marks and leading white space is lost.
        let said: String = parts_.iter().map(|(said, _)| said.as_str()).collect();
        let letters = |text: &str| text.chars().filter(|c| c.is_alphabetic()).collect::<String>();
        prop_assert_eq!(letters(&visible), letters(&said));
    }

    #[test]
    fn clauses_are_the_spoken_text(
        text in WRITTEN,
        (min, more) in (1_usize..12, 1_usize..12),
    ) {
        let bounds = WordBounds { min, max: min + more };
        let bounds = ClauseBounds { first: WordBounds { min: 1, max: 4 }, later: bounds };
        let pieces = pieces([text.as_str()]);
        let spoken: String = pieces.iter().map(|piece| piece.text.as_str()).collect();
        let mut end = 0;
        for clause in clauses(pieces.clone(), bounds) {
            prop_assert_eq!(&spoken[clause.spoken.clone()], clause.text.as_str());
            // Only white space and marks of pauses are lost between clauses.
            let between = &spoken[end..clause.spoken.start];
            prop_assert!(!between.contains(char::is_alphanumeric), "{:?}", between);
            end = clause.spoken.end;
            // No piece is torn, and none is separated from the one that it belongs to.
            let last = pieces.iter().find(|piece| piece.written.end == clause.written.end);
            let whole = clause.spoken.end == spoken.len();
            prop_assert!(whole || last.is_some_and(|piece| !piece.joins_next), "{:?} {:?}", &clause, last);
        }
        prop_assert!(!spoken[end..].contains(char::is_alphanumeric));
    }

    #[test]
    fn flushes_lose_no_words(text in WRITTEN, flushes in prop::collection::vec(any::<bool>(), 60)) {
        let pieces = pieces([text.as_str()]);
        let words = |text: &str| text.chars().filter(|c| c.is_alphanumeric()).collect::<String>();
        let expected: String = pieces.iter().map(|piece| words(&piece.text)).collect();
        let mut splitter = ClauseSplitter::default();
        let mut found = String::new();
        for (index, piece) in pieces.into_iter().enumerate() {
            for clause in splitter.push(piece) {
                found.push_str(&words(&clause.text));
            }
            if flushes[index % flushes.len()] {
                found.extend(splitter.flush().map(|clause| words(&clause.text)));
            }
        }
        found.extend(splitter.finish().map(|clause| words(&clause.text)));
        prop_assert_eq!(found, expected);
    }
}
