//! Stage of a model behind a bridge: it takes prompts of its own, and knows nothing of the session's.

use std::time::Duration;

use repartee_spoken::SpokenOptions;

use crate::elements::Element;
use crate::stage::{BatchEntry, CacheUse, ContextBudget, EdgeKind, Outbox, RunnableRows, Stage, StageItem};

/// A stage to which the session's prompt means nothing.
pub struct LaterStage(pub Box<dyn Stage>);

impl Stage for LaterStage {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn input_kind(&self) -> EdgeKind {
        self.0.input_kind()
    }

    fn output_kind(&self) -> EdgeKind {
        self.0.output_kind()
    }

    fn accept(&mut self, slot: usize, item: StageItem, out: &mut Outbox) {
        self.0.accept(slot, item, out);
    }

    fn runnable_rows(&self, slot: usize) -> RunnableRows {
        self.0.runnable_rows(slot)
    }

    fn buffered_audio(&self, slot: usize) -> Duration {
        self.0.buffered_audio(slot)
    }

    fn max_rows(&self) -> usize {
        self.0.max_rows()
    }

    fn max_items(&self) -> usize {
        self.0.max_items()
    }

    fn launch(&mut self, work: &[BatchEntry], out: &mut Outbox) {
        self.0.launch(work, out);
    }

    fn collect(&mut self, out: &mut Outbox) {
        self.0.collect(out);
    }

    fn free(&mut self, slot: usize) {
        self.0.free(slot);
    }

    fn blocks(&self) -> usize {
        self.0.blocks()
    }

    fn cache_use(&self) -> CacheUse {
        self.0.cache_use()
    }

    fn end_idle_period(&mut self) -> bool {
        self.0.end_idle_period()
    }

    fn give_back_idle(&mut self) -> bool {
        self.0.give_back_idle()
    }

    fn prepare(&mut self) {
        self.0.prepare();
    }

    fn eager_steps(&self) -> Option<u64> {
        self.0.eager_steps()
    }

    fn most_frames(&self) -> Option<usize> {
        self.0.most_frames()
    }

    fn spoken_text(&self) -> Option<&SpokenOptions> {
        self.0.spoken_text()
    }

    // The session's prompt.

    fn reads(&self, _: &Element) -> bool {
        false
    }

    fn shareable_prefix(&self, _: usize, prompt: &[Element]) -> usize {
        prompt.len()
    }

    fn share_prefix(&mut self, _: usize, _: usize, _: &[Element]) -> bool {
        true
    }

    fn context_budget(&self, _: &[Element], _: usize) -> Option<ContextBudget> {
        None
    }
}
