//! Queue of the text that a reader has not read yet: tokens, pauses, and the end.

use std::collections::VecDeque;

use repartee_engine_api::Role;

use crate::elements::{Element, ElementValue};
use crate::stage::{ResponseParams, StageEnd};

/// Part of a text that is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadItem {
    /// The next token.
    Token(u32),
    /// A pause: what came before is spoken to its end.
    Pause,
    /// The end. Nothing follows.
    End(StageEnd),
}

/// Text of one response. A text with more tokens than the limit ends at the limit, so the items do not depend on how it is
/// split.
#[derive(Debug)]
pub struct ReadQueue {
    /// Tokens and pauses.
    items: VecDeque<ReadItem>,
    /// End after the last item; `None` while items may follow.
    end: Option<StageEnd>,
    /// Tokens left until the limit.
    left: u32,
}

impl ReadQueue {
    /// Begins a response to `prompt`: a text that streams in is empty, another one is the prompt's user positions.
    pub fn new(params: &ResponseParams, prompt: &[Element]) -> Self {
        let mut queue = Self { items: VecDeque::new(), end: None, left: params.max_tokens };
        if !params.streamed {
            queue.push(prompt.iter().filter(|element| element.role == Role::User));
            queue.end = Some(StageEnd::Stop);
        }
        queue
    }

    /// Appends the tokens among `elements`.
    pub fn push<'a>(&mut self, elements: impl IntoIterator<Item = &'a Element>) {
        self.items.extend(elements.into_iter().filter_map(|element| match element.value {
            ElementValue::Token(id) => Some(ReadItem::Token(id)),
            ElementValue::Audio { .. } | ElementValue::Codes(_) => None,
        }));
    }

    /// Appends a pause.
    pub fn pause(&mut self) {
        self.items.push_back(ReadItem::Pause);
    }

    /// Marks the text as complete; it ends with `end`.
    pub fn end(&mut self, end: StageEnd) {
        self.end = Some(end);
    }

    /// Upper bound of the items that can be read now, the end included.
    pub fn rows(&self) -> usize {
        self.items.len() + usize::from(self.end.is_some())
    }
}

/// The items that can be read now.
impl Iterator for ReadQueue {
    type Item = ReadItem;

    fn next(&mut self) -> Option<ReadItem> {
        match self.items.pop_front() {
            Some(ReadItem::Token(_)) if self.left == 0 => Some(ReadItem::End(StageEnd::Length)),
            Some(ReadItem::Token(id)) => {
                self.left -= 1;
                Some(ReadItem::Token(id))
            }
            Some(item) => Some(item),
            None => self.end.map(ReadItem::End),
        }
    }
}

#[cfg(test)]
mod tests {
    use repartee_engine_api::AnswerForm;

    use super::*;

    fn elements(role: Role, ids: &[u32]) -> Vec<Element> {
        ids.iter().map(|&id| Element::token(role, id)).collect()
    }

    fn queue(streamed: bool, max_tokens: u32, prompt: &[Element]) -> ReadQueue {
        let voice = String::new();
        let params = ResponseParams {
            response: 0,
            seed: 0,
            voice,
            audio: true,
            streamed,
            max_tokens,
            tools: [].into(),
            form: AnswerForm::Free,
            held: None,
            sampling: None,
        };
        ReadQueue::new(&params, prompt)
    }

    #[test]
    fn a_prompt_is_read_to_its_end() {
        let prompt = [elements(Role::System, &[9]), elements(Role::User, &[1, 2])].concat();
        let items: Vec<ReadItem> = queue(false, 9, &prompt).take(3).collect();
        assert_eq!(items, [ReadItem::Token(1), ReadItem::Token(2), ReadItem::End(StageEnd::Stop)]);
        assert_eq!(queue(true, 9, &prompt).next(), None, "another text streams in");
    }

    #[test]
    fn pauses_keep_their_place() {
        let mut queue = queue(true, 9, &[]);
        queue.push(&elements(Role::User, &[1]));
        queue.pause();
        queue.push(&elements(Role::User, &[2]));
        assert_eq!(queue.rows(), 3);
        let items: Vec<ReadItem> = queue.by_ref().collect();
        assert_eq!(items, [ReadItem::Token(1), ReadItem::Pause, ReadItem::Token(2)]);
        queue.end(StageEnd::Length);
        assert_eq!((queue.rows(), queue.next()), (1, Some(ReadItem::End(StageEnd::Length))));
    }

    #[test]
    fn a_limit_ends_the_text() {
        for (ids, end) in [(&[1, 2][..], StageEnd::Stop), (&[1, 2, 3], StageEnd::Length)] {
            let items: Vec<ReadItem> = queue(false, 2, &elements(Role::User, ids)).take(3).collect();
            assert_eq!(items, [ReadItem::Token(1), ReadItem::Token(2), ReadItem::End(end)]);
        }
    }
}
