//! What a history and a prompt are made of. A history item holds elements, never text that would be tokenised again: token
//! ids, encoded audio, and the codes of a model's own speech where that is part of its prompt.

use std::fmt;
use std::sync::Arc;

use repartee_engine_api::Role;

/// Encoded rows of one closed window of input audio; compared by identity.
#[derive(Debug)]
pub struct AudioRows<T> {
    /// The rows on the device.
    pub rows: T,
    /// Number of rows.
    pub count: usize,
}

/// One position of a prompt.
pub struct Element<T> {
    /// Whose message it belongs to.
    pub role: Role,
    /// Its content.
    pub value: Value<T>,
}

/// Content of one position.
pub enum Value<T> {
    /// A token of the first stage's vocabulary.
    Token(u32),
    /// Codes of the model's own speech, as many as its family reads at one position.
    Codes(Arc<[u32]>),
    /// One row of encoded audio.
    Audio {
        /// The window that it belongs to.
        window: Arc<AudioRows<T>>,
        /// Which of its rows.
        row: usize,
    },
}

impl<T> Element<T> {
    /// A token.
    pub fn token(role: Role, id: u32) -> Self {
        Self { role, value: Value::Token(id) }
    }

    /// Codes of the model's own speech.
    pub fn codes(codes: Arc<[u32]>) -> Self {
        Self { role: Role::Assistant, value: Value::Codes(codes) }
    }

    /// Whether it is a row of audio.
    pub fn is_audio(&self) -> bool {
        matches!(self.value, Value::Audio { .. })
    }
}

impl<T> Clone for Element<T> {
    fn clone(&self) -> Self {
        Self { role: self.role, value: self.value.clone() }
    }
}

impl<T> PartialEq for Element<T> {
    fn eq(&self, other: &Self) -> bool {
        self.role == other.role && self.value == other.value
    }
}

impl<T> fmt::Debug for Element<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.value {
            Value::Token(id) => write!(f, "{:?} token {id}", self.role),
            Value::Codes(codes) => write!(f, "{:?} codes {codes:?}", self.role),
            Value::Audio { row, .. } => write!(f, "{:?} audio row {row}", self.role),
        }
    }
}

impl<T> Clone for Value<T> {
    fn clone(&self) -> Self {
        match self {
            Self::Token(id) => Self::Token(*id),
            Self::Codes(codes) => Self::Codes(Arc::clone(codes)),
            Self::Audio { window, row } => Self::Audio { window: Arc::clone(window), row: *row },
        }
    }
}

impl<T> PartialEq for Value<T> {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Token(a), Self::Token(b)) => a == b,
            (Self::Codes(a), Self::Codes(b)) => a == b,
            (Self::Audio { window: a, row: b }, Self::Audio { window: c, row: d }) => Arc::ptr_eq(a, c) && b == d,
            _ => false,
        }
    }
}

/// What a message is, for the model's template.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageKind {
    /// Instructions.
    System,
    /// Of the caller.
    User,
    /// Of the model, generated tool calls included.
    Assistant,
    /// A tool call that the caller inserted.
    ToolCall,
    /// Result of a tool.
    ToolResult,
}

/// A run of content of one sort.
#[derive(Debug)]
pub enum Part<T> {
    /// Text.
    Text(Vec<u32>),
    /// Windows of encoded audio.
    Audio(Vec<Arc<AudioRows<T>>>),
    /// The model's own speech, position by position.
    Speech(Vec<Arc<[u32]>>),
}

impl<T> Clone for Part<T> {
    fn clone(&self) -> Self {
        match self {
            Self::Text(ids) => Self::Text(ids.clone()),
            Self::Audio(windows) => Self::Audio(windows.clone()),
            Self::Speech(codes) => Self::Speech(codes.clone()),
        }
    }
}

impl<T> Part<T> {
    fn is_empty(&self) -> bool {
        match self {
            Self::Text(ids) => ids.is_empty(),
            Self::Audio(windows) => windows.is_empty(),
            Self::Speech(codes) => codes.is_empty(),
        }
    }
}

/// One message of a session's history.
#[derive(Debug)]
pub struct Message<T> {
    /// What it is.
    pub kind: MessageKind,
    /// Its content, in order. A model that interleaves text and speech has many parts.
    pub parts: Vec<Part<T>>,
}

impl<T> Clone for Message<T> {
    fn clone(&self) -> Self {
        Self { kind: self.kind, parts: self.parts.clone() }
    }
}

impl<T> Message<T> {
    /// A message of text.
    pub fn text(kind: MessageKind, ids: Vec<u32>) -> Self {
        Self { kind, parts: vec![Part::Text(ids)] }
    }

    /// Audio of the caller.
    pub fn audio(windows: Vec<Arc<AudioRows<T>>>) -> Self {
        Self { kind: MessageKind::User, parts: vec![Part::Audio(windows)] }
    }

    /// Whether it has no content.
    pub fn is_empty(&self) -> bool {
        self.parts.iter().all(Part::is_empty)
    }

    /// Drops all content.
    pub fn clear(&mut self) {
        self.parts.clear();
    }

    /// Appends a token.
    pub fn push_token(&mut self, id: u32) {
        match self.parts.last_mut() {
            Some(Part::Text(ids)) => ids.push(id),
            _ => self.parts.push(Part::Text(vec![id])),
        }
    }

