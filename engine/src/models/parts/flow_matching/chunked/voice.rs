//! Voices of a flow: a row of the speaker, and a recording that precedes the speech.

use repartee_kernels::Ops;
use repartee_kernels::random::normal;

use super::config::ChunkDitConfig;
use crate::models::load_error::LoadError;
use crate::models::parts::weights::Weights;

/// Smallest length that a speaker's vector is divided by: torch's default.
const LEAST_LENGTH: f32 = 1e-12;

/// A voice, with the recording that it continues.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct FlowVoice {
    /// Row of the speaker, `mel` numbers; see [`SpeakerProjection`].
    pub speaker: Vec<f32>,
    /// Codes of the recording.
    pub codes: Vec<u32>,
    /// Mel frames of the recording, as many as the codes have.
    pub mel: Vec<f32>,
}

impl FlowVoice {
    /// Draws a voice without a recording, for random weights. `project` makes its row of a speaker's vector.
    pub fn drawn(seed: u64, config: &ChunkDitConfig, project: impl Fn(&[f32]) -> Vec<f32>) -> Self {
        let vector: Vec<f32> = (0..config.spk_embed_dim as u64).map(|at| normal(seed, 0, at, 0)).collect();
        Self { speaker: project(&vector), ..Self::default() }
    }

    /// Keeps the last whole chunks of the recording, at most `most`, so that no chunk holds both recording and speech.
    #[must_use]
    pub fn in_chunks(mut self, config: &ChunkDitConfig, most: usize) -> Self {
        let kept = (self.codes.len() / config.chunk_codes).min(most) * config.chunk_codes;
        let dropped = self.codes.len() - kept;
        self.codes.drain(..dropped);
        self.mel.drain(..(dropped * config.token_mel_ratio * config.mel).min(self.mel.len()));
        self
    }

    /// Chunks of the recording.
    pub fn chunks(&self, config: &ChunkDitConfig) -> usize {
        self.codes.len() / config.chunk_codes
    }

    /// Frame of the recording; `None` after it.
    pub fn frame(&self, at: usize, width: usize) -> Option<&[f32]> {
        self.mel.get(at * width..(at + 1) * width)
    }
}

/// Projection of speakers' vectors to rows of the flow's input.
pub struct SpeakerProjection<O: Ops> {
    weight: O::Weight,
    bias: O::Weight,
    /// Numbers of a vector.
    width: usize,
}

impl<O: Ops> SpeakerProjection<O> {
    /// Loads the layer `spk_embed_affine_layer`.
    pub fn load(w: &Weights<'_, O>, config: &ChunkDitConfig) -> Result<Self, LoadError> {
        let (w, width) = (w.at("spk_embed_affine_layer"), config.spk_embed_dim);
        Ok(Self { weight: w.linear("weight", config.mel, width)?, bias: w.vector("bias", config.mel)?, width })
    }

    /// Numbers of a vector.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Projects a vector of [`width`](Self::width) numbers, at length 1.
    pub fn row(&self, ops: &O, vector: &[f32]) -> Vec<f32> {
        let length = vector.iter().map(|number| number * number).sum::<f32>().sqrt().max(LEAST_LENGTH);
        let unit = vector.iter().map(|number| number / length).collect();
        ops.read(&ops.linear(&ops.tensor(unit, self.width), &self.weight, Some(&self.bias)))
    }
}
