//! `talker.code_predictor`: predicts a frame's residual codebooks one after another; after
//! `Qwen3OmniMoeTalkerCodePredictorModelForConditionalGeneration`.

use repartee_kernels::Ops;

use super::model::{DepthCodebook, DepthModel, HiddenInput};
use crate::models::load_error::LoadError;
use crate::models::parts::config::CodePredictorConfig;
use crate::models::parts::decoder::{Decoder, DecoderShape, FeedForward};
use crate::models::parts::weights::Weights;

/// Loads `talker.code_predictor`; `w` is its prefix.
pub fn load<O: Ops>(w: &Weights<'_, O>, config: &CodePredictorConfig) -> Result<DepthModel<O>, LoadError> {
    let shape = DecoderShape { qk_norm: true, ..config.layers.shape(config.sliding_window) };
    let model = w.at("model");
    let (input, hidden, entries) = (config.input_size, config.layers.hidden_size, config.vocab_size);
    let projection = || -> Result<_, LoadError> {
        let w = w.at("small_to_mtp_projection");
        Ok((w.linear("weight", hidden, input)?, Some(w.vector("bias", hidden)?)))
    };
    let codebook = |i| {
        Ok(DepthCodebook {
            delay: i,
            table: model.table(&format!("codec_embedding.{i}.weight"), entries, input)?,
            norm: None,
            head: w.linear(&format!("lm_head.{i}.weight"), entries, hidden)?,
            allowed: None,
        })
    };
    Ok(DepthModel {
        frames: 1,
        codebooks: (0..config.num_code_groups - 1).map(codebook).collect::<Result<_, LoadError>>()?,
        layers: vec![Decoder::load(&model, shape, |_| FeedForward::Dense(config.layers.intermediate_size))?],
        input,
        width: hidden,
        hidden: HiddenInput::Position,
        hidden_projections: Vec::new(),
        projection: (input != hidden).then(projection).transpose()?,
        follows_code: true,
        summed: true,
    })
}
