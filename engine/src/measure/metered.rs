//! Wraps stages and the encoder; records time, rows and products of each step.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use repartee_kernels::cpu::{Cpu, ProductWork};
use repartee_spoken::SpokenOptions;

use super::report::StageOutput;
use crate::elements::{AudioRows, Element};
use crate::model::{Encoder, EncodingProgress, Model, WindowInput};
use crate::stage::{BatchEntry, CacheUse, ContextBudget, EdgeKind, Outbox, RowKind, RunnableRows, Stage, StageItem};

/// Name of the encoder in the stage list.
const ENCODER: &str = "encoder";

/// Totals of one stage's steps over rows of one kind.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct StageTally {
    /// Number of steps.
    pub steps: u64,
    /// Rows of all steps.
    pub rows: u64,
    /// Duration of all steps.
    pub took: Duration,
    /// Products of all steps. Correct only if no other stage computes at the same time.
    pub products: ProductWork,
    /// Kind of output that the stage produces.
    pub makes: StageOutput,
}

/// Tallies by position in the chain (the encoder is 0), stage name and row kind. Clones share them.
#[derive(Debug, Clone)]
pub(super) struct Meter {
    /// Device whose products are counted; `None` measures time alone.
    cpu: Option<Cpu>,
    tallies: Arc<Mutex<Tallies>>,
}

