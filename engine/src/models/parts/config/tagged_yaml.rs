//! The part of YAML that hyperpyyaml files of published folders use, as JSON: indented mappings, lists in brackets, plain
//! values. Tags that construct objects are left out and nothing runs; `!ref <a> * <b>` takes values from the top level.
//! Anything else is an error that names the line.

use serde_json::{Map, Number, Value};

use super::section::ConfigFile;
use crate::checkpoint::{Checkpoint, CheckpointError};

/// Most bytes of a file; the published ones have 8 KB.
const MOST_BYTES: usize = 1 << 20;
/// Most levels of a mapping or list.
const MOST_DEPTH: usize = 16;

/// Error of a line, counted from 1.
#[derive(Debug, PartialEq, Eq)]
struct WrongLine(usize, &'static str);

/// A line with something on it, with those after it that end its list.
struct Line {
    number: usize,
    indent: usize,
    text: String,
}

/// Reads a file of a checkpoint.
///
/// # Errors
/// The file is missing, or has something else in a line.
pub fn read(checkpoint: &Checkpoint, file: &str) -> Result<ConfigFile, CheckpointError> {
    let bytes = checkpoint.bytes(file)?;
    let label = checkpoint.label(file);
    let wrong = |WrongLine(line, message)| CheckpointError::WrongField {
        file: label.clone(),
        field: format!("line {line}"),
        message: message.to_owned(),
    };
    let text = std::str::from_utf8(&bytes).map_err(|_| wrong(WrongLine(1, "is no UTF-8")))?;
    Ok(ConfigFile::new(label.clone(), parse(text).map_err(wrong)?))
}

fn parse(text: &str) -> Result<Value, WrongLine> {
    if text.len() > MOST_BYTES {
        return Err(WrongLine(1, "begins a file of more than 1 MiB"));
    }
    let mut lines: Vec<Line> = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let line = without_comment(line);
        let trimmed = line.trim_start_matches(' ');
        if trimmed.trim_end().is_empty() || trimmed.trim_end() == "---" {
            continue;
        }
        match lines.last_mut().filter(|before| is_open(&before.text)) {
            Some(before) => before.text.push_str(trimmed.trim_end()),
            None => lines.push(Line {
                number: at + 1,
                indent: line.len() - trimmed.len(),
                text: trimmed.trim_end().to_owned(),
            }),
        }
    }
    let mut top = Map::new();
    let rest = mapping(&lines, 0, &mut top, None, 0)?;
    match rest.first() {
        Some(line) => Err(WrongLine(line.number, "is indented further than the line before")),
        None => Ok(Value::Object(top)),
    }
}

/// True if a list goes on in the next line.
fn is_open(text: &str) -> bool {
    text.matches('[').count() > text.matches(']').count()
}

/// Line up to a comment: a `#` after a space or at the start, outside of quotes.
fn without_comment(line: &str) -> &str {
    let (mut quote, mut before) = (None, ' ');
    for (at, c) in line.char_indices() {
        match quote {
            Some(open) if c == open => quote = None,
            Some(_) => {}
            None if c == '\'' || c == '"' => quote = Some(c),
            None if c == '#' && before.is_whitespace() => return &line[..at],
            None => {}
        }
        before = c;
    }
    line
}

/// Reads the lines of a mapping at this indentation; returns those after it. `top` has the values that are known at the
/// top level; `None` if this is the top level.
fn mapping<'l>(
    mut lines: &'l [Line],
    indent: usize,
    fields: &mut Map<String, Value>,
    top: Option<&Map<String, Value>>,
    depth: usize,
) -> Result<&'l [Line], WrongLine> {
    while let Some((line, after)) = lines.split_first() {
        if line.indent < indent {
            break;
        }
        let wrong = |message| WrongLine(line.number, message);
        if line.indent > indent {
            return Err(wrong("is indented further than the line before"));
        }
        let (key, value) = line.text.split_once(':').ok_or_else(|| wrong("has no `key: value`"))?;
        if !value.is_empty() && !value.starts_with(' ') {
            return Err(wrong("has no `key: value`"));
        }
        let value = without_tag(value.trim()).map_err(wrong)?;
        let known = top.unwrap_or(&*fields);
        let nested = after.first().filter(|next| next.indent > indent);
        let value = match (nested, value) {
            (Some(next), "") if depth < MOST_DEPTH => {
                let mut inner = Map::new();
                let known = known.clone();
                lines = mapping(after, next.indent, &mut inner, Some(&known), depth + 1)?;
                Value::Object(inner)
            }
            (Some(next), _) => return Err(WrongLine(next.number, "stands below a value, or too deep")),
            (None, value) => {
                lines = after;
                plain(value, known, depth).map_err(wrong)?
            }
        };
        if fields.insert(key.trim().to_owned(), value).is_some() {
            return Err(wrong("has a key twice"));
        }
    }
    Ok(lines)
}

/// Value without a tag that constructs an object. The tag of a reference stays.
fn without_tag(value: &str) -> Result<&str, &'static str> {
    if !value.starts_with('!') || value.starts_with("!ref ") {
        return Ok(value);
    }
    let (tag, rest) = value.split_once(' ').unwrap_or((value, ""));
    let known = ["!new:", "!name:", "!apply:", "!tuple", "!module:"].iter().any(|known| tag.starts_with(known));
    if known { Ok(rest.trim()) } else { Err("has an unknown tag") }
}

