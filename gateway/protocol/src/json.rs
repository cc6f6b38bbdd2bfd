//! Bodies of requests, and the bounds of a JSON text, checked before it is parsed: a value of two bytes takes 32 or
//! more in memory, and a parser may hold values that nobody reads.

use serde::de::DeserializeOwned;
use thiserror::Error;

use super::error::{ErrorBody, ErrorKind};

/// Parses the JSON body of a request, within [`JsonBounds::WIRE`].
///
/// # Errors
///
/// The error names the invalid field.
pub fn read_body<T: DeserializeOwned>(body: &[u8]) -> Result<T, ErrorBody> {
    JsonBounds::WIRE.check(body)?;
    let mut reader = serde_json::Deserializer::from_slice(body);
    let read = serde_path_to_error::deserialize(&mut reader).map_err(|error| match error.inner().classify() {
        serde_json::error::Category::Data => ErrorBody::from_path(&error, ""),
        _ => not_json(error.inner()),
    })?;
    reader.end().map_err(|error| not_json(&error))?;
    Ok(read)
}

fn not_json(error: &serde_json::Error) -> ErrorBody {
    ErrorBody::invalid(ErrorKind::InvalidJson, format!("the body is not JSON: {error}"))
}

/// Bounds of a JSON text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JsonBounds {
    /// Maximum number of opening brackets, commas and colons: each stands before a key or a value.
    pub values: usize,
    /// Maximum nesting of objects and arrays.
    pub depth: usize,
}

/// A JSON text over its bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum JsonBoundsError {
    /// More values than may be held.
    #[error("the JSON has more than {limit} keys and values: send less at once")]
    TooManyValues {
        /// Maximum number of values.
        limit: usize,
    },
    /// Deeper nesting than may be held.
    #[error("the JSON is nested deeper than {limit} levels")]
    TooDeep {
        /// Maximum nesting.
        limit: usize,
    },
}

impl From<JsonBoundsError> for ErrorBody {
    fn from(error: JsonBoundsError) -> Self {
        Self::invalid(ErrorKind::TooLarge, error.to_string())
    }
}

impl JsonBounds {
    /// Bounds of an event and of a request's body. The largest functions of a session, 256 KiB of JSON schema, have some
    /// 30,000 values, and so has a conversation of 5,000 messages.
    pub const WIRE: Self = Self { values: 65_536, depth: 64 };

    /// Checks `text` in one pass without memory. Text that is not JSON may pass.
    pub fn check(self, text: &[u8]) -> Result<(), JsonBoundsError> {
        let (mut values, mut depth, mut at) = (0, 0_usize, 0);
        while let Some(&byte) = text.get(at) {
            at += 1;
            match byte {
                b'"' => at = string_end(text, at),
                b'{' | b'[' => {
                    depth += 1;
                    values += 1;
                    if depth > self.depth {
                        return Err(JsonBoundsError::TooDeep { limit: self.depth });
                    }
                }
                b'}' | b']' => depth = depth.saturating_sub(1),
                // Each separator stands before a value.
                b',' | b':' => values += 1,
                _ => {}
            }
            if values > self.values {
                return Err(JsonBoundsError::TooManyValues { limit: self.values });
            }
        }
        Ok(())
    }
}

/// Position behind the string whose content begins at `at`.
fn string_end(text: &[u8], mut at: usize) -> usize {
    while let Some(offset) = memchr::memchr2(b'"', b'\\', &text[at.min(text.len())..]) {
        at += offset + 1;
        if text[at - 1] == b'"' {
            return at;
        }
        // The escaped character.
        at += 1;
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FEW: JsonBounds = JsonBounds { values: 8, depth: 3 };

    #[test]
    fn values_are_counted_wherever_they_stand() {
        for text in ["[0,0,0,0,0,0,0]", r#"{"a":0,"b":0,"c":0}"#, r#"{"a":[{},{}]}"#, "[[],[],[],[]]"] {
            assert_eq!(FEW.check(text.as_bytes()), Ok(()), "{text}");
        }
        for text in ["[0,0,0,0,0,0,0,0,0]", r#"{"a":0,"b":0,"c":0,"d":0,"e":0}"#, "[{},{},{},{},{}]"] {
            let error = FEW.check(text.as_bytes());
            assert_eq!(error, Err(JsonBoundsError::TooManyValues { limit: 8 }), "{text}");
        }
    }

    #[test]
    fn nesting_is_bounded() {
        assert_eq!(FEW.check(b"[[[]],[]]"), Ok(()));
        assert_eq!(FEW.check(br#"[{"a":[[]]}]"#), Err(JsonBoundsError::TooDeep { limit: 3 }));
    }

    #[test]
    fn strings_are_one_value_whatever_they_hold() {
        for text in [r#"["[[[[,,,,::::,,,,,"]"#, r#"["\"[[[[,,,,::::,,,,,"]"#, r#"["\\",0]"#] {
            assert_eq!(FEW.check(text.as_bytes()), Ok(()), "{text}");
        }
        // The backslash does not escape the quote behind its escape.
        assert!(FEW.check(br#"["\\",0,0,0,0,0,0,0,0]"#).is_err());
        for torn in [r#"["abc"#, r#"["abc\"#, "\"", "\"\\"] {
            assert_eq!(FEW.check(torn.as_bytes()), Ok(()), "{torn}");
        }
    }
}
