//! Order of text and speech, `generate_interleaved` and `generate_sequential` of the reference.
//!
//! In turn: a few tokens, then a few frames; after the text's end frames alone, until the speech ends. A frame whose first code
//! is the codebook's end ends the speech, and the next position is text. In sequence: text, and frames from the mark of speech
//! on. The system message says which.

use crate::elements::{Element, ElementValue};
use crate::models::parts::interleaved::{InterleavingScript, PositionKind, SampledPosition};
use crate::stage::ResponseParams;

/// Most frames of a response for each of its tokens; a token takes a third of a second, about.
const FRAMES_PER_TOKEN: usize = 10;
/// Frames of a response of any length.
const LEAST_FRAMES: usize = 125;

/// Order of text and speech, with a checkpoint's ids.
#[derive(Debug, Clone, PartialEq)]
pub struct TurnScript {
    /// Text tokens, and the frames after them, in turn.
    pub turns: (usize, usize),
    /// Id that ends a message.
    pub end: u32,
    /// Id that ends the text of a response in turn.
    pub text_end: u32,
    /// Id after which a response in sequence is speech.
    pub audio_start: u32,
    /// Code that ends the speech, in the first codebook.
    pub speech_end: u32,
    /// Beginning of a prompt for a response in sequence: the system message with its first word.
    pub sequential: Vec<u32>,
}

/// State of a response.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Said {
    sequential: bool,
    /// True after the text's end.
    text_ended: bool,
    /// Positions left of this turn; below 0 after the text's end.
    left: i64,
    tokens: u32,
}

impl TurnScript {
    /// State before a response; `sequential` if text and speech are in sequence.
    pub fn start(&self, sequential: bool) -> Said {
        Said { sequential, left: self.turns.0 as i64, ..Said::default() }
    }

    /// True if a prompt that begins so asks for a response in sequence.
    pub fn is_sequential(&self, prompt: &[Element]) -> bool {
        let begins =
            |(element, id): (&Element, &u32)| matches!(element.value, ElementValue::Token(other) if other == *id);
        prompt.len() >= self.sequential.len() && prompt.iter().zip(&self.sequential).all(begins)
    }

    /// Kind of the position after a token.
    pub fn after_token(&self, said: &mut Said, id: u32) -> PositionKind {
        if said.sequential {
            return if id == self.audio_start { PositionKind::Frame } else { PositionKind::Text };
        }
        said.left -= 1;
        said.text_ended |= id == self.text_end;
        if said.left == 0 || said.text_ended {
            said.left = self.turns.1 as i64;
            return PositionKind::Frame;
        }
        PositionKind::Text
    }

    /// Kind of the position after a frame. At the end of the speech all codes become the end.
    pub fn after_frame(&self, said: &mut Said, codes: &mut [u32]) -> PositionKind {
        let mut next = PositionKind::Frame;
        if !said.sequential {
            said.left -= 1;
            if said.left == 0 && !said.text_ended {
                (next, said.left) = (PositionKind::Text, self.turns.0 as i64);
            }
        }
        if codes.first() == Some(&self.speech_end) {
            codes.fill(self.speech_end);
            next = PositionKind::Text;
        }
        next
    }

    /// True if the response's text has ended.
    pub fn has_ended(&self, said: &Said) -> bool {
        said.text_ended || said.sequential
    }
}

impl InterleavingScript for TurnScript {
    type Said = Said;

    fn first(&self) -> PositionKind {
        PositionKind::Text
    }

    fn begin(&self, said: &mut Said, prompt: &[Element]) {
        *said = self.start(self.is_sequential(prompt));
    }

    /// A response that is not spoken is text alone.
    fn text(&self, said: &mut Said, params: &ResponseParams, id: u32) -> SampledPosition {
        if id == self.end {
            return SampledPosition::End;
        }
        if said.tokens >= params.max_tokens {
            return SampledPosition::Full;
        }
        said.tokens += 1;
        SampledPosition::Said(if params.audio { self.after_token(said, id) } else { PositionKind::Text })
    }

    fn frame(&self, said: &mut Said, _: &ResponseParams, codes: &mut [u32]) -> SampledPosition {
        let next = self.after_frame(said, codes);
        if codes.first() == Some(&self.speech_end) { SampledPosition::Mark(next) } else { SampledPosition::Said(next) }
    }

