//! The tokens that may follow are those that a text takes: each of them is tried.

use std::sync::Arc;

use repartee_forms::{Grammar, Literal, Matcher, Vocabulary};

use super::generated::{Draws, schema};
use super::{IDS, STOP, vocabulary};

/// Number of schemas, and tokens of each text.
const SCHEMAS: u64 = 60;
const STEPS: usize = 60;
/// More tokens than any text has.
const MANY: usize = 1 << 30;

/// Compares the set with trials, along a text.
fn assert_agrees(grammar: Grammar, vocabulary: &Arc<Vocabulary>, seed: u64) {
    let grammar = Arc::new(grammar);
    let mut draws = Draws::new(seed);
    let mut matcher = Matcher::new(grammar, Arc::clone(vocabulary));
    for _ in 0..STEPS {
        let mask = matcher.mask(MANY).clone();
        let taken: Vec<u32> = (0..IDS).filter(|id| matcher.clone().advance(*id)).collect();
        assert_eq!(mask.ids().collect::<Vec<_>>(), taken, "seed {seed}: {matcher:?}");
        let id = taken[draws.below(taken.len())];
        assert!(matcher.advance(id));
        if matcher.is_ended() {
            return;
        }
    }
}

#[test]
fn tokens_that_may_follow_are_taken() {
    let vocabulary = vocabulary();
    for seed in 0..SCHEMAS {
        assert_agrees(Grammar::json(&schema(seed).to_string()).unwrap(), &vocabulary, seed);
        assert_agrees(Grammar::json_object().unwrap(), &vocabulary, seed);
    }
}

/// A call between two tokens without text, of one of two functions.
fn call() -> Grammar {
    let schema = r#"{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}"#;
    let texts = ["find", "find_all"].map(|name| (format!("{name}\", \"arguments\": "), schema));
    let before = [Literal::Mark(4_998)].into_iter().chain(Literal::text("\n{\"name\": \""));
    let after = Literal::text("}\n").chain([Literal::Mark(4_999)]);
    let grammar = Grammar::one_of(before.collect(), texts, after.collect()).unwrap();
    grammar.after_optional([Literal::Mark(4_997)].into_iter().chain(Literal::text("\n\n")))
}

#[test]
fn a_call_stands_between_its_marks() {
    let vocabulary = vocabulary();
    assert_agrees(call(), &vocabulary, 1);
    let mut names = Vec::new();
    for seed in 0..200 {
        let mut draws = Draws::new(seed);
        let mut matcher = Matcher::new(Arc::new(call()), Arc::clone(&vocabulary));
        let (mut ids, mut text) = (Vec::new(), Vec::new());
        while !matcher.is_ended() {
            let allowed: Vec<u32> = matcher.mask(200).ids().collect();
            let id = allowed[draws.below(allowed.len())];
            assert!(id != STOP && matcher.advance(id));
            ids.push(id);
            text.extend_from_slice(vocabulary.bytes(id).unwrap_or_default());
        }
        assert_eq!((ids[0], ids[ids.len() - 1]), (4_998, 4_999));
        let call: serde_json::Value = serde_json::from_slice(&text).unwrap();
        assert!(call["arguments"]["a"].is_i64(), "{call}");
        names.push(call["name"].as_str().unwrap().to_owned());
    }
    assert!(names.iter().any(|name| name == "find") && names.iter().any(|name| name == "find_all"), "{names:?}");
}

#[test]
fn optional_literals_stand_first() {
    let vocabulary = vocabulary();
    let first = |mut matcher: Matcher| matcher.mask(MANY).ids().collect::<Vec<_>>();
    let grammar = Arc::new(call());
    assert_eq!(first(Matcher::new(Arc::clone(&grammar), Arc::clone(&vocabulary))), [4_998]);
    assert_eq!(first(Matcher::with_optional(grammar, vocabulary)), [4_997]);
}
