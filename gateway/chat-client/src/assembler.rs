//! Assembles calls of functions from their pieces.
//!
//! By the published API a piece names its call by index, and the first piece has identifier and name. Servers differ: they
//! repeat identifier or name in every piece, leave out index or identifier, send whole calls at once, or send parallel
//! calls that all have index 0.

use serde::de::IgnoredAny;
use serde_json::Value;

use crate::chunk::ToolCallDelta;
use crate::event::ChatEvent;
use crate::failure::{BoundedPart, ChatFailure};
use crate::tool_call::ToolCall;

/// Maximum length of an identifier and of a name, in bytes.
const MAX_NAME: usize = 256;

/// A call of which pieces have come.
#[derive(Debug, Default)]
struct PendingCall {
    index: Option<u64>,
    id: String,
    name: String,
    arguments: String,
    /// Its begin has been reported.
    begun: bool,
}

impl PendingCall {
    /// True if the arguments are a whole JSON value.
    fn is_whole(&self) -> bool {
        serde_json::from_str::<IgnoredAny>(&self.arguments).is_ok()
    }

    /// Reports the begin, with the arguments that have come before the name.
    fn begin(&mut self, position: usize, out: &mut Vec<ChatEvent>) {
        if self.begun {
            return;
        }
        self.begun = true;
        if self.id.is_empty() {
            self.id = made_up_id(position);
        }
        out.push(ChatEvent::ToolCallBegin { position, id: self.id.clone(), name: self.name.clone() });
        if !self.arguments.is_empty() {
            out.push(ChatEvent::ToolCallArguments { position, delta: self.arguments.clone() });
        }
    }
}

/// Returns an identifier that no other call of a conversation has.
fn made_up_id(position: usize) -> String {
    format!("call_{:016x}", getrandom::u64().unwrap_or(position as u64))
}

/// Calls of one answer.
#[derive(Debug)]
pub(crate) struct ToolCallAssembler {
    max_calls: usize,
    /// Maximum bytes of the arguments of one call.
    max_arguments: usize,
    calls: Vec<PendingCall>,
    /// Position of the call that the last piece belonged to.
    last: Option<usize>,
}

impl ToolCallAssembler {
    /// Creates an assembler of at most `max_calls` calls, with at most `max_arguments` bytes of arguments each.
    pub fn new(max_calls: usize, max_arguments: usize) -> Self {
        Self { max_calls, max_arguments, calls: Vec::new(), last: None }
    }

