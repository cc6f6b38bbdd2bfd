//! Function calls that a model repeats in place of an answer. Small models call again although the result is there, and a
//! client that runs every call would go on for ever: nothing is said.

use repartee_engine_api::Tool;
use repartee_protocol::item::{FunctionCall, Item, ItemRole, ItemStatus};
use serde_json::{Map, Value};

use super::history::HistoryEntry;

/// Returns the name of the last function call since the caller's last message, if the same call was made before it: of the
/// same function, with equal values for those arguments that the function has.
pub(super) fn repeated<'a>(entries: &'a [HistoryEntry], tools: &[Tool]) -> Option<&'a str> {
    let is_callers =
        |entry: &HistoryEntry| matches!(&entry.item, Item::Message(message) if message.role == ItemRole::User);
    let since = entries.iter().rposition(is_callers).map_or(0, |at| at + 1);
    let mut calls = entries[since..].iter().rev().filter_map(|entry| match &entry.item {
        Item::FunctionCall(call) if call.status == ItemStatus::Completed => Some(call),
        _ => None,
    });
    let last = calls.next()?;
    let arguments = known_arguments(last, tools)?;
    let same =
        |call: &FunctionCall| call.name == last.name && known_arguments(call, tools).as_ref() == Some(&arguments);
    calls.any(same).then_some(last.name.as_str())
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
