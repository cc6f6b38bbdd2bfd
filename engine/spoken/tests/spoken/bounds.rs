//! Text without an end to it: memory and latency are bounded, and nothing is lost that has a sound.

use repartee_spoken::{ClauseSplitter, ReasoningFilter, ReasoningMarks, SpokenText};

/// Maximum number of bytes of written text that are held back.
const MAX_HELD: usize = 2_048;

/// Texts that begin something that never ends, one part of them after another.
fn endless() -> Vec<(&'static str, &'static str, bool)> {
    // Beginning, endless part, true if the part has a sound.
    vec![
        ("", "a", true),
        ("", "ä", true),
        ("", "你", true),
        ("", "*", false),
        ("", "_", false),
        ("", "`", false),
        ("", "=", false),
        ("", "-", false),
        ("", "#", false),
        ("", ">", false),
        ("", "|", false),
        ("", "[", false),
        ("", "<", false),
        ("", "&", false),
        ("", "\\", false),
        ("", "!", true),
        ("", "(", true),
        ("", "🎉", false),
        ("", "\n", false),
        ("", " ", false),
        ("", "1", true),
        ("", "1,", true),
        ("", "1,000", true),
        ("", "1.", true),
        ("", "-1", true),
        ("", "$1 ", true),
        ("", "+1 ", true),
        ("", "June ", true),
        ("", "Dr. ", true),
        ("", "A. ", true),
        ("", "e.g. ", true),
        ("", "5 – ", true),
        ("", "](", false),
        // Surely no text behind a few hundred bytes without white space.
        ("", "[a](", false),
        ("", "[1] ", false),
        ("", "[^a", true),
        ("", "<b ", false),
        ("", "a<b", true),
        ("", "&amp;", true),
        ("", "❌", false),
        ("", "| ❌ ", true),
        ("```\n", "code *a* | b\n", false),
        ("```", "x", false),
        ("[a](", "x", false),
        ("[a](b \"", "x", false),
        ("[a][", "x", true),
        ("<a href=\"", "x", true),
        ("<!--", "x", true),
        ("| a |\n|---|\n", "| word | 5 km |\n", true),
        ("- ", "word\n- ", true),
        ("“", "word, ", true),
        ("a", "\u{301}", true),
        ("👍", "\u{200D}", false),
    ]
}

#[test]
fn little_is_held_back() {
    for (beginning, part, sounds) in endless() {
        let mut spoken = SpokenText::default();
        let mut clauses = ClauseSplitter::default();
        let (mut written, mut end, mut said, mut clause_end) = (beginning.len(), 0, 0_usize, 0);
        spoken.push(beginning);
        for _ in 0..20_000 / part.len() {
            written += part.len();
            for piece in spoken.push(part) {
                end = piece.written.end;
                // Marks alone are in no clause of their own.
                if piece.text.contains(char::is_alphanumeric) {
                    said = end;
                }
                for clause in clauses.push(piece) {
                    clause_end = clause.written.end;
                }
            }
            if sounds {
                assert!(written - end <= MAX_HELD, "{beginning:?} {part:?}: {end} of {written}");
                assert!(
                    said.saturating_sub(clause_end) <= 8 * MAX_HELD,
                    "{beginning:?} {part:?}: {clause_end} of {said}"
                );
            }
        }
        spoken.finish();
    }
}

#[test]
fn long_texts_take_linear_work() {
    // Quadratic work would take minutes here.
    for (beginning, part, _) in endless() {
        let text = format!("{beginning}{}", part.repeat(300_000 / part.len()));
        let mut spoken = SpokenText::default();
        let mut clauses = ClauseSplitter::default();
        let mut length = 0;
        for piece in spoken.push(&text).into_iter().chain(spoken.finish()) {
            length += piece.text.len();
            clauses.push(piece);
        }
        // A digit becomes a word of up to five letters and a space.
        assert!(length <= 12 * text.len(), "{beginning:?} {part:?}");
    }
}

#[test]
fn long_words_stay_as_they_are() {
    for letter in ["a", "ä", "9"] {
        let word = letter.repeat(100_000);
        let mut spoken = SpokenText::default();
        let pieces: Vec<_> = spoken.push(&word).into_iter().chain(spoken.finish()).collect();
        assert_eq!(pieces.iter().map(|piece| piece.text.as_str()).collect::<String>(), word);
    }
}

#[test]
fn unclosed_reasoning_holds_nothing() {
    let mut filter = ReasoningFilter::new(ReasoningMarks::default()).unwrap();
    assert_eq!(filter.push("Hello <think>"), "Hello ");
    for _ in 0..100_000 {
        assert_eq!(filter.push("<think> a </thin "), "");
    }
    assert!(filter.is_inside());
    assert_eq!(filter.finish(), "");
}
