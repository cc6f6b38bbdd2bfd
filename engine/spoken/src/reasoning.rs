//! Reasoning text: keeps what a language model writes between two marks, such as `<think>` and `</think>`, out of its answer.

use thiserror::Error;

/// Maximum length of a mark, in bytes.
pub const MAX_MARK: usize = 64;

/// Error of a pair of marks.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ReasoningError {
    /// A mark is empty.
    #[error("a mark of reasoning text is empty: give both marks, such as <think> and </think>")]
    EmptyMark,
    /// A mark is longer than [`MAX_MARK`].
    #[error("the mark {0:?} of reasoning text is longer than {MAX_MARK} bytes: give the model's own mark")]
    LongMark(String),
}

/// Pair of marks around reasoning text, compared letter by letter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReasoningMarks {
    /// Mark before the reasoning text.
    pub open: String,
    /// Mark after it.
    pub close: String,
}

impl Default for ReasoningMarks {
    fn default() -> Self {
        Self { open: "<think>".to_owned(), close: "</think>".to_owned() }
    }
}

/// Filter of reasoning text for a text that streams in. The result does not depend on how the text is split.
///
/// - Reasoning text ends at its first closing mark, as inference servers end it. An opening mark in it is a part of it, so
///   marks do not nest: what follows the first closing mark comes out, and a second closing mark is dropped.
/// - Reasoning text that is never closed never comes out.
/// - A closing mark without an opening one is dropped alone: what came before it was passed on already. If the prompt
///   holds the opening mark, begin with [`ReasoningFilter::inside`].
/// - White space behind a closing mark is dropped as long as nothing else has come out.
#[derive(Debug, Clone)]
pub struct ReasoningFilter {
    marks: ReasoningMarks,
    begins_inside: bool,
    inside: bool,
    /// Beginning of a mark, or nothing.
    held: String,
    /// True until visible text follows a closing mark at the beginning.
    trims: bool,
    /// True once visible text came out.
    visible: bool,
}

impl ReasoningFilter {
    /// Makes a filter that begins outside of reasoning text.
    pub fn new(marks: ReasoningMarks) -> Result<Self, ReasoningError> {
        for mark in [&marks.open, &marks.close] {
            if mark.is_empty() {
                return Err(ReasoningError::EmptyMark);
            }
            if mark.len() > MAX_MARK {
                return Err(ReasoningError::LongMark(mark.clone()));
            }
        }
        let held = String::new();
        Ok(Self { marks, begins_inside: false, inside: false, held, trims: false, visible: false })
    }

    /// Begins inside reasoning text: the opening mark is the end of the prompt.
    pub fn inside(mut self) -> Self {
        self.begins_inside = true;
        self.inside = true;
        self
    }

    /// True while the text is reasoning text.
    pub fn is_inside(&self) -> bool {
        self.inside
    }

    /// True while the end of the text may be the beginning of a mark.
    pub fn holds_back(&self) -> bool {
        !self.held.is_empty()
    }

    /// Adds text; returns the visible text that is certain now.
    pub fn push(&mut self, text: &str) -> String {
        let mut visible = String::with_capacity(text.len());
        for character in text.chars() {
            self.held.push(character);
            self.settle(&mut visible);
        }
        visible
    }

    /// Ends the text; returns the rest of its visible text. Afterwards a new text begins.
    pub fn finish(&mut self) -> String {
        let mut visible = String::new();
        let held = std::mem::take(&mut self.held);
        held.chars().for_each(|character| self.pass(character, &mut visible));
        (self.inside, self.trims, self.visible) = (self.begins_inside, false, false);
        visible
    }

    /// Passes on held characters until a mark may begin with what is held.
    fn settle(&mut self, visible: &mut String) {
        while !self.held.is_empty() {
            let ReasoningMarks { open, close } = &self.marks;
            let (opens, closes) = (!self.inside && self.held == *open, self.held == *close);
            if opens || closes {
                self.held.clear();
                self.trims |= closes && !self.visible;
                self.inside = opens;
                return;
            }
            if (!self.inside && open.starts_with(&self.held)) || close.starts_with(&self.held) {
                return;
            }
            let first = self.held.remove(0);
            self.pass(first, visible);
        }
    }

    fn pass(&mut self, character: char, visible: &mut String) {
        if self.inside || (self.trims && character.is_whitespace()) {
            return;
        }
        self.trims = false;
        self.visible |= !character.is_whitespace();
        visible.push(character);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn visible(text: &str) -> String {
        let mut filter = ReasoningFilter::new(ReasoningMarks::default()).unwrap();
        let one_by_one: String = text.chars().map(|c| filter.push(c.encode_utf8(&mut [0; 4]))).collect();
        one_by_one + &filter.finish()
    }

    #[test]
    fn reasoning_text_is_dropped() {
        let cases = [
            ("<think>Hm.</think>\n\nHello.", "Hello."),
            ("Hello.<think>Hm.</think> More.", "Hello. More."),
            ("<think></think>Hi", "Hi"),
            ("a < b </thin> <thinking>", "a < b </thin> <thinking>"),
            // Not nested: the first closing mark ends it, and the second one is dropped.
            ("<think>a<think>b</think>c</think>d", "cd"),
            // Never closed.
            ("Hi <think>never </thin", "Hi "),
            // A closing mark alone.
            ("Hm.</think>Hello", "Hm.Hello"),
            // The end of a text that may have been a mark.
            ("Hello <thi", "Hello <thi"),
            ("<<think>x</think>", "<"),
        ];
        for (text, expected) in cases {
            assert_eq!(visible(text), expected, "{text}");
        }
    }

    #[test]
    fn prompt_may_open_reasoning() {
        let mut filter = ReasoningFilter::new(ReasoningMarks::default()).unwrap().inside();
        for _ in 0..2 {
            assert_eq!(filter.push("Hm.</think>\nHello"), "Hello");
            assert_eq!(filter.finish(), "");
        }
    }

    #[test]
    fn other_marks_are_configurable() {
        let marks = ReasoningMarks { open: "[THINK]".to_owned(), close: "[/THINK]".to_owned() };
        let mut filter = ReasoningFilter::new(marks.clone()).unwrap();
        assert_eq!(filter.push("[THINK]<think>[/THINK]<think>"), "<think>");
        let error = ReasoningFilter::new(ReasoningMarks { open: String::new(), ..marks.clone() }).unwrap_err();
        assert_eq!(error, ReasoningError::EmptyMark);
        let long = "x".repeat(65);
        assert!(
            ReasoningFilter::new(ReasoningMarks { close: long.clone(), ..marks })
                .unwrap_err()
                .to_string()
                .contains(&long)
        );
    }
}
