//! Merges updates into nested configuration: an absent field keeps the old value, `null` resets it to its default, an
//! object is merged field by field, any other value replaces the old one.

use serde_json::Value;

use super::error::abbreviate;

/// Merges `patch` into `target`. An object whose `type` changes is replaced entirely: its other fields belonged to the
/// old type.
pub fn merge(target: &mut Value, patch: &Value) {
    let (Value::Object(old), Value::Object(new)) = (&mut *target, patch) else {
        *target = patch.clone();
        return;
    };
    if let (Some(was), Some(now)) = (old.get("type"), new.get("type"))
        && was != now
    {
        *target = patch.clone();
        return;
    }
    for (key, value) in new {
        match old.get_mut(key) {
            Some(slot) => merge(slot, value),
            None => {
                old.insert(key.clone(), value.clone());
            }
        }
    }
}

/// Removes all `null` fields, so that deserialization fills in their defaults.
pub fn strip_nulls(value: &mut Value) {
    if let Value::Object(fields) = value {
        fields.retain(|_, field| !field.is_null());
        fields.values_mut().for_each(strip_nulls);
    }
}

/// Compares `patch` with the `effective` configuration; returns one human-readable warning for each field that differs.
/// `root` is the prefix of the field paths. Long values are left out.
pub fn differences(patch: &Value, effective: &Value, root: &str) -> Vec<String> {
    let mut warnings = Vec::new();
    compare(patch, Some(effective), root, &mut warnings);
    warnings
}

/// Maximum length of a field name in a warning, in bytes. No known field is longer.
const MAX_KEY: usize = 64;
/// Maximum number of warnings for one update.
const MAX_WARNINGS: usize = 32;

fn compare(patch: &Value, effective: Option<&Value>, path: &str, warnings: &mut Vec<String>) {
    if warnings.len() >= MAX_WARNINGS || patch.is_null() || Some(patch) == effective {
        return;
    }
    match (patch, effective) {
        (Value::Object(fields), Some(Value::Object(served))) => {
            for (key, value) in fields {
                let key = abbreviate(key.clone(), MAX_KEY);
                compare(value, served.get(&key), &format!("{path}.{key}"), warnings);
            }
        }
        (_, None) => warnings.push(format!("{path} is not known here and was ignored")),
        (_, Some(Value::Null)) => warnings.push(format!("{path} is not offered by this model and was ignored")),
        (Value::Number(asked), Some(Value::Number(served))) if asked.as_f64() == served.as_f64() => {}
        (asked, Some(served)) => warnings.push(match (short(asked), short(served)) {
            (Some(asked), Some(served)) => format!("{path}: `{asked}` is served as `{served}`"),
            _ => format!("{path} is served differently"),
        }),
    }
}

fn short(value: &Value) -> Option<String> {
    match value {
        Value::String(text) if text.len() <= 40 => Some(text.clone()),
        Value::Number(_) | Value::Bool(_) => Some(value.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn absent_keeps_and_null_clears() {
        let mut config = json!({"a": {"b": 1, "c": 2}, "d": 3});
        merge(&mut config, &json!({"a": {"b": null}}));
        assert_eq!(config, json!({"a": {"b": null, "c": 2}, "d": 3}));
        strip_nulls(&mut config);
        assert_eq!(config, json!({"a": {"c": 2}, "d": 3}));
    }

    #[test]
    fn another_type_replaces_the_object() {
        let mut config = json!({"turn": {"type": "server_vad", "threshold": 0.9, "create_response": false}});
        merge(&mut config, &json!({"turn": {"type": "semantic_vad", "eagerness": "high"}}));
        assert_eq!(config, json!({"turn": {"type": "semantic_vad", "eagerness": "high"}}));
    }

    #[test]
    fn each_difference_is_one_warning() {
        let patch = json!({"model": "gpt-realtime", "x": {"new": 1}, "speed": 1, "noise": {"type": "near_field"}});
        let effective = json!({"model": "demo", "x": {}, "speed": 1.0, "noise": null});
        assert_eq!(
            differences(&patch, &effective, "session"),
            [
                "session.model: `gpt-realtime` is served as `demo`",
                "session.noise is not offered by this model and was ignored",
                "session.x.new is not known here and was ignored",
            ]
        );
    }
}
