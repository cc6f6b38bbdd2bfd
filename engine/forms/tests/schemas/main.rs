//! Texts of a model whose logits are arbitrary: whatever it would say, what it may say parses and fits the schema.
#![allow(clippy::unwrap_used, reason = "a panic is a test's report")]

mod agreement;
mod generated;
mod refusals;
mod validator;

use std::sync::Arc;

use repartee_forms::{Grammar, Matcher, Vocabulary};
use serde_json::Value;

use self::generated::{Draws, published, schema};
use self::validator::fits;

/// Number of schemas.
const SCHEMAS: u64 = 500;
/// Most tokens of a text. A form is closed in time.
const MOST: usize = 2_000;
/// Id that ends a text.
const STOP: u32 = 5_000;
/// Number of ids.
const IDS: u32 = 5_001;

/// Bytes, and tokens of several bytes that cross strings, escapes, numbers and structure.
fn vocabulary() -> Arc<Vocabulary> {
    let mut tokens: Vec<Vec<u8>> = (0..=255_u8).map(|byte| vec![byte]).collect();
    let words = [
        "{\"",
        "\":",
        "\": ",
        "\": \"",
        "\", \"",
        "\"}",
        "\"}}",
        "}}",
        "]}",
        "},{",
        "}, {\"",
        "[]",
        "{}",
        "[[",
        "\"\"",
        "\\\"",
        "\\n",
        "\\u00",
        "\\u",
        "true",
        "false",
        "null",
        "tru",
        "fal",
        "nu",
        "ll",
        " ",
        "  ",
        " the",
        " city",
        "city",
        "metric",
        " system",
        "12",
        "123",
        "00",
        "0.",
        ".5",
        "-1",
        "1e",
        "e+",
        "größe",
        "\u{65E5}",
        "付",
        "é",
        "ab\"",
        "a\\",
        ", ",
        ",\"",
        ": ",
        ":\"",
        "\n",
        "kind",
        "one",
        "other",
        "\"kind\":",
        "value",
        "name",
        "🙂",
        "unit_of",
        "_measure",
        "with \\\"",
        "x y",
    ];
    tokens.extend(words.iter().map(|word| word.as_bytes().to_vec()));
    // Halves of a letter.
    tokens.extend(
        [&[0xE6, 0x97][..], &[0xA5, b'"'], &[0xF0, 0x9F], &[0x99, 0x82, b'"', b','], &[0xC3]].map(<[u8]>::to_vec),
    );
    let mut draws = Draws::new(11);
    for _ in 0..1_000 {
        let letters = (0..1 + draws.below(6)).map(|_| b"abcdefghij0123456789\"\\ ,:{}[]-.u"[draws.below(32)]);
        tokens.push(letters.collect());
    }
    let tokens = tokens.into_iter().enumerate().map(|(id, bytes)| (u32::try_from(id).unwrap(), bytes));
    Arc::new(Vocabulary::new(tokens, 5_001, vec![STOP]).unwrap())
}

/// Way in which a model that knows nothing of the form chooses among the tokens that may follow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Choice {
    /// Any, alike.
    Any,
    /// The first: ever the same token, where it may stand.
    First,
    /// The last.
    Last,
}

/// Lets a model write at most `most` tokens; returns the text.
fn written(grammar: &Arc<Grammar>, vocabulary: &Arc<Vocabulary>, (choice, seed): (Choice, u64), most: usize) -> String {
    let mut draws = Draws::new(seed);
    let mut matcher = Matcher::new(Arc::clone(grammar), Arc::clone(vocabulary));
    let mut text = Vec::new();
    for left in (1..=most).rev() {
        let mask = matcher.mask(left);
        let any = match choice {
            Choice::Any => (0..30).map(|_| draws.below(5_001) as u32).find(|id| mask.allows(*id)),
            Choice::First => mask.ids().next(),
            Choice::Last => mask.ids().filter(|id| *id != STOP).last(),
        };
        let id = any.or_else(|| {
            let allowed: Vec<u32> = mask.ids().collect();
            (!allowed.is_empty()).then(|| allowed[draws.below(allowed.len())])
        });
        let id = id.unwrap_or_else(|| panic!("nothing may follow {:?}", String::from_utf8_lossy(&text)));
        assert!(matcher.advance(id), "{id} was allowed after {:?}", String::from_utf8_lossy(&text));
        if id == STOP {
            break;
        }
        text.extend_from_slice(vocabulary.bytes(id).unwrap());
        if matcher.is_ended() {
            break;
        }
    }
    String::from_utf8(text).unwrap()
}

fn assert_fits(schema: &Value, vocabulary: &Arc<Vocabulary>, way: (Choice, u64), most: usize) {
    let grammar = Arc::new(Grammar::json(&schema.to_string()).unwrap_or_else(|error| panic!("{schema}: {error}")));
    let text = written(&grammar, vocabulary, way, most);
    let value: Value =
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text:?} for {schema}, {way:?}"));
    assert!(fits(schema, schema, &value), "{text} does not fit {schema}, {way:?}");
}

#[test]
fn any_text_fits_its_schema() {
    let vocabulary = vocabulary();
    for seed in 0..SCHEMAS {
        let schema = schema(seed);
        for choice in [Choice::Any, Choice::First, Choice::Last] {
            assert_fits(&schema, &vocabulary, (choice, seed), MOST);
        }
    }
}

#[test]
fn texts_of_published_schemas_fit() {
    let vocabulary = vocabulary();
    for schema in published() {
        for seed in 0..20 {
            assert_fits(&schema, &vocabulary, (Choice::Any, seed), MOST);
        }
    }
}
