//! Turns the JSON of an answer into events, without I/O.

use serde_json::Value;
use serde_json::error::Category;

use crate::assembler::ToolCallAssembler;
use crate::chunk::{ChatChoice, ChatChunk, ChatContent, ChatDelta, WireError, token_usage};
use crate::event::{ChatEvent, FinishReason, TokenUsage};
use crate::failure::{BoundedPart, ChatFailure};
use crate::limits::Limits;
use crate::quote::{Quoter, prefix};
use crate::sse::SseEvent;

/// Data of the event that ends a stream.
const DONE: &str = "[DONE]";

/// Decoder of one answer.
#[derive(Debug)]
pub(crate) struct AnswerDecoder {
    quoter: Quoter,
    max_text: usize,
    tool_calls: ToolCallAssembler,
    /// Bytes of text, reasoning and arguments.
    bytes: usize,
    finish: Option<FinishReason>,
    usage: Option<TokenUsage>,
    done: bool,
    /// A choice has come, even an empty one.
    has_choices: bool,
}

impl AnswerDecoder {
    /// Creates a decoder. `quoter` shortens the server's messages.
    pub fn new(limits: &Limits, quoter: Quoter) -> Self {
        Self {
            quoter,
            max_text: limits.text,
            tool_calls: ToolCallAssembler::new(limits.tool_calls, limits.tool_call),
            bytes: 0,
            finish: None,
            usage: None,
            done: false,
            has_choices: false,
        }
    }

    /// True after `[DONE]`.
    pub fn is_done(&self) -> bool {
        self.done
    }

    /// True after a reason of the end: the answer is complete.
    pub fn is_finished(&self) -> bool {
        self.done || self.finish.is_some()
    }

    /// True if a choice has come.
    pub fn has_choices(&self) -> bool {
        self.has_choices
    }

    /// Decodes an event of the stream.
    pub fn event(&mut self, event: &SseEvent, out: &mut Vec<ChatEvent>) -> Result<(), ChatFailure> {
        let data = event.data.trim();
        if self.done || data.is_empty() {
            return Ok(());
        }
        if data == DONE {
            self.done = true;
            return Ok(());
        }
        if event.name == "error" {
            let error = serde_json::from_str(data).unwrap_or_else(|_| Value::String(data.to_owned()));
            return Err(self.failure_of(WireError::of_body(&error).unwrap_or_else(|| WireError::of(&error))));
        }
        let chunk = self.parse(data)?;
        self.chunk(chunk, out)
    }

    /// Decodes a whole answer: the JSON object of a server that does not stream.
    pub fn whole(&mut self, json: &str, out: &mut Vec<ChatEvent>) -> Result<(), ChatFailure> {
        let chunk = self.parse(json)?;
        if chunk.choices.is_none() && chunk.error.is_none() && chunk.object != Some(Value::from("error")) {
            let reason = format!("it has no choices: {}", self.quoter.quote(prefix(json, 200)));
            return Err(ChatFailure::InvalidShape { reason });
        }
        self.chunk(chunk, out)?;
        self.done = true;
        Ok(())
    }

    /// Ends the answer: reports calls, reason and usage.
    pub fn finish(&mut self, out: &mut Vec<ChatEvent>) -> Result<(), ChatFailure> {
        self.tool_calls.finish(out)?;
        out.extend(self.finish.take().map(ChatEvent::Finish));
        out.extend(self.usage.take().map(ChatEvent::Usage));
        Ok(())
    }

    fn parse(&self, json: &str) -> Result<ChatChunk, ChatFailure> {
        // Arrays deserialise as structs, field by field.
        if json.trim_start().starts_with('[') {
            let reason = "it is an array".to_owned();
            return Err(ChatFailure::InvalidShape { reason });
        }
        serde_json::from_str(json).map_err(|error| {
            let reason = self.quoter.quote(prefix(&error.to_string(), 400));
            match error.classify() {
                Category::Eof => ChatFailure::IncompleteJson { reason },
                Category::Data => ChatFailure::InvalidShape { reason },
                Category::Io | Category::Syntax => ChatFailure::InvalidJson { reason },
            }
        })
    }

    fn chunk(&mut self, chunk: ChatChunk, out: &mut Vec<ChatEvent>) -> Result<(), ChatFailure> {
        if let Some(error) = &chunk.error {
            return Err(self.failure_of(WireError::of(error)));
        }
        if chunk.object.as_ref().and_then(Value::as_str) == Some("error") {
            let text = |value: &Option<Value>| value.as_ref().map(|value| WireError::of(value).message);
            let message = text(&chunk.message).unwrap_or_default();
            return Err(self.failure_of(WireError { message, code: text(&chunk.code) }));
        }
        if let Some(usage) = chunk.usage.as_ref().and_then(token_usage) {
            self.usage = Some(usage);
        }
        for choice in chunk.choices.unwrap_or_default() {
            if choice.index.unwrap_or(0) == 0 {
                self.has_choices = true;
                self.choice(choice, out)?;
            }
        }
        Ok(())
    }

