//! Steps of the model on a device, with the caches of every slot: encoding windows of sound, and decoding text over them.

use std::ops::Range;

use repartee_kernels::row_spec::{BatchSection, SpecSection};
use repartee_kernels::{ReadBack, RowSpec, SequenceRows, SpecLayout, StepKey};

use super::decoder::{CacheSizes, DecoderStep, LayerCache};
use super::model::Whisper;
use crate::device::Device;
use crate::model::{EncodingProgress, WindowInput};

/// Positions in a block of a cache.
const BLOCK: usize = 16;

/// Text positions of one slot in a step.
#[derive(Debug, Clone, Copy)]
pub struct TextRows<'a> {
    /// Slot of the text.
    pub slot: usize,
    /// Tokens of consecutive positions; not more than rows of sound.
    pub ids: &'a [u32],
    /// Position of the first.
    pub position: usize,
    /// Encoded rows of the slot's sound.
    pub sound: usize,
    /// Indices of `ids` whose logits are wanted, ascending.
    pub wanted: &'a [usize],
}

/// The model with the state of all slots.
pub struct WhisperSteps<O: Device> {
    ops: O,
    model: Whisper<O>,
    caches: Vec<LayerCache<O>>,
    slots: usize,
    spec: RowSpec,
    back: ReadBack,
    /// A launched step of text, and the number of rows of logits that it gives.
    launched: Option<(O::Ticket, usize)>,
}

/// Sections of the row spec that a step of text uses.
struct TextSections {
    ids: SpecSection,
    positions: SpecSection,
    wanted: SpecSection,
    text: BatchSection,
    sound: BatchSection,
}

/// Table of the blocks of a slot, each slot having `blocks`.
fn table(slot: usize, blocks: usize) -> Vec<u32> {
    (slot * blocks..(slot + 1) * blocks).map(|block| block as u32).collect()
}

impl<O: Device> WhisperSteps<O> {
    /// Creates the caches of `slots` slots.
    pub fn new(ops: O, model: Whisper<O>, slots: usize) -> Self {
        // One more block for the padding of steps.
        let [text, sound] = blocks(&model).map(|blocks| slots * blocks + 1);
        let caches = model.decoder.cache(&ops, CacheSizes { text, sound, block: BLOCK });
        Self { ops, model, caches, slots, spec: RowSpec::default(), back: ReadBack::default(), launched: None }
    }

    /// Bytes of the caches of a slot.
    pub fn slot_bytes(ops: &O, model: &Whisper<O>) -> usize {
        let sizes = model.decoder.sizes();
        blocks(model).iter().sum::<usize>() * BLOCK * 2 * sizes.width * sizes.layers * ops.kv_number_bytes()
    }

    /// Number of layers, each with caches of its own.
    pub fn layers(&self) -> usize {
        self.caches.len()
    }

    /// Frees working memory that no step used since the last call; true if some is left.
    pub fn shrink(&self) -> bool {
        self.ops.shrink()
    }

    /// Discards the caches of a free slot in one layer.
    pub fn discard(&mut self, slot: usize, layer: usize) {
        let [text, sound] =
            blocks(&self.model).map(|blocks| (slot * blocks..(slot + 1) * blocks, self.slots * blocks + 1));
        self.caches[layer].discard(&self.ops, text, sound);
    }

    /// Returns the model, whose configuration callers read.
    pub fn model(&self) -> &Whisper<O> {
        &self.model
    }

    /// Encodes windows of mel frames of different slots, and stores them for their texts. Returns the rows of each.
    pub fn encode(&mut self, windows: &[(usize, &[f32])]) -> Vec<Vec<f32>> {
        let Self { ops, model, spec, back, .. } = self;
        let inputs: Vec<_> = windows.iter().map(|(_, data)| WindowInput { data, index: 0 }).collect();
        let encoded = model.encoder.encode(ops, &inputs, spec, back);
        let sounds: Vec<_> = windows.iter().zip(&encoded).map(|((slot, _), rows)| (*slot, &rows[..])).collect();
        let layers = self.layers();
        self.store_sound(&sounds, 0..layers);
        encoded
    }