    /// Adds a piece and reports its events. Returns the bytes of arguments that it adds.
    pub fn add(&mut self, delta: ToolCallDelta, out: &mut Vec<ChatEvent>) -> Result<usize, ChatFailure> {
        let function = delta.function.unwrap_or_default();
        let id = delta.id.unwrap_or_default();
        let name = function.name.unwrap_or_default();
        let arguments = match function.arguments {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(text)) => text,
            Some(other) => other.to_string(),
        };
        if id.len().max(name.len()) > MAX_NAME {
            return Err(ChatFailure::TooLarge { part: BoundedPart::ToolCall, limit: MAX_NAME });
        }
        let position = match self.find(delta.index, &id, &name) {
            Some(position) => position,
            None if self.calls.len() == self.max_calls => {
                return Err(ChatFailure::TooLarge { part: BoundedPart::ToolCalls, limit: self.max_calls });
            }
            None => {
                // Another call begins: the names of those before are whole.
                for (position, call) in self.calls.iter_mut().enumerate().filter(|(_, call)| !call.name.is_empty()) {
                    call.begin(position, out);
                }
                self.calls.push(PendingCall { index: delta.index, ..PendingCall::default() });
                self.calls.len() - 1
            }
        };
        self.last = Some(position);
        let call = &mut self.calls[position];
        if call.id.is_empty() {
            call.id = id;
        }
        if !call.begun && call.name != name {
            if call.name.len() + name.len() > MAX_NAME {
                return Err(ChatFailure::TooLarge { part: BoundedPart::ToolCall, limit: MAX_NAME });
            }
            call.name.push_str(&name);
        }
        if call.arguments.len() + arguments.len() > self.max_arguments {
            return Err(ChatFailure::TooLarge { part: BoundedPart::ToolCall, limit: self.max_arguments });
        }
        call.arguments.push_str(&arguments);
        if arguments.is_empty() || call.name.is_empty() {
            // The name may have more pieces until the arguments begin.
        } else if call.begun {
            out.push(ChatEvent::ToolCallArguments { position, delta: arguments.clone() });
        } else {
            call.begin(position, out);
        }
        Ok(arguments.len())
    }

    /// Finds the call that a piece continues; `None` for a new one.
    fn find(&self, index: Option<u64>, id: &str, name: &str) -> Option<usize> {
        let (candidate, by_id) = match index {
            Some(index) => (self.calls.iter().rposition(|call| call.index == Some(index)), false),
            None if !id.is_empty() => match self.calls.iter().position(|call| call.id == id) {
                Some(position) => (Some(position), true),
                None => (self.last, false),
            },
            None => (self.last, false),
        };
        let position = candidate?;
        let call = &self.calls[position];
        let other_id = !id.is_empty() && !call.id.is_empty() && call.id != id;
        let begins = if by_id || name.is_empty() {
            // Without an index, another identifier is another call even before its name.
            other_id && index.is_none()
        } else {
            // A name begins a call, unless it comes in pieces or the server repeats it in every piece.
            let same_id = !id.is_empty() && call.id == id;
            let whole = call.is_whole() || (index.is_none() && (call.name != name || call.arguments.is_empty()));
            other_id || (!same_id && !call.name.is_empty() && whole)
        };
        (!begins).then_some(position)
    }

    /// Ends the answer: reports each call as a whole.
    pub fn finish(&mut self, out: &mut Vec<ChatEvent>) -> Result<(), ChatFailure> {
        for (position, mut call) in std::mem::take(&mut self.calls).into_iter().enumerate() {
            if call.name.is_empty() {
                let reason = "a function call has no name".to_owned();
                return Err(ChatFailure::InvalidShape { reason });
            }
            call.begin(position, out);
            let PendingCall { id, name, mut arguments, .. } = call;
            if arguments.trim().is_empty() {
                "{}".clone_into(&mut arguments);
            }
            out.push(ChatEvent::ToolCall { position, tool_call: ToolCall { id, name, arguments } });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn add_all(assembler: &mut ToolCallAssembler, deltas: Value) -> Result<Vec<ChatEvent>, ChatFailure> {
        let mut events = Vec::new();
        for delta in deltas.as_array().unwrap() {
            assembler.add(serde_json::from_value(delta.clone()).unwrap(), &mut events)?;
        }
        assembler.finish(&mut events)?;
        Ok(events)
    }

    /// Returns identifier, name and arguments of the calls, after a check that their pieces add up.
    fn calls(deltas: Value) -> Vec<(String, String, String)> {
        let events = add_all(&mut ToolCallAssembler::new(8, 1_000), deltas).unwrap();
        let mut begun: Vec<(String, String, String)> = Vec::new();
        let mut whole = Vec::new();
        for event in events {
            match event {
                ChatEvent::ToolCallBegin { position, id, name } => {
                    assert_eq!(position, begun.len());
                    begun.push((id, name, String::new()));
                }
                ChatEvent::ToolCallArguments { position, delta } => begun[position].2.push_str(&delta),
                ChatEvent::ToolCall { position, tool_call } => {
                    assert_eq!(position, whole.len());
                    whole.push((tool_call.id, tool_call.name, tool_call.arguments));
                }
                other => panic!("{other:?}"),
            }
        }
        for call in begun.iter_mut().filter(|call| call.2.is_empty()) {
            call.2 = "{}".to_owned();
        }
        assert_eq!(begun, whole);
        whole
    }

    fn call(id: &str, name: &str, arguments: &str) -> (String, String, String) {
        (id.to_owned(), name.to_owned(), arguments.to_owned())
    }

    #[test]
    fn pieces_join_by_index() {
        let found = calls(json!([
            {"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": ""}},
            {"index": 0, "function": {"arguments": "{\"x\""}},
            {"index": 1, "id": "b", "type": "function", "function": {"name": "g", "arguments": ""}},
            {"index": 0, "function": {"arguments": ": 1}"}},
            {"index": 1, "function": {"arguments": "{}"}},
        ]));
        assert_eq!(found, [call("a", "f", "{\"x\": 1}"), call("b", "g", "{}")]);
    }

    #[test]
    fn repeated_ids_and_names_continue_a_call() {
        let found = calls(json!([
            {"index": 0, "id": "a", "function": {"name": "f", "arguments": "{\"x\""}},
            {"index": 0, "id": "a", "function": {"name": "f", "arguments": ": 1"}},
            {"index": 0, "id": "a", "function": {"name": "f", "arguments": "}"}},
            {"index": 0, "id": "a", "function": {"name": "f", "arguments": ""}},
        ]));
        assert_eq!(found, [call("a", "f", "{\"x\": 1}")]);
        let found = calls(json!([
            {"id": "a", "function": {"name": "f", "arguments": "{"}},
            {"id": "b", "function": {"name": "f", "arguments": "{"}},
            {"id": "a", "function": {"name": "f", "arguments": "}"}},
            {"id": "b", "function": {"arguments": "}"}},
        ]));
        assert_eq!(found, [call("a", "f", "{}"), call("b", "f", "{}")]);
    }

    #[test]
    fn changing_ids_without_names_continue_by_index() {
        let found = calls(json!([
            {"index": 0, "id": "a", "function": {"name": "f", "arguments": "{"}},
            {"index": 0, "id": "b", "function": {"arguments": "}"}},
        ]));
        assert_eq!(found, [call("a", "f", "{}")]);
    }

    #[test]
    fn whole_calls_at_one_index_stay_apart() {
        let found = calls(json!([
            {"index": 0, "id": "a", "function": {"name": "f", "arguments": "{\"x\": 1}"}},
            {"index": 0, "id": "b", "function": {"name": "f", "arguments": "{\"x\": 2}"}},
        ]));
        assert_eq!(found, [call("a", "f", "{\"x\": 1}"), call("b", "f", "{\"x\": 2}")]);
        let found = calls(json!([
            {"index": 0, "id": "", "function": {"name": "f", "arguments": "{}"}},
            {"index": 0, "id": "", "function": {"name": "f", "arguments": "{}"}},
        ]));
        assert!(found.len() == 2 && found[0].0 != found[1].0, "{found:?}");
        assert!(found.iter().all(|(id, ..)| id.starts_with("call_")), "{found:?}");
    }

    #[test]
    fn names_alone_tell_calls_apart() {
        let found = calls(json!([
            {"function": {"name": "f"}},
            {"function": {"name": "f", "arguments": "{"}},
            {"function": {"name": "f", "arguments": "}"}},
            {"function": {"name": "g", "arguments": {}}},
        ]));
        let found: Vec<_> = found.iter().map(|(_, name, arguments)| (name.as_str(), arguments.as_str())).collect();
        assert_eq!(found, [("f", "{}"), ("f", "{}"), ("g", "{}")]);
    }

    #[test]
    fn missing_index_is_found() {
        let found = calls(json!([
            {"id": "a", "function": {"name": "f", "arguments": "{\"x\""}},
            {"function": {"arguments": ": 1}"}},
            {"id": "b", "function": {"name": "g", "arguments": "{}"}},
            {"id": "c", "function": {"name": "g"}},
            {"function": {"arguments": "{\"y\": 2}"}},
        ]));
        assert_eq!(found, [call("a", "f", "{\"x\": 1}"), call("b", "g", "{}"), call("c", "g", "{\"y\": 2}")]);
    }

    #[test]
    fn new_id_without_index_begins_a_call() {
        let found = calls(json!([
            {"id": "a", "function": {"name": "f", "arguments": "{}"}},
            {"id": "b"},
            {"function": {"name": "g", "arguments": "{}"}},
        ]));
        assert_eq!(found, [call("a", "f", "{}"), call("b", "g", "{}")]);
    }

    #[test]
    fn late_names_and_split_names_join() {
        let found = calls(json!([
            {"index": 5, "id": "a", "function": {"arguments": "{"}},
            {"index": 5, "function": {"name": "get_"}},
            {"index": 9, "id": "b", "function": {"name": "get_"}},
            {"index": 9, "function": {"name": "time"}},
            {"index": 5, "function": {"arguments": "}"}},
        ]));
        assert_eq!(found, [call("a", "get_", "{}"), call("b", "get_time", "{}")]);
    }

    #[test]
    fn argument_objects_become_text() {
        let found = calls(json!([
            {"index": 0, "id": "a", "function": {"name": "f", "arguments": {"x": 1}}},
            {"index": 1, "id": "b", "function": {"name": "f", "arguments": null}},
        ]));
        assert_eq!(found, [call("a", "f", "{\"x\":1}"), call("b", "f", "{}")]);
    }

    #[test]
    fn calls_are_bounded() {
        let too_large = |part, limit| Err(ChatFailure::TooLarge { part, limit });
        let many: Vec<_> = (0..3).map(|index| json!({"index": index, "function": {"name": "f"}})).collect();
        let found = add_all(&mut ToolCallAssembler::new(2, 10), many.into());
        assert_eq!(found, too_large(BoundedPart::ToolCalls, 2));
        let found = add_all(
            &mut ToolCallAssembler::new(2, 10),
            json!([
                {"index": 0, "function": {"name": "f", "arguments": "123456"}},
                {"index": 0, "function": {"arguments": "78901"}},
            ]),
        );
        assert_eq!(found, too_large(BoundedPart::ToolCall, 10));
        for field in [json!({"id": "x".repeat(257)}), json!({"function": {"name": "x".repeat(257)}})] {
            let found = add_all(&mut ToolCallAssembler::new(2, 10), json!([field]));
            assert_eq!(found, too_large(BoundedPart::ToolCall, MAX_NAME));
        }
        let halves = json!([{"index": 0, "function": {"name": "x".repeat(200)}}, {"index": 0, "function": {"name": "y".repeat(200)}}]);
        let found = add_all(&mut ToolCallAssembler::new(2, 10), halves);
        assert_eq!(found, too_large(BoundedPart::ToolCall, MAX_NAME));
    }

    #[test]
    fn nameless_call_is_an_error() {
        let found = add_all(&mut ToolCallAssembler::new(2, 10), json!([{"index": 0, "id": "a"}]));
        assert!(matches!(found, Err(ChatFailure::InvalidShape { .. })), "{found:?}");
    }
}
