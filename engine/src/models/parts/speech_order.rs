//! Order of text and codes in a language model that reads the one and says the other, after `CosyVoice3LM` in
//! CosyVoice's `llm/llm.py`.
//!
//! A text that is complete stands before its codes: start, instructions, text, task, codes. Of a text that streams in, five
//! tokens and fifteen codes take turns; after fifteen codes the model says that it fills, or is taken to say so, and the
//! next five tokens follow. At the end of the text the rest of it and the task follow, and codes until the end. A
//! recording's transcript and codes stand before those of the response, in the same order.
//!
//! The reference fails on ids beyond the codes that are drawn in the wrong place, and repeats a row at the text's end,
//! unlike its training. Here only the one id that has a meaning in its place can be drawn, and no row is repeated.

use std::collections::VecDeque;

use super::repeat_aware::RepeatAware;

/// Codes of silence, and most of them in a row that are heard.
const SILENCE: [u32; 11] = [1, 2, 28, 29, 55, 248, 494, 2241, 2242, 2322, 2323];
const MOST_SILENCE: usize = 5;

/// Prompt of a voice, before the text and the codes of a response.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SpokenPrompt {
    /// Ids before the text: instructions and a recording's transcript.
    pub text: Vec<u32>,
    /// Codes of the recording.
    pub codes: Vec<u32>,
}

/// Ids of the codes' table: codes below `codes`, then special ones.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SpeechIds {
    /// Number of codes.
    pub codes: u32,
    /// Id before everything.
    pub start: u32,
    /// Id that ends the codes.
    pub end: u32,
    /// Id between a complete text and its codes.
    pub task: u32,
    /// Id that asks for more text.
    pub fill: u32,
}

/// Input of a position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpeechRow {
    /// A text token.
    Text(u32),
    /// An id of the codes' table.
    Speech(u32),
}

/// Rules of one checkpoint.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SpeechRules {
    /// Ids of the codes' table.
    pub ids: SpeechIds,
    /// Text tokens, and the codes after them.
    pub mix: (usize, usize),
    /// Sampling of codes.
    pub sampling: RepeatAware,
    /// Most codes for each token of a text.
    pub most_per_token: usize,
    /// Id of the mark after instructions.
    pub end_of_prompt: u32,
}

/// Result of a draw.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Drawn {
    /// The speech has ended.
    End,
    /// More text follows.
    Fill,
    /// A code; false if it is part of a long silence, which is not heard.
    Code(u32, bool),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Text is missing.
    Waits,
    /// Codes follow until the next fill.
    Draws,
    /// Codes follow until the end.
    Ends,
}

/// Rows of one utterance.
#[derive(Debug, Clone)]
pub struct SpeechOrder {
    rules: SpeechRules,
    /// True if all text precedes the codes.
    whole: bool,
    phase: Phase,
    /// Rows before the first text.
    header: Vec<SpeechRow>,
    /// Text without a row, and codes of the recording without one.
    text: VecDeque<u32>,
    recorded: VecDeque<u32>,
    /// Tokens of the utterance so far, its codes, and those since the last fill.
    tokens: usize,
    codes: usize,
    since_fill: usize,
    /// Last draws, and silence in a row.
    recent: Vec<u32>,
    silence: usize,
}

impl SpeechOrder {
    /// Creates the order of an utterance of a voice. `instructions` end with their mark; with some, the recording's
    /// transcript and codes are left out, as in the reference. `absent` are the instructions of a voice without any.
    pub fn new(
        rules: SpeechRules,
        whole: bool,
        (instructions, absent): (&[u32], &[u32]),
        voice: &SpokenPrompt,
    ) -> Self {
        let (prompt, recorded) = match (instructions, &voice.text[..]) {
            ([], []) => (absent, &voice.codes[..0]),
            ([], transcript) => (transcript, &voice.codes[..]),
            (instructions, _) => (instructions, &voice.codes[..0]),
        };
        let mark = prompt.iter().position(|&id| id == rules.end_of_prompt).map_or(0, |mark| mark + 1);
        let header = std::iter::once(SpeechRow::Speech(rules.ids.start));
        Self {
            rules,
            whole,
            phase: Phase::Waits,
            header: header.chain(prompt[..mark].iter().map(|&id| SpeechRow::Text(id))).collect(),
            text: prompt[mark..].iter().copied().collect(),
            recorded: recorded.iter().copied().collect(),
            tokens: 0,
            codes: 0,
            since_fill: 0,
            recent: Vec::new(),
            silence: 0,
        }
    }