    /// Runs units of the encoder over a window; returns its rows once all are done.
    pub(super) fn encode_part(
        &mut self,
        window: &WindowInput<'_>,
        progress: &mut EncodingProgress,
        units: usize,
    ) -> Option<Vec<f32>> {
        let Self { ops, model, spec, back, .. } = self;
        model.encoder.advance(ops, window, progress, units, (spec, back))
    }

    /// Stores keys and values of encoded windows of different slots, in some layers.
    pub(super) fn store_sound(&mut self, windows: &[(usize, &[f32])], layers: Range<usize>) {
        let Self { ops, model, caches, spec, back, slots, .. } = self;
        let width = model.decoder.sizes().width;
        let [_, blocks] = blocks(model);
        let tables: Vec<_> = windows.iter().map(|(slot, _)| table(*slot, blocks)).collect();
        let rows = ops.bucket(windows.iter().map(|(_, rows)| rows.len() / width).sum());
        let mut layout = SpecLayout::default();
        let (data, batch) = (layout.list(rows * width), layout.batch(rows, windows.len(), blocks));
        layout.clear_spec(spec);
        spec.set_floats_each(data, windows.iter().flat_map(|(_, rows)| rows.iter().copied()));
        let sequences: Vec<_> = tables
            .iter()
            .zip(windows)
            .map(|(table, (_, rows))| SequenceRows { table, position: 0, rows: rows.len() / width })
            .collect();
        spec.set_batch(batch, &sequences, (*slots * blocks) as u32);
        // A device that captures steps stores all layers in one.
        let key = StepKey { stage: "whisper sound", rows, variant: windows.len() * (caches.len() + 1) + layers.start };
        let ticket = ops.launch(key, spec, &mut |ops, spec, _| {
            let rows = ops.floats(spec, data, width);
            model.decoder.hear(ops, &rows, &ops.batch_at(spec, batch), layers.clone(), caches);
        });
        ops.collect(ticket, back);
    }

