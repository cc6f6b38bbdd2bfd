//! Rendered prompt, in segments, and the part of it that a longer conversation adds.

use super::chat_input::{ChatContent, ChatInput, core};
use super::reserved;
use super::special_tokens::SpecialTokens;

/// Part of a prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Segment {
    /// A special token that the template writes.
    Special(String),
    /// Text without special tokens, of the template and of the conversation. What looks like a special token in it is
    /// text.
    Text(String),
    /// The content of a message, copied by the template.
    Content {
        /// Index of the message.
        message: usize,
        /// Text, with its white space as far as the template keeps it.
        text: String,
    },
}

impl Segment {
    /// Text of the segment; the spelling of a mark.
    pub fn text(&self) -> &str {
        match self {
            Self::Special(text) | Self::Text(text) | Self::Content { text, .. } => text,
        }
    }
}

/// A rendered prompt.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Prompt {
    /// Segments, in order; none is empty.
    pub segments: Vec<Segment>,
}

/// Difference of a prompt from the prompt before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromptChange {
    /// Bytes of the earlier prompt's text that stay, from its beginning.
    pub kept: usize,
    /// Text that follows them.
    pub added: String,
}

impl Prompt {
    /// The whole text, with the spellings of marks.
    pub fn text(&self) -> String {
        self.segments.iter().map(Segment::text).collect()
    }

    /// Stretches of text between marks, and the marks: true for a mark.
    fn stretches(&self) -> Vec<(bool, String)> {
        let mut stretches: Vec<(bool, String)> = Vec::new();
        for segment in &self.segments {
            let is_special = matches!(segment, Segment::Special(_));
            match stretches.last_mut().filter(|(after_mark, _)| !is_special && !after_mark) {
                Some((_, text)) => text.push_str(segment.text()),
                None => stretches.push((is_special, segment.text().to_owned())),
            }
        }
        stretches
    }

    /// Change from an earlier prompt to this one: the common beginning is kept, in whole marks and whole characters.
    ///
    /// A template that only appends keeps all of the earlier prompt, its header of a response excepted. One that edits
    /// earlier turns keeps what stands before the edit.
    pub fn change_from(&self, earlier: &Self) -> PromptChange {
        let mut kept = 0;
        for (new, old) in self.stretches().iter().zip(&earlier.stretches()) {
            if new == old {
                kept += new.1.len();
                continue;
            }
            // A mark and its spelling as a text have equal characters and different tokens: nothing of them is kept.
            if !new.0 && !old.0 {
                let equal = new.1.bytes().zip(old.1.bytes()).take_while(|(a, b)| a == b).count();
                kept += (0..=equal).rev().find(|at| new.1.is_char_boundary(*at)).unwrap_or(0);
            }
            break;
        }
        PromptChange { kept, added: self.text()[kept..].to_owned() }
    }
}

/// Reads a template's output.
pub struct OutputReader<'a> {
    pub marks: &'a SpecialTokens,
    /// True if marks that the template builds are found.
    pub builds_special_tokens: bool,
    pub input: &'a ChatInput,
}

