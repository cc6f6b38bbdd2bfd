//! Values as Python's `repr` writes them: templates print lists and objects that way.

use std::fmt::Write;

use minijinja::value::{Tuple, ValueKind};
use minijinja::{Error, ErrorKind, Value};

use super::{json, reserved};

/// Upper bound of nested values.
const MAX_DEPTH: usize = 128;

/// Text of a value, as Python's `str` has it.
pub fn text(value: &Value) -> Result<String, Error> {
    match value.kind() {
        ValueKind::Seq | ValueKind::Map | ValueKind::Number => {
            let mut out = String::new();
            write(value, 0, &mut out)?;
            Ok(out)
        }
        _ => Ok(value.to_string()),
    }
}

fn write(value: &Value, depth: usize, out: &mut String) -> Result<(), Error> {
    if depth > MAX_DEPTH {
        return Err(Error::new(ErrorKind::BadSerialization, format!("over {MAX_DEPTH} values are nested")));
    }
    let items = |open: &str, close: &str, out: &mut String| -> Result<usize, Error> {
        out.push_str(open);
        let mut count = 0;
        for item in value.try_iter()? {
            if count > 0 {
                out.push_str(", ");
            }
            write(&item, depth + 1, out)?;
            if value.kind() == ValueKind::Map {
                out.push_str(": ");
                write(&value.get_item(&item)?, depth + 1, out)?;
            }
            count += 1;
        }
        out.push_str(close);
        Ok(count)
    };
    match value.kind() {
        ValueKind::Map => items("{", "}", out).map(|_| ()),
        ValueKind::Seq if value.downcast_object_ref::<Tuple>().is_some() => {
            if items("(", ")", out)? == 1 {
                out.insert(out.len() - 1, ',');
            }
            Ok(())
        }
        ValueKind::Seq => items("[", "]", out).map(|_| ()),
        ValueKind::String => {
            quoted(value.as_str().unwrap_or_default(), out);
            Ok(())
        }
        ValueKind::Number => {
            out.push_str(&json::number(value));
            Ok(())
        }
        ValueKind::Undefined => {
            out.push_str("Undefined");
            Ok(())
        }
        _ => {
            out.push_str(&value.to_string());
            Ok(())
        }
    }
}

/// Writes a string in quotes; characters without a form are escaped.
fn quoted(text: &str, out: &mut String) {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for c in text.chars() {
        let code = u32::from(c);
        // Writing to a string cannot fail.
        let _ = match c {
            '\\' => out.write_str("\\\\"),
            '\n' => out.write_str("\\n"),
            '\r' => out.write_str("\\r"),
            '\t' => out.write_str("\\t"),
            c if c == quote => write!(out, "\\{c}"),
            c if is_printable(c) => out.write_char(c),
            _ if code < 0x100 => write!(out, "\\x{code:02x}"),
            _ if code < 0x1_0000 => write!(out, "\\u{code:04x}"),
            _ => write!(out, "\\U{code:08x}"),
        };
    }
    out.push(quote);
}

/// True for a character with a form. A combining character counts as one, which the library has so behind another
/// alone.
fn is_printable(c: char) -> bool {
    let mut pair = [0; 5];
    pair[0] = b'a';
    let length = 1 + c.encode_utf8(&mut pair[1..]).len();
    let escaped = std::str::from_utf8(&pair[..length]).unwrap_or("a").escape_debug().count() > 2;
    !escaped || reserved::is_reserved(c) || c == '\'' || c == '"'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_equal_pythons() {
        let shown = |text: &str| {
            let mut out = String::new();
            quoted(text, &mut out);
            out
        };
        assert_eq!(shown("it's"), "\"it's\"");
        assert_eq!(shown("it's \"x\""), "'it\\'s \"x\"'");
        assert_eq!(
            shown("\\ \n \u{7} \u{a0} \u{ad} é e\u{301} \u{200d} \u{2028} \u{3000} 👩"),
            "'\\\\ \\n \\x07 \\xa0 \\xad é e\u{301} \\u200d \\u2028 \\u3000 👩'"
        );
        assert_eq!(shown("\u{E0001}"), "'\\U000e0001'");
    }
}
