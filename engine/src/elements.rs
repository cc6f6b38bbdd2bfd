//! Contents of histories and prompts. A history item holds elements, never text that would be tokenised again: token
//! ids, encoded audio, and the codes of a model's own speech if they are part of its prompt.

use std::fmt;
use std::sync::Arc;

use repartee_engine_api::Role;

/// Encoded rows of one closed window of input audio; compared by identity. They are stored on the host, because a
/// history outlives every step; a step that reads them takes them along in its row spec.
#[derive(Debug, Default)]
pub struct AudioRows {
    /// Values of the rows, one row after the other.
    pub rows: Vec<f32>,
    /// Number of rows.
    pub count: usize,
}

impl AudioRows {
    /// Values of one row.
    pub fn row(&self, row: usize) -> &[f32] {
        let width = self.rows.len() / self.count.max(1);
        &self.rows[row * width..(row + 1) * width]
    }
}

/// One position of a prompt.
#[derive(Clone, PartialEq)]
pub struct Element {
    /// Role of the message that it belongs to.
    pub role: Role,
    /// Content of the position.
    pub value: ElementValue,
}

/// Content of one position.
#[derive(Clone)]
pub enum ElementValue {
    /// A token of the first stage's vocabulary.
    Token(u32),
    /// Codes of the model's own speech, as many as its family reads at one position.
    Codes(Arc<[u32]>),
    /// One row of encoded audio.
    Audio {
        /// Window that the row belongs to.
        window: Arc<AudioRows>,
        /// Index of the row in its window.
        row: usize,
    },
}

impl Element {
    /// Creates a text token of a role.
    pub fn token(role: Role, id: u32) -> Self {
        Self { role, value: ElementValue::Token(id) }
    }

    /// Creates codes of the model's own speech, with the assistant's role.
    pub fn codes(codes: Arc<[u32]>) -> Self {
        Self { role: Role::Assistant, value: ElementValue::Codes(codes) }
    }

    /// True if it is a row of audio.
    pub fn is_audio(&self) -> bool {
        matches!(self.value, ElementValue::Audio { .. })
    }

    /// Codes of the model's own speech; `None` for other elements.
    pub fn codes_of(&self) -> Option<&[u32]> {
        match &self.value {
            ElementValue::Codes(codes) => Some(codes),
            ElementValue::Token(_) | ElementValue::Audio { .. } => None,
        }
    }

    /// Values of a row of audio; `None` for other elements.
    pub fn audio(&self) -> Option<&[f32]> {
        match &self.value {
            ElementValue::Audio { window, row } => Some(window.row(*row)),
            ElementValue::Token(_) | ElementValue::Codes(_) => None,
        }
    }
}

impl fmt::Debug for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.value {
            ElementValue::Token(id) => write!(f, "{:?} token {id}", self.role),
            ElementValue::Codes(codes) => write!(f, "{:?} codes {codes:?}", self.role),
            ElementValue::Audio { row, .. } => write!(f, "{:?} audio row {row}", self.role),
        }
    }
}

impl PartialEq for ElementValue {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Token(a), Self::Token(b)) => a == b,
            (Self::Codes(a), Self::Codes(b)) => a == b,
            (Self::Audio { window: a, row: b }, Self::Audio { window: c, row: d }) => Arc::ptr_eq(a, c) && b == d,
            _ => false,
        }
    }
}

/// Kind of a message, for the model's template.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageKind {
    /// Instructions and tools.
    System,
    /// Message of the caller.
    User,
    /// Message of the model, generated tool calls included.
    Assistant,
    /// A tool call that the caller inserted.
    ToolCall,
    /// Result of a tool call.
    ToolResult,
}

/// Run of content of one kind.
#[derive(Debug, Clone)]
pub enum MessagePart {
    /// Text, as token ids.
    Text(Vec<u32>),
    /// Windows of encoded audio.
    Audio(Vec<Arc<AudioRows>>),
    /// The model's own speech, position by position.
    Speech(Vec<Arc<[u32]>>),
}

impl MessagePart {
    fn is_empty(&self) -> bool {
        match self {
            Self::Text(ids) => ids.is_empty(),
            Self::Audio(windows) => windows.is_empty(),
            Self::Speech(codes) => codes.is_empty(),
        }
    }
}

/// One message of a session's history.
#[derive(Debug, Clone)]
pub struct Message {
    /// Kind of the message.
    pub kind: MessageKind,
    /// Content, in order. A model that interleaves text and speech has many parts.
    pub parts: Vec<MessagePart>,
}

impl Message {
    /// Creates a message of text.
    pub fn text(kind: MessageKind, ids: Vec<u32>) -> Self {
        Self { kind, parts: vec![MessagePart::Text(ids)] }
    }

