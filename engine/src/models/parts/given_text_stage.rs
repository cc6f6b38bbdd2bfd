//! The first stage of a family that reads text aloud: it computes nothing, and passes on the tokens that are to be spoken.
//!
//! They are the user's positions of the prompt, or what streams in. The prompt's positions are announced to later stages as a
//! language model's are. A token more than the limit ends the response there; so any cut of the text ends alike.

use repartee_engine_api::Role;

use super::autoregressive::Sampled;
use super::given_text::GivenText;
use crate::elements::Element;
use crate::stage::{EdgeKind, End, Item, Need, Outbox, ResponseParams, RowKind, Stage, Work};

/// Tokens of one slot in one step.
const MAX_ROWS: usize = 4;

/// The stage, with what it knows of each slot.
pub struct GivenTextStage {
    slots: Vec<Slot>,
}

#[derive(Default)]
struct Slot {
    /// Prompt positions that later stages know of.
    prompt: Vec<Element>,
    reading: Option<Reading>,
}

/// A response that is read aloud.
struct Reading {
    text: GivenText,
    /// Tokens that may still be given.
    left: u32,
}

impl GivenTextStage {
    /// A stage for `slots` slots.
    pub fn new(slots: usize) -> Self {
        Self { slots: (0..slots).map(|_| Slot::default()).collect() }
    }

    fn prompt(&mut self, slot: usize, elements: Vec<Element>, response: Option<ResponseParams>, out: &mut Outbox) {
        let state = &mut self.slots[slot];
        let common = common(&state.prompt, &elements);
        if common < state.prompt.len() {
            out.push((slot, Item::Rewind { to: common }));
        }
        if common < elements.len() {
            out.push((slot, Item::Context { from: common, elements: elements[common..].to_vec() }));
        }
        state.reading = response.as_ref().map(|params| {
            let mut text = GivenText::default();
            if !params.streamed {
                text.push(elements.iter().filter(|element| element.role == Role::User));
                text.end();
            }
            Reading { text, left: params.max_tokens }
        });
        state.prompt = elements;
        out.extend(response.map(|params| (slot, Item::Begin(params))));
    }
}

/// Leading positions that two prompts have in common.
fn common(a: &[Element], b: &[Element]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

impl Reading {
    /// Steps that can be made now: one for each token, and one for the end.
    fn steps(&self) -> usize {
        let known = self.text.known();
        let given = known.min(self.left as usize);
        given + usize::from(self.text.has_ended() || known > given)
    }

    /// The next token, or how the text ends; `None` while neither is known.
    fn next(&mut self) -> Option<Result<u32, End>> {
        if self.left == 0 && self.text.known() > 0 {
            return Some(Err(End::Length));
        }
        match self.text.next() {
            Sampled::Piece(id) => {
                self.left -= 1;
                Some(Ok(id))
            }
            Sampled::Stop => Some(Err(End::Stop)),
            Sampled::Pending | Sampled::NotFinite => None,
        }
    }
}

impl Stage for GivenTextStage {
    fn name(&self) -> &'static str {
        "reader"
    }

    fn takes(&self) -> EdgeKind {
        EdgeKind::Prompt
    }

    fn gives(&self) -> EdgeKind {
        EdgeKind::Text
    }

    fn accept(&mut self, slot: usize, item: Item, out: &mut Outbox) {
        let state = &mut self.slots[slot];
        match item {
            Item::Prompt { elements, response, .. } => self.prompt(slot, elements, response, out),
            Item::Streamed(elements) => {
                if let Some(reading) = &mut state.reading {
                    reading.text.push(&elements);
                }
            }
            Item::StreamedEnd => {
                if let Some(reading) = &mut state.reading {
                    reading.text.end();
                }
            }
            Item::Abort => {
                state.reading = None;
                out.push((slot, Item::Abort));
            }
            _ => {}
        }
    }

    fn need(&self, slot: usize) -> Need {
        Need::rows(self.slots[slot].reading.as_ref().map_or(0, Reading::steps), RowKind::Decode)
    }

    fn max_rows(&self) -> usize {
        MAX_ROWS
    }

    fn max_items(&self) -> usize {
        MAX_ROWS
    }

    fn launch(&mut self, work: &[Work], out: &mut Outbox) {
        for &Work { slot, rows } in work {
            let state = &mut self.slots[slot];
            for _ in 0..rows {
                match state.reading.as_mut().and_then(Reading::next) {
                    Some(Ok(id)) => out.push((slot, Item::Token(id))),
                    Some(Err(end)) => {
                        state.reading = None;
                        out.push((slot, Item::End(end)));
                    }
                    None => break,
                }
            }
        }
    }

    fn free(&mut self, slot: usize) {
        self.slots[slot] = Slot::default();
    }

    fn held(&self, slot: usize) -> usize {
        self.slots[slot].prompt.len()
    }

    fn shares(&self, donor: usize, prompt: &[Element]) -> usize {
        common(&self.slots[donor].prompt, prompt)
    }

    fn share(&mut self, slot: usize, _: usize, prompt: &[Element]) -> bool {
        self.slots[slot] = Slot { prompt: prompt.to_vec(), reading: None };
        true
    }
}
