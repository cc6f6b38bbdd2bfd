//! token2wav: codes to samples, after `Qwen2_5OmniToken2WavModel` of transformers 5.23, streamed.
//!
//! Two stages. [`DitStage`] solves a mel spectrogram out of noise with a diffusion transformer ([`Dit`]) that reads the codes and the voice;
//! [`BigVganStage`] makes samples of it. With the published sizes a code is two mel frames of 10 ms, 20 ms of sound at 24 kHz.
//!
//! The reference solves a whole response at once. One evaluation of the transformer depends on little: a block of 24 mel frames on the 48
//! frames before it and the 24 after it. But a solve evaluates 36 times in a row (nine steps of [`Rk4`], each of four evaluations of
//! two rows), and each evaluation reaches as far again, so that no finite part of a response has the frames of its whole. Served is
//! therefore another solve, the same in both hand-off modes: each block is solved on its window ([`solver::Window`]), 48 frames before it, itself and 24
//! after it, or as many as there are, from noise ([`noise::Noise`]) that depends on the seed, the response and the frame alone. Its bits do
//! not depend on how the codes came, on the batch, or on threads. How far its sound lies from the reference's is measured by a test.
//!
//! The vocoder looks 34 frames ahead and as many back. Its windows overlap by these, so the stream has the bits of one decode of all
//! frames.
//!
//! So the first sound needs the codes of three blocks (0.72 s of speech), of which the vocoder then gives 14 frames (0.14 s); every later
//! block needs one more and gives its 24 frames. Everything is computed in single precision, as in the reference: the transformer takes
//! some 10 TFLOP for a second of sound, far from real time on a processor.

pub mod bigvgan;
pub mod bigvgan_stage;
pub mod config;
pub mod dit;
pub mod dit_stage;
mod modulation;
pub mod noise;
mod sections;
pub mod prepared;
pub mod solver;
pub mod voice;

use repartee_kernels::{Ops, StepOps};

use self::bigvgan::BigVgan;
use self::bigvgan_stage::BigVganStage;
use self::config::Token2WavConfig;
use self::dit::Dit;
use self::dit_stage::DitStage;
use self::prepared::Prepared;
use self::solver::solver;
use self::voice::Voice;
use crate::checkpoint::Checkpoint;
use crate::model::Codec;
use crate::models::LoadError;
use crate::models::parts::ode::Rk4;
use crate::models::parts::weights::Weights;

/// Samples a second; no configuration holds it.
pub const SAMPLE_RATE: u32 = 24_000;

/// Both models, loaded from a checkpoint.
pub struct Token2Wav<O: StepOps> {
    /// Their sizes.
    pub config: Token2WavConfig,
    /// `code2wav_dit_model`, for the times of [`Token2Wav::solver`].
    pub dit: Dit<O>,
    /// `code2wav_bigvgan_model`
    pub bigvgan: BigVgan<O>,
    /// The solver.
    pub solver: Rk4,
    /// Names of the voices, by their index.
    pub voices: Vec<String>,
}

impl<O: StepOps> Token2Wav<O> {
    /// Loads `token2wav` for these voices, in the formats of the checkpoint. Each voice must fit ([`Voice::fits`]). `once` computes what is
    /// computed at loading: the same device, or another where that one does nothing outside of a step.
    ///
    /// # Errors
    /// A tensor is missing or does not belong to the configuration.
    pub fn load<E: Ops>(
        (ops, once): (&O, &E),
        checkpoint: &Checkpoint,
        config: &Token2WavConfig,
        voices: &[Voice],
    ) -> Result<Self, LoadError> {
        // Whatever the policy of other stages: errors of a slope add up over a solve.
        let w = Weights::new(ops, checkpoint).at("token2wav");
        let solver = solver();
        let dit = "code2wav_dit_model";
        let of_dit = Weights::new(once, checkpoint).at("token2wav").at(dit);
        let prepared = Prepared::compute(once, &of_dit, &config.dit, &solver.times(), voices)?;
        Ok(Self {
            dit: Dit::load(&w.at(dit), &config.dit, &prepared)?,
            bigvgan: BigVgan::load(&w.at("code2wav_bigvgan_model"), &config.bigvgan)?,
            config: config.clone(),
            solver,
            voices: voices.iter().map(|voice| voice.name.clone()).collect(),
        })
    }

    /// The codec as the session sees it: a frame is one code.
    pub fn codec(&self) -> Codec {
        let samples = self.config.dit.repeats * self.config.bigvgan.samples_per_frame();
        Codec { sample_rate: SAMPLE_RATE, frame_samples: (samples as u32, 1) }
    }

    /// Most bytes that a response holds in both stages: codes, a window's spectrogram with its slopes, and the vocoder's context.
    pub fn slot_bytes(&self, codes: usize) -> usize {
        let (dit, mel) = (&self.config.dit, self.config.dit.mel_dim * size_of::<f32>());
        let (before, after) = dit.window_blocks();
        // The value, four slopes and the evaluation's input.
        let solve = 6 * (before + 1 + after) * dit.block_size * mel;
        codes * (size_of::<u32>() + dit.repeats * mel) + solve + self.bigvgan.context() * mel
    }

    /// Both stages for `slots` responses at once: codes in, one a frame, and samples out, a piece for each code. `ops` are their devices,
    /// one each, because stages run beside each other.
    pub fn stages(self, ops: [O; 2], slots: usize) -> (DitStage<O>, BigVganStage<O>) {
        let code = self.codec().frame();
        let Self { config, dit, bigvgan, solver, voices } = self;
        let [first, second] = ops;
        let repeats = config.dit.repeats;
        (
            DitStage::new(first, dit, (config.dit, solver), voices, slots, code),
            BigVganStage::new(second, bigvgan, slots, repeats, code),
        )
    }
}
