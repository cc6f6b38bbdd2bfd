//! Frames of codes to a row of a language model: the sums of each frame's embeddings, layers over the few frames of a
//! patch, and a matrix over all of them.

use repartee_kernels::row_spec::{BatchSection, SegmentSection, SpecSection};
use repartee_kernels::{NO_ID, Ops, ReadBack, RowSpec, SequenceRows, SpecLayout, StepKey};

use super::decoder::Decoder;

/// A patch encoder, assembled by its family.
pub struct PatchEncoder<O: Ops> {
    /// Frames of a patch.
    pub frames: usize,
    /// Embeddings of each codebook.
    pub tables: Vec<O::Weight>,
    /// Width of the embeddings and of a row in the layers.
    pub width: usize,
    /// Layers over a patch, with as many heads of keys as of queries.
    pub layers: Decoder<O>,
    /// True if a frame sees those before it alone.
    pub causal: bool,
    /// Matrix from the frames of a patch to its row.
    pub projection: O::Weight,
}

/// Sections of the row spec for some patches.
pub struct PatchSections {
    /// For each codebook, the codes of all frames.
    codes: Vec<SpecSection>,
    batch: BatchSection,
    segments: SegmentSection,
}

impl<O: Ops> PatchEncoder<O> {
    /// Reserves sections for `patches` patches.
    pub fn layout(&self, layout: &mut SpecLayout, patches: usize) -> PatchSections {
        let rows = patches * self.frames;
        PatchSections {
            codes: self.tables.iter().map(|_| layout.list(rows)).collect(),
            batch: layout.batch(rows, patches, 1),
            segments: layout.segments(rows, patches),
        }
    }

    /// Fills a row spec; each patch has its codes frame by frame.
    pub fn fill(&self, spec: &mut RowSpec, sections: &PatchSections, patches: &[&[u32]]) {
        let (frames, codebooks) = (self.frames, self.tables.len());
        for (at, section) in sections.codes.iter().enumerate() {
            let code = |patch: &&[u32], frame: usize| patch.get(frame * codebooks + at).copied().unwrap_or(NO_ID);
            let codes = patches.iter().flat_map(|patch| (0..frames).map(move |frame| code(patch, frame)));
            spec.set_each(*section, codes);
        }
        let sequence = |_: &&[u32]| SequenceRows { table: &[0], position: 0, rows: frames };
        spec.set_batch(sections.batch, &patches.iter().map(sequence).collect::<Vec<_>>(), 0);
        spec.set_segments(sections.segments, &vec![frames; patches.len()]);
    }

    /// Returns one row for each patch.
    pub fn forward(&self, ops: &O, spec: &O::Spec, sections: &PatchSections) -> O::T {
        let tables = self.tables.iter().zip(&sections.codes);
        let embedded = tables.map(|(table, codes)| ops.embed_at(table, &ops.index(spec, *codes)));
        let sum = embedded.reduce(|sum, codes| ops.add(sum, &codes)).expect("a frame has codes");
        let (batch, segments) = (ops.batch_at(spec, sections.batch), ops.index(spec, sections.segments.words()));
        let x = self.layers.forward_segments(ops, sum, (&batch, &segments, self.causal));
        ops.linear(&ops.reshape(x, self.frames * self.width), &self.projection, None)
    }

    /// Encodes patches in a step of their own; returns their rows.
    pub fn encode(&self, ops: &O, patches: &[&[u32]], spec: &mut RowSpec, back: &mut ReadBack) -> Vec<f32> {
        if patches.is_empty() {
            return Vec::new();
        }
        let rows = ops.bucket(patches.len());
        let mut layout = SpecLayout::default();
        let sections = self.layout(&mut layout, rows);
        layout.clear_spec(spec);
        self.fill(spec, &sections, patches);
        let key = StepKey { stage: "patches", rows, variant: 0 };
        let ticket = ops.launch(key, spec, &mut |ops, spec, outputs| {
            outputs.rows.push(self.forward(ops, spec, &sections));
        });
        ops.collect(ticket, back);
        back.numbers[..patches.len() * (back.numbers.len() / rows)].to_vec()
    }
}