    fn choice(&mut self, choice: ChatChoice, out: &mut Vec<ChatEvent>) -> Result<(), ChatFailure> {
        if let Some(delta) = choice.delta {
            self.delta(delta, out)?;
        }
        if let Some(reason) = choice.finish_reason.filter(|reason| !reason.is_empty()) {
            self.finish = Some(FinishReason::parse(&reason));
        }
        Ok(())
    }

    fn delta(&mut self, delta: ChatDelta, out: &mut Vec<ChatEvent>) -> Result<(), ChatFailure> {
        // Some servers send the reasoning under both names.
        let reasoning = delta.reasoning_content.filter(|text| !text.is_empty()).or(delta.reasoning);
        self.text(reasoning, ChatEvent::Reasoning, out)?;
        match delta.content {
            None => {}
            Some(ChatContent::Text(text)) => self.text(Some(text), ChatEvent::Text, out)?,
            Some(ChatContent::Parts(parts)) => {
                for part in parts {
                    for thinking in part.thinking.unwrap_or_default() {
                        self.text(thinking.text, ChatEvent::Reasoning, out)?;
                    }
                    self.text(part.text, ChatEvent::Text, out)?;
                }
            }
        }
        self.text(delta.refusal, ChatEvent::Text, out)?;
        for call in delta.tool_calls.unwrap_or_default() {
            let bytes = self.tool_calls.add(call, out)?;
            self.count(bytes)?;
        }
        Ok(())
    }

    fn text(
        &mut self,
        text: Option<String>,
        event: impl FnOnce(String) -> ChatEvent,
        out: &mut Vec<ChatEvent>,
    ) -> Result<(), ChatFailure> {
        let Some(text) = text.filter(|text| !text.is_empty()) else { return Ok(()) };
        self.count(text.len())?;
        out.push(event(text));
        Ok(())
    }

