//! `talker.code_predictor`: fills in a frame's residual codebooks, one after the other, with its own short key-value cache;
//! after `Qwen3OmniMoeTalkerCodePredictorModelForConditionalGeneration`.

use repartee_kernels::{Attention, Ops, SampleParams, SequenceRows};

use super::config::CodePredictorConfig;
use super::decoder::{Decoder, FeedForward, Shape};
use super::weights::Weights;
use crate::models::LoadError;

/// The code predictor.
pub struct CodePredictor<O: Ops> {
    groups: usize,
    model: Decoder<O>,
    codec_embedding: Vec<O::Weight>,
    lm_head: Vec<O::Weight>,
}

/// A frame as the predictor completes it, still on the device; one row of ids for each row that came in.
pub struct Completed<O: Ops> {
    /// Residual codes, codebook 1 first.
    pub codes: Vec<O::Ids>,
    /// The sum of the embeddings of all codes, codebook 0's included.
    pub embedding: O::T,
    /// Raw logits of each codebook, kept only with `keep_logits`.
    pub logits: Vec<O::T>,
}

impl<O: Ops> CodePredictor<O> {
    /// Loads `talker.code_predictor`.
    pub fn load(w: &Weights<'_, O>, config: &CodePredictorConfig) -> Result<Self, LoadError> {
        let shape = Shape {
            hidden: config.hidden_size,
            layers: config.num_hidden_layers,
            attention: Attention {
                heads: config.num_attention_heads,
                kv_heads: config.num_key_value_heads,
                head_dim: config.head_dim,
                window: config.sliding_window,
            },
            eps: config.rms_norm_eps as f32,
            theta: config.rope.theta as f32,
            qk_norm: true,
            layer_scale: false,
        };
        let model = w.at("model");
        let residual = 0..config.num_code_groups - 1;
        Ok(Self {
            groups: config.num_code_groups,
            codec_embedding: residual
                .clone()
                .map(|i| model.table(&format!("codec_embedding.{i}.weight"), config.vocab_size, config.hidden_size))
                .collect::<Result<_, _>>()?,
            lm_head: residual
                .map(|i| w.linear(&format!("lm_head.{i}.weight"), config.vocab_size, config.hidden_size))
                .collect::<Result<_, _>>()?,
            model: Decoder::load(&model, shape, |_| FeedForward::Dense(config.intermediate_size))?,
        })
    }

    /// A cache for `rows` frames at once: one block for each.
    pub fn cache(&self, ops: &O, rows: usize) -> Vec<O::State> {
        self.model.cache(ops, rows, self.groups)
    }

    /// Bytes that one row takes in [`CodePredictor::cache`].
    pub fn slot_bytes(&self) -> usize {
        self.groups * self.model.position_bytes()
    }

    /// Completes one frame for each row: `hidden` is the talker's last hidden row, `first` the embedding of codebook
    /// 0's code; `params(codebook)` says how that codebook's code is chosen for each row.
    pub fn complete(
        &self,
        ops: &O,
        hidden: &O::T,
        first: O::T,
        cache: &mut [O::State],
        mut params: impl FnMut(usize) -> Vec<SampleParams>,
        keep_logits: bool,
    ) -> Completed<O> {
        let rows = ops.rows(hidden);
        let tables: Vec<u32> = (0..rows as u32).collect();
        let batch = |position, count| {
            let rows: Vec<_> = tables
                .iter()
                .map(|block| SequenceRows { table: std::slice::from_ref(block), position, rows: count })
                .collect();
            ops.batch(&rows)
        };
        // Both rows of a frame stand together: hidden, code, hidden, code, ..
        let interleaved: Vec<usize> = (0..rows).flat_map(|r| [r, rows + r]).collect();
        let x = ops.gather(&ops.concat(&[hidden, &first]), &interleaved);
        let (x, _) = self.model.forward(ops, x, cache, &batch(0, 2), None);
        let seconds: Vec<usize> = (0..rows).map(|r| 2 * r + 1).collect();
        let mut x = ops.gather(&x, &seconds);

        let mut completed = Completed { codes: Vec::new(), embedding: first, logits: Vec::new() };
        for codebook in 1..self.groups {
            let logits = ops.linear(&self.model.norm(ops, &x), &self.lm_head[codebook - 1], None);
            let ids = ops.sample(&logits, &params(codebook), None, None);
            let embedded = ops.embed(&self.codec_embedding[codebook - 1], &ids);
            completed.codes.push(ids);
            if keep_logits {
                completed.logits.push(logits);
            }
            completed.embedding = ops.add(completed.embedding, &embedded);
            if codebook + 1 < self.groups {
                (x, _) = self.model.forward(ops, embedded, cache, &batch(codebook + 1, 1), None);
            }
        }
        completed
    }
}