    /// Launches a step over texts of different slots.
    pub fn launch(&mut self, texts: &[TextRows<'_>]) {
        let (sections, rows, wanted) = self.fill(texts);
        let Self { ops, model, caches, spec, .. } = self;
        let padded = padded(ops, wanted);
        let key = StepKey { stage: "whisper text", rows, variant: padded };
        let ticket = ops.launch(key, spec, &mut |ops, spec, outputs| {
            let x = forward(ops, model, caches, spec, &sections, |_, _| {});
            if padded > 0 {
                outputs.rows.push(model.decoder.logits(ops, &x, &ops.index(spec, sections.wanted)));
            }
        });
        self.launched = Some((ticket, wanted));
    }

    /// Waits for the launched step. Returns the wanted rows of logits, one after the other; none if nothing was launched.
    pub fn collect(&mut self) -> &[f32] {
        let Some((ticket, wanted)) = self.launched.take() else { return &[] };
        self.ops.collect(ticket, &mut self.back);
        &self.back.numbers[..wanted * self.model.decoder.sizes().vocabulary]
    }

    /// Runs the text of one slot once more; returns the queries of its positions to the sound, for each of `layers`.
    pub fn queries(&mut self, text: &TextRows<'_>, layers: &[usize]) -> Vec<Vec<f32>> {
        let (sections, rows, _) = self.fill(std::slice::from_ref(text));
        let Self { ops, model, caches, spec, back, .. } = self;
        let key = StepKey { stage: "whisper queries", rows, variant: layers.len() };
        let ticket = ops.launch(key, spec, &mut |ops, spec, outputs| {
            forward(ops, model, caches, spec, &sections, |layer, queries| {
                if layers.contains(&layer) {
                    outputs.rows.push(ops.copy(queries));
                }
            });
        });
        ops.collect(ticket, back);
        let width = model.decoder.sizes().width;
        back.numbers.chunks_exact(rows * width).map(|all| all[..text.ids.len() * width].to_vec()).collect()
    }

    /// Keys of encoded rows, for each of `layers`.
    pub fn keys(&mut self, encoded: &[f32], layers: &[usize]) -> Vec<Vec<f32>> {
        let Self { ops, model, spec, back, .. } = self;
        let width = model.decoder.sizes().width;
        let rows = ops.bucket(encoded.len() / width);
        let mut layout = SpecLayout::default();
        let data = layout.list(rows * width);
        layout.clear_spec(spec);
        spec.set_floats(data, encoded);
        let key = StepKey { stage: "whisper keys", rows, variant: layers.len() };
        let ticket = ops.launch(key, spec, &mut |ops, spec, outputs| {
            let rows = ops.floats(spec, data, width);
            outputs.rows.extend(layers.iter().map(|&layer| model.decoder.sound_keys(ops, &rows, layer)));
        });
        ops.collect(ticket, back);
        back.numbers.chunks_exact(rows * width).map(|all| all[..encoded.len()].to_vec()).collect()
    }

    /// Fills the row spec for a step over texts. Returns its sections, and the numbers of rows and of wanted rows.
    fn fill(&mut self, texts: &[TextRows<'_>]) -> (TextSections, usize, usize) {
        let [text_blocks, sound_blocks] = blocks(&self.model);
        let rows = self.ops.bucket(texts.iter().map(|text| text.ids.len()).sum());
        let wanted: usize = texts.iter().map(|text| text.wanted.len()).sum();
        let mut layout = SpecLayout::default();
        let sections = TextSections {
            ids: layout.list(rows),
            positions: layout.list(rows),
            wanted: layout.list(padded(&self.ops, wanted)),
            text: layout.batch(rows, rows, text_blocks),
            sound: layout.batch(rows, rows, sound_blocks),
        };
        layout.clear_spec(&mut self.spec);
        self.spec.set_each(sections.ids, texts.iter().flat_map(|text| text.ids.iter().copied()));
        let positions = texts.iter().flat_map(|text| text.position..text.position + text.ids.len());
        self.spec.set_each(sections.positions, positions.map(|position| position as u32));
        let mut first = 0;
        let at = texts.iter().flat_map(|text| {
            first += text.ids.len();
            let first = first - text.ids.len();
            text.wanted.iter().map(move |index| (first + index) as u32)
        });
        self.spec.set_each(sections.wanted, at);
        let tables: Vec<_> =
            texts.iter().map(|text| (table(text.slot, text_blocks), table(text.slot, sound_blocks))).collect();
        let own: Vec<_> = texts
            .iter()
            .zip(&tables)
            .map(|(text, (table, _))| SequenceRows { table, position: text.position, rows: text.ids.len() })
            .collect();
        self.spec.set_batch(sections.text, &own, (self.slots * text_blocks) as u32);
        // The rows stand at the end of the sound, so that each sees all of it.
        let sound: Vec<_> = texts
            .iter()
            .zip(&tables)
            .map(|(text, (_, table))| SequenceRows {
                table,
                position: text.sound.saturating_sub(text.ids.len()),
                rows: text.ids.len(),
            })
            .collect();
        self.spec.set_batch(sections.sound, &sound, (self.slots * sound_blocks) as u32);
        (sections, rows, wanted)
    }
}

/// Number of rows of logits that a step computes for `wanted` ones.
fn padded<O: Device>(ops: &O, wanted: usize) -> usize {
    if wanted == 0 { 0 } else { ops.bucket(wanted) }
}

/// Blocks of a slot for text, and for sound.
fn blocks<O: Device>(model: &Whisper<O>) -> [usize; 2] {
    let shape = model.encoder.shape();
    [model.decoder.sizes().positions, shape.tokens(shape.window)].map(|positions| positions.div_ceil(BLOCK))
}

/// Runs the decoder over the rows of a step.
fn forward<O: Device>(
    ops: &O,
    model: &Whisper<O>,
    caches: &mut [LayerCache<O>],
    spec: &O::Spec,
    sections: &TextSections,
    queried: impl FnMut(usize, &O::T),
) -> O::T {
    let step = DecoderStep {
        ids: &ops.index(spec, sections.ids),
        positions: &ops.index(spec, sections.positions),
        text: &ops.batch_at(spec, sections.text),
        sound: &ops.batch_at(spec, sections.sound),
        caches,
    };
    model.decoder.forward(ops, step, queried)
}