pub(super) type Tallies = BTreeMap<(usize, &'static str, RowKind), StageTally>;

impl Meter {
    /// Counts the products of `cpu` and of all its clones.
    pub(super) fn counting(cpu: Cpu) -> Self {
        Self { cpu: Some(cpu), tallies: Arc::default() }
    }

    /// Measures time alone, on any device.
    pub(super) fn time_only() -> Self {
        Self { cpu: None, tallies: Arc::default() }
    }

    fn products(&self) -> ProductWork {
        self.cpu.as_ref().map_or_else(ProductWork::default, Cpu::work)
    }

    /// Returns the tallies since the last call and resets them.
    pub(super) fn take(&self) -> Tallies {
        std::mem::take(&mut *self.tallies.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Wraps the encoder and every stage of a model.
    pub(super) fn attach(&self, model: &mut Model) {
        if let Some(ears) = model.front_end() {
            let inner = std::mem::replace(&mut ears.encoder, Box::new(NullEncoder));
            ears.encoder = Box::new(MeteredEncoder { inner, meter: self.clone() });
        }
        let stages = std::mem::take(&mut model.stages).into_iter().enumerate();
        let metered = |(at, inner): (usize, Box<dyn Stage>)| -> Box<dyn Stage> {
            let makes = match inner.output_kind() {
                EdgeKind::Text | EdgeKind::Rows => StageOutput::Text,
                EdgeKind::Codes => StageOutput::Codes,
                EdgeKind::Prompt | EdgeKind::Clauses | EdgeKind::Latents | EdgeKind::Samples => StageOutput::Other,
            };
            Box::new(MeteredStage { at: at + 1, makes, inner, meter: self.clone(), launched: RowKind::Decode })
        };
        model.stages = stages.map(metered).collect();
    }

    fn note<T>(
        &self,
        (at, stage, makes): (usize, &'static str, StageOutput),
        kind: RowKind,
        rows: usize,
        run: impl FnOnce() -> T,
    ) -> T {
        let (begun, before) = (Instant::now(), self.products());
        let result = run();
        let (took, products) = (begun.elapsed(), self.products().since(before));
        let mut tallies = self.tallies.lock().unwrap_or_else(PoisonError::into_inner);
        let tally = tallies.entry((at, stage, kind)).or_default();
        tally.steps += u64::from(rows > 0);
        tally.rows += rows as u64;
        tally.took += took;
        tally.products = tally.products.plus(products);
        tally.makes = makes;
        result
    }
}

/// Placeholder while the encoder is moved into its wrapper.
struct NullEncoder;

impl Encoder for NullEncoder {
    fn encode(&mut self, _: &[WindowInput<'_>]) -> Vec<AudioRows> {
        Vec::new()
    }
}

struct MeteredEncoder {
    inner: Box<dyn Encoder>,
    meter: Meter,
}

impl Encoder for MeteredEncoder {
    fn encode(&mut self, windows: &[WindowInput<'_>]) -> Vec<AudioRows> {
        let Self { inner, meter } = self;
        meter.note((0, ENCODER, StageOutput::Other), RowKind::Window, windows.len(), || inner.encode(windows))
    }

    fn rows(&self, frames: usize) -> Option<usize> {
        self.inner.rows(frames)
    }

    fn units(&self, window: &WindowInput<'_>) -> usize {
        self.inner.units(window)
    }

    fn advance(
        &mut self,
        window: &WindowInput<'_>,
        progress: &mut EncodingProgress,
        units: usize,
    ) -> Option<AudioRows> {
        let Self { inner, meter } = self;
        let at = (0, ENCODER, StageOutput::Other);
        meter.note(at, RowKind::Window, units, || inner.advance(window, progress, units))
    }

    fn unfinished_bytes(&self) -> usize {
        self.inner.unfinished_bytes()
    }
}

struct MeteredStage {
    at: usize,
    makes: StageOutput,
    inner: Box<dyn Stage>,
    meter: Meter,
    /// Row kind of the last launch.
    launched: RowKind,
}

impl Stage for MeteredStage {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn input_kind(&self) -> EdgeKind {
        self.inner.input_kind()
    }

    fn output_kind(&self) -> EdgeKind {
        self.inner.output_kind()
    }

    fn accept(&mut self, slot: usize, item: StageItem, out: &mut Outbox) {
        self.inner.accept(slot, item, out);
    }

    fn runnable_rows(&self, slot: usize) -> RunnableRows {
        self.inner.runnable_rows(slot)
    }

    fn buffered_audio(&self, slot: usize) -> Duration {
        self.inner.buffered_audio(slot)
    }

    fn max_rows(&self) -> usize {
        self.inner.max_rows()
    }

    fn max_items(&self) -> usize {
        self.inner.max_items()
    }

    fn launch(&mut self, work: &[BatchEntry], out: &mut Outbox) {
        self.launched = work.first().map_or(RowKind::Decode, |work| self.inner.runnable_rows(work.slot).kind);
        let (name, rows) = (self.inner.name(), work.iter().map(|work| work.rows).sum());
        let Self { at, makes, inner, meter, launched } = self;
        meter.note((*at, name, *makes), *launched, rows, || inner.launch(work, out));
    }

    fn collect(&mut self, out: &mut Outbox) {
        let name = self.inner.name();
        let Self { at, makes, inner, meter, launched } = self;
        meter.note((*at, name, *makes), *launched, 0, || inner.collect(out));
    }

    fn free(&mut self, slot: usize) {
        self.inner.free(slot);
    }

    fn held(&self, slot: usize) -> usize {
        self.inner.held(slot)
    }

    fn blocks(&self) -> usize {
        self.inner.blocks()
    }

    fn cache_use(&self) -> CacheUse {
        self.inner.cache_use()
    }

    fn end_idle_period(&mut self) -> bool {
        self.inner.end_idle_period()
    }

    fn give_back_idle(&mut self) -> bool {
        self.inner.give_back_idle()
    }

    fn prepare(&mut self) {
        self.inner.prepare();
    }

    fn eager_steps(&self) -> Option<u64> {
        self.inner.eager_steps()
    }

    fn reads(&self, element: &Element) -> bool {
        self.inner.reads(element)
    }

    fn shareable_prefix(&self, donor: usize, prompt: &[Element]) -> usize {
        self.inner.shareable_prefix(donor, prompt)
    }

    fn share_prefix(&mut self, slot: usize, donor: usize, prompt: &[Element]) -> bool {
        self.inner.share_prefix(slot, donor, prompt)
    }

    fn keep_prefix(&mut self, slot: usize) {
        self.inner.keep_prefix(slot);
    }

    fn spoken_text(&self) -> Option<&SpokenOptions> {
        self.inner.spoken_text()
    }

    fn context_budget(&self, prompt: &[Element], max_tokens: usize) -> Option<ContextBudget> {
        self.inner.context_budget(prompt, max_tokens)
    }
}