    /// True if a code can be drawn after the rows so far.
    pub fn can_draw(&self) -> bool {
        self.phase != Phase::Waits
    }

    /// Takes the utterance's tokens as far as they are known; returns the rows that follow.
    pub fn advance(&mut self, known: &[u32], ended: bool) -> Vec<SpeechRow> {
        self.text.extend(known.iter().skip(self.tokens));
        self.tokens = self.tokens.max(known.len());
        let mut rows = Vec::new();
        while self.phase == Phase::Waits {
            let (texts, codes) = self.rules.mix;
            // Turns of text that streams in do not depend on its time of arrival.
            if self.whole || self.text.len() < texts {
                if ended {
                    rows.append(&mut self.header);
                    rows.extend(self.text.drain(..).map(SpeechRow::Text));
                    rows.push(SpeechRow::Speech(self.rules.ids.task));
                    rows.extend(self.recorded.drain(..).map(SpeechRow::Speech));
                    self.phase = Phase::Ends;
                }
                break;
            }
            rows.append(&mut self.header);
            rows.extend(self.text.drain(..texts).map(SpeechRow::Text));
            self.since_fill = self.recorded.len().min(codes);
            rows.extend(self.recorded.drain(..self.since_fill).map(SpeechRow::Speech));
            if self.since_fill < codes {
                self.phase = Phase::Draws;
            }
        }
        rows
    }

