//! Which words of an answer were heard, when its sound was cut short.

/// Finds the words that were heard.
pub(super) trait WordEstimator: std::fmt::Debug + Send {
    /// The longest prefix of `text` in whole words that was heard in `heard_ms` of its sound. `made_ms` is how much
    /// sound was made, which is all of it if `whole`; text is made far ahead of its sound.
    fn heard<'a>(&self, text: &'a str, heard_ms: u64, made_ms: u64, whole: bool) -> &'a str;
}

/// Takes speech to run at an even pace: by the sound's own length if it is whole, else by a common speaker's.
#[derive(Debug)]
pub(super) struct Proportional;

/// Sound of one character at a common speaker's pace, 15 characters a second.
const MS_PER_CHARACTER: u64 = 67;

impl WordEstimator for Proportional {
    fn heard<'a>(&self, text: &'a str, heard_ms: u64, made_ms: u64, whole: bool) -> &'a str {
        let characters = text.chars().count() as u64;
        let total_ms = if whole { made_ms } else { made_ms.max(characters * MS_PER_CHARACTER) };
        if heard_ms >= total_ms {
            return text;
        }
        let heard = usize::try_from(characters * heard_ms / total_ms).unwrap_or(usize::MAX);
        let Some((cut, next)) = text.char_indices().nth(heard) else { return text };
        if next.is_whitespace() {
            return &text[..cut];
        }
        // A word that was begun was not heard.
        text[..cut].rfind(char::is_whitespace).map_or("", |space| text[..space].trim_end())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_words_were_heard() {
        let text = "The sky is blue.";
        let heard = |ms| Proportional.heard(text, ms, 1_600, true);
        assert_eq!(heard(0), "");
        assert_eq!(heard(200), "");
        assert_eq!(heard(300), "The");
        assert_eq!(heard(650), "The");
        assert_eq!(heard(1_000), "The sky is");
        assert_eq!(heard(1_500), "The sky is");
        assert_eq!(heard(1_600), text);
        assert_eq!(heard(9_000), text);
    }

    #[test]
    fn text_ahead_of_its_sound_was_not_heard() {
        let text = "one two three four five six seven eight nine ten";
        assert_eq!(Proportional.heard(text, 400, 400, false), "one");
    }

    #[test]
    fn characters_of_several_bytes_are_never_split() {
        for ms in 0..40 {
            Proportional.heard("größe über Ähre 日本語 です", ms, 40, true);
        }
    }
}
