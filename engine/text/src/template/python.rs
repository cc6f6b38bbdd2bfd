//! Functions, filters and methods that published templates expect of Python, where the template engine's own differ.

use std::fmt;

use minijinja::value::{Tuple, ValueKind};
use minijinja::{Environment, Error, ErrorKind, State, Value, escape_formatter};
use minijinja_contrib::pycompat;

use super::time::CivilTime;
use super::{json, repr};

/// Message of `raise_exception`, as the source of the engine's error.
#[derive(Debug)]
pub struct Raised(pub String);

impl fmt::Display for Raised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Raised {}

/// Name of the variable with the time of rendering. A template cannot name it.
pub const NOW: &str = "time of rendering";

/// Adds everything to an environment.
pub fn install(environment: &mut Environment<'_>) {
    environment.add_function("raise_exception", |message: Value| -> Result<String, Error> {
        let message = message.to_string();
        Err(Error::new(ErrorKind::InvalidOperation, message.clone()).with_source(Raised(message)))
    });
    environment.add_function("strftime_now", |state: &State, format: &str| -> Result<String, Error> {
        let now = state.lookup(NOW).and_then(|now| i64::try_from(now).ok()).unwrap_or_default();
        Ok(CivilTime::from_seconds(now).format(format))
    });
    environment.add_filter("tojson", json::to_json);
    environment.add_filter("trim", |value: &Value, characters: Option<&str>| {
        repr::text(value).map(|text| strip(&text, characters, true, true))
    });
    environment.add_filter("string", |value: &Value| repr::text(value));
    environment.set_formatter(|out, state, value| {
        if matches!(value.kind(), ValueKind::Seq | ValueKind::Map | ValueKind::Number) {
            let text = repr::text(value)?;
            return escape_formatter(out, state, &Value::from_safe_string(text));
        }
        escape_formatter(out, state, value)
    });
    // Undefined has no items, none is no list.
    let length = |value: &Value| {
        let length = if value.is_undefined() { Some(0) } else { value.len() };
        let missing = || Error::new(ErrorKind::InvalidOperation, format!("{} has no length", value.kind()));
        length.ok_or_else(missing)
    };
    environment.add_filter("length", length);
    environment.add_filter("count", length);
    environment.add_test("iterable", |value: &Value| {
        value.is_undefined()
            || matches!(value.kind(), ValueKind::String | ValueKind::Seq | ValueKind::Map | ValueKind::Iterable)
    });
    environment.add_test("sequence", |value: &Value| {
        matches!(value.kind(), ValueKind::String | ValueKind::Seq | ValueKind::Map)
    });
    environment.set_unknown_method_callback(method);
}

/// True for white space as Python's `str.isspace` has it.
pub fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

/// Removes characters from the ends: white space if none are named.
fn strip(text: &str, characters: Option<&str>, start: bool, end: bool) -> String {
    let removed = |c: char| characters.map_or_else(|| is_space(c), |characters| characters.contains(c));
    let text = if start { text.trim_start_matches(removed) } else { text };
    let text = if end { text.trim_end_matches(removed) } else { text };
    text.to_owned()
}

/// Methods of Python's values: those that differ here, the engine's for the rest.
fn method(state: &mut State, value: &Value, name: &str, arguments: &[Value]) -> Result<Value, Error> {
    let Some(text) = value.as_str() else { return pycompat::unknown_method_callback(state, value, name, arguments) };
    let characters = || arguments.first().filter(|value| !value.is_none()).and_then(|value| value.as_str());
    let argument = || {
        let argument = arguments.first().and_then(|value| value.as_str());
        argument.ok_or_else(|| Error::new(ErrorKind::MissingArgument, format!("`{name}` takes a string")))
    };
    Ok(match name {
        "strip" => Value::from(strip(text, characters(), true, true)),
        "lstrip" => Value::from(strip(text, characters(), true, false)),
        "rstrip" => Value::from(strip(text, characters(), false, true)),
        "removeprefix" => Value::from(text.strip_prefix(argument()?).unwrap_or(text)),
        "removesuffix" => Value::from(text.strip_suffix(argument()?).unwrap_or(text)),
        "partition" => parts(text, argument()?, text.split_once(argument()?), false),
        "rpartition" => parts(text, argument()?, text.rsplit_once(argument()?), true),
        "rsplit" => rsplit(text, arguments)?,
        _ => return pycompat::unknown_method_callback(state, value, name, arguments),
    })
}

/// The three parts of `partition` and `rpartition`.
fn parts(text: &str, separator: &str, split: Option<(&str, &str)>, from_end: bool) -> Value {
    let parts = match split {
        Some((before, after)) => [before, separator, after],
        None if from_end => ["", "", text],
        None => [text, "", ""],
    };
    Value::from(Tuple::from(parts.map(Value::from)))
}

fn rsplit(text: &str, arguments: &[Value]) -> Result<Value, Error> {
    let separator = arguments.first().and_then(|value| value.as_str());
    let most = arguments.get(1).map(|value| i64::try_from(value.clone())).transpose()?.filter(|most| *most >= 0);
    let mut parts: Vec<&str> = match (separator, most) {
        (Some(separator), Some(most)) => text.rsplitn(most as usize + 1, separator).collect(),
        (Some(separator), None) => text.rsplit(separator).collect(),
        (None, None) => text.split(is_space).filter(|part| !part.is_empty()).rev().collect(),
        (None, Some(_)) => {
            return Err(Error::new(ErrorKind::InvalidOperation, "`rsplit` takes a separator with its number"));
        }
    };
    parts.reverse();
    Ok(parts.into_iter().collect())
}
