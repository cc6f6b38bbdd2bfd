//! `LLaDAModelLM` as a [`Denoiser`]: the layers of Llama, whose rows see all others, and a head over units and ends.

use repartee_kernels::{Ops, WeightLayout};

use super::config::Config;
use super::prompt::PromptIds;
use crate::models::load_error::LoadError;
use crate::models::parts::decoder::{Decoder, FeedForward};
use crate::models::parts::denoising::canvas::RefinementPlan;
use crate::models::parts::denoising::denoiser::Denoiser;
use crate::models::parts::weights::Weights;

/// The language model, with what it needs of a prompt.
pub struct UnitLm<O: Ops> {
    /// Ids around a text.
    pub prompt: PromptIds,
    table: O::Weight,
    layers: Decoder<O>,
    /// Rows of the head: those of the units, of the end of speech, and of the text's end.
    head: [O::Weight; 3],
    config: Config,
}

impl<O: Ops> UnitLm<O> {
    /// Loads the model; `w` is the prefix of its tensors.
    pub fn load(w: &Weights<'_, O>, prompt: PromptIds, config: &Config) -> Result<Self, LoadError> {
        let (rows, width) = (config.rows, config.decoder.hidden);
        let head = |first: usize, count: usize| {
            w.rows("ff_out.weight", WeightLayout::Linear, [rows, width], first..first + count)
        };
        Ok(Self {
            table: w.table("wte.weight", rows, width)?,
            layers: Decoder::load(w, config.decoder, |_| FeedForward::Dense(config.inner))?,
            head: [
                head(config.first_unit, config.codec.units)?,
                head(prompt.end as usize, 1)?,
                head(config.eos as usize, 1)?,
            ],
            prompt,
            config: config.clone(),
        })
    }
}

impl<O: Ops<Weight: Send>> Denoiser<O> for UnitLm<O> {
    fn plan(&self) -> RefinementPlan {
        self.config.plan
    }

    fn mask(&self) -> u32 {
        self.config.mask
    }

    fn prompts(&self, text: &str) -> Result<Vec<Vec<u32>>, String> {
        self.prompt.of(text).map_err(|error| error.to_string())
    }

    fn choices(&self) -> usize {
        self.config.codec.units + 2
    }

    fn id(&self, choice: u32) -> u32 {
        let (units, first) = (self.config.codec.units, self.config.first_unit);
        match (choice as usize).checked_sub(units) {
            // Ids are fewer than a word counts: the vocabulary is bounded.
            None => choice + first as u32,
            Some(0) => self.prompt.end,
            Some(_) => self.config.eos,
        }
    }

    fn code(&self, choice: u32) -> Option<u32> {
        Some(choice).filter(|&choice| (choice as usize) < self.config.codec.units)
    }

    fn layers(&self) -> usize {
        self.config.decoder.layers
    }

    fn row_work(&self) -> usize {
        let width = self.config.decoder.hidden;
        width * (4 * width + 3 * self.config.inner)
    }

    fn width(&self) -> usize {
        self.config.decoder.hidden
    }

    fn embed(&self, ops: &O, ids: &O::Index) -> O::T {
        ops.embed_at(&self.table, ids)
    }

    fn layer(&self, ops: &O, at: usize, x: O::T, (batch, segments): (&O::Batch, &O::Index)) -> O::T {
        self.layers.segment_layer(ops, at, x, (batch, segments, false))
    }

    fn logits(&self, ops: &O, x: &O::T) -> O::T {
        let x = self.layers.norm(ops, x);
        let parts = self.head.each_ref().map(|head| ops.linear(&x, head, None));
        ops.concat_columns(&parts.each_ref())
    }
}
