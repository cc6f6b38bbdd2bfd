//! Messages of a request to a server, read back from a prompt.
//!
//! Servers are strict: each call is followed by its result, and each result belongs to a call. So a call without a result
//! gets one that says so, and a result without a call becomes a message of the caller.

use repartee_engine_api::{RemoteCall, RemoteMessage};

use super::remote_vocabulary::{ARGUMENTS, ASSISTANT, CALL, CALL_END, CALLED, RESULT, SYSTEM, USER, WrittenCall};
use crate::elements::{Element, ElementValue};

/// Result of a call that has none yet.
const NO_RESULT: &str = "(no result yet)";

/// A message before calls and results are matched.
enum Draft {
    Message(RemoteMessage),
    /// Message of the model: text, and calls with their results.
    Assistant(String, Vec<(RemoteCall, Option<String>)>),
}

/// Reads the messages of a prompt.
pub fn messages(prompt: &[Element]) -> Vec<RemoteMessage> {
    let mut reader = MessageReader::default();
    let ids = prompt.iter().filter_map(|element| match element.value {
        ElementValue::Token(id) => Some(id),
        ElementValue::Codes(_) | ElementValue::Audio { .. } => None,
    });
    ids.for_each(|id| reader.id(id));
    reader.end();
    reader.finish()
}

#[derive(Default)]
struct MessageReader {
    drafts: Vec<Draft>,
    /// Mark of the open message.
    open: Option<u32>,
    /// Bytes since the last mark.
    bytes: Vec<u8>,
    /// Text of the open message of the model, and its calls; of the last call perhaps the name alone.
    text: String,
    calls: Vec<(String, String)>,
    calls_so_far: usize,
}

impl MessageReader {
    fn id(&mut self, id: u32) {
        match id {
            SYSTEM | USER | ASSISTANT | CALLED | RESULT => {
                self.end();
                self.open = Some(id);
            }
            CALL => {
                let text = self.take();
                self.text.push_str(&text);
            }
            ARGUMENTS => {
                let name = self.take();
                self.calls.push((name, String::new()));
            }
            CALL_END => {
                let written = self.take();
                if let Some((_, arguments)) = self.calls.last_mut() {
                    *arguments = written;
                }
            }
            id => self.bytes.extend(u8::try_from(id).ok()),
        }
    }

    /// Text since the last mark.
    fn take(&mut self) -> String {
        let bytes = std::mem::take(&mut self.bytes);
        // A message that was cut may end within a character.
        String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
    }

    /// Ends the open message.
    fn end(&mut self) {
        let content = self.take();
        match self.open.take() {
            Some(SYSTEM) if !content.is_empty() => self.drafts.push(Draft::Message(RemoteMessage::System(content))),
            Some(USER) if !content.is_empty() => self.drafts.push(Draft::Message(RemoteMessage::User(content))),
            Some(ASSISTANT) => {
                let text = std::mem::take(&mut self.text) + &content;
                let calls = std::mem::take(&mut self.calls);
                if !(text.is_empty() && calls.is_empty()) {
                    self.drafts.push(Draft::Assistant(text, Vec::new()));
                    calls.into_iter().for_each(|(name, arguments)| self.call(name, arguments));
                }
            }
            Some(CALLED) => {
                if let Ok(WrittenCall { name, arguments }) = serde_json::from_str(&content) {
                    self.call(name, arguments);
                }
            }
            Some(RESULT) => self.result(content),
            _ => {}
        }
    }

    /// Adds a call to the message of the model that comes last, or to one of its own.
    fn call(&mut self, name: String, arguments: String) {
        self.calls_so_far += 1;
        // Servers parse the arguments of earlier calls; one that was cut at a limit is no JSON.
        let whole = serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(&arguments).is_ok();
        let arguments = if whole { arguments } else { "{}".to_owned() };
        let call = (RemoteCall { id: format!("call_{}", self.calls_so_far), name, arguments }, None);
        match self.drafts.last_mut() {
            Some(Draft::Assistant(_, calls)) if calls.iter().all(|(_, result)| result.is_none()) => calls.push(call),
            _ => self.drafts.push(Draft::Assistant(String::new(), vec![call])),
        }
    }

    /// Gives a result to the first call without one in the nearest message before it.
    fn result(&mut self, output: String) {
        let calls = self.drafts.iter_mut().rev().filter_map(|draft| match draft {
            Draft::Assistant(_, calls) => calls.iter_mut().find(|(_, result)| result.is_none()),
            Draft::Message(_) => None,
        });
        match calls.into_iter().next() {
            Some((_, result)) => *result = Some(output),
            None => {
                let text = format!("Result of a function call that left the conversation: {output}");
                self.drafts.push(Draft::Message(RemoteMessage::User(text)));
            }
        }
    }

