//! Prompt of the reference's `ChatState`: messages between marks, the caller's audio as rows, own speech as codes in the
//! order in which it was said.

use std::sync::Arc;

use repartee_engine_api::{ReadingInstructions, Role};

use super::script::TurnScript;
use crate::checkpoint::{Checkpoint, CheckpointError};
use crate::elements::{AudioRows, Element, Message, MessageKind, MessagePart};
use crate::model::PromptTemplate;
use crate::models::parts::chat_template::PromptWriter;
use crate::models::parts::interleaved::PositionKind;
use crate::models::parts::special_tokens::TokenReader;
use crate::text::Tokenizer;

/// System message that asks for text and speech in turn.
const IN_TURN: &str = "Respond with interleaved text and audio.";
/// First word of the published system messages that ask for text and speech in sequence: `Perform ASR.`, `Perform TTS. ..`.
const IN_SEQUENCE: &str = "Perform";
/// System message that asks for a text to be read aloud, and the voice of requests that describe none.
const READ: ReadingInstructions = ReadingInstructions { task: "Perform TTS.", usual: "Use the US male voice." };
/// System message that asks for a transcript.
const TRANSCRIBE: &str = "Perform ASR.";

/// Template with the ids of one checkpoint.
#[derive(Debug, Clone)]
pub struct Template {
    start: u32,
    im_start: u32,
    newline: u32,
    roles: [Vec<u32>; 3],
    /// Ids of [`IN_TURN`], and of it behind other text.
    in_turn: [Vec<u32>; 2],
    in_sequence: Vec<u32>,
    codebooks: usize,
    script: TurnScript,
}

impl Template {
    /// Reads the ids; `turns` and `speech_end` are those of [`TurnScript`].
    pub fn load(
        checkpoint: &Checkpoint,
        tokenizer: &Tokenizer,
        (turns, speech_end, codebooks): ((usize, usize), u32, usize),
    ) -> Result<Self, CheckpointError> {
        let tokens = TokenReader::new(checkpoint, tokenizer);
        let (start, im_start) = (tokens.special("<|startoftext|>")?, tokens.special("<|im_start|>")?);
        let newline = tokens.word("\n")?;
        let [system, user, assistant] = ["system", "user", "assistant"].map(|role| tokens.text(role));
        let roles = [system?, user?, assistant?];
        let in_sequence = tokens.text(IN_SEQUENCE)?;
        let sequential = [&[start, im_start], &roles[0][..], &[newline], &in_sequence].concat();
        let script = TurnScript {
            turns,
            end: tokens.special("<|im_end|>")?,
            text_end: tokens.special("<|text_end|>")?,
            audio_start: tokens.special("<|audio_start|>")?,
            speech_end,
            sequential,
        };
        let in_turn = [tokens.text(IN_TURN)?, tokens.text(&format!(" {IN_TURN}"))?];
        Ok(Self { start, im_start, newline, roles, in_turn, in_sequence, codebooks, script })
    }

    /// Order of text and speech.
    pub fn script(&self) -> &TurnScript {
        &self.script
    }

    /// Instructions with the sentence that asks for speech in turn, unless they say how to respond.
    fn instructions(&self, ids: &[u32]) -> Vec<u32> {
        let says = |sentence: &[u32]| ids.windows(sentence.len().max(1)).any(|window| window == sentence);
        if ids.starts_with(&self.in_sequence) || self.in_turn.iter().any(|sentence| says(sentence)) {
            return ids.to_vec();
        }
        let sentence = if ids.is_empty() { &self.in_turn[0] } else { &self.in_turn[1] };
        [ids, sentence].concat()
    }
}

impl Template {
    fn header(&self, writer: &mut PromptWriter, role: Role) {
        writer.role = role;
        let name = match role {
            Role::System => &self.roles[0],
            Role::User => &self.roles[1],
            Role::Assistant => &self.roles[2],
        };
        writer.tokens(&[&[self.im_start], &name[..], &[self.newline]].concat());
    }

    fn close(&self, writer: &mut PromptWriter) {
        writer.tokens(&[self.script.end, self.newline]);
    }

    /// Text and speech of a response, with the frame that ends the speech, which the history lacks.
    fn response(&self, writer: &mut PromptWriter, parts: &[MessagePart]) {
        let script = &self.script;
        let mut said = script.start(script.is_sequential(&writer.elements));
        let speaks = parts.iter().any(|part| matches!(part, MessagePart::Speech(_)));
        let (mut next, mut in_speech) = (PositionKind::Text, false);
        let mut end = vec![script.speech_end; self.codebooks];
        for part in parts {
            match part {
                MessagePart::Text(ids) => {
                    if in_speech && next == PositionKind::Frame {
                        script.after_frame(&mut said, &mut end);
                        writer.elements.push(Element::codes(Arc::from(&end[..])));
                    }
                    in_speech = false;
                    writer.tokens(ids);
                    if speaks {
                        next = ids.iter().fold(next, |_, id| script.after_token(&mut said, *id));
                    }
                }
                MessagePart::Speech(frames) => {
                    in_speech = true;
                    for frame in frames {
                        next = script.after_frame(&mut said, &mut frame.to_vec());
                        writer.elements.push(Element::codes(Arc::clone(frame)));
                    }
                }
                MessagePart::Audio(windows) => writer.audio(windows),
            }
        }
        if in_speech && next == PositionKind::Frame && script.has_ended(&said) {
            writer.elements.push(Element::codes(Arc::from(end)));
        }
    }
}

impl PromptTemplate for Template {
    fn render(&self, history: &[Message], open: Option<&[Arc<AudioRows>]>, respond: bool) -> Vec<Element> {
        let mut writer = PromptWriter { elements: Vec::new(), role: Role::System };
        writer.tokens(&[self.start]);
        if history.first().is_none_or(|message| message.kind != MessageKind::System) {
            self.header(&mut writer, Role::System);
            writer.tokens(&self.in_turn[0]);
            self.close(&mut writer);
        }
        for message in history {
            let role = match message.kind {
                MessageKind::System => Role::System,
                MessageKind::User | MessageKind::ToolResult => Role::User,
                MessageKind::Assistant | MessageKind::ToolCall => Role::Assistant,
            };
            self.header(&mut writer, role);
            if role == Role::Assistant {
                self.response(&mut writer, &message.parts);
            } else {
                for part in &message.parts {
                    match part {
                        MessagePart::Text(ids) if role == Role::System => writer.tokens(&self.instructions(ids)),
                        MessagePart::Text(ids) => writer.tokens(ids),
                        MessagePart::Audio(windows) => writer.audio(windows),
                        MessagePart::Speech(_) => {}
                    }
                }
            }
            self.close(&mut writer);
        }
        if let Some(windows) = open {
            self.header(&mut writer, Role::User);
            writer.audio(windows);
        } else if respond {
            self.header(&mut writer, Role::Assistant);
        }
        writer.elements
    }

    fn keeps_speech(&self) -> bool {
        true
    }

    fn transcription(&self) -> Option<&'static str> {
        Some(TRANSCRIBE)
    }

    fn given_text_instructions(&self) -> Option<ReadingInstructions> {
        Some(READ)
    }
}
