//! First stage of a family that reads text aloud: it computes nothing and passes on the tokens to speak.
//!
//! These tokens are the prompt's user positions, or text that streams in. Later stages get the prompt's positions as
//! they do from a language model.

use super::memory::SlotBytes;
use super::pipeline::{Placement, StagePart};
use super::read_queue::{ReadItem, ReadQueue};
use crate::device::Device;
use crate::elements::Element;
use crate::stage::{BatchEntry, EdgeKind, Outbox, ResponseParams, RowKind, RunnableRows, Stage, StageItem};

/// Most tokens of one slot in one step.
const MAX_ROWS: usize = 4;

/// Name of the stage.
const STAGE: &str = "reader";

/// A stage that passes given text on, before the slots are known.
pub struct GivenTextPart;

impl<O: Device> StagePart<O> for GivenTextPart {
    fn name(&self) -> &'static str {
        STAGE
    }

    fn slot_bytes(&self, _: usize) -> SlotBytes {
        SlotBytes::default()
    }

    fn place(self: Box<Self>, at: Placement<'_, O>) -> Box<dyn Stage> {
        Box::new(GivenTextStage::new(at.slots.total()))
    }
}

/// The reader stage with the state of each slot.
pub struct GivenTextStage {
    slots: Vec<ReaderSlot>,
}

#[derive(Default)]
struct ReaderSlot {
    /// Prompt positions already passed to later stages.
    prompt: Vec<Element>,
    /// Text of the response that is read aloud.
    given_text: Option<ReadQueue>,
}

impl GivenTextStage {
    /// Creates the stage for `slots` slots.
    pub fn new(slots: usize) -> Self {
        Self { slots: (0..slots).map(|_| ReaderSlot::default()).collect() }
    }

    fn prompt(&mut self, slot: usize, elements: Vec<Element>, response: Option<ResponseParams>, out: &mut Outbox) {
        let state = &mut self.slots[slot];
        let common = common(&state.prompt, &elements);
        if common < state.prompt.len() {
            out.push((slot, StageItem::Rewind { to: common }));
        }
        if common < elements.len() {
            out.push((slot, StageItem::Context { from: common, elements: elements[common..].to_vec() }));
        }
        state.given_text = response.as_ref().map(|params| ReadQueue::new(params, &elements));
        state.prompt = elements;
        out.extend(response.map(|params| (slot, StageItem::Begin(params))));
    }
}

/// Number of leading positions that two prompts share.
fn common(a: &[Element], b: &[Element]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

impl Stage for GivenTextStage {
    fn name(&self) -> &'static str {
        STAGE
    }

    fn input_kind(&self) -> EdgeKind {
        EdgeKind::Prompt
    }

    fn output_kind(&self) -> EdgeKind {
        EdgeKind::Text
    }

    fn writes(&self) -> bool {
        false
    }

    fn accept(&mut self, slot: usize, item: StageItem, out: &mut Outbox) {
        let state = &mut self.slots[slot];
        match item {
            StageItem::Prompt { elements, response, .. } => self.prompt(slot, elements, response, out),
            StageItem::Streamed(elements) => {
                if let Some(text) = &mut state.given_text {
                    text.push(&elements);
                }
            }
            StageItem::StreamedPause => {
                if let Some(text) = &mut state.given_text {
                    text.pause();
                }
            }
            StageItem::StreamedEnd(end) => {
                if let Some(text) = &mut state.given_text {
                    text.end(end);
                }
            }
            StageItem::Abort => {
                state.given_text = None;
                out.push((slot, StageItem::Abort));
            }
            _ => {}
        }
    }

    fn runnable_rows(&self, slot: usize) -> RunnableRows {
        RunnableRows::rows(self.slots[slot].given_text.as_ref().map_or(0, ReadQueue::rows), RowKind::Decode)
    }

    fn max_rows(&self) -> usize {
        MAX_ROWS
    }

    fn max_items(&self) -> usize {
        MAX_ROWS
    }

    fn launch(&mut self, work: &[BatchEntry], out: &mut Outbox) {
        for &BatchEntry { slot, rows } in work {
            let state = &mut self.slots[slot];
            for _ in 0..rows {
                match state.given_text.as_mut().and_then(ReadQueue::next) {
                    Some(ReadItem::Token(id)) => out.push((slot, StageItem::Token(id))),
                    Some(ReadItem::Pause) => out.push((slot, StageItem::TextPause)),
                    Some(ReadItem::End(end)) => {
                        state.given_text = None;
                        out.push((slot, StageItem::End(end)));
                    }
                    None => break,
                }
            }
        }
    }

    fn free(&mut self, slot: usize) {
        self.slots[slot] = ReaderSlot::default();
    }

    fn held(&self, slot: usize) -> usize {
        self.slots[slot].prompt.len()
    }

    fn shareable_prefix(&self, donor: usize, prompt: &[Element]) -> usize {
        common(&self.slots[donor].prompt, prompt)
    }

    fn share_prefix(&mut self, slot: usize, _: usize, prompt: &[Element]) -> bool {
        self.slots[slot] = ReaderSlot { prompt: prompt.to_vec(), given_text: None };
        true
    }
}

#[cfg(test)]
mod tests {
    use repartee_engine_api::{AnswerForm, Role};

    use super::*;

    #[test]
    fn a_pause_reaches_the_voice_in_its_place() {
        let mut stage = GivenTextStage::new(1);
        let voice = String::new();
        let params = ResponseParams {
            response: 0,
            seed: 0,
            voice,
            audio: true,
            streamed: true,
            max_tokens: 9,
            tools: [].into(),
            form: AnswerForm::Free,
            held: None,
            sampling: None,
        };
        let token = |id| StageItem::Streamed(vec![Element::token(Role::User, id)]);
        let prompt = StageItem::Prompt { elements: Vec::new(), read: Vec::new(), response: Some(params) };
        for item in [prompt, token(1), StageItem::StreamedPause, token(2)] {
            stage.accept(0, item, &mut Outbox::new());
        }
        let mut out = Outbox::new();
        stage.launch(&[BatchEntry { slot: 0, rows: 4 }], &mut out);
        assert!(
            matches!(out[..], [(0, StageItem::Token(1)), (0, StageItem::TextPause), (0, StageItem::Token(2))]),
            "{out:?}"
        );
    }
}