    /// Draws from the logits of the last row, with a random number for each of two draws. `None` if they are not finite.
    pub fn draw(&mut self, logits: &[f32], uniforms: [f32; 2]) -> Option<Drawn> {
        let SpeechRules { ids, sampling, mix, most_per_token, .. } = self.rules;
        let ends = self.phase == Phase::Ends;
        if ends && self.codes >= most_per_token * self.tokens.max(1) {
            return Some(Drawn::End);
        }
        let special = if ends { ids.end } else { ids.fill };
        let id = if !ends && self.since_fill >= mix.1 {
            special
        } else {
            let allowed = |id: usize| id < ids.codes as usize || id == special as usize;
            sampling.draw(logits, allowed, &self.recent, uniforms)?
        };
        if self.recent.len() >= sampling.window {
            self.recent.remove(0);
        }
        self.recent.push(id);
        if id == special {
            self.phase = Phase::Waits;
            return Some(if ends { Drawn::End } else { Drawn::Fill });
        }
        self.codes += 1;
        self.since_fill += 1;
        self.silence = if SILENCE.contains(&id) { self.silence + 1 } else { 0 };
        Some(Drawn::Code(id, self.silence <= MOST_SILENCE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDS: SpeechIds = SpeechIds { codes: 40, start: 40, end: 41, task: 42, fill: 43 };
    const MARK: u32 = 99;
    const RULES: SpeechRules = SpeechRules {
        ids: IDS,
        mix: (2, 3),
        sampling: RepeatAware { top_p: 0.8, top_k: 25, window: 10, share: 1.0 },
        most_per_token: 20,
        end_of_prompt: MARK,
    };

    /// Logits of which one id is by far the likeliest.
    fn sure(id: u32) -> Vec<f32> {
        (0..45).map(|at| if at == id { 50.0 } else { 0.0 }).collect()
    }

    fn text(ids: &[u32]) -> Vec<SpeechRow> {
        ids.iter().map(|&id| SpeechRow::Text(id)).collect()
    }

    fn speech(ids: &[u32]) -> Vec<SpeechRow> {
        ids.iter().map(|&id| SpeechRow::Speech(id)).collect()
    }

    fn draw(order: &mut SpeechOrder, id: u32) -> Drawn {
        order.draw(&sure(id), [0.5; 2]).unwrap()
    }

    #[test]
    fn complete_text_precedes_its_codes() {
        let voice = SpokenPrompt { text: vec![8, MARK, 9], codes: vec![30, 31] };
        let mut order = SpeechOrder::new(RULES, true, (&[], &[7, MARK]), &voice);
        assert!(order.advance(&[1, 2], false).is_empty() && !order.can_draw(), "the text goes on");
        let rows = order.advance(&[1, 2, 3], true);
        let expected = [speech(&[IDS.start]), text(&[8, MARK, 9, 1, 2, 3]), speech(&[IDS.task, 30, 31])].concat();
        assert_eq!((rows, order.can_draw()), (expected, true));
        assert_eq!(draw(&mut order, 5), Drawn::Code(5, true));
        assert_eq!(draw(&mut order, IDS.end), Drawn::End);
    }

    #[test]
    fn instructions_replace_a_recording() {
        let voice = SpokenPrompt { text: vec![8, MARK, 9], codes: vec![30, 31] };
        let mut order = SpeechOrder::new(RULES, true, (&[5, MARK], &[7, MARK]), &voice);
        let expected = [speech(&[IDS.start]), text(&[5, MARK, 1]), speech(&[IDS.task])].concat();
        assert_eq!(order.advance(&[1], true), expected);
        let mut order = SpeechOrder::new(RULES, true, (&[], &[7, MARK]), &SpokenPrompt::default());
        assert_eq!(order.advance(&[1], true)[1..3], text(&[7, MARK]), "those of a voice without any");
    }

    #[test]
    fn streamed_text_takes_turns_with_codes() {
        let mut order = SpeechOrder::new(RULES, false, (&[5, MARK], &[]), &SpokenPrompt::default());
        assert!(order.advance(&[1], false).is_empty(), "two tokens make a turn");
        let rows = order.advance(&[1, 2, 3], false);
        assert_eq!(rows, [speech(&[IDS.start]), text(&[5, MARK, 1, 2])].concat());
        for code in [10, 11, 12] {
            assert_eq!(draw(&mut order, code), Drawn::Code(code, true));
        }
        assert_eq!(draw(&mut order, 13), Drawn::Fill, "after three codes it is taken to fill");
        assert!(order.advance(&[1, 2, 3], false).is_empty() && !order.can_draw());
        assert_eq!(order.advance(&[1, 2, 3, 4], false), text(&[3, 4]));
        assert_eq!(draw(&mut order, 14), Drawn::Code(14, true));
        assert_eq!(draw(&mut order, IDS.fill), Drawn::Fill, "it may fill earlier");
        let rows = order.advance(&[1, 2, 3, 4, 5], true);
        assert_eq!(rows, [text(&[5]), speech(&[IDS.task])].concat());
        for code in [15, 16, 17, 18, 19] {
            assert_eq!(draw(&mut order, code), Drawn::Code(code, true), "no turns after the text's end");
        }
    }

    #[test]
    fn a_recording_takes_the_first_turns() {
        let voice = SpokenPrompt { text: vec![MARK, 6], codes: vec![30, 31, 32, 33] };
        let mut order = SpeechOrder::new(RULES, false, (&[], &[]), &voice);
        let rows = order.advance(&[1, 2, 3, 4], false);
        let expected = [speech(&[IDS.start]), text(&[MARK, 6, 1]), speech(&[30, 31, 32]), text(&[2, 3]), speech(&[33])];
        assert_eq!(rows, expected.concat());
        assert_eq!([draw(&mut order, 1), draw(&mut order, 3)], [Drawn::Code(1, true), Drawn::Code(3, true)]);
        assert_eq!(draw(&mut order, 4), Drawn::Fill, "the recording's code counts");
    }

    #[test]
    fn only_meaningful_ids_are_drawn() {
        let mut order = SpeechOrder::new(RULES, false, (&[], &[]), &SpokenPrompt::default());
        order.advance(&[1, 2], false);
        for id in [IDS.start, IDS.end, IDS.task, IDS.fill + 1] {
            assert!(matches!(order.clone().draw(&sure(id), [0.5; 2]), Some(Drawn::Code(..) | Drawn::Fill)), "{id}");
        }
        let mut order = SpeechOrder::new(RULES, true, (&[], &[]), &SpokenPrompt::default());
        order.advance(&[1, 2], true);
        assert!(matches!(draw(&mut order, IDS.fill), Drawn::Code(..) | Drawn::End));
        assert_eq!(order.draw(&[f32::NAN; 45], [0.5; 2]), None);
    }

    #[test]
    fn long_silence_and_long_speech_end() {
        let mut order = SpeechOrder::new(RULES, true, (&[], &[]), &SpokenPrompt::default());
        order.advance(&[1], true);
        let heard: Vec<bool> = (0..8).map(|_| matches!(draw(&mut order, 28), Drawn::Code(28, true))).collect();
        assert_eq!(heard, [true, true, true, true, true, false, false, false]);
        assert_eq!(draw(&mut order, 3), Drawn::Code(3, true));
        assert_eq!((0..20).filter(|_| draw(&mut order, 3) == Drawn::End).count(), 9, "twenty codes a token");
    }
}
