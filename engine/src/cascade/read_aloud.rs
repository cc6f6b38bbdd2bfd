//! First stage of a cascade that speaks: a given text passes the language model by. It takes no positions of its cache,
//! needs no answer of its server, and leaves what it holds of the conversation as it is.

use std::time::Duration;

use repartee_spoken::SpokenOptions;

use crate::device::Device;
use crate::elements::Element;
use crate::models::parts::memory::SlotBytes;
use crate::models::parts::pipeline::{Placement, StagePart};
use crate::models::parts::read_queue::{ReadItem, ReadQueue};
use crate::stage::{
    BatchEntry, CacheUse, ContextBudget, EdgeKind, Outbox, ResponseParams, RunnableRows, Stage, StageItem,
};

/// Most tokens of a given text that pass in one tick, for each slot.
const MAX_TOKENS: usize = 4;

/// The stage before the slots are known.
pub struct ReadAloudPart<O: Device>(pub Box<dyn StagePart<O>>);

impl<O: Device> StagePart<O> for ReadAloudPart<O> {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn settings(&self) -> &'static [&'static str] {
        self.0.settings()
    }

    fn most_positions(&self) -> Option<usize> {
        self.0.most_positions()
    }

    fn slot_bytes(&self, context: usize) -> SlotBytes {
        self.0.slot_bytes(context)
    }

    fn place(self: Box<Self>, at: Placement<'_, O>) -> Box<dyn Stage> {
        let slots = (0..at.slots.total()).map(|_| None).collect();
        Box::new(ReadAloudStage { thinks: self.0.place(at), slots })
    }
}

/// The language model's first stage, with the given text of each slot.
struct ReadAloudStage {
    thinks: Box<dyn Stage>,
    /// Given text of the response in the slot; `None` for a response that the language model writes.
    slots: Vec<Option<ReadQueue>>,
}

impl Stage for ReadAloudStage {
    fn accept(&mut self, slot: usize, item: StageItem, out: &mut Outbox) {
        match (item, &mut self.slots[slot]) {
            // The prompt means nothing to a text that is given.
            (StageItem::Prompt { response: Some(params @ ResponseParams { streamed: true, .. }), .. }, text) => {
                *text = Some(ReadQueue::new(&params, &[]));
                out.push((slot, StageItem::Begin(params)));
            }
            (StageItem::Streamed(elements), Some(text)) => text.push(&elements),
            (StageItem::StreamedPause, Some(text)) => text.pause(),
            (StageItem::StreamedEnd(end), Some(text)) => text.end(end),
            (StageItem::Abort, text @ Some(_)) => {
                *text = None;
                out.push((slot, StageItem::Abort));
            }
            (item, text) => {
                if matches!(item, StageItem::Prompt { response: Some(_), .. }) {
                    *text = None;
                }
                self.thinks.accept(slot, item, out);
            }
        }
    }

    fn arrived(&mut self, slot: usize, out: &mut Outbox) -> bool {
        let Some(text) = &mut self.slots[slot] else { return self.thinks.arrived(slot, out) };
        let before = out.len();
        for item in text.take(MAX_TOKENS) {
            let (item, ends) = match item {
                ReadItem::Token(id) => (StageItem::Token(id), false),
                ReadItem::Pause => (StageItem::TextPause, false),
                ReadItem::End(end) => (StageItem::End(end), true),
            };
            out.push((slot, item));
            if ends {
                self.slots[slot] = None;
                break;
            }
        }
        out.len() > before
    }

    fn runnable_rows(&self, slot: usize) -> RunnableRows {
        // The language model may still prefill what the conversation has become.
        self.thinks.runnable_rows(slot)
    }

    fn max_items(&self) -> usize {
        self.thinks.max_items().max(MAX_TOKENS)
    }

    fn free(&mut self, slot: usize) {
        self.slots[slot] = None;
        self.thinks.free(slot);
    }

