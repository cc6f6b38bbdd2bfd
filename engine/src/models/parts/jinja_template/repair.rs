//! Conversations in the form that strict templates ask for. Callers of a voice service speak twice in a row, interrupt,
//! and give instructions midway; some published templates refuse all of that.

use repartee_engine_api::Role;

use crate::elements::MessageKind;

/// Text between contents that become one message.
pub const BETWEEN: &str = "\n";

/// A message of text on its way to the template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromptMessage {
    /// Role in the template.
    pub role: Role,
    /// Kind of the history's message.
    pub kind: MessageKind,
    /// Content as text.
    pub text: String,
    /// Content as ids.
    pub ids: Vec<u32>,
}

impl PromptMessage {
    /// Appends another content; `between` are the ids of [`BETWEEN`].
    fn append(&mut self, other: &Self, between: &[u32]) {
        if !self.text.is_empty() && !other.text.is_empty() {
            self.text.push_str(BETWEEN);
            self.ids.extend(between);
        }
        self.text.push_str(&other.text);
        self.ids.extend(&other.ids);
        self.kind = other.kind;
    }
}

/// Joins neighbours that `is_one` takes for one message.
fn joined(
    messages: impl IntoIterator<Item = PromptMessage>,
    between: &[u32],
    is_one: impl Fn(&PromptMessage, &PromptMessage) -> bool,
) -> Vec<PromptMessage> {
    let mut joined: Vec<PromptMessage> = Vec::new();
    for message in messages {
        match joined.last_mut().filter(|last| is_one(last, &message)) {
            Some(last) => last.append(&message, between),
            None => joined.push(message),
        }
    }
    joined
}

/// Joins a call to the assistant's message before it, and a result to the result before it: templates write them as one
/// message. `between` are the ids of [`BETWEEN`].
pub fn with_calls_joined(messages: Vec<PromptMessage>, between: &[u32]) -> Vec<PromptMessage> {
    joined(messages, between, |last, next| {
        matches!(
            (last.kind, next.kind),
            (MessageKind::Assistant | MessageKind::ToolCall, MessageKind::ToolCall)
                | (MessageKind::ToolResult, MessageKind::ToolResult)
        )
    })
}

/// Forms of a conversation, from the one that it has to the strictest: as it is; one system message, then the caller
/// and the model in turns, the caller first; the same with the instructions at the beginning of the caller's first
/// message. `between` are the ids of [`BETWEEN`].
///
/// Calls and results that are `structured` stay messages of their own, which are no turns; a caller who speaks after a result
/// gets an empty answer before.
pub fn repaired(messages: &[PromptMessage], between: &[u32], structured: bool) -> [Vec<PromptMessage>; 3] {
    let empty = |role: Role, kind: MessageKind| PromptMessage { role, kind, text: String::new(), ids: Vec::new() };
    let apart =
        |message: &PromptMessage| structured && matches!(message.kind, MessageKind::ToolCall | MessageKind::ToolResult);
    let (system, others): (Vec<_>, Vec<_>) = messages.iter().cloned().partition(|message| message.role == Role::System);
    let system = joined(system, between, |_, _| true);
    let mut turns: Vec<PromptMessage> = Vec::new();
    for next in joined(others, between, |last, next| last.role == next.role && !apart(last) && !apart(next)) {
        let is_result = turns.last().is_some_and(|last| apart(last) && last.kind == MessageKind::ToolResult);
        if is_result && next.role == Role::User && !apart(&next) {
            turns.push(empty(Role::Assistant, MessageKind::Assistant));
        }
        turns.push(next);
    }
    if turns.first().is_none_or(|first| first.role == Role::Assistant || apart(first)) {
        turns.insert(0, empty(Role::User, MessageKind::User));
    }
    let with_system = [&system[..], &turns].concat();
    let mut without_system = turns;
    if let (Some(system), Some(first)) = (system.into_iter().next(), without_system.first_mut()) {
        let mut both = PromptMessage { role: Role::User, ..system };
        both.append(first, between);
        *first = both;
    }
    [messages.to_vec(), with_system, without_system]
}