    /// Adds one position of the model's own speech after so many tokens and the speech that stands there already; `None` for
    /// the end.
    pub fn push_codes(&mut self, position: Arc<[u32]>, tokens: Option<usize>) {
        let at = tokens.map_or(self.parts.len(), |tokens| self.split_text(tokens));
        match at.checked_sub(1).and_then(|before| self.parts.get_mut(before)) {
            Some(Part::Speech(codes)) => codes.push(position),
            _ => self.parts.insert(at, Part::Speech(vec![position])),
        }
    }

    /// Cuts the part that holds token `tokens` so that a part begins with it. Returns the index of that part; the end if there
    /// are not so many tokens.
    fn split_text(&mut self, tokens: usize) -> usize {
        let mut left = tokens;
        let cut = self.parts.iter_mut().enumerate().find_map(|(at, part)| match part {
            Part::Text(ids) if ids.len() > left => Some((at, ids.split_off(left))),
            Part::Text(ids) => {
                left -= ids.len();
                None
            }
            _ => None,
        });
        let Some((at, rest)) = cut else { return self.parts.len() };
        if matches!(&self.parts[at], Part::Text(ids) if ids.is_empty()) {
            self.parts[at] = Part::Text(rest);
            return at;
        }
        self.parts.insert(at + 1, Part::Text(rest));
        at + 1
    }

    /// Appends an encoded window; false if the message is not audio.
    pub fn push_window(&mut self, window: Arc<AudioRows<T>>) -> bool {
        let Some(Part::Audio(windows)) = self.parts.last_mut() else { return false };
        windows.push(window);
        true
    }

    /// Ids of all its text.
    pub fn token_ids(&self) -> impl Iterator<Item = u32> {
        self.parts
            .iter()
            .flat_map(|part| match part {
                Part::Text(ids) => &ids[..],
                _ => &[],
            })
            .copied()
    }

    /// Keeps the first `tokens` tokens and what stands before the next one, then appends `rest`. Speech that stands after the
    /// last kept token is kept while every token before it is.
    pub fn truncate_text(&mut self, tokens: usize, rest: Vec<u32>) {
        let mut left = tokens;
        let mut kept = Vec::new();
        for part in self.parts.drain(..) {
            match part {
                Part::Text(mut ids) => {
                    let cut = ids.len() > left;
                    ids.truncate(left);
                    left -= ids.len();
                    kept.push(Part::Text(ids));
                    if cut {
                        break;
                    }
                }
                other => kept.push(other),
            }
        }
        self.parts = kept;
        self.parts.retain(|part| !part.is_empty());
        for id in rest {
            self.push_token(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Text and speech as a model of interleaved output makes them.
    fn interleaved() -> Message<()> {
        let mut message = Message { kind: MessageKind::Assistant, parts: Vec::new() };
        for id in 0..4 {
            message.push_token(id);
            message.push_codes(Arc::from([10 * id, 10 * id + 1]), None);
            message.push_codes(Arc::from([10 * id + 2, 10 * id + 3]), None);
        }
        message
    }

    fn shown(message: &Message<()>) -> Vec<Vec<u32>> {
        message
            .parts
            .iter()
            .map(|part| match part {
                Part::Text(ids) => ids.clone(),
                Part::Speech(codes) => codes.iter().flat_map(|codes| codes.iter().copied()).collect(),
                Part::Audio(_) => Vec::new(),
            })
            .collect()
    }

    #[test]
    fn truncated_text_takes_its_speech_along() {
        let mut message = interleaved();
        message.truncate_text(2, vec![99]);
        assert_eq!(shown(&message), [vec![0], vec![0, 1, 2, 3], vec![1], vec![10, 11, 12, 13], vec![99]]);
        let mut message = interleaved();
        message.truncate_text(4, Vec::new());
        assert_eq!(shown(&message), shown(&interleaved()), "nothing is cut");
        let mut message = interleaved();
        message.truncate_text(0, vec![5, 6]);
        assert_eq!(shown(&message), [vec![5, 6]]);
    }

    #[test]
    fn speech_stands_after_its_token_whenever_it_comes() {
        // Two positions a token; the text is ahead by 0 to 4 tokens.
        for ahead in 0..=4 {
            let mut message = Message::<()> { kind: MessageKind::Assistant, parts: Vec::new() };
            for id in 0..4 + ahead {
                if id < 4 {
                    message.push_token(id);
                }
                for code in [0, 2] {
                    if let Some(spoken) = id.checked_sub(ahead) {
                        let codes = [10 * spoken + code, 10 * spoken + code + 1];
                        message.push_codes(Arc::from(codes), Some(spoken as usize + 1));
                    }
                }
            }
            assert_eq!(shown(&message), shown(&interleaved()), "text ahead by {ahead}");
        }
    }

    #[test]
    fn elements_compare_by_role_and_identity() {
        let window = |count| Arc::new(AudioRows { rows: (), count });
        let (a, b) = (window(2), window(2));
        let row = |window: &Arc<AudioRows<()>>, row| Element {
            role: Role::User,
            value: Value::Audio { window: Arc::clone(window), row },
        };
        assert!(row(&a, 1) == row(&a, 1));
        assert!(row(&a, 1) != row(&a, 0) && row(&a, 1) != row(&b, 1));
        assert!(Element::<()>::token(Role::User, 1) != Element::token(Role::Assistant, 1));
        assert!(Element::<()>::codes(Arc::from([1, 2])) == Element::codes(Arc::from([1, 2])));
    }
}
