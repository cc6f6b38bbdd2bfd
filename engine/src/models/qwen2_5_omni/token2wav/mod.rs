//! token2wav: codes to samples, after `Qwen2_5OmniToken2WavModel` of transformers 5.23, streamed.
//!
//! It has two stages. [The first](DitPart) solves a mel spectrogram from noise with a diffusion transformer ([`Dit`]) that
//! reads the codes and the voice. [The second](BigVganPart) turns the spectrogram into samples. With the published sizes a code
//! is two mel frames of 10 ms: 20 ms of sound at 24 kHz.
//!
//! The reference solves a whole response at once. One evaluation of the transformer has a short reach: a block of 24
//! mel frames depends on the 48 frames before it and the 24 after it. But a solve evaluates 36 times in a row (nine
//! steps of [`Rule::RungeKutta`], each of four evaluations of two rows), and each evaluation extends the reach. So no part of a
//! response has the same frames as in a solve of the whole.
//!
//! This implementation therefore solves each block on its window ([`Window`](crate::models::parts::flow_matching::window::Window)): 48 frames before it, the block
//! and 24 frames after it, or as many as exist. Both hand-off modes do the same. The noise ([`Noise`](crate::models::parts::flow_matching::noise::Noise)) depends
//! only on the seed, the response and the frame. The bits do not depend on the arrival of the codes, the batch or the
//! threads. A test measures the difference from the reference's sound.
//!
//! The vocoder looks 34 frames ahead and 34 back. Its windows overlap by as many, so the stream has the same bits as
//! one decode of all frames.
//!
//! So the first sound needs the codes of three blocks (0.72 s of speech), from which the vocoder makes 14 frames (0.14
//! s). Every later block needs one more block of codes and yields its 24 frames. All computation is in single
//! precision, as in the reference. The transformer takes about 10 TFLOP for a second of sound, far from real time on a
//! CPU.

pub mod config;

use std::f32::consts::FRAC_PI_2;

use repartee_kernels::Ops;

use self::config::Token2WavConfig;
use crate::checkpoint::Checkpoint;
use crate::model::Codec;
use crate::models::load_error::LoadError;
use crate::models::parts::flow_matching::dit::Dit;
use crate::models::parts::flow_matching::guidance::Guidance;
use crate::models::parts::flow_matching::prepared::Prepared;
use crate::models::parts::flow_matching::solver::{Rule, Solver};
use crate::models::parts::flow_matching::stage::DitPart;
use crate::models::parts::flow_matching::voice::Voice;
use crate::models::parts::vocoder::bigvgan::BigVgan;
use crate::models::parts::vocoder::bigvgan_stage::BigVganPart;
use crate::models::parts::weights::Weights;

/// Output sample rate in Hz; no configuration field holds it.
pub const SAMPLE_RATE: u32 = 24_000;

/// Number of time points, first and last included; the reference's default, which no published configuration changes.
const POINTS: usize = 10;
/// Guidance of the slopes; also the reference's default.
pub const GUIDANCE: Guidance = Guidance { strength: 0.5 };

/// Creates the solver with the reference's times: short steps first, since they decide the spectrogram's shape.
fn solver() -> Solver {
    let at = |i: usize| {
        let even = i as f32 / (POINTS - 1) as f32;
        even - ((FRAC_PI_2 * even).cos() - 1.0 + even)
    };
    Solver::new(Rule::RungeKutta, (0..POINTS).map(at).collect())
}

/// Both models, loaded from a checkpoint.
pub struct Token2Wav<O: Ops> {
    /// Configuration of both models.
    pub config: Token2WavConfig,
    /// `code2wav_dit_model`, for the times of [`Token2Wav::solver`].
    pub dit: Dit<O>,
    /// Vocoder from `code2wav_bigvgan_model`.
    pub bigvgan: BigVgan<O>,
    /// Solver with the reference's times.
    pub solver: Solver,
    /// Names of the voices, by their index.
    pub voices: Vec<String>,
}

impl<O: Ops> Token2Wav<O> {
    /// Loads `token2wav` for these voices, in the formats of the checkpoint. Each voice must fit ([`Voice::fits`]).
    /// `once` runs the computations of load time: the same device, or another one if that device computes only within
    /// steps.
    ///
    /// # Errors
    ///
    /// A tensor is missing or does not match the configuration.
    pub fn load<E: Ops>(
        (ops, once): (&O, &E),
        checkpoint: &Checkpoint,
        config: &Token2WavConfig,
        voices: &[Voice],
    ) -> Result<Self, LoadError> {
        // Ignore the policy of other stages: errors of a slope add up over a solve.
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

    /// Geometry of the codec: a frame is one code.
    pub fn codec(&self) -> Codec {
        let samples = self.config.dit.repeats * self.config.bigvgan.samples_per_frame();
        Codec { sample_rate: SAMPLE_RATE, frame_samples: (samples as u32, 1) }
    }

    /// Both stages: codes in, one a frame, at most `most_codes` of a response; samples out, a piece for each code.
    pub fn parts(self, most_codes: usize) -> (DitPart<O>, BigVganPart<O>) {
        let code = self.codec().frame();
        let Self { config, dit, bigvgan, solver, voices } = self;
        let piece = config.dit.repeats;
        (
            DitPart { dit, config: config.dit, solver: (solver, GUIDANCE), voices, code, most_codes },
            BigVganPart { bigvgan, piece, duration: code, most_pieces: most_codes },
        )
    }
}
