//! The thinker as a language model of the generic stage: reads the prompt, writes text.

use std::sync::Arc;

use repartee_engine_api::{Role, Sampling};
use repartee_kernels::Ops;
use repartee_kernels::ops::NO_ID;

use crate::elements::{Element, Value};
use crate::models::parts::autoregressive::{BLOCK, CausalLm, Forward, HiddenRow, Sampled, Sampler, SlotState};
use crate::models::qwen3_omni_moe::thinker::Thinker;
use crate::sequence::BlockPool;
use crate::stage::{EdgeKind, End, Item, Outbox, ResponseParams, Room};

/// One in so many positions of the context is left for a response, if its limit does not ask for fewer.
const RESERVED_SHARE: usize = 4;

/// The thinker with its stop tokens and settings.
pub struct ThinkerLm<O: Ops> {
    /// The model.
    pub thinker: Arc<Thinker<O>>,
    /// Tokens that end the text.
    pub stop: Vec<u32>,
    /// Sampling of requests that name none.
    pub sampling: Sampling,
    /// Ids.
    pub vocabulary: usize,
    /// Positions of a prompt and its response together.
    pub context: usize,
}

impl<O: Ops> ThinkerLm<O> {
    /// Embeddings of packed positions.
    fn embed(&self, ops: &O, rows: &[Element<O::T>]) -> O::T {
        let mut ids = Vec::with_capacity(rows.len());
        // Audio rows: their places in the batch, and the rows of each window.
        let mut at = Vec::new();
        let mut audio: Vec<(&Arc<_>, Vec<usize>)> = Vec::new();
        for element in rows {
            match &element.value {
                Value::Token(id) => ids.push(*id),
                Value::Audio { window, row } => {
                    at.push(ids.len());
                    ids.push(NO_ID);
                    match audio.last_mut() {
                        Some((last, rows)) if Arc::ptr_eq(last, window) => rows.push(*row),
                        _ => audio.push((window, vec![*row])),
                    }
                }
                // The template writes none.
                Value::Codes(_) => ids.push(NO_ID),
            }
        }
        let parts: Vec<O::T> = audio.iter().map(|(window, rows)| ops.gather(&window.rows, rows)).collect();
        let audio = (!parts.is_empty()).then(|| ops.concat(&parts.iter().collect::<Vec<_>>()));
        self.thinker.embed(ops, &ops.ids(&ids), &at, audio.as_ref())
    }
}

impl<O: Ops + Send> CausalLm<O> for ThinkerLm<O>
where
    O::T: Send + Sync,
    O::Weight: Send + Sync,
{
    type Row = Element<O::T>;
    type Slot = ();
    type Piece = u32;

    fn name(&self) -> &'static str {
        "thinker"
    }

    fn takes(&self) -> EdgeKind {
        EdgeKind::Prompt
    }

    fn gives(&self) -> EdgeKind {
        EdgeKind::Text
    }

    fn vocabulary(&self) -> usize {
        self.vocabulary
    }

    fn cache(&self, ops: &O, blocks: usize) -> Vec<O::State> {
        self.thinker.model.cache(ops, blocks, BLOCK)
    }

    fn prompt_row(&self, element: &Element<O::T>) -> Option<Element<O::T>> {
        Some(element.clone())
    }

    fn limit(&self, params: &ResponseParams) -> usize {
        params.max_tokens as usize
    }

    fn accept(
        &mut self,
        slot: usize,
        item: Item<O::T>,
        state: &mut SlotState<O, Self>,
        _: &mut BlockPool,
        out: &mut Outbox<O::T>,
    ) {
        if let Item::Abort = item {
            state.end();
            state.drop_queue();
            out.push((slot, Item::Abort));
        }
    }

    fn forward(
        &mut self,
        ops: &O,
        rows: Vec<Element<O::T>>,
        cache: &mut [O::State],
        batch: &O::Batch,
        at: &[usize],
    ) -> Forward<O::T> {
        let x = self.embed(ops, &rows);
        let (x, hidden) = self.thinker.forward(ops, x, cache, batch);
        Forward { last: ops.gather(&x, at), hidden: Some(hidden) }
    }

    fn sample(
        &mut self,
        ops: &O,
        last: &O::T,
        samplers: &[Sampler<'_>],
        output_mask: &mut O::State,
    ) -> Vec<Sampled<u32>> {
        let logits = self.thinker.head(ops, last);
        let params: Vec<_> = samplers
            .iter()
            .map(|row| row.sample_params(row.params.sampling.as_ref().unwrap_or(&self.sampling), 0))
            .collect();
        let ids = ops.read_ids(&self.thinker.sample(ops, &logits, &params, output_mask));
        let sampled = |id| match id {
            NO_ID => Sampled::NotFinite,
            id if self.stop.contains(&id) => Sampled::Stop,
            id => Sampled::Piece(id),
        };
        ids.into_iter().map(sampled).collect()
    }

    fn give(&self, slot: usize, id: &u32, _: HiddenRow<'_, O::T>, out: &mut Outbox<O::T>) {
        out.push((slot, Item::Token(*id)));
    }

    fn follow(&mut self, state: &mut SlotState<O, Self>, id: u32) {
        state.extend(Element::token(Role::Assistant, id), Element::token(Role::Assistant, id));
    }

    fn ended(&mut self, slot: usize, end: End, _: &mut SlotState<O, Self>, _: &mut BlockPool, out: &mut Outbox<O::T>) {
        out.push((slot, Item::End(end)));
    }

    fn failed(&mut self, state: &mut SlotState<O, Self>, _: &mut BlockPool) {
        state.drop_queue();
    }

    fn room(&self, prompt: &[Element<O::T>], max_tokens: usize) -> Room {
        let reserved = max_tokens.min(self.context / RESERVED_SHARE);
        Room { used: prompt.len(), limit: self.context - reserved }
    }
}