/// Reads a value that stands in one line.
fn plain(text: &str, top: &Map<String, Value>, depth: usize) -> Result<Value, &'static str> {
    if let Some(reference) = text.strip_prefix("!ref ") {
        return referred(reference, top);
    }
    let quoted = |quote| text.strip_prefix(quote).and_then(|text| text.strip_suffix(quote));
    if let Some(text) = quoted('\'').or_else(|| quoted('"')) {
        return Ok(Value::from(text));
    }
    if let Some(items) = text.strip_prefix('[') {
        let items = items.strip_suffix(']').ok_or("has a list that does not end in its line")?;
        if depth >= MOST_DEPTH {
            return Err("has lists too deep");
        }
        let items = split(items)?.into_iter().map(|item| plain(item.trim(), top, depth + 1));
        return items.collect::<Result<_, _>>().map(Value::Array);
    }
    if text.starts_with(['{', '&', '*', '|', '>', '!', '-']) && text.parse::<f64>().is_err() {
        return Err("has a form of value that is not read");
    }
    Ok(match text {
        "" | "null" | "~" | "None" => Value::Null,
        "true" | "True" => Value::from(true),
        "false" | "False" => Value::from(false),
        number => match (number.parse::<i64>(), number.parse::<f64>().ok().and_then(Number::from_f64)) {
            (Ok(integer), _) => Value::from(integer),
            (Err(_), Some(number)) => Value::Number(number),
            (Err(_), None) => Value::from(text),
        },
    })
}

/// Items of a list, split at the commas outside of inner lists.
fn split(items: &str) -> Result<Vec<&str>, &'static str> {
    let (mut parts, mut from, mut depth) = (Vec::new(), 0, 0usize);
    for (at, c) in items.char_indices() {
        match c {
            '[' => depth += 1,
            ']' => depth = depth.checked_sub(1).ok_or("has a list that ends twice")?,
            ',' if depth == 0 => {
                parts.push(&items[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    if depth > 0 {
        return Err("has a list that does not end in its line");
    }
    if !items[from..].trim().is_empty() {
        parts.push(&items[from..]);
    }
    Ok(parts)
}

/// Value of a reference, or the product of several.
fn referred(text: &str, top: &Map<String, Value>) -> Result<Value, &'static str> {
    let name = |part: &str| {
        let name = part.trim().strip_prefix('<').and_then(|part| part.strip_suffix('>'));
        name.and_then(|name| top.get(name)).cloned().ok_or("refers to a field that does not stand before it")
    };
    let mut parts = text.split('*').map(name);
    let first = parts.next().ok_or("refers to nothing")??;
    parts.try_fold(first, |product, next| {
        let (a, b) = (product.as_i64(), next?.as_i64());
        let product = a.zip(b).and_then(|(a, b)| a.checked_mul(b));
        product.map(Value::from).ok_or("multiplies something else than whole numbers")
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn constructors_are_plain_values() {
        let text = "# seed\n__set: !apply:random.seed [1986]\nrate: 24000\nratio: 2\npath: ''\n\n\
                    llm: !new:cosyvoice.llm.llm.CosyVoice3LM\n    size: 6561  # codes\n    mix: [5, 15]\n    \
                    sampling: !name:cosyvoice.utils.common.ras_sampling\n        top_p: 0.8\n    \
                    lists: [[1, 3], [5]]\n    chunk: !ref <rate> * <ratio>\n    rate: !ref <rate>\nfmax: null\n\
                    text: 'a # b'\npipe: [\n    !ref <ratio>,\n    !ref <rate>\n]\nnegative: -1\nsmall: 1e-06\nflag: True\n";
        let expected = json!({
            "__set": [1986], "rate": 24000, "ratio": 2, "path": "",
            "llm": {
                "size": 6561, "mix": [5, 15], "sampling": {"top_p": 0.8}, "lists": [[1, 3], [5]], "chunk": 48000,
                "rate": 24000,
            },
            "fmax": null, "text": "a # b", "pipe": [2, 24000], "negative": -1, "small": 1e-06, "flag": true,
        });
        assert_eq!(parse(text), Ok(expected));
    }

    #[test]
    fn wrong_lines_are_named() {
        for (text, line, message) in [
            ("a: !python/object:os.system ls", 1, "unknown tag"),
            ("a: 1\n  b: 2", 2, "below a value"),
            ("a:\n    b: 1\n  c: 2", 3, "indented further"),
            ("a: 1\nnothing", 2, "no `key: value`"),
            ("a: 1\na: 2", 2, "twice"),
            ("a: !ref <b>", 1, "does not stand before"),
            ("a: [1, 2", 1, "does not end"),
            ("a: [1]]", 1, "ends twice"),
            ("a: &anchor 1", 1, "not read"),
            ("a: 9223372036854775807\nb: !ref <a> * <a>", 2, "multiplies"),
        ] {
            let WrongLine(at, found) = parse(text).unwrap_err();
            assert!(at == line && found.contains(message), "{text}: line {at} {found}");
        }
        let deep = format!("a: {}1{}", "[".repeat(100), "]".repeat(100));
        assert_eq!(parse(&deep), Err(WrongLine(1, "has lists too deep")));
    }
}