    /// Creates a user message of audio.
    pub fn audio(windows: Vec<Arc<AudioRows>>) -> Self {
        Self { kind: MessageKind::User, parts: vec![MessagePart::Audio(windows)] }
    }

    /// True if it has no content.
    pub fn is_empty(&self) -> bool {
        self.parts.iter().all(MessagePart::is_empty)
    }

    /// Drops all of its content.
    pub fn clear(&mut self) {
        self.parts.clear();
    }

    /// Appends a text token.
    pub fn push_token(&mut self, id: u32) {
        match self.parts.last_mut() {
            Some(MessagePart::Text(ids)) => ids.push(id),
            _ => self.parts.push(MessagePart::Text(vec![id])),
        }
    }

    /// Adds one position of the model's own speech after the first `tokens` tokens and the speech that follows them;
    /// `None` for the end.
    pub fn push_codes(&mut self, position: Arc<[u32]>, tokens: Option<usize>) {
        let at = tokens.map_or(self.parts.len(), |tokens| self.split_text(tokens));
        match at.checked_sub(1).and_then(|before| self.parts.get_mut(before)) {
            Some(MessagePart::Speech(codes)) => codes.push(position),
            _ => self.parts.insert(at, MessagePart::Speech(vec![position])),
        }
    }

    /// Splits the part that holds token `tokens`, so that a part begins with it. Returns the index of that part, or the
    /// number of parts if there are fewer tokens.
    fn split_text(&mut self, tokens: usize) -> usize {
        let mut left = tokens;
        let cut = self.parts.iter_mut().enumerate().find_map(|(at, part)| match part {
            MessagePart::Text(ids) if ids.len() > left => Some((at, ids.split_off(left))),
            MessagePart::Text(ids) => {
                left -= ids.len();
                None
            }
            _ => None,
        });
        let Some((at, rest)) = cut else { return self.parts.len() };
        if matches!(&self.parts[at], MessagePart::Text(ids) if ids.is_empty()) {
            self.parts[at] = MessagePart::Text(rest);
            return at;
        }
        self.parts.insert(at + 1, MessagePart::Text(rest));
        at + 1
    }

    /// Appends an encoded window; false if the message is not audio.
    pub fn push_window(&mut self, window: Arc<AudioRows>) -> bool {
        let Some(MessagePart::Audio(windows)) = self.parts.last_mut() else { return false };
        windows.push(window);
        true
    }

    /// Ids of all of its text.
    pub fn token_ids(&self) -> impl Iterator<Item = u32> {
        self.parts
            .iter()
            .flat_map(|part| match part {
                MessagePart::Text(ids) => &ids[..],
                _ => &[],
            })
            .copied()
    }

    /// Keeps the first `tokens` tokens and the parts before the next one, then appends `rest`. Speech after the last
    /// kept token is kept if every token before it is.
    pub fn truncate_text(&mut self, tokens: usize, rest: Vec<u32>) {
        let mut left = tokens;
        let mut kept = Vec::new();
        for part in self.parts.drain(..) {
            match part {
                MessagePart::Text(mut ids) => {
                    let cut = ids.len() > left;
                    ids.truncate(left);
                    left -= ids.len();
                    kept.push(MessagePart::Text(ids));
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

    /// Builds a message of interleaved text and speech.
    fn interleaved() -> Message {
        let mut message = Message { kind: MessageKind::Assistant, parts: Vec::new() };
        for id in 0..4 {
            message.push_token(id);
            message.push_codes(Arc::from([10 * id, 10 * id + 1]), None);
            message.push_codes(Arc::from([10 * id + 2, 10 * id + 3]), None);
        }
        message
    }

    fn shown(message: &Message) -> Vec<Vec<u32>> {
        message
            .parts
            .iter()
            .map(|part| match part {
                MessagePart::Text(ids) => ids.clone(),
                MessagePart::Speech(codes) => codes.iter().flat_map(|codes| codes.iter().copied()).collect(),
                MessagePart::Audio(_) => Vec::new(),
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
        // Two positions of speech for each token; the text is ahead by 0 to 4 tokens.
        for ahead in 0..=4 {
            let mut message = Message { kind: MessageKind::Assistant, parts: Vec::new() };
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
        let window = |count| Arc::new(AudioRows { rows: Vec::new(), count });
        let (a, b) = (window(2), window(2));
        let row = |window: &Arc<AudioRows>, row| Element {
            role: Role::User,
            value: ElementValue::Audio { window: Arc::clone(window), row },
        };
        assert!(row(&a, 1) == row(&a, 1));
        assert!(row(&a, 1) != row(&a, 0) && row(&a, 1) != row(&b, 1));
        assert!(Element::token(Role::User, 1) != Element::token(Role::Assistant, 1));
        assert!(Element::codes(Arc::from([1, 2])) == Element::codes(Arc::from([1, 2])));
    }
}
