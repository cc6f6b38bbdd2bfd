//! A spoken response's text: one utterance, or several where tool calls interrupt it.

use std::collections::VecDeque;

use crate::stage::{StageEnd, ResponseParams};

/// What a talker keeps of a spoken response: `V` is how it is spoken, `T` what it knows of a token.
pub struct SpeechState<V, T> {
    /// Its parameters.
    pub params: ResponseParams,
    /// How it is spoken.
    pub voice: V,
    /// The utterance that is spoken, and the ones after it; empty before the first token.
    pub utterances: VecDeque<SpokenUtterance<T>>,
    /// Whether the rows before the first codes of the first utterance are queued.
    pub begun: bool,
    /// The last codes, if the row after them waits for its text part.
    pub waiting_codes: Option<Vec<u32>>,
    /// How the text ended, once it has.
    text_end: Option<StageEnd>,
    /// How the speech of the first utterance ended, if the text goes on or a later one may come.
    speech_end: Option<StageEnd>,
    /// Whether an earlier utterance ended at a limit.
    hit_limit: bool,
}

/// Text that is spoken in one go: a whole response's, but where a tool call interrupts it.
pub struct SpokenUtterance<T> {
    /// Text tokens so far.
    pub tokens: Vec<T>,
    /// How the text ended, if no more come.
    pub ended: Option<StageEnd>,
}

impl<V, T> SpeechState<V, T> {
    /// Nothing is said yet.
    pub fn new(params: ResponseParams, voice: V) -> Self {
        let utterances = VecDeque::new();
        Self { params, voice, utterances, begun: false, waiting_codes: None, text_end: None, speech_end: None, hit_limit: false }
    }

    /// Takes the next token; after a pause an utterance begins with it.
    pub fn token(&mut self, token: T) {
        if let Some(last) = self.utterances.back_mut() {
            if last.ended.is_none() {
                // What is said after the speech has ended is not heard.
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

    /// Ends the whole text. How the response ends, if its speech has ended, or is `silent`: there is nothing to say.
    pub fn complete(&mut self, end: StageEnd, silent: bool) -> Option<StageEnd> {
        self.text_end = Some(end);
        let speech = if silent { Some(StageEnd::Stop) } else { self.speech_end };
        self.end(speech?)
    }

    /// Whether the speech waits for another utterance, or for the end of the text.
    pub fn is_over(&self) -> bool {
        self.speech_end.is_some()
    }

    /// Takes the end of the first utterance's speech. What comes of the response.
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

    /// How the response ended whose last utterance ended so: at a limit if the text or any of the speech did.
    fn end(&self, speech: StageEnd) -> Option<StageEnd> {
        let text = self.text_end?;
        Some(if self.hit_limit || text == StageEnd::Length { StageEnd::Length } else { speech })
    }
}

/// What follows when an utterance has been spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterUtterance {
    /// Another utterance, whose text is known in part.
    Utterance,
    /// The end of the response.
    End(StageEnd),
    /// More text, or its end.
    Wait,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn speaking(tokens: &[u32]) -> SpeechState<(), u32> {
        let (voice, max_tokens) = (String::new(), 9);
        let params =
            ResponseParams { response: 0, seed: 0, voice, audio: true, streamed: false, max_tokens, sampling: None };
        let mut speaking = SpeechState::new(params, ());
        tokens.iter().for_each(|&token| speaking.token(token));
        speaking
    }

    #[test]
    fn a_limit_of_text_or_speech_is_the_responses() {
        for (text, speech) in [(StageEnd::Stop, StageEnd::Stop), (StageEnd::Stop, StageEnd::Length), (StageEnd::Length, StageEnd::Stop)] {
            let expected = if text == speech { StageEnd::Stop } else { StageEnd::Length };
            let mut first = speaking(&[1]);
            assert_eq!(first.speech_ended(speech), AfterUtterance::Wait, "its text goes on");
            assert_eq!(first.complete(text, false), Some(expected));
            let mut last = speaking(&[1]);
            assert_eq!(last.complete(text, false), None, "its speech goes on");
            assert_eq!(last.speech_ended(speech), AfterUtterance::End(expected));
        }
        assert_eq!(speaking(&[]).complete(StageEnd::Length, true), Some(StageEnd::Length), "there is nothing to say");
    }

    #[test]
    fn text_after_a_pause_is_another_utterance() {
        let mut speaking = speaking(&[1, 2]);
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
        let mut speaking = speaking(&[1]);
        assert_eq!(speaking.speech_ended(StageEnd::Stop), AfterUtterance::Wait);
        speaking.token(2);
        assert_eq!((speaking.tokens(), speaking.is_over()), (1, true));
        speaking.end_text(StageEnd::Stop);
        speaking.token(3);
        assert_eq!((speaking.utterances[0].tokens[0], speaking.is_over()), (3, false), "but after a pause it is");
    }
}
