//! Stage between a language model and a model that speaks: turns the text of the one into the streamed text of the
//! other. It computes nothing; each model has its own tokens.

use crate::device::Device;
use crate::model::PromptTemplate;
use crate::models::parts::memory::SlotBytes;
use crate::models::parts::pipeline::{Placement, StagePart};
use crate::stage::{BatchEntry, EdgeKind, Outbox, ResponseParams, RunnableRows, Stage, StageItem};
use crate::text::{TextEncoder, TextError, TextStream, Tokenizer};
use repartee_engine_api::SessionError;

/// Name of the stage.
const STAGE: &str = "voice_text";

/// The stage before the slots are known.
pub struct BridgePart {
    /// Tokenizer of the language model.
    pub text: Tokenizer,
    /// Tokenizer of the model that speaks.
    pub speech: Tokenizer,
    /// Prompt template of the model that speaks.
    pub template: Box<dyn PromptTemplate>,
}

impl<O: Device> StagePart<O> for BridgePart {
    fn name(&self) -> &'static str {
        STAGE
    }

    fn slot_bytes(&self, _: usize) -> SlotBytes {
        SlotBytes::default()
    }

    fn place(self: Box<Self>, at: Placement<'_, O>) -> Box<dyn Stage> {
        let slots = (0..at.slots.total()).map(|_| None).collect();
        Box::new(VoiceBridge { part: *self, slots })
    }
}

/// The stage with the text of each slot.
struct VoiceBridge {
    part: BridgePart,
    /// Text on its way, from the begin of a response to its end.
    slots: Vec<Option<Passing>>,
}

/// Text of one response on its way to the voice.
struct Passing {
    /// Decoder of the language model's tokens.
    text: TextStream,
    /// Encoder for the voice.
    speech: TextEncoder,
}

impl VoiceBridge {
    /// Begins a response of the voice; its text streams in.
    fn begin(&mut self, slot: usize, params: ResponseParams, out: &mut Outbox) {
        let BridgePart { text, speech, template } = &self.part;
        self.slots[slot] = Some(Passing { text: text.stream(), speech: speech.encoder() });
        let elements = template.render(&[], None, true);
        let read = vec![true; elements.len()];
        // The language model has the limits of the text, and its sampling.
        let response = Some(ResponseParams { streamed: true, max_tokens: u32::MAX, sampling: None, ..params });
        out.push((slot, StageItem::Prompt { elements, read, response }));
    }

    /// Passes the text of a token on, or without one what the decoders hold back.
    fn pass(&mut self, slot: usize, token: Option<u32>, out: &mut Outbox) {
        let Some(passing) = &mut self.slots[slot] else { return };
        let encoded = match token {
            Some(id) => passing.encode(id),
            None => passing.rest(&self.part.text),
        };
        self.give(slot, encoded, out);
    }

    /// Passes text on that came without tokens.
    fn say(&mut self, slot: usize, text: &str, out: &mut Outbox) {
        let Some(passing) = &mut self.slots[slot] else { return };
        let encoded = passing.speech.push(text);
        self.give(slot, encoded, out);
    }

    fn give(&mut self, slot: usize, encoded: Result<Vec<u32>, TextError>, out: &mut Outbox) {
        match encoded {
            Ok(ids) if ids.is_empty() => {}
            Ok(ids) => {
                let elements = self.part.template.streamed(&ids).unwrap_or_default();
                out.push((slot, StageItem::Streamed(elements)));
            }
            Err(error) => {
                self.slots[slot] = None;
                let error = SessionError::bad("text", "not speakable", error.to_string());
                out.push((slot, StageItem::Fail(error)));
            }
        }
    }
}

impl Passing {
    /// Encodes the text that a token makes certain.
    fn encode(&mut self, id: u32) -> Result<Vec<u32>, TextError> {
        self.text.push(id).map_or(Ok(Vec::new()), |piece| self.speech.push(&piece))
    }

    /// Encodes the text that was held back; `tokenizer` is the language model's.
    fn rest(&mut self, tokenizer: &Tokenizer) -> Result<Vec<u32>, TextError> {
        let held = std::mem::replace(&mut self.text, tokenizer.stream()).finish();
        let mut ids = held.map_or(Ok(Vec::new()), |piece| self.speech.push(&piece))?;
        ids.extend(self.speech.finish()?);
        Ok(ids)
    }
}

impl Stage for VoiceBridge {
    fn name(&self) -> &'static str {
        STAGE
    }

    fn input_kind(&self) -> EdgeKind {
        EdgeKind::Text
    }

    fn output_kind(&self) -> EdgeKind {
        EdgeKind::Prompt
    }

    fn accept(&mut self, slot: usize, item: StageItem, out: &mut Outbox) {
        match item {
            StageItem::Begin(params) => self.begin(slot, params, out),
            StageItem::Token(id) => self.pass(slot, Some(id), out),
            StageItem::Text { text, .. } => self.say(slot, &text, out),
            // What was said before a tool call is spoken while the call is written.
            StageItem::TextPause => self.pass(slot, None, out),
            StageItem::End(end) => {
                self.pass(slot, None, out);
                if self.slots[slot].take().is_some() {
                    out.push((slot, StageItem::StreamedEnd(end)));
                }
            }
            StageItem::Abort => {
                self.slots[slot] = None;
                out.push((slot, StageItem::Abort));
            }
            // The voice does not read the language model's prompt.
            _ => {}
        }
    }

    fn runnable_rows(&self, _: usize) -> RunnableRows {
        RunnableRows::NONE
    }

    fn max_rows(&self) -> usize {
        1
    }

    fn max_items(&self) -> usize {
        1
    }

    fn launch(&mut self, _: &[BatchEntry], _: &mut Outbox) {}

    fn free(&mut self, slot: usize) {
        self.slots[slot] = None;
    }
}