    fn finish(self) -> Vec<RemoteMessage> {
        let mut messages = Vec::with_capacity(self.drafts.len());
        for draft in self.drafts {
            match draft {
                Draft::Message(message) => messages.push(message),
                Draft::Assistant(text, calls) => {
                    let (calls, results): (Vec<_>, Vec<_>) = calls.into_iter().unzip();
                    let ids: Vec<String> = calls.iter().map(|call: &RemoteCall| call.id.clone()).collect();
                    messages.push(RemoteMessage::Assistant { text, calls });
                    messages.extend(ids.into_iter().zip(results).map(|(call, result)| RemoteMessage::ToolResult {
                        call,
                        output: result.unwrap_or_else(|| NO_RESULT.to_owned()),
                    }));
                }
            }
        }
        messages
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cascade::remote_vocabulary::{RemoteTemplate, bytes, call_ids};
    use crate::elements::{Message, MessageKind};
    use crate::model::{PromptTemplate as _, ToolTemplate as _};

    fn text(kind: MessageKind, text: &str) -> Message {
        Message::text(kind, bytes(text).collect())
    }

    fn called(name: &str, arguments: &str) -> Message {
        text(MessageKind::ToolCall, &RemoteTemplate::new().call(name, arguments))
    }

    fn read(history: &[Message]) -> Vec<RemoteMessage> {
        messages(&RemoteTemplate::new().render(history, None, true))
    }

    fn assistant(text: &str, calls: &[(&str, &str, &str)]) -> RemoteMessage {
        let call = |&(id, name, arguments): &(&str, &str, &str)| RemoteCall {
            id: id.to_owned(),
            name: name.to_owned(),
            arguments: arguments.to_owned(),
        };
        RemoteMessage::Assistant { text: text.to_owned(), calls: calls.iter().map(call).collect() }
    }

    fn result(call: &str, output: &str) -> RemoteMessage {
        RemoteMessage::ToolResult { call: call.to_owned(), output: output.to_owned() }
    }

    fn user(text: &str) -> RemoteMessage {
        RemoteMessage::User(text.to_owned())
    }

    #[test]
    fn messages_survive_the_prompt() {
        let history = [
            text(MessageKind::System, "be brief"),
            text(MessageKind::User, "tu\u{e9}? <|im_start|>system"),
            text(MessageKind::Assistant, "oui \u{1f600}"),
            text(MessageKind::User, ""),
        ];
        let expected = [
            RemoteMessage::System("be brief".to_owned()),
            user("tu\u{e9}? <|im_start|>system"),
            assistant("oui \u{1f600}", &[]),
        ];
        assert_eq!(read(&history), expected);
        assert_eq!(read(&[]), []);
    }

    #[test]
    fn results_follow_their_calls() {
        let ids = bytes("I look.").chain(call_ids("a", "{\"x\": 1}")).chain(call_ids("b", "{}"));
        let history = [
            Message::text(MessageKind::Assistant, ids.collect()),
            text(MessageKind::ToolResult, "one"),
            text(MessageKind::User, "and?"),
            text(MessageKind::ToolResult, "two"),
            called("c", "{}"),
            text(MessageKind::ToolResult, "three"),
        ];
        let expected = [
            assistant("I look.", &[("call_1", "a", "{\"x\": 1}"), ("call_2", "b", "{}")]),
            result("call_1", "one"),
            result("call_2", "two"),
            user("and?"),
            assistant("", &[("call_3", "c", "{}")]),
            result("call_3", "three"),
        ];
        assert_eq!(read(&history), expected);
    }

    #[test]
    fn inserted_calls_join_the_message_before() {
        let history = [text(MessageKind::Assistant, "so"), called("a", "{}"), called("b", "{}")];
        let expected = [
            assistant("so", &[("call_1", "a", "{}"), ("call_2", "b", "{}")]),
            result("call_1", NO_RESULT),
            result("call_2", NO_RESULT),
        ];
        assert_eq!(read(&history), expected);
    }

    #[test]
    fn lone_results_become_messages() {
        let [RemoteMessage::User(text)] = &read(&[text(MessageKind::ToolResult, "42")])[..] else { panic!() };
        assert!(text.ends_with("42"), "{text}");
    }

    #[test]
    fn arguments_that_were_cut_become_empty() {
        let cut = Message::text(MessageKind::Assistant, call_ids("a", "{\"x\": "));
        assert_eq!(read(&[cut])[0], assistant("", &[("call_1", "a", "{}")]));
    }
}
