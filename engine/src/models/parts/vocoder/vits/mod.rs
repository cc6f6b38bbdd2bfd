//! U-VITS: the units of a block to samples in a style. After `SynthesizerTrn` of EMOVA's speech tokenizer.
//!
//! Durations are drawn: noise of two numbers a unit passes three splines, backwards. Attention, and convolutions ahead of a
//! row, see all units of a sound, so each block of units is decoded as a sound of its own. Noise is a function of seed,
//! response, block, and unit or frame.
//!
//! - [`config`]: sizes of all parts
//! - [`unit_encoder`]: units to rows and to the distribution of their frames
//! - [`durations`], [`spline`]: rows to durations
//! - [`coupling`]: frames of the distribution to latents
//! - [`generator`]: latents to samples
//! - [`layers`]: layers that several of these have
//! - [`block`]: all of it for a block, step by step
//! - [`stage`]: blocks of a response

pub mod block;
pub mod config;
pub mod coupling;
pub mod durations;
pub mod generator;
pub mod layers;
pub mod spline;
pub mod stage;
pub mod unit_encoder;

use repartee_kernels::Ops;

use self::config::VitsConfig;
use self::coupling::CouplingFlow;
use self::durations::DurationPredictor;
use self::generator::Generator;
use self::unit_encoder::UnitEncoder;
use crate::models::load_error::LoadError;
use crate::models::parts::weights::Weights;

/// The decoder's weights.
pub struct Vits<O: Ops> {
    /// Sizes of all parts.
    pub config: VitsConfig,
    /// Units to rows.
    pub encoder: UnitEncoder<O>,
    /// Rows to durations.
    pub durations: DurationPredictor<O>,
    /// Frames to latents.
    pub flow: CouplingFlow<O>,
    /// Latents to samples.
    pub generator: Generator<O>,
    /// Styles, one row each.
    pub styles: Vec<f32>,
}

impl<O: Ops> Vits<O> {
    /// Loads the decoder and its `styles` styles; `w` is the prefix of both.
    pub fn load(w: &Weights<'_, O>, config: VitsConfig, styles: usize) -> Result<Self, LoadError> {
        let decoder = w.at("decoder");
        Ok(Self {
            encoder: UnitEncoder::load(&decoder.at("enc_p"), &config)?,
            durations: DurationPredictor::load(&decoder.at("dp"), &config)?,
            flow: CouplingFlow::load(&decoder.at("flow.flows"), &config)?,
            generator: Generator::load(&decoder.at("dec"), &config)?,
            styles: w.values("style_embedding.weight", &[styles, config.style])?,
            config,
        })
    }

    /// A style as a row.
    pub fn style(&self, ops: &O, at: usize) -> O::T {
        let width = self.config.style;
        ops.tensor(self.styles[at * width..][..width].to_vec(), width)
    }
}
