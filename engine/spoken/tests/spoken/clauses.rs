//! Clauses of a text.

use repartee_spoken::{ClauseSplitter, SpokenText};

use super::pieces;

fn clauses(written: &str) -> Vec<String> {
    let mut splitter = ClauseSplitter::default();
    let mut clauses: Vec<_> = pieces([written]).into_iter().flat_map(|piece| splitter.push(piece)).collect();
    clauses.extend(splitter.finish());
    clauses.into_iter().map(|clause| clause.text).collect()
}

#[test]
fn first_clause_is_short() {
    let text =
        "Sure, that is easy, and I can do it for you today. First we open the window, then we look out of it. Done.";
    let expected = [
        "Sure, that is easy,",
        "and I can do it for you today.",
        "First we open the window, then we look out of it.",
        "Done.",
    ];
    assert_eq!(clauses(text), expected);
}

#[test]
fn clauses_end_at_conjunctions_and_bounds() {
    let text = "One two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen \
        eighteen nineteen twenty twentyone twentytwo twentythree twentyfour twentyfive because this is so";
    let found = clauses(text);
    assert_eq!(found[0], "One two three four five six seven eight nine ten");
    assert!(found[1].ends_with(" twentyfive"), "{found:?}");
    assert_eq!(found[2], "because this is so");
    let endless = "word ".repeat(100);
    let counts: Vec<usize> = clauses(&endless).iter().map(|clause| clause.split(' ').count()).collect();
    assert_eq!(counts, [10, 30, 30, 30]);
}

#[test]
fn numbers_and_names_stay_whole() {
    // The tenth word is in the middle of each of these.
    for whole in ["five million dollars", "J. R. R. Tolkien", "June fifth, twenty twenty-six", "ninety-nine kilometers"]
    {
        let written = match whole {
            "five million dollars" => "$5 million",
            "June fifth, twenty twenty-six" => "June 5, 2026",
            "ninety-nine kilometers" => "99 km",
            name => name,
        };
        for words in 5..12 {
            let text = format!("{}{written} and then it was gone", "word ".repeat(words));
            let found = clauses(&text);
            assert!(found.iter().any(|clause| clause.contains(whole)), "{words} words: {found:?}");
        }
    }
}

#[test]
fn quotations_stay_whole() {
    let text = "My friend then said, “Well, I came, I saw, I won, and I left.” That was it.";
    assert_eq!(clauses(text), ["My friend then said,", "“Well, I came, I saw, I won, and I left.”", "That was it."]);
    let text = "He went home and he said \"this is, all in all, what we can do for now, my friend\" and left.";
    let found = clauses(text);
    assert!(
        found.iter().any(|clause| clause.contains("\"this is, all in all, what we can do for now, my friend\"")),
        "{found:?}"
    );
    // An endless one is cut.
    let endless = format!("“{}", "word, ".repeat(100));
    assert!(clauses(&endless).len() >= 3);
}

#[test]
fn abbreviations_of_other_languages_end_nothing() {
    let text = "Das ist Dr. Müller aus der Str. des Königs, und er hat z. B. am 3. Mai dort viel gearbeitet.";
    for clause in clauses(text) {
        assert!(!clause.ends_with("Dr.") && !clause.ends_with("B.") && !clause.ends_with("3."), "{clause}");
    }
}

#[test]
fn flush_gives_what_is_certain() {
    let (mut text, mut splitter) = (SpokenText::default(), ClauseSplitter::default());
    let mut push = |splitter: &mut ClauseSplitter, written: &str| {
        let pieces = text.push(written);
        pieces.into_iter().flat_map(|piece| splitter.push(piece)).collect::<Vec<_>>()
    };
    assert_eq!(push(&mut splitter, "It costs $5"), []);
    // The amount may go on.
    assert_eq!(splitter.flush().map(|clause| clause.text).as_deref(), Some("It costs"));
    assert_eq!(splitter.flush(), None);
    assert_eq!(push(&mut splitter, " million or so and"), []);
    let clause = splitter.flush().unwrap();
    assert_eq!(clause.text, "five million dollars or so");
    assert_eq!(clause.written, 9..25);
    assert_eq!(push(&mut splitter, " more.\n"), []);
    assert_eq!(splitter.finish().map(|clause| clause.text).as_deref(), Some("and more."));
}

#[test]
fn flush_does_not_tear_quotations() {
    let mut splitter = ClauseSplitter::default();
    for piece in pieces(["She said “come in"]) {
        assert_eq!(splitter.push(piece), []);
    }
    assert_eq!(splitter.flush().map(|clause| clause.text).as_deref(), Some("She said"));
    // Otherwise nothing would be spoken.
    assert_eq!(splitter.flush().map(|clause| clause.text).as_deref(), Some("“come in"));
}
