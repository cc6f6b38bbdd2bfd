//! Function calls that a model repeats in place of an answer. Small models call again although the result is there, and a
//! client that runs every call would go on for ever: nothing is said.

use repartee_engine_api::{MessageContent, ResponseInput, Role, Tool};
use repartee_protocol::item::{FunctionCall, Item, ItemContent, ItemRole, ItemStatus};
use serde_json::{Map, Value};

use super::history::HistoryEntry;

/// A call that was made twice since the caller's last message.
#[derive(Debug)]
pub(super) struct RepeatedCall {
    /// Name of the function.
    pub name: String,
    /// The conversation with the last of the equal calls alone. Calls stand as the template writes them: a model that reads
    /// its own spelling of them twice goes on with it.
    pub input: Vec<ResponseInput>,
}

impl RepeatedCall {
    /// Finds the last call since the caller's last message, if the same call was made before it: of the same function, with
    /// equal values for those arguments that the function has.
    pub fn find(entries: &[HistoryEntry], tools: &[Tool]) -> Option<Self> {
        let is_callers =
            |entry: &HistoryEntry| matches!(&entry.item, Item::Message(message) if message.role == ItemRole::User);
        let since = entries.iter().rposition(is_callers).map_or(0, |at| at + 1);
        let (before, turn) = entries.split_at(since);
        let last = turn.iter().rev().find_map(completed_call)?;
        let arguments = known_arguments(last, tools)?;
        let is_same =
            |call: &FunctionCall| call.name == last.name && known_arguments(call, tools).as_ref() == Some(&arguments);
        let is_earlier = |call: &FunctionCall| call.call_id != last.call_id && is_same(call);
        let earlier: Vec<&str> = turn
            .iter()
            .filter_map(completed_call)
            .filter(|call| is_earlier(call))
            .filter_map(|call| call.call_id.as_deref())
            .collect();
        if earlier.is_empty() {
            return None;
        }
        let known = before.iter().flat_map(|entry| entry.engine.iter().copied().map(ResponseInput::Item));
        let own = turn.iter().filter_map(|entry| content(entry, &earlier)).map(ResponseInput::Content);
        Some(Self { name: last.name.clone(), input: known.chain(own).collect() })
    }
}

fn completed_call(entry: &HistoryEntry) -> Option<&FunctionCall> {
    match &entry.item {
        Item::FunctionCall(call) if call.status == ItemStatus::Completed => Some(call),
        _ => None,
    }
}

/// Content of an item of the turn; `None` for the calls of these ids and their results, and for an item without text.
fn content(entry: &HistoryEntry, left_out: &[&str]) -> Option<MessageContent> {
    let is_kept = |id: Option<&str>| id.is_none_or(|id| !left_out.contains(&id));
    match &entry.item {
        Item::FunctionCall(call) => completed_call(entry).filter(|call| is_kept(call.call_id.as_deref())).map(|_| {
            let arguments = if call.arguments.trim().is_empty() { "{}" } else { &call.arguments };
            MessageContent::ToolCall { name: call.name.clone(), arguments: arguments.to_owned() }
        }),
        Item::FunctionCallOutput(output) => {
            is_kept(Some(&output.call_id)).then(|| MessageContent::ToolResult(output.output.clone()))
        }
        Item::Message(message) => {
            let role = match message.role {
                ItemRole::System => Role::System,
                ItemRole::User => Role::User,
                ItemRole::Assistant => Role::Assistant,
            };
            let text = message.content.iter().find_map(|part| match part {
                ItemContent::OutputText { text } | ItemContent::InputText { text } => Some(text.clone()),
                ItemContent::OutputAudio { transcript } => transcript.clone(),
                ItemContent::InputAudio { .. } | ItemContent::InputImage { .. } => None,
            });
            text.filter(|text| !text.is_empty()).map(|text| MessageContent::Text { role, text })
        }
    }
}

/// Arguments of a call that its function lists as properties, or all of them where it lists none; `None` if they are not an
/// object.
fn known_arguments(call: &FunctionCall, tools: &[Tool]) -> Option<Map<String, Value>> {
    let text = if call.arguments.trim().is_empty() { "{}" } else { &call.arguments };
    let mut arguments: Map<String, Value> = serde_json::from_str(text).ok()?;
    let tool = tools.iter().find(|tool| tool.name == call.name);
    let schema: Option<Value> = tool.and_then(|tool| serde_json::from_str(&tool.parameters).ok());
    if let Some(known) = schema.as_ref().and_then(|schema| schema.get("properties")?.as_object()) {
        arguments.retain(|name, _| known.contains_key(name));
    }
    Some(arguments)
}