impl OutputReader<'_> {
    /// Text of an output, marks spelt and other reserved characters removed or put back.
    pub fn plain(&self, output: &str) -> String {
        let mut text = String::with_capacity(output.len());
        for c in output.chars() {
            match (reserved::special(c), reserved::of_twin(c)) {
                (Some(mark), _) => text.push_str(self.marks.spelling(mark)),
                (_, Some(c)) => text.push(c),
                _ if reserved::is_reserved(c) => {}
                _ => text.push(c),
            }
        }
        text
    }

    /// True if a text spells a mark that the template did not write whole.
    pub fn spells_special_tokens(&self, output: &str) -> bool {
        self.marks.any_in(output)
    }

    /// Segments of an output.
    pub fn read(&self, output: &str) -> Prompt {
        let mut segments = Vec::new();
        let mut text = String::new();
        let mut rest = output;
        while let Some(c) = rest.chars().next() {
            let built = if self.builds_special_tokens { self.marks.at(rest) } else { None };
            if let Some(mark) = reserved::special(c).or(built) {
                push_text(&mut segments, &mut text);
                let spelling = self.marks.spelling(mark);
                segments.push(Segment::Special(spelling.to_owned()));
                rest = &rest[if reserved::special(c).is_some() { c.len_utf8() } else { spelling.len() }..];
                continue;
            }
            rest = &rest[c.len_utf8()..];
            if let Some(message) = reserved::opened(c) {
                let end = rest.find(reserved::CLOSE);
                if let Some(end) = end.filter(|end| self.is_content(message, &rest[..*end])) {
                    push_text(&mut segments, &mut text);
                    segments.push(Segment::Content { message, text: self.plain(&rest[..end]) });
                    rest = &rest[end + reserved::CLOSE.len_utf8()..];
                }
            } else if let Some(c) = reserved::of_twin(c) {
                text.push(c);
            } else if !reserved::is_reserved(c) {
                text.push(c);
            }
        }
        push_text(&mut segments, &mut text);
        self.widen(&mut segments);
        segments.retain(|segment| !segment.text().is_empty());
        Prompt { segments }
    }

    /// Content of a message of text, without its reserved characters.
    fn content(&self, message: usize) -> Option<String> {
        match &self.input.messages.get(message)?.content {
            ChatContent::Text(text) => Some(reserved::scrub(text)),
            _ => None,
        }
    }

    /// True if `enclosed` is the content of a message without white space at its ends.
    fn is_content(&self, message: usize, enclosed: &str) -> bool {
        !enclosed.chars().any(|c| reserved::is_reserved(c) && reserved::of_twin(c).is_none())
            && self.content(message).is_some_and(|content| core(&content).0 == self.plain(enclosed))
    }

    /// Gives contents the white space at their ends back, where the template keeps it.
    fn widen(&self, segments: &mut [Segment]) {
        for at in 0..segments.len() {
            let Segment::Content { message, text: inner } = &segments[at] else { continue };
            let Some(content) = self.content(*message) else { continue };
            let (core, before) = core(&content);
            let (leading, trailing) = (&content[..before], &content[before + core.len()..]);
            debug_assert_eq!(core, inner);
            let mut wide = core.to_owned();
            if let Some(Segment::Text(text)) = at.checked_sub(1).and_then(|at| segments.get_mut(at))
                && let Some(rest) = text.strip_suffix(leading)
            {
                *text = rest.to_owned();
                wide.insert_str(0, leading);
            }
            if let Some(Segment::Text(text)) = segments.get_mut(at + 1)
                && let Some(rest) = text.strip_prefix(trailing)
            {
                *text = rest.to_owned();
                wide.push_str(trailing);
            }
            if let Segment::Content { text, .. } = &mut segments[at] {
                *text = wide;
            }
        }
    }
}

fn push_text(segments: &mut Vec<Segment>, text: &mut String) {
    if !text.is_empty() {
        segments.push(Segment::Text(std::mem::take(text)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prompt(segments: &[Segment]) -> Prompt {
        Prompt { segments: segments.to_vec() }
    }

    #[test]
    fn marks_are_kept_as_marks_alone() {
        let (mark, text) =
            (|text: &str| Segment::Special(text.to_owned()), |text: &str| Segment::Text(text.to_owned()));
        let earlier = prompt(&[mark("<s>"), text("aé"), mark("<e>")]);
        let change = |segments: &[Segment]| prompt(segments).change_from(&earlier);
        let expected = |kept, added: &str| PromptChange { kept, added: added.to_owned() };
        assert_eq!(change(&[mark("<s>"), text("aé"), mark("<e>"), text("b")]), expected(9, "b"));
        assert_eq!(change(&[mark("<s>"), text("aé<e>"), text("b")]), expected(6, "<e>b"), "a typed mark is text");
        assert_eq!(change(&[text("<s>aé")]), expected(0, "<s>aé"));
        assert_eq!(change(&[mark("<s>"), text("aè")]), expected(4, "è"), "é and è share a byte");
        let content = Segment::Content { message: 0, text: "é".to_owned() };
        assert_eq!(change(&[mark("<s>"), text("a"), content, mark("<e>")]), expected(9, ""), "cut in other segments");
    }
}