    fn name(&self) -> &'static str {
        self.thinks.name()
    }

    fn input_kind(&self) -> EdgeKind {
        self.thinks.input_kind()
    }

    fn output_kind(&self) -> EdgeKind {
        self.thinks.output_kind()
    }

    fn is_replayable(&self) -> bool {
        self.thinks.is_replayable()
    }

    fn buffered_audio(&self, slot: usize) -> Duration {
        self.thinks.buffered_audio(slot)
    }

    fn max_rows(&self) -> usize {
        self.thinks.max_rows()
    }

    fn launch(&mut self, work: &[BatchEntry], out: &mut Outbox) {
        self.thinks.launch(work, out);
    }

    fn collect(&mut self, out: &mut Outbox) {
        self.thinks.collect(out);
    }

    fn held(&self, slot: usize) -> usize {
        self.thinks.held(slot)
    }

    fn blocks(&self) -> usize {
        self.thinks.blocks()
    }

    fn cache_use(&self) -> CacheUse {
        self.thinks.cache_use()
    }

    fn end_idle_period(&mut self) -> bool {
        self.thinks.end_idle_period()
    }

    fn give_back_idle(&mut self) -> bool {
        self.thinks.give_back_idle()
    }

    fn reads(&self, element: &Element) -> bool {
        self.thinks.reads(element)
    }

    fn prepare(&mut self) {
        self.thinks.prepare();
    }

    fn eager_steps(&self) -> Option<u64> {
        self.thinks.eager_steps()
    }

    fn shareable_prefix(&self, donor: usize, prompt: &[Element]) -> usize {
        self.thinks.shareable_prefix(donor, prompt)
    }

    fn share_prefix(&mut self, slot: usize, donor: usize, prompt: &[Element]) -> bool {
        self.thinks.share_prefix(slot, donor, prompt)
    }

    fn keep_prefix(&mut self, slot: usize) {
        self.thinks.keep_prefix(slot);
    }

    fn spoken_text(&self) -> Option<&SpokenOptions> {
        self.thinks.spoken_text()
    }

    fn context_budget(&self, prompt: &[Element], max_tokens: usize) -> Option<ContextBudget> {
        self.thinks.context_budget(prompt, max_tokens)
    }
}

#[cfg(test)]
mod tests {
    use repartee_engine_api::{AnswerForm, Role};

    use super::*;
    use crate::models::parts::given_text_stage::GivenTextStage;
    use crate::stage::StageEnd;

    fn params(streamed: bool) -> ResponseParams {
        ResponseParams {
            response: 0,
            seed: 0,
            voice: String::new(),
            audio: true,
            streamed,
            max_tokens: 9,
            tools: [].into(),
            form: AnswerForm::Free,
            held: None,
            sampling: None,
        }
    }

    fn prompt(streamed: bool) -> StageItem {
        let elements = vec![Element::token(Role::User, 7)];
        StageItem::Prompt { elements, read: Vec::new(), response: Some(params(streamed)) }
    }

    /// The items of a stage whose language model passes its prompt on at once.
    fn given(stage: &mut ReadAloudStage, items: Vec<StageItem>) -> Vec<StageItem> {
        let mut out = Outbox::new();
        items.into_iter().for_each(|item| stage.accept(0, item, &mut out));
        while stage.arrived(0, &mut out) {}
        out.into_iter().map(|(_, item)| item).collect()
    }

    fn stage() -> ReadAloudStage {
        ReadAloudStage { thinks: Box::new(GivenTextStage::new(1)), slots: vec![None] }
    }

    fn text(ids: &[u32]) -> StageItem {
        StageItem::Streamed(ids.iter().map(|&id| Element::token(Role::Assistant, id)).collect())
    }

    #[test]
    fn given_text_passes_the_language_model_by() {
        let mut stage = stage();
        let said = given(
            &mut stage,
            vec![prompt(true), text(&[1, 2, 3]), text(&[4, 5]), StageItem::StreamedEnd(StageEnd::Stop)],
        );
        assert!(matches!(said[0], StageItem::Begin(_)), "{said:?}");
        let ids: Vec<_> = said[1..6].iter().map(|item| if let StageItem::Token(id) = item { *id } else { 0 }).collect();
        assert_eq!(ids, [1, 2, 3, 4, 5], "{said:?}");
        assert!(matches!(said[6..], [StageItem::End(StageEnd::Stop)]), "{said:?}");
        assert_eq!(stage.held(0), 0, "the language model holds nothing of it");
        let written = given(&mut stage, vec![prompt(false)]);
        assert!(matches!(written[..], [StageItem::Context { .. }, StageItem::Begin(_)]), "{written:?}");
    }

    #[test]
    fn an_abort_leaves_no_given_text() {
        let mut stage = stage();
        let mut out = Outbox::new();
        for item in [prompt(true), text(&[1, 2]), StageItem::Abort, text(&[3])] {
            stage.accept(0, item, &mut out);
        }
        assert!(matches!(out[..], [(0, StageItem::Begin(_)), (0, StageItem::Abort)]), "{out:?}");
        assert!(!stage.arrived(0, &mut out), "{out:?}");
    }

    #[test]
    fn a_tick_passes_a_bounded_part() {
        let mut stage = stage();
        let mut out = Outbox::new();
        for item in [prompt(true), text(&[1; 9])] {
            stage.accept(0, item, &mut out);
        }
        out.clear();
        assert!(stage.arrived(0, &mut out));
        assert!(out.len() == MAX_TOKENS && MAX_TOKENS <= stage.max_items(), "{out:?}");
    }
}