    fn positions(&self, max_tokens: usize, audio: bool) -> usize {
        let frames = if audio { FRAMES_PER_TOKEN * max_tokens + LEAST_FRAMES } else { 0 };
        // The last position finds that all tokens are said.
        max_tokens + frames + 1
    }
}

#[cfg(test)]
mod tests {
    use repartee_engine_api::{AnswerForm, Role};

    use super::*;

    const END: u32 = 7;
    const START: u32 = 128;
    const TEXT_END: u32 = 130;
    const LAST: u32 = 32;

    fn script() -> TurnScript {
        let sequential = vec![1, 6, 300];
        TurnScript { turns: (2, 3), end: END, text_end: TEXT_END, audio_start: START, speech_end: LAST, sequential }
    }

    fn params(max_tokens: u32, audio: bool) -> ResponseParams {
        ResponseParams {
            response: 0,
            seed: 0,
            voice: String::new(),
            audio,
            streamed: false,
            tools: Vec::new().into(),
            form: AnswerForm::Free,
            held: None,
            max_tokens,
            sampling: None,
        }
    }

    /// Order of a response out of these tokens and frames: `t`, `f`, `e` for the end of the speech, `.` for the end.
    fn order(prompt: &[u32], params: &ResponseParams, text: &[u32], firsts: &[u32]) -> String {
        let (script, mut said) = (script(), Said::default());
        let prompt: Vec<Element> = prompt.iter().map(|&id| Element::token(Role::System, id)).collect();
        script.begin(&mut said, &prompt);
        let (mut text, mut firsts) = (text.iter(), firsts.iter());
        let (mut next, mut order) = (script.first(), String::new());
        loop {
            let (taken, name) = match next {
                PositionKind::Text => match text.next() {
                    Some(id) => (script.text(&mut said, params, *id), 't'),
                    None => return order,
                },
                PositionKind::Frame => {
                    let Some(first) = firsts.next() else { return order };
                    let mut codes = [*first, 3];
                    let taken = script.frame(&mut said, params, &mut codes);
                    assert_eq!(codes, if *first == LAST { [LAST; 2] } else { [*first, 3] });
                    (taken, if *first == LAST { 'e' } else { 'f' })
                }
            };
            match taken {
                SampledPosition::End => return order + ".",
                SampledPosition::Full => return order + "!",
                SampledPosition::Said(kind) => next = kind,
                SampledPosition::Mark(kind) => {
                    assert_eq!(name, 'e', "only the end of the speech is a mark");
                    next = kind;
                }
            }
            order.push(name);
        }
    }

    #[test]
    fn text_and_speech_take_turns() {
        let spoken = params(20, true);
        let order = |text: &[u32], firsts: &[u32]| order(&[1, 6, 301], &spoken, text, firsts);
        assert_eq!(order(&[10, 11, 12, 13, END], &[1; 6]), "ttffft tfff.".replace(' ', ""));
        // After the text's end speech goes on until its own end.
        assert_eq!(order(&[10, TEXT_END, END], &[1, 1, 1, 1, 1, LAST]), "ttfffffe.");
        assert_eq!(order(&[10, 11, TEXT_END, END], &[1, 1, 1, 1, LAST]), "ttffftfe.");
        // Speech that ends early leaves its positions to the text.
        assert_eq!(order(&[10, 11, 12, 13, 14, END], &[1, LAST, 1]), "ttfetf");
        assert_eq!(order(&[END], &[]), ".");
    }

    #[test]
    fn limits_end_a_response() {
        assert_eq!(order(&[1], &params(3, true), &[10; 9], &[1; 9]), "ttffft!");
        assert_eq!(order(&[1], &params(3, false), &[10; 9], &[]), "ttt!", "text alone");
        assert!(script().positions(3, true) > 30 && script().positions(3, false) == 4);
    }

    #[test]
    fn a_mark_begins_speech_in_sequence() {
        let order = |text: &[u32], firsts: &[u32]| order(&[1, 6, 300, 9], &params(20, true), text, firsts);
        assert_eq!(order(&[10, 11, 12, START, END], &[1, 1, 1, 1, LAST]), "ttttffffe.");
        assert_eq!(order(&[10, TEXT_END, 12, END], &[]), "ttt.", "no mark, no speech");
    }
}
