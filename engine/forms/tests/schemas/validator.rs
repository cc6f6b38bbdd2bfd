//! JSON schemas as their specification words them, for values that exist: a check of its own, which knows no automaton.

use serde_json::Value;

/// True if a value fits a schema of the document `root`.
pub fn fits(root: &Value, schema: &Value, value: &Value) -> bool {
    let fields = match schema {
        Value::Bool(all) => return *all,
        Value::Object(fields) => fields,
        _ => panic!("a schema is an object or a boolean"),
    };
    fields.iter().all(|(keyword, of)| keyword_fits(root, (schema, keyword, of), value))
}

fn keyword_fits(root: &Value, (schema, keyword, of): (&Value, &str, &Value), value: &Value) -> bool {
    let list = || of.as_array().unwrap();
    let number = || of.as_f64().unwrap();
    let is_long = |long: fn(usize, usize) -> bool, length: Option<usize>| {
        length.is_none_or(|length| long(length, usize::try_from(of.as_u64().unwrap()).unwrap()))
    };
    let letters = value.as_str().map(|text| text.chars().count());
    let entries = value.as_array().map(Vec::len);
    match keyword {
        "$ref" => fits(root, root.pointer(of.as_str().unwrap().strip_prefix('#').unwrap()).unwrap(), value),
        "type" => match of {
            Value::Array(kinds) => kinds.iter().any(|kind| is_of(kind.as_str().unwrap(), value)),
            kind => is_of(kind.as_str().unwrap(), value),
        },
        "enum" => list().contains(value),
        "const" => of == value,
        "anyOf" => list().iter().any(|other| fits(root, other, value)),
        "oneOf" => list().iter().filter(|other| fits(root, other, value)).count() == 1,
        "allOf" => list().iter().all(|other| fits(root, other, value)),
        "minimum" => value.as_f64().is_none_or(|value| value >= number()),
        "maximum" => value.as_f64().is_none_or(|value| value <= number()),
        "exclusiveMinimum" => value.as_f64().is_none_or(|value| value > number()),
        "exclusiveMaximum" => value.as_f64().is_none_or(|value| value < number()),
        "minLength" => is_long(|length, of| length >= of, letters),
        "maxLength" => is_long(|length, of| length <= of, letters),
        "minItems" => is_long(|length, of| length >= of, entries),
        "maxItems" => is_long(|length, of| length <= of, entries),
        "items" => value.as_array().is_none_or(|entries| entries.iter().all(|entry| fits(root, of, entry))),
        "required" => {
            value.as_object().is_none_or(|fields| list().iter().all(|name| fields.contains_key(name.as_str().unwrap())))
        }
        "properties" => value.as_object().is_none_or(|fields| {
            let mut known = fields.iter().filter_map(|(name, value)| Some((of.get(name)?, value)));
            known.all(|(schema, value)| fits(root, schema, value))
        }),
        "additionalProperties" => value.as_object().is_none_or(|fields| {
            let properties = schema.get("properties");
            let known = |name: &str| properties.is_some_and(|properties| properties.get(name).is_some());
            fields.iter().all(|(name, value)| known(name) || fits(root, of, value))
        }),
        "title" | "description" | "default" | "$defs" | "definitions" | "format" | "examples" => true,
        other => panic!("the check knows no `{other}`"),
    }
}

fn is_of(kind: &str, value: &Value) -> bool {
    match kind {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "string" => value.is_string(),
        "number" => value.is_number(),
        "integer" => value.as_f64().is_some_and(|value| value.fract() == 0.0),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => panic!("there is no type `{kind}`"),
    }
}

#[test]
fn the_check_tells_values_apart() {
    let schema = serde_json::json!({
        "type": "object", "required": ["a"], "additionalProperties": false,
        "properties": {"a": {"type": ["integer", "null"], "minimum": 2}, "b": {"$ref": "#/$defs/b"}},
        "$defs": {"b": {"type": "array", "items": {"enum": ["x", 1]}, "minItems": 1, "maxItems": 2}},
    });
    for (value, expected) in [
        (r#"{"a": 2}"#, true),
        (r#"{"a": null, "b": ["x", 1]}"#, true),
        (r#"{"a": 1}"#, false),
        (r#"{"b": ["x"]}"#, false),
        (r#"{"a": 3, "b": []}"#, false),
        (r#"{"a": 3, "b": ["y"]}"#, false),
        (r#"{"a": 3, "c": 1}"#, false),
        (r#"[1]"#, false),
    ] {
        assert_eq!(fits(&schema, &schema, &serde_json::from_str(value).unwrap()), expected, "{value}");
    }
}
