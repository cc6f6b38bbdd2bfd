//! Texts that the model's vocabulary cannot encode. They are refused before anything changes, because the engine would
//! refuse them after the client was told that they were accepted.

use repartee_engine_api::{MAX_STRETCH, ModelInfo};
use repartee_protocol::{ErrorBody, ErrorKind};

/// Bytes that the model's template may write around a text without a space.
const TEMPLATE: usize = 1_024;
/// Maximum bytes without a space.
const LONGEST: usize = MAX_STRETCH - TEMPLATE;

/// Refuses a text that `model` cannot encode; `param` is the path of its field.
pub(super) fn check_text(text: &str, model: &ModelInfo, param: impl FnOnce() -> String) -> Result<(), ErrorBody> {
    if text.len() <= LONGEST {
        return Ok(());
    }
    let message = if model.whole_texts {
        format!("this model takes texts of at most {LONGEST} bytes: split this one of {}", text.len())
    } else if longest_stretch(text) > LONGEST {
        format!("over {LONGEST} bytes stand without a space: break the text up")
    } else {
        return Ok(());
    };
    Err(ErrorBody::invalid(ErrorKind::InvalidValue, message).with_param(param()))
}

/// Bytes of the longest part of `text` between spaces that begin a word.
fn longest_stretch(text: &str) -> usize {
    let (mut from, mut longest) = (0, 0);
    for (at, space) in text.match_indices(' ') {
        let word = text[at + space.len()..].chars().next().is_some_and(|next| !next.is_whitespace());
        if at > 0 && word {
            longest = longest.max(at - from);
            from = at;
        }
    }
    longest.max(text.len() - from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stretch_ends_where_a_word_begins() {
        for (text, longest) in [("", 0), ("abc", 3), ("a bcd e", 4), (" a", 2), ("a   b", 3), ("a\nb c  ", 4)] {
            assert_eq!(longest_stretch(text), longest, "{text:?}");
        }
    }
}
