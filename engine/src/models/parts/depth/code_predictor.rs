//! `talker.code_predictor`: predicts a frame's residual codebooks one after another, with a short KV cache of its own;
//! after `Qwen3OmniMoeTalkerCodePredictorModelForConditionalGeneration`.

use std::borrow::Borrow;
use std::slice;

use repartee_kernels::row_spec::{BatchSection, SampleSection, SpecSection};
use repartee_kernels::{RowSpec, SampleParams, SequenceRows, SpecLayout, StepOps};

use crate::models::load_error::LoadError;
use crate::models::parts::config::CodePredictorConfig;
use crate::models::parts::decoder::{Decoder, DecoderShape, FeedForward};
use crate::models::parts::weights::Weights;

/// The code predictor with its embeddings and heads.
pub struct CodePredictor<O: StepOps> {
    groups: usize,
    /// Width of a row of the talker.
    input: usize,
    /// Width of a row.
    hidden: usize,
    /// Projects the talker's rows, if their width differs.
    projection: Option<(O::Weight, O::Weight)>,
    model: Decoder<O>,
    codec_embedding: Vec<O::Weight>,
    lm_head: Vec<O::Weight>,
}

/// Sections of the row spec for a step that completes frames.
pub struct PredictorSections {
    rows: usize,
    /// Order of the first rows: hidden, code, hidden, code, ..
    pairs: SpecSection,
    /// The first two positions of each frame, then one for each further codebook.
    batches: Vec<BatchSection>,
    /// Sampling parameters of each codebook, codebook 1 first.
    params: Vec<SampleSection>,
}

impl<O: StepOps> CodePredictor<O> {
    /// Loads `talker.code_predictor`; `w` is its prefix.
    pub fn load(w: &Weights<'_, O>, config: &CodePredictorConfig) -> Result<Self, LoadError> {
        let shape = DecoderShape { qk_norm: true, ..config.layers.shape(config.sliding_window) };
        let model = w.at("model");
        let residual = 0..config.num_code_groups - 1;
        let (input, hidden) = (config.input_size, config.layers.hidden_size);
        let projection = w.at("small_to_mtp_projection");
        let projected = input != hidden;
        Ok(Self {
            groups: config.num_code_groups,
            input,
            hidden,
            projection: projected
                .then(|| {
                    Ok::<_, LoadError>((
                        projection.linear("weight", hidden, input)?,
                        projection.vector("bias", hidden)?,
                    ))
                })
                .transpose()?,
            codec_embedding: residual
                .clone()
                .map(|i| model.table(&format!("codec_embedding.{i}.weight"), config.vocab_size, input))
                .collect::<Result<_, _>>()?,
            lm_head: residual
                .map(|i| w.linear(&format!("lm_head.{i}.weight"), config.vocab_size, hidden))
                .collect::<Result<_, _>>()?,
            model: Decoder::load(&model, shape, |_| FeedForward::Dense(config.layers.intermediate_size))?,
        })
    }

    /// Codes of a frame, the first included.
    pub fn groups(&self) -> usize {
        self.groups
    }

    /// Width of a row of the talker.
    pub fn input_width(&self) -> usize {
        self.input
    }

    /// Creates a KV cache for `rows` frames at once, padded to a bucket: one block for each.
    pub fn cache(&self, ops: &O, rows: usize) -> Vec<O::State> {
        self.model.cache(ops, ops.bucket(rows), self.groups)
    }

    /// Bytes of one row in [`CodePredictor::cache`].
    pub fn slot_bytes(&self) -> usize {
        self.groups * self.model.position_bytes()
    }

    /// Reserves the row spec's sections for a step that completes `rows` frames.
    pub fn layout(&self, layout: &mut SpecLayout, rows: usize) -> PredictorSections {
        let positions = |codebook| if codebook == 1 { 2 } else { 1 };
        PredictorSections {
            rows,
            pairs: layout.list(2 * rows),
            batches: (1..self.groups).map(|codebook| layout.batch(positions(codebook) * rows, rows, 1)).collect(),
            params: (1..self.groups).map(|_| layout.samples(rows)).collect(),
        }
    }

    /// Fills a row spec; `params(codebook)` yields the sampling parameters of that codebook for each row.
    pub fn fill<P>(&self, spec: &mut RowSpec, sections: &PredictorSections, mut params: impl FnMut(usize) -> P)
    where
        P: IntoIterator<Item: Borrow<SampleParams>>,
    {
        let rows = sections.rows as u32;
        spec.set_each(sections.pairs, (0..rows).flat_map(|row| [row, rows + row]));
        // Frames of the padding have blocks too.
        let tables: Vec<u32> = (0..rows).collect();
        let mut sequences: Vec<_> =
            tables.iter().map(|block| SequenceRows { table: slice::from_ref(block), position: 0, rows: 2 }).collect();
        for (at, (batch, chosen)) in sections.batches.iter().zip(&sections.params).enumerate() {
            spec.set_batch(*batch, &sequences, 0);
            spec.set_samples(*chosen, params(at + 1));
            for sequence in &mut sequences {
                (sequence.position, sequence.rows) = (at + 2, 1);
            }
        }
    }

    /// Completes one frame for each row: `hidden` is the talker's last hidden row, `first` the embedding of codebook
    /// 0's code. `chosen` gets the ids and the raw logits of each further codebook. Returns the sum of the embeddings
    /// of all codes, codebook 0's included, as wide as a row of the talker.
    pub fn predict_residuals(
        &self,
        ops: &O,
        (spec, sections): (&O::Spec, &PredictorSections),
        hidden: &O::T,
        first: O::T,
        cache: &mut [O::State],
        mut chosen: impl FnMut(O::Index, O::T),
    ) -> O::T {
        let x = ops.gather_at(&ops.concat(&[hidden, &first]), &ops.index(spec, sections.pairs));
        let mut x = self.positions(ops, x, cache, spec, sections.batches[0]);
        // The second row of each pair.
        let width = self.hidden;
        x = ops.narrow(&ops.reshape(x, 2 * width), width, width);

        let mut embedding = first;
        for codebook in 1..self.groups {
            let logits = ops.linear(&self.model.norm(ops, &x), &self.lm_head[codebook - 1], None);
            let params = ops.index(spec, sections.params[codebook - 1].words());
            let ids = ops.sample_at(&logits, &params, None, None);
            let embedded = ops.embed_at(&self.codec_embedding[codebook - 1], &ids);
            chosen(ids, logits);
            embedding = ops.add(embedding, &embedded);
            if codebook + 1 < self.groups {
                x = self.positions(ops, embedded, cache, spec, sections.batches[codebook]);
            }
        }
        embedding
    }

    /// Sums the embeddings of whole frames, one row each: `first` holds the embeddings of codebook 0's codes, `rest`
    /// the codes of each further codebook.
    pub fn embed_frames(&self, ops: &O, first: O::T, rest: &[O::Index]) -> O::T {
        let tables = self.codec_embedding.iter().zip(rest);
        tables.fold(first, |sum, (table, codes)| ops.add(sum, &ops.embed_at(table, codes)))
    }

    /// Runs all layers over one or two positions of each frame.
    fn positions(&self, ops: &O, x: O::T, cache: &mut [O::State], spec: &O::Spec, at: BatchSection) -> O::T {
        let x = match &self.projection {
            Some((weight, bias)) => ops.linear(&x, weight, Some(bias)),
            None => x,
        };
        self.model.forward(ops, x, cache, &ops.batch_at(spec, at), None).0
    }
}