    fn count(&mut self, bytes: usize) -> Result<(), ChatFailure> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > self.max_text {
            return Err(ChatFailure::TooLarge { part: BoundedPart::Text, limit: self.max_text });
        }
        Ok(())
    }

    fn failure_of(&self, error: WireError) -> ChatFailure {
        let quote = |text: &str| self.quoter.quote(prefix(text, 4_096));
        ChatFailure::InStream { message: quote(&error.message), code: error.code.map(|code| quote(&code)) }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn decoder() -> AnswerDecoder {
        AnswerDecoder::new(&Limits::default(), Quoter::default())
    }

    fn stream(chunks: &[Value]) -> Result<Vec<ChatEvent>, ChatFailure> {
        let mut decoder = decoder();
        let mut out = Vec::new();
        for chunk in chunks {
            decoder.event(&SseEvent { name: String::new(), data: chunk.to_string() }, &mut out)?;
        }
        decoder.finish(&mut out)?;
        Ok(out)
    }

    fn delta(delta: Value) -> Value {
        json!({"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta, "finish_reason": null}]})
    }

    fn text(text: &str) -> ChatEvent {
        ChatEvent::Text(text.to_owned())
    }

    fn reasoning(text: &str) -> ChatEvent {
        ChatEvent::Reasoning(text.to_owned())
    }

    #[test]
    fn text_and_reasoning_are_told_apart() {
        let found = stream(&[
            delta(json!({"role": "assistant", "content": "", "reasoning_content": null})),
            delta(json!({"reasoning_content": "hm"})),
            delta(json!({"reasoning": "hm"})),
            delta(json!({"reasoning_content": "once", "reasoning": "once"})),
            delta(json!({"content": "Hel"})),
            delta(json!({"content": null})),
            delta(json!({"content": "lo"})),
            delta(json!({"refusal": "I cannot"})),
        ]);
        let expected = [reasoning("hm"), reasoning("hm"), reasoning("once"), text("Hel"), text("lo"), text("I cannot")];
        assert_eq!(found.unwrap(), expected);
    }

    #[test]
    fn content_parts_are_read() {
        let found = stream(&[
            delta(json!({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]})),
            delta(json!({"content": [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}]})),
        ]);
        assert_eq!(found.unwrap(), [reasoning("hm"), text("Hel"), text("lo")]);
    }

    #[test]
    fn other_choices_are_ignored() {
        let found = stream(&[
            json!({"choices": [{"index": 1, "delta": {"content": "no"}, "finish_reason": "length"}]}),
            json!({"choices": [{"delta": {"content": "yes"}}]}),
            json!({"choices": null, "type": "ping"}),
            json!({}),
        ]);
        assert_eq!(found.unwrap(), [text("yes")]);
    }

    #[test]
    fn finish_and_usage_come_last() {
        let found = stream(&[
            json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": null}),
            json!({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 4}}),
        ]);
        let usage = TokenUsage { prompt_tokens: 3, completion_tokens: 4, ..TokenUsage::default() };
        assert_eq!(found.unwrap(), [ChatEvent::Finish(FinishReason::Stop), ChatEvent::Usage(usage)]);
        let found = stream(&[json!({"choices": [{"delta": {"content": "a"}, "finish_reason": ""}]})]);
        assert_eq!(found.unwrap(), [text("a")], "an empty reason is none");
    }

    #[test]
    fn whole_answer_is_read() {
        let mut decoder = decoder();
        let mut out = Vec::new();
        let answer = json!({
            "object": "chat.completion",
            "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hello"}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 1, "completion_tokens": 2},
        });
        decoder.whole(&answer.to_string(), &mut out).unwrap();
        assert!(decoder.is_done());
        decoder.finish(&mut out).unwrap();
        assert_eq!(out.len(), 3);
        assert_eq!(out[..2], [text("Hello"), ChatEvent::Finish(FinishReason::Stop)]);
    }

    #[test]
    fn broken_json_has_typed_failures() {
        let failure = |data: &str| {
            let event = SseEvent { name: String::new(), data: data.to_owned() };
            decoder().event(&event, &mut Vec::new()).unwrap_err()
        };
        assert!(matches!(failure("{\"choices\": [{\"del"), ChatFailure::IncompleteJson { .. }));
        assert!(matches!(failure("choices"), ChatFailure::InvalidJson { .. }));
        for data in ["[]", "7", "{\"choices\": 7}", "{\"choices\": [{\"delta\": {\"content\": 7}}]}"] {
            assert!(matches!(failure(data), ChatFailure::InvalidShape { .. }), "{data}");
        }
        let deep = format!("{{\"usage\": {}", "[".repeat(100_000));
        assert!(matches!(failure(&deep), ChatFailure::InvalidJson { .. }));
        let whole = decoder().whole("{\"id\": 1}", &mut Vec::new()).unwrap_err();
        assert!(matches!(whole, ChatFailure::InvalidShape { .. }));
    }

    #[test]
    fn errors_within_a_stream_are_found() {
        let expected = |code: Option<&str>| {
            Err(ChatFailure::InStream { message: "no memory".to_owned(), code: code.map(str::to_owned) })
        };
        assert_eq!(stream(&[json!({"error": {"message": "no memory", "code": 500}})]), expected(Some("500")));
        assert_eq!(stream(&[json!({"error": "no memory"})]), expected(None));
        let old = json!({"object": "error", "message": "no memory", "type": "x", "code": 400});
        assert_eq!(stream(&[old]), expected(Some("400")));
        for data in ["{\"message\": \"no memory\"}", "{\"error\": {\"message\": \"no memory\"}}", "no memory"] {
            let event = SseEvent { name: "error".to_owned(), data: data.to_owned() };
            assert_eq!(decoder().event(&event, &mut Vec::new()), expected(None).map(|_: Vec<ChatEvent>| ()), "{data}");
        }
        assert_eq!(stream(&[json!({"error": null, "choices": []})]), Ok(vec![]));
    }

    #[test]
    fn nothing_counts_after_done() {
        let mut decoder = decoder();
        let mut out = Vec::new();
        for data in [" [DONE] ", "{\"choices\": [{\"delta\": {\"content\": \"late\"}}]}", "rubbish"] {
            decoder.event(&SseEvent { name: String::new(), data: data.to_owned() }, &mut out).unwrap();
        }
        assert!(decoder.is_done() && out.is_empty());
    }

    #[test]
    fn text_is_bounded_in_total() {
        let limits = Limits { text: 10, ..Limits::default() };
        for delta in [
            json!({"content": "123456"}),
            json!({"reasoning": "123456"}),
            json!({"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": "123456"}}]}),
        ] {
            let mut decoder = AnswerDecoder::new(&limits, Quoter::default());
            let data = json!({"choices": [{"delta": delta}]}).to_string();
            let event = SseEvent { name: String::new(), data };
            decoder.event(&event, &mut Vec::new()).unwrap();
            let expected = ChatFailure::TooLarge { part: BoundedPart::Text, limit: 10 };
            assert_eq!(decoder.event(&event, &mut Vec::new()), Err(expected));
        }
    }
}
