//! Output of a stage that has no tokens of its own: pieces of text, whole tool calls, and numbers of tokens.

use std::time::Instant;

use repartee_engine_api::{EngineUsage, Event};

use super::Session;
use super::response_output::SpeechDecision;
use crate::model::PromptTemplate;

impl Session {
    /// Takes a piece of text of the response in `slot`; `ids` are its ids in the history. Returns its effect on speech.
    pub fn text(
        &mut self,
        slot: usize,
        (text, ids): (&str, &[u32]),
        template: &dyn PromptTemplate,
        now: Instant,
    ) -> SpeechDecision {
        let Some(active) = self.active_on(slot) else { return SpeechDecision::No };
        let response = active.request.response;
        // Line breaks between calls are no utterance.
        let silent = active.called && text.trim().is_empty();
        active.called = silent;
        self.note_written(slot, ids, template, now);
        self.emit_new(slot, vec![Event::Text { response, text: text.to_owned() }]);
        if silent { SpeechDecision::No } else { SpeechDecision::Yes }
    }

    /// Takes a whole tool call of the response in `slot`; `ids` are its ids in the history.
    pub fn call(
        &mut self,
        slot: usize,
        (name, arguments, ids): (String, String, &[u32]),
        template: &dyn PromptTemplate,
        now: Instant,
    ) {
        let Some(active) = self.active_on(slot) else { return };
        let (response, call) = (active.request.response, active.calls.count_call());
        active.called = true;
        self.note_written(slot, ids, template, now);
        let arguments = Event::ToolArguments { response, call, arguments };
        self.emit_new(slot, vec![Event::ToolCall { response, call, name }, arguments]);
    }

    /// Takes the numbers of tokens of the response in `slot`, in place of estimates.
    pub fn usage(&mut self, slot: usize, usage: EngineUsage) {
        if let Some(active) = self.active_on(slot) {
            let EngineUsage { input_text_tokens, cached_tokens, output_text_tokens, .. } = usage;
            active.usage = EngineUsage { input_text_tokens, cached_tokens, output_text_tokens, ..active.usage };
        }
    }

    /// Adds ids to the history, and estimates the tokens so far.
    fn note_written(&mut self, slot: usize, ids: &[u32], template: &dyn PromptTemplate, now: Instant) {
        let Some(active) = self.active_on(slot) else { return };
        // No step computes the text: the wait for it counts as the language model's.
        active.prefilled.get_or_insert(active.begun);
        active.first_token.get_or_insert(now);
        active.written += ids.len();
        active.usage.output_text_tokens = template.tokens(active.written) as u32;
        let (item, out_of_band) = (active.request.item, active.request.out_of_band);
        if !out_of_band && let Some(message) = self.history.get_mut(item) {
            ids.iter().for_each(|&id| message.push_token(id));
        }
    }
}
