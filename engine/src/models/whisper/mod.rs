//! Whisper, tiny to large-v3-turbo: a recogniser. The encoder hears a window of sound, the decoder writes down what was said.
//! The names of the weights are those of `WhisperForConditionalGeneration` in transformers 5.23; CTranslate2's file gives
//! the same names.
//!
//! The window is the sound rounded up to a sixth of the longest one, 5 s of 30 s, where the references always take 30 s. The
//! sound is padded with silence, as transformers pads it.
//!
//! | file | content |
//! |---|---|
//! | [`config`] | sizes, special tokens, suppressed tokens |
//! | [`features`] | the spectrogram of a window |
//! | [`model`] | encoder and decoder |
//! | [`decoder`] | text over encoded sound |
//! | [`steps`] | the model's steps on a device, with the caches of every slot |
//! | [`window_encoding`] | a window in units of bounded work |
//! | [`rules`] | the tokens that may follow, and the thresholds of invented text |
//! | [`run`] | one decoding of the sound so far |
//! | [`schedule`] | the places of the sound at which it is decoded |
//! | [`agreement`] | words on which successive hypotheses agree |
//! | [`alignment`] | times of words by cross attention |
//! | [`word_alignment`] | such times in units of bounded work |
//! | [`words`] | words of a text with their times |
//! | [`slot`] | the state of a recognition |
//! | `turn` | hypotheses, stable words and cuts |
//! | [`recogniser`] | slots and their units of work |

pub mod agreement;
pub mod alignment;
pub mod config;
pub mod decoder;
pub mod features;
pub mod model;
pub mod recogniser;
pub mod rules;
pub mod run;
pub mod schedule;
pub mod slot;
pub mod steps;
mod turn;
pub mod window_encoding;
pub mod word_alignment;
pub mod words;

use repartee_kernels::cpu::Cpu;

use self::features::WindowFeatures;
use self::model::{Whisper, load};
use self::recogniser::{NAME, WhisperRecogniser};
use self::steps::WhisperSteps;
use super::family::{Family, FamilyVariant};
use super::load_error::LoadError;
use super::parts::pipeline::{Assembly, ModelFrame, Pipeline, RecogniserPart};
use crate::checkpoint::Checkpoint;
use crate::config::EngineConfig;
use crate::device::Device;
use crate::recogniser::Recogniser;
use crate::text::Tokenizer;

/// `architectures` entry of transformers.
const ARCHITECTURE: &str = "WhisperForConditionalGeneration";

/// A recogniser before its slots are known.
struct WhisperPart<O: Device> {
    model: Whisper<O>,
    features: WindowFeatures,
    tokenizer: Tokenizer,
    /// Bytes of the caches of a slot.
    cache: usize,
}

impl<O: Device> RecogniserPart<O> for WhisperPart<O> {
    fn name(&self) -> &'static str {
        NAME
    }

    fn slot_bytes(&self) -> usize {
        let config = &self.model.config;
        let rows = config.encoder.tokens(config.encoder.window) * config.decoder.width;
        // The sound of a window, its encoded rows, and the spectrogram and the numbers of one that is in work.
        let window = config.encoder.window * (self.features.config().hop_length + config.encoder.bins);
        self.cache + self.model.encoder.unfinished_bytes() + (window + 2 * rows) * size_of::<f32>()
    }

    fn place(self: Box<Self>, ops: O, slots: usize) -> Box<dyn Recogniser> {
        let Self { model, features, tokenizer, .. } = *self;
        Box::new(WhisperRecogniser::new(WhisperSteps::new(ops, model, slots), features, tokenizer, slots))
    }
}

/// Entry of this family in [`FAMILIES`](crate::models::FAMILIES).
pub const FAMILY: Family = Family {
    name: "Whisper (hears)",
    claims,
    assemble_cpu: assemble::<Cpu>,
    #[cfg(feature = "cuda")]
    assemble_cuda: assemble::<repartee_kernels::cuda::Cuda>,
};

/// Claims checkpoints of transformers by their architecture, and those of CTranslate2, whose configuration names none, by
/// their tensors.
fn claims(checkpoint: &Checkpoint) -> Option<FamilyVariant> {
    let converted = checkpoint.architectures().is_empty()
        && checkpoint.has_tensor("model.decoder.layers.0.encoder_attn.q_proj.weight");
    let named = checkpoint.architectures().first().is_some_and(|name| name == ARCHITECTURE);
    (named || converted).then_some(FamilyVariant(NAME))
}

/// Loads the parts of a checkpoint of this family.
pub fn assemble<O: Device>(
    ops: O,
    checkpoint: &Checkpoint,
    _: FamilyVariant,
    settings: &EngineConfig,
) -> Result<Assembly<O>, LoadError> {
    let (model, features, tokenizer) = load(&ops, checkpoint, settings.weights)?;
    let cache = WhisperSteps::slot_bytes(&ops, &model);
    let part = WhisperPart { model, features, tokenizer: tokenizer.clone(), cache };
    Ok(Pipeline::new(&ops).recogniser(part).with(ModelFrame::recogniser(tokenizer)))
}
