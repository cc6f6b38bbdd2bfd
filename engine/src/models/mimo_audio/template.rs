//! Prompt of the reference's spoken dialogues: messages between marks, the caller's audio as rows of patches, own text and
//! speech in the order in which they were said.

use std::sync::Arc;

use repartee_engine_api::Role;

use super::script::PatchScript;
use crate::checkpoint::{Checkpoint, CheckpointError};
use crate::elements::{AudioRows, Element, Message, MessageKind, MessagePart};
use crate::model::PromptTemplate;
use crate::models::parts::chat_template::PromptWriter;
use crate::models::parts::special_tokens::TokenReader;
use crate::text::Tokenizer;

/// Instructions that ask for a transcript, one of the reference's.
const TRANSCRIBE: &str = "Please transcribe this audio file";

/// Template with the ids of one checkpoint.
#[derive(Debug, Clone)]
pub struct Template {
    /// Frames of a patch.
    frames: usize,
    user: Vec<u32>,
    assistant: Vec<u32>,
    close: Vec<u32>,
    /// Lines after instructions.
    gap: Vec<u32>,
    /// Marks around the caller's audio, and around text and speech in turn.
    audio: [u32; 2],
    speech: [u32; 2],
    /// Mark that ends the text of a response in turn.
    text_end: u32,
    transcribe: Vec<u32>,
    /// Thoughts without content, before a response of text alone.
    thoughts: Vec<u32>,
    script: PatchScript,
}

impl Template {
    /// Reads the ids for patches of `frames` frames.
    pub fn load(checkpoint: &Checkpoint, tokenizer: &Tokenizer, frames: usize) -> Result<Self, CheckpointError> {
        let tokens = TokenReader::new(checkpoint, tokenizer);
        let [im_start, im_end] = ["<|im_start|>", "<|im_end|>"].map(|name| tokens.special(name));
        let (im_start, im_end) = (im_start?, im_end?);
        let header = |role: &str| Ok::<_, CheckpointError>([&[im_start], &tokens.text(role)?[..]].concat());
        let line = tokens.text("\n")?;
        let gap = tokens.text("\n\n")?;
        // A vocabulary without these marks spells them.
        let mark = |name: &str| tokenizer.token_id(name).map_or_else(|| tokens.text(name), |id| Ok(vec![id]));
        let speech = [tokens.special("<|sostm|>")?, tokens.special("<|eostm|>")?];
        Ok(Self {
            frames,
            user: header("user\n")?,
            assistant: header("assistant\n")?,
            close: [&[im_end], &line[..]].concat(),
            audio: [tokens.special("<|sosp|>")?, tokens.special("<|eosp|>")?],
            text_end: tokens.special("<|eot|>")?,
            transcribe: tokens.text(TRANSCRIBE)?,
            thoughts: [mark("<think>")?, gap.clone(), mark("</think>")?, line].concat(),
            script: PatchScript {
                empty: tokens.special("<|empty|>")?,
                ends: vec![speech[1], im_end, tokens.special("<|endoftext|>")?],
            },
            speech,
            gap,
        })
    }

    /// Order of text and speech.
    pub fn script(&self) -> &PatchScript {
        &self.script
    }

    /// Ids that a response never has: marks of prompts.
    pub fn marks(&self) -> Vec<u32> {
        [&self.audio[..], &self.speech[..1], &self.user[..1]].concat()
    }

    /// A message of the caller, after the instructions that are still to be written.
    fn question(&self, writer: &mut PromptWriter, instructions: &mut Vec<u32>, parts: &[MessagePart]) {
        let instructions = std::mem::take(instructions);
        let transcribes = instructions == self.transcribe;
        writer.role = Role::User;
        writer.tokens(&self.user);
        if !instructions.is_empty() && !transcribes {
            writer.tokens(&instructions);
            writer.tokens(&self.gap);
        }
        for part in parts {
            match part {
                MessagePart::Text(ids) => writer.tokens(ids),
                MessagePart::Audio(windows) => {
                    writer.tokens(&self.audio[..1]);
                    writer.audio(windows);
                    writer.tokens(&self.audio[1..]);
                }
                MessagePart::Speech(_) => {}
            }
        }
        if transcribes {
            writer.tokens(&instructions);
        }
        writer.tokens(&self.close);
    }

    /// A message of the model: text alone, or text and speech in turn. Frames that fill no patch are left out.
    fn response(&self, writer: &mut PromptWriter, parts: &[MessagePart]) {
        writer.role = Role::Assistant;
        writer.tokens(&self.assistant);
        let speaks = parts.iter().any(|part| matches!(part, MessagePart::Speech(_)));
        if speaks {
            writer.tokens(&self.speech[..1]);
        }
        for part in parts {
            match part {
                MessagePart::Text(ids) if speaks => writer.tokens(ids),
                MessagePart::Text(ids) => {
                    writer.tokens(&ids.iter().copied().filter(|id| *id != self.text_end).collect::<Vec<_>>());
                }
                MessagePart::Speech(frames) => {
                    let patches =
                        frames.chunks_exact(self.frames).map(|patch| Element::codes(Arc::from(patch.concat())));
                    writer.elements.extend(patches);
                }
                MessagePart::Audio(windows) => writer.audio(windows),
            }
        }
        if speaks {
            writer.tokens(&self.speech[1..]);
        }
        writer.tokens(&self.close);
    }
}

impl PromptTemplate for Template {
    /// The reference writes instructions at the beginning of the caller's first message.
    fn render(&self, history: &[Message], open: Option<&[Arc<AudioRows>]>, respond: bool) -> Vec<Element> {
        let mut writer = PromptWriter { elements: Vec::new(), role: Role::User };
        let (mut instructions, mut transcribes) = (Vec::new(), false);
        for message in history {
            match message.kind {
                MessageKind::System => {
                    instructions.extend(message.token_ids());
                    transcribes = instructions == self.transcribe;
                }
                MessageKind::User | MessageKind::ToolResult => {
                    self.question(&mut writer, &mut instructions, &message.parts);
                }
                MessageKind::Assistant | MessageKind::ToolCall => {
                    if !instructions.is_empty() {
                        self.question(&mut writer, &mut instructions, &[]);
                    }
                    self.response(&mut writer, &message.parts);
                }
            }
        }
        if let Some(windows) = open {
            writer.role = Role::User;
            writer.tokens(&self.user);
            if !instructions.is_empty() {
                writer.tokens(&[&instructions[..], &self.gap].concat());
            }
            writer.tokens(&self.audio[..1]);
            writer.audio(windows);
        } else if respond {
            if !instructions.is_empty() {
                self.question(&mut writer, &mut instructions, &[]);
            }
            writer.role = Role::Assistant;
            writer.tokens(&self.assistant);
            writer.tokens(if transcribes { &self.thoughts } else { &self.speech[..1] });
        }
        writer.elements
    }

    fn keeps_speech(&self) -> bool {
        true
    }

    fn transcription(&self) -> Option<&'static str> {
        Some(TRANSCRIBE)
    }
}
