//! Weights of a language model whose steps solve patches of latents.

use repartee_kernels::Ops;

use crate::models::load_error::LoadError;
use crate::models::parts::config::LanguageModelConfig;
use crate::models::parts::decoder::{Decoder, DecoderShape, FeedForward};
use crate::models::parts::flow_matching::patches::aggregator::PatchAggregator;
use crate::models::parts::flow_matching::patches::config::{PatchFlowConfig, PatchLayersConfig};
use crate::models::parts::flow_matching::patches::head::PatchFlow;
use crate::models::parts::weights::Weights;

/// Numbers of the stop head: that the speech goes on, and that it ends.
pub(super) const STOPS: usize = 2;

/// Sizes of the model.
#[derive(Debug, Clone, PartialEq)]
pub struct PatchSpeechConfig {
    /// Sizes of the language model.
    pub text: LanguageModelConfig,
    /// Shape of its layers.
    pub decoder: DecoderShape,
    /// The solve of a patch.
    pub flow: PatchFlowConfig,
    /// The aggregator of a patch.
    pub aggregator: PatchLayersConfig,
}

/// Weights of the language model with the flow head in its steps.
pub struct PatchSpeechModel<O: Ops> {
    /// Table of the text's tokens.
    pub text: O::Weight,
    /// Transformer layers and the last norm.
    pub layers: Decoder<O>,
    /// Head that ends an utterance.
    pub stop: (O::Weight, O::Weight),
    /// Solve of patches.
    pub flow: PatchFlow<O>,
    /// Patches to rows.
    pub aggregator: PatchAggregator<O>,
}

/// Weights of the parts, by their names in a folder.
pub struct PatchSpeechWeights<'a, O: Ops, E: Ops> {
    /// Layers of Qwen2.
    pub llm: Weights<'a, O>,
    /// The flow, and the same on a device for the computations of load time.
    pub flow: (Weights<'a, O>, Weights<'a, E>),
    /// Layers that turn patches into rows.
    pub aggregator: Weights<'a, O>,
    /// The stop head.
    pub stop: Weights<'a, O>,
}

impl<O: Ops> PatchSpeechModel<O> {
    /// Loads the model.
    pub fn load<E: Ops>(w: &PatchSpeechWeights<'_, O, E>, config: &PatchSpeechConfig) -> Result<Self, LoadError> {
        let (layers, flow) = (&config.text.layers, &config.flow);
        let dense = |_| FeedForward::Dense(layers.intermediate_size);
        let (width, patch) = (layers.hidden_size, (flow.patch, flow.latent));
        Ok(Self {
            text: w.llm.table("embed_tokens.weight", config.text.vocab_size, width)?,
            layers: Decoder::load(&w.llm, config.decoder, dense)?,
            stop: (w.stop.linear("weight", STOPS, width)?, w.stop.vector("bias", STOPS)?),
            flow: PatchFlow::load(&w.flow.0, &w.flow.1, flow)?,
            aggregator: PatchAggregator::load(&w.aggregator, &config.aggregator, patch, width)?,
        })
    }
}
