//! JSON as Python's `json.dumps` writes it: the filter `tojson` of chat templates.

use std::fmt::Write;

use minijinja::value::{Kwargs, Rest, ValueKind};
use minijinja::{Error, ErrorKind, State, Value};

/// Upper bound of nested values.
const MAX_DEPTH: usize = 128;
/// Bytes of output for one unit of fuel.
const BYTES_A_FUEL: usize = 8;

/// Settings of `json.dumps`.
struct JsonStyle {
    ensure_ascii: bool,
    indent: Option<usize>,
    item_separator: String,
    key_separator: String,
    sort_keys: bool,
}

/// Filter `tojson(ensure_ascii=false, indent=none, separators=none, sort_keys=false)`.
pub fn to_json(state: &State, value: &Value, options: Rest<Value>, named: Kwargs) -> Result<String, Error> {
    let mut options = options.0.into_iter();
    let mut option = |name: &str| -> Result<Option<Value>, Error> {
        let given = match options.next() {
            Some(value) => Some(value),
            None => named.get::<Option<Value>>(name)?,
        };
        Ok(given.filter(|value| !value.is_none() && !value.is_undefined()))
    };
    let ensure_ascii = option("ensure_ascii")?.is_some_and(|value| value.is_true());
    let indent = option("indent")?.map(usize::try_from).transpose()?.map(|indent| indent.min(64));
    let separators = option("separators")?;
    let sort_keys = option("sort_keys")?.is_some_and(|value| value.is_true());
    named.assert_all_used()?;
    let (item_separator, key_separator) = match separators {
        Some(pair) => {
            let part = |index: usize| pair.get_item_by_index(index).map(|part| part.to_string());
            (part(0)?, part(1)?)
        }
        None if indent.is_some() => (",".to_owned(), ": ".to_owned()),
        None => (", ".to_owned(), ": ".to_owned()),
    };
    let style = JsonStyle { ensure_ascii, indent, item_separator, key_separator, sort_keys };
    let mut writer = JsonWriter { state, style, text: String::new(), paid: 0 };
    writer.value(value, 0)?;
    Ok(writer.text)
}

struct JsonWriter<'a, 'b, 'c> {
    state: &'a State<'b, 'c>,
    style: JsonStyle,
    text: String,
    /// Bytes of `text` that fuel was taken for.
    paid: usize,
}

impl JsonWriter<'_, '_, '_> {
    fn value(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        if depth > MAX_DEPTH {
            return Err(Error::new(ErrorKind::BadSerialization, format!("over {MAX_DEPTH} values are nested")));
        }
        let new = self.text.len() - self.paid;
        self.state.consume_fuel(1 + (new / BYTES_A_FUEL) as u64)?;
        self.paid = self.text.len();
        match value.kind() {
            ValueKind::None => self.text.push_str("null"),
            ValueKind::Bool => self.text.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => self.text.push_str(&number(value)),
            ValueKind::String => quoted(&mut self.text, value.as_str().unwrap_or_default(), self.style.ensure_ascii),
            ValueKind::Seq | ValueKind::Iterable => {
                let items: Vec<Value> = value.try_iter()?.collect();
                self.container('[', ']', items, depth, |writer, item, depth| writer.value(&item, depth))?;
            }
            ValueKind::Map => {
                let mut keys: Vec<Value> = value.try_iter()?.collect();
                if self.style.sort_keys {
                    keys.sort();
                }
                self.container('{', '}', keys, depth, |writer, key, depth| {
                    let name = match key.kind() {
                        ValueKind::String => key.to_string(),
                        ValueKind::None => "null".to_owned(),
                        ValueKind::Bool => (if key.is_true() { "true" } else { "false" }).to_owned(),
                        ValueKind::Number => number(&key),
                        kind => return Err(Error::new(ErrorKind::BadSerialization, format!("a key is a {kind}"))),
                    };
                    quoted(&mut writer.text, &name, writer.style.ensure_ascii);
                    let separator = writer.style.key_separator.clone();
                    writer.text.push_str(&separator);
                    writer.value(&value.get_item(&key)?, depth)
                })?;
            }
            kind => return Err(Error::new(ErrorKind::BadSerialization, format!("{kind} has no JSON"))),
        }
        Ok(())
    }

    fn container(
        &mut self,
        open: char,
        close: char,
        items: Vec<Value>,
        depth: usize,
        write: impl Fn(&mut Self, Value, usize) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.text.push(open);
        let empty = items.is_empty();
        for (index, item) in items.into_iter().enumerate() {
            if index > 0 {
                let separator = self.style.item_separator.clone();
                self.text.push_str(&separator);
            }
            self.line(depth + 1);
            write(self, item, depth + 1)?;
        }
        if !empty {
            self.line(depth);
        }
        self.text.push(close);
        Ok(())
    }

    /// Begins a line at a depth, if the output has lines.
    fn line(&mut self, depth: usize) {
        if let Some(indent) = self.style.indent {
            self.text.push('\n');
            self.text.extend(std::iter::repeat_n(' ', indent * depth));
        }
    }
}

/// Writes a string in quotes.
fn quoted(out: &mut String, text: &str, ensure_ascii: bool) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            c if u32::from(c) < 0x20 || (ensure_ascii && !(' '..='~').contains(&c)) => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    // Writing to a string cannot fail.
                    let _ = write!(out, "\\u{unit:04x}");
                }
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

/// Number as Python writes it.
pub fn number(value: &Value) -> String {
    if value.is_integer() {
        return value.to_string();
    }
    match f64::try_from(value.clone()) {
        Ok(number) => float(number),
        Err(_) => value.to_string(),
    }
}

/// Shortest digits of a float, with an exponent below 1e-4 and from 1e16 on.
fn float(number: f64) -> String {
    if number.is_nan() {
        return "NaN".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    let shortest = format!("{number:e}");
    let (digits, exponent) = shortest.split_once('e').unwrap_or((&shortest, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if !(-4..16).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{digits}e{sign}{:02}", exponent.abs());
    }
    let plain = number.to_string();
    if plain.contains('.') { plain } else { plain + ".0" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_equal_pythons() {
        let shown = [1.0, 0.1, -2.5e-7, 1e16, 123_456_789.125, 1e15, 0.0001, -0.0, 1.5e300].map(float);
        let expected =
            ["1.0", "0.1", "-2.5e-07", "1e+16", "123456789.125", "1000000000000000.0", "0.0001", "-0.0", "1.5e+300"];
        assert_eq!(shown, expected);
    }
}
