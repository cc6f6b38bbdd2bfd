//! Text of a spoken response: one utterance, or several if tool calls interrupt it.

use std::collections::VecDeque;

use crate::stage::{ResponseParams, StageEnd};

/// Talker state of a spoken response. `V` is the voice or style, `T` the talker's form of a text token.
pub struct SpeechState<V, T> {
    /// Parameters of the response.
    pub params: ResponseParams,
    /// Voice or style of the response.
    pub voice: V,
    /// The utterance being spoken, and the ones after it; empty before the first token.
    pub utterances: VecDeque<SpokenUtterance<T>>,
    /// True once the rows before the first utterance's first codes are queued.
    pub begun: bool,
    /// The last codes, if the row after them waits for its text token.
    pub waiting_codes: Option<Vec<u32>>,
    /// End of the whole text, once known.
    text_end: Option<StageEnd>,
    /// End of the first utterance's speech, if more text or a later utterance may come.
    speech_end: Option<StageEnd>,
    /// True if an earlier utterance ended at a limit.
    hit_limit: bool,
}

/// Text spoken without a break: the whole response, or the part between two tool calls.
pub struct SpokenUtterance<T> {
    /// Text tokens received so far.
    pub tokens: Vec<T>,
    /// End of the text, once no more tokens come.
    pub ended: Option<StageEnd>,
}

impl<V, T> SpeechState<V, T> {
    /// Creates the state before the first token.
    pub fn new(params: ResponseParams, voice: V) -> Self {
        let utterances = VecDeque::new();
        Self {
            params,
            voice,
            utterances,
            begun: false,
            waiting_codes: None,
            text_end: None,
            speech_end: None,
            hit_limit: false,
        }
    }

    /// Appends a token; after a pause it begins a new utterance.
    pub fn token(&mut self, token: T) {
        if let Some(last) = self.utterances.back_mut() {
            if last.ended.is_none() {
                // Text after the end of its speech is not spoken.
                if self.speech_end.is_none() {
                    last.tokens.push(token);
                }
                return;
            }
            if let Some(end) = self.speech_end.take() {
                self.drop_first(end);
            }
        }
        self.utterances.push_back(SpokenUtterance { tokens: vec![token], ended: None });
    }

    /// Ends the last utterance's text.
    pub fn end_text(&mut self, end: StageEnd) {
        if let Some(last) = self.utterances.back_mut() {
            last.ended = Some(end);
        }
    }

    /// Ends the whole text. Returns the end of the response if its speech has ended, or if it is `silent`: it has
    /// nothing to say.
    pub fn complete(&mut self, end: StageEnd, silent: bool) -> Option<StageEnd> {
        self.text_end = Some(end);
        let speech = if silent { Some(StageEnd::Stop) } else { self.speech_end };
        self.end(speech?)
    }

    /// True if the speech waits for another utterance or for the end of the text.
    pub fn is_over(&self) -> bool {
        self.speech_end.is_some()
    }

    /// Records the end of the first utterance's speech and returns the next step.
    pub fn speech_ended(&mut self, speech: StageEnd) -> AfterUtterance {
        self.waiting_codes = None;
        if self.utterances.len() > 1 {
            self.drop_first(speech);
            return AfterUtterance::Utterance;
        }
        match self.end(speech) {
            Some(end) => AfterUtterance::End(end),
            None => {
                self.speech_end = Some(speech);
                AfterUtterance::Wait
            }
        }
    }

    /// Text tokens of all utterances.
    pub fn tokens(&self) -> usize {
        self.utterances.iter().map(|utterance| utterance.tokens.len()).sum()
    }

    fn drop_first(&mut self, end: StageEnd) {
        self.utterances.pop_front();
        self.begun = false;
        self.hit_limit |= end == StageEnd::Length;
    }

    /// End of the response after its last utterance: `Length` if the text or any speech reached a limit.
    fn end(&self, speech: StageEnd) -> Option<StageEnd> {
        let text = self.text_end?;
        Some(if self.hit_limit || text == StageEnd::Length { StageEnd::Length } else { speech })
    }
}

/// Continuation after an utterance has been spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterUtterance {
    /// Another utterance follows; part of its text is known.
    Utterance,
    /// The response ends.
    End(StageEnd),
    /// More text, or its end, may still come.
    Wait,
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use repartee_engine_api::AnswerForm;

    use super::*;

    fn speech_state(tokens: &[u32]) -> SpeechState<(), u32> {
        let (voice, max_tokens) = (String::new(), 9);
        let params = ResponseParams {
            response: 0,
            seed: 0,
            voice,
            audio: true,
            streamed: false,
            tools: Arc::default(),
            form: AnswerForm::Free,
            held: None,
            max_tokens,
            sampling: None,
        };
        let mut speaking = SpeechState::new(params, ());
        tokens.iter().for_each(|&token| speaking.token(token));
        speaking
    }

    #[test]
    fn text_or_speech_limit_ends_the_response() {
        for (text, speech) in
            [(StageEnd::Stop, StageEnd::Stop), (StageEnd::Stop, StageEnd::Length), (StageEnd::Length, StageEnd::Stop)]
        {
            let expected = if text == speech { StageEnd::Stop } else { StageEnd::Length };
            let mut first = speech_state(&[1]);
            assert_eq!(first.speech_ended(speech), AfterUtterance::Wait, "its text goes on");
            assert_eq!(first.complete(text, false), Some(expected));
            let mut last = speech_state(&[1]);
            assert_eq!(last.complete(text, false), None, "its speech goes on");
            assert_eq!(last.speech_ended(speech), AfterUtterance::End(expected));
        }
        assert_eq!(
            speech_state(&[]).complete(StageEnd::Length, true),
            Some(StageEnd::Length),
            "there is nothing to say"
        );
    }

    #[test]
    fn text_after_a_pause_is_another_utterance() {
        let mut speaking = speech_state(&[1, 2]);
        (speaking.begun, speaking.waiting_codes) = (true, Some(vec![7]));
        speaking.end_text(StageEnd::Stop);
        speaking.token(3);
        assert_eq!((speaking.utterances.len(), speaking.tokens(), speaking.begun), (2, 3, true));
        assert_eq!(speaking.speech_ended(StageEnd::Length), AfterUtterance::Utterance);
        assert_eq!((speaking.begun, &speaking.waiting_codes, speaking.utterances[0].tokens[0]), (false, &None, 3));
        assert_eq!(speaking.complete(StageEnd::Stop, false), None);
        assert_eq!(speaking.speech_ended(StageEnd::Stop), AfterUtterance::End(StageEnd::Length), "the first was cut");
    }

    #[test]
    fn text_after_the_speechs_end_is_not_heard() {
        let mut speaking = speech_state(&[1]);
        assert_eq!(speaking.speech_ended(StageEnd::Stop), AfterUtterance::Wait);
        speaking.token(2);
        assert_eq!((speaking.tokens(), speaking.is_over()), (1, true));
        speaking.end_text(StageEnd::Stop);
        speaking.token(3);
        assert_eq!((speaking.utterances[0].tokens[0], speaking.is_over()), (3, false), "but after a pause it is");
    }
}
