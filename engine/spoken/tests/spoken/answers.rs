//! Whole answers of language models.

use repartee_spoken::ClauseSplitter;

use super::{pieces, spoken};

const ANSWERS: &str = include_str!("../data/answers.txt");

/// Returns the name of each answer, its written and its spoken text.
pub fn answers() -> Vec<(&'static str, &'static str, &'static str)> {
    let answers = ANSWERS.split("\n=== ").skip(1).map(|answer| {
        let (name, text) = answer.split_once('\n').expect("an answer has a name");
        let (written, spoken) = text.split_once("---- spoken\n").expect("an answer is spoken");
        (name, written, spoken.trim())
    });
    answers.collect()
}

#[test]
fn every_answer_is_spoken_as_frozen() {
    let answers = answers();
    assert!(answers.len() >= 11, "{} answers", answers.len());
    let wrong: Vec<String> = answers
        .into_iter()
        .filter(|(_, written, expected)| spoken(written) != *expected)
        .map(|(name, written, expected)| format!("{name}\n  expected {expected:?}\n  found    {:?}", spoken(written)))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn clauses_of_answers_end_at_pauses() {
    for (name, written, _) in answers() {
        let mut splitter = ClauseSplitter::default();
        let mut clauses: Vec<_> = pieces([written]).into_iter().flat_map(|piece| splitter.push(piece)).collect();
        clauses.extend(splitter.finish());
        let count = |text: &str| text.split(' ').count();
        let last = clauses.len() - 1;
        assert!(last > 0, "{name}: {clauses:?}");
        assert!(count(&clauses[0].text) <= 10, "{name}: {clauses:?}");
        // The first clause may end at its maximum; behind it all these answers have punctuation enough.
        for clause in &clauses[1..last] {
            let text = clause.text.trim_end_matches('"');
            assert!(text.ends_with(['.', ',', ';', ':', '!', '?', ')']), "{name}: {text:?}");
        }
    }
}
