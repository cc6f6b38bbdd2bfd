//! Keywords of JSON schemas: those that are understood, and their values.

use serde_json::{Map, Value};

use super::error::FormError;

/// Most letters of a place in an error.
const MAX_PLACE: usize = 200;
/// Keywords without effect on the values.
pub const ANNOTATIONS: [&str; 17] = [
    "$schema",
    "$id",
    "$defs",
    "definitions",
    "$comment",
    "title",
    "description",
    "default",
    "examples",
    "example",
    "format",
    "deprecated",
    "readOnly",
    "writeOnly",
    "nullable",
    "discriminator",
    "strict",
];
/// Keywords that choose among schemas; nothing that restricts values may stand beside them.
pub const CHOICES: [&str; 4] = ["$ref", "anyOf", "oneOf", "allOf"];
/// Types, and the keywords of each.
pub const TYPES: [(&str, &[&str]); 7] = [
    ("object", &["properties", "required", "additionalProperties"]),
    ("array", &["items", "minItems", "maxItems"]),
    ("string", &["minLength", "maxLength"]),
    ("number", &["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"]),
    ("integer", &["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"]),
    ("boolean", &[]),
    ("null", &[]),
];

fn place(at: &str) -> String {
    at.chars().take(MAX_PLACE).collect()
}

/// Error of a keyword's value.
pub fn wrong<T>(at: &str, message: impl Into<String>) -> Result<T, FormError> {
    Err(FormError::Wrong { at: place(at), message: message.into() })
}

/// Error of a keyword that is not understood.
pub fn unsupported<T>(at: &str, keyword: impl Into<String>) -> Result<T, FormError> {
    Err(FormError::Unsupported { at: place(at), keyword: keyword.into() })
}

/// Refuses keywords that restrict values and are not understood.
pub fn check_keywords(fields: &Map<String, Value>, at: &str) -> Result<(), FormError> {
    for (keyword, of) in fields {
        let known = [&ANNOTATIONS[..], &CHOICES, &["type", "enum", "const"]]
            .iter()
            .any(|list| list.contains(&keyword.as_str()))
            || TYPES.iter().any(|(_, of)| of.contains(&keyword.as_str()));
        // Without effect in this form.
        let idle = match keyword.as_str() {
            "uniqueItems" => *of == Value::Bool(false),
            "minProperties" => of.as_u64() == Some(0),
            "multipleOf" => of.as_f64() == Some(1.0) && fields.get("type").is_some_and(|of| of == "integer"),
            keyword => keyword.starts_with("x-"),
        };
        if !known && !idle {
            return unsupported(at, keyword.chars().take(64).collect::<String>());
        }
    }
    Ok(())
}

/// Types of a schema's values. Without `type`, those of its first other keyword, which restricts no others; none for any.
pub fn types(fields: &Map<String, Value>, at: &str) -> Result<Vec<&'static str>, FormError> {
    let known = |name: &Value| TYPES.iter().map(|(known, _)| *known).find(|known| name == known);
    let found = match fields.get("type") {
        None => {
            let has = |(_, of): &&(&str, &[&str])| of.iter().any(|keyword| fields.contains_key(*keyword));
            return Ok(TYPES.iter().find(has).map(|(name, _)| *name).into_iter().collect());
        }
        Some(Value::Array(names)) if !names.is_empty() => names.iter().map(known).collect(),
        Some(name) => known(name).map(|name| vec![name]),
    };
    let Some(mut found) = found else { return wrong(at, "`type` is a JSON type, or a list of some") };
    if found.contains(&"number") {
        found.retain(|name| *name != "integer");
    }
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

/// True if a value is of a type.
pub fn is_of(of: &str, value: &Value) -> bool {
    match of {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "array" => value.is_array(),
        _ => value.is_object(),
    }
}

/// Value of a keyword that counts.
pub fn count(fields: &Map<String, Value>, keyword: &str, at: &str) -> Result<Option<u32>, FormError> {
    let Some(value) = fields.get(keyword) else { return Ok(None) };
    let count = value.as_u64().and_then(|count| u32::try_from(count).ok()).filter(|count| *count < u32::MAX);
    count.map_or_else(|| wrong(at, format!("`{keyword}` is a whole number from 0 on")), |count| Ok(Some(count)))
}

/// The schema that a reference names.
pub fn referred<'a>(root: &'a Value, to: &str) -> Option<&'a Value> {
    root.pointer(to.strip_prefix('#')?)
}

/// True if no value fits two of the schemas: they are of different types, or objects that have to tell themselves apart by
/// the constants of a property.
pub fn are_apart(root: &Value, list: &[Value]) -> bool {
    let followed = |schema: &Value| {
        let to = schema.get("$ref").and_then(Value::as_str);
        to.and_then(|to| referred(root, to)).cloned().unwrap_or_else(|| schema.clone())
    };
    let list: Vec<Value> = list.iter().map(followed).collect();
    let name = |schema: &Value| schema.get("type").and_then(Value::as_str).map(str::to_owned);
    let constants = |schema: &Value, property: &str| -> Option<Vec<Value>> {
        let is_required = schema.get("required")?.as_array()?.iter().any(|name| name == property);
        let of = schema.get("properties")?.get(property)?;
        let one = of.get("const").map(|value| vec![value.clone()]);
        one.or_else(|| of.get("enum")?.as_array().cloned()).filter(|_| is_required)
    };
    let apart = |one: &Value, other: &Value| {
        let numbers = [Some("number"), Some("integer")];
        match (name(one), name(other)) {
            (Some(a), Some(b)) if a != b => !(numbers.contains(&Some(&a)) && numbers.contains(&Some(&b))),
            (Some(a), Some(b)) if a == "object" && b == "object" => {
                let properties = one.get("properties").and_then(Value::as_object);
                properties.is_some_and(|properties| {
                    properties.keys().any(|property| match (constants(one, property), constants(other, property)) {
                        (Some(a), Some(b)) => !a.iter().any(|value| b.contains(value)),
                        _ => false,
                    })
                })
            }
            _ => false,
        }
    };
    list.iter().enumerate().all(|(at, one)| list[at + 1..].iter().all(|other| apart(one, other)))
}
