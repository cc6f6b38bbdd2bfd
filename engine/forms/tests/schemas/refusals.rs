//! Schemas that are refused, and large ones: the error names the place, and reading takes bounded time and memory.

use std::fmt::Write as _;
use std::sync::Arc;

use repartee_forms::{FormError, Grammar, MAX_SCHEMA, Matcher, Vocabulary};

use super::vocabulary;

fn refusal(schema: &str) -> String {
    Grammar::json(schema).map(|_| ()).unwrap_err().to_string()
}

#[test]
fn what_is_not_understood_is_refused_by_name() {
    for (schema, expected) in [
        (r#"{"type": "string", "pattern": "^a"}"#, "#: models that run here are not held to `pattern`"),
        (r#"{"properties": {"a": {"not": {}}}}"#, "#/properties/a: models that run here are not held to `not`"),
        (r#"{"items": {"uniqueItems": true}}"#, "#/items: models that run here are not held to `uniqueItems`"),
        (r#"{"type": "number", "multipleOf": 3}"#, "`multipleOf`"),
        (r#"{"allOf": [{}, {"type": "string"}]}"#, "`allOf`"),
        (r#"{"oneOf": [{"type": "number"}, {"type": "integer"}]}"#, "`oneOf`"),
        (r#"{"anyOf": [{}], "required": ["a"]}"#, "`required` beside `anyOf`"),
        (r#"{"enum": ["abc"], "minLength": 4}"#, "`minLength` beside `enum`"),
        (r#"{"type": "text"}"#, "#: `type` is a JSON type"),
        (r##"{"$ref": "#/$defs/none"}"##, "#: a `$ref` names a place of this schema"),
        (r#"{"$ref": "https://example.com/schema"}"#, "#: a `$ref` names a place of this schema"),
        (r#"{"type": "string", "minLength": -1}"#, "#: `minLength` is a whole number"),
        (r#"{"type": "string", "minLength": 3, "maxLength": 2}"#, "no value"),
        ("false", "no value of at most 64 levels fits"),
        (r##"{"$ref": "#"}"##, "no value"),
        (r##"{"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}"##, "no value"),
        (r#"{"enum": []}"#, "no value"),
        ("[1]", "#: a schema is an object or a boolean"),
        ("{", "the schema is not JSON"),
    ] {
        let refusal = refusal(schema);
        assert!(refusal.contains(expected), "{schema}: {refusal}");
    }
}

#[test]
fn large_schemas_are_refused() {
    let many = |count: usize, of: &dyn Fn(usize) -> String| (0..count).map(of).collect::<Vec<_>>().join(", ");
    let properties = many(129, &|at| format!("\"p{at}\": {{}}"));
    assert!(refusal(&format!("{{\"properties\": {{{properties}}}}}")).contains("over 128"));
    let nested = format!("{}true{}", "{\"items\": ".repeat(200), "}".repeat(200));
    assert!(refusal(&nested).contains("not JSON"), "{}", refusal(&nested));
    // Definitions that refer to each other, one after the other.
    let chain = many(2_000, &|at| format!("\"d{at}\": {{\"items\": {{\"$ref\": \"#/$defs/d{}\"}}}}", at + 1));
    let chain = format!("{{\"$ref\": \"#/$defs/d0\", \"$defs\": {{{chain}, \"d2000\": {{}}}}}}");
    assert!(refusal(&chain).contains("levels of a schema are over 256"), "{}", refusal(&chain));
    let long = format!("{{\"description\": \"{}\"}}", "a".repeat(MAX_SCHEMA));
    assert_eq!(Grammar::json(&long).map(|_| ()), Err(FormError::TooLarge { what: "bytes", limit: MAX_SCHEMA }));
    assert!(refusal(&format!("{{\"enum\": [{}]}}", many(6_000, &|at| at.to_string()))).contains("over 5000"));
    // Each alternative is the next list and a value: together they have many more than the schema has parts.
    let mut lists = String::new();
    for at in 0..1_000 {
        let _ = write!(lists, "\"d{at}\": {{\"anyOf\": [{{\"$ref\": \"#/$defs/d{}\"}}, true]}}, ", at + 1);
    }
    let lists = format!(
        "{{\"type\": \"array\", \"items\": {{\"$ref\": \"#/$defs/d900\"}}, \"$defs\": {{{lists}\"d1000\": true}}}}"
    );
    assert!(Grammar::json(&lists).is_ok());
}

/// Lets a model write the first token that may follow, or the last.
fn write(grammar: Grammar, vocabulary: &Arc<Vocabulary>, first: bool, most: usize) -> Vec<u8> {
    let mut matcher = Matcher::new(Arc::new(grammar), Arc::clone(vocabulary));
    let mut text = Vec::new();
    for left in (1..=most).rev() {
        if matcher.is_ended() {
            break;
        }
        let mask = matcher.mask(left);
        let id = if first { mask.ids().next() } else { mask.ids().last() }.unwrap();
        assert!(matcher.advance(id));
        text.extend_from_slice(vocabulary.bytes(id).unwrap_or_default());
    }
    text
}

#[test]
fn recursion_ends_at_a_level() {
    let vocabulary = vocabulary();
    let tree = r##"{"type": "array", "items": {"anyOf": [{"$ref": "#"}, {"const": 1}]}}"##;
    for first in [true, false] {
        let text = write(Grammar::json(tree).unwrap(), &vocabulary, first, 2_000);
        serde_json::from_slice::<serde_json::Value>(&text).unwrap();
    }
    // Whoever always opens an array comes to the last level.
    let mut matcher = Matcher::new(Arc::new(Grammar::json(tree).unwrap()), Arc::clone(&vocabulary));
    let open = u32::from(b'[');
    assert_eq!((0..1_000).take_while(|_| matcher.advance(open)).count(), 64);
}

#[test]
fn a_small_limit_leaves_the_shortest_text() {
    let vocabulary = vocabulary();
    let schema = r#"{"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "array", "minItems": 2,
        "items": {"type": "integer", "minimum": 100}}}, "required": ["a", "b"]}"#;
    let shortest = r#"{"a":"","b":[100,100]}"#.len();
    for most in [shortest, shortest + 1, shortest + 7] {
        for first in [true, false] {
            let text = write(Grammar::json(schema).unwrap(), &vocabulary, first, most);
            assert!(serde_json::from_slice::<serde_json::Value>(&text).is_ok(), "{}", String::from_utf8_lossy(&text));
        }
    }
    let text = write(Grammar::json(schema).unwrap(), &vocabulary, true, shortest - 1);
    assert!(serde_json::from_slice::<serde_json::Value>(&text).is_err(), "what does not fit is cut");
}

#[test]
fn a_vocabulary_has_the_letters_of_a_form() {
    let without = |byte: u8| {
        let tokens = (0..=255_u8).filter(|other| *other != byte).map(|byte| (u32::from(byte), vec![byte]));
        Vocabulary::new(tokens, 256, Vec::new())
    };
    assert_eq!(without(b'{').map(|_| ()), Err(FormError::Unspellable { byte: b'{' }));
    let vocabulary = without(0xC3).unwrap();
    assert_eq!(vocabulary.check(&Grammar::json("{}").unwrap()), Ok(()));
    let named = Grammar::json(r#"{"enum": ["é"]}"#).unwrap();
    assert_eq!(vocabulary.check(&named), Err(FormError::Unspellable { byte: 0xC3 }));
}
