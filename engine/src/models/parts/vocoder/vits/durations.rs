//! `StochasticDurationPredictor`, as it draws: noise of two numbers a unit passes flows backwards, whose first number is the
//! logarithm of the unit's duration. The published file has a fourth spline, which drawing leaves out.

use repartee_kernels::{Activation, Ops};

use super::config::VitsConfig;
use super::layers::{Affine, EPSILON, add_to_all, linear, norm, pointwise};
use super::spline::{NUMBERS, undo};
use crate::models::load_error::LoadError;
use crate::models::parts::lists::one_segment;
use crate::models::parts::vocoder::segment_conv::SegmentConv;
use crate::models::parts::weights::Weights;

/// Taps of the separable convolutions, and their number in a stack.
const TAPS: usize = 3;
const DEPTH: u32 = 3;
/// Splines by their place among the flows, in the order of drawing.
const SPLINES: [usize; 3] = [7, 5, 3];
/// Factor of the noise.
const NOISE: f32 = 0.8;

/// The predictor's layers with loaded weights, without those of training.
pub struct DurationPredictor<O: Ops> {
    before: Affine<O>,
    style: Affine<O>,
    convs: Separable<O>,
    after: Affine<O>,
    splines: Vec<SplineFlow<O>>,
    /// Shift of the first number, and logarithm of its scale.
    last: (f32, f32),
    width: usize,
}

/// Dilated convolutions of each channel alone, each followed by a matrix.
struct Separable<O: Ops> {
    layers: Vec<SeparableLayer<O>>,
}

struct SeparableLayer<O: Ops> {
    conv: SegmentConv<O>,
    matrix: Affine<O>,
    /// Norms behind both.
    norms: [Affine<O>; 2],
}

struct SplineFlow<O: Ops> {
    before: Affine<O>,
    convs: Separable<O>,
    after: Affine<O>,
}

impl<O: Ops> Separable<O> {
    fn load(w: &Weights<'_, O>, width: usize) -> Result<Self, LoadError> {
        let layer = |at: u32| {
            let sep = w.at("convs_sep").at(at);
            let taps = sep.values("weight", &[width, 1, TAPS])?;
            Ok(SeparableLayer {
                conv: SegmentConv::depthwise(&sep, &taps, width, (TAPS, TAPS.pow(at)))?,
                matrix: pointwise(&w.at("convs_1x1").at(at), width, width)?,
                norms: [norm(&w.at("norms_1").at(at), width)?, norm(&w.at("norms_2").at(at), width)?],
            })
        };
        Ok(Self { layers: (0..DEPTH).map(layer).collect::<Result<_, LoadError>>()? })
    }

    fn forward(&self, ops: &O, x: O::T) -> O::T {
        let segment = one_segment(ops, ops.rows(&x));
        let gelu = |x: &O::T, (weight, bias): &Affine<O>| {
            ops.activation(ops.layer_norm(x, weight, bias, EPSILON), Activation::Gelu)
        };
        self.layers.iter().fold(x, |x, layer| {
            let y = gelu(&layer.conv.forward(ops, &x, &segment), &layer.norms[0]);
            ops.add(gelu(&linear(ops, &y, &layer.matrix), &layer.norms[1]), &x)
        })
    }
}

impl<O: Ops> DurationPredictor<O> {
    /// Loads the predictor; `w` is its prefix.
    pub fn load(w: &Weights<'_, O>, config: &VitsConfig) -> Result<Self, LoadError> {
        let (width, flows) = (config.hidden, w.at("flows"));
        let spline = |at: usize| {
            let w = flows.at(at);
            Ok(SplineFlow {
                before: pointwise(&w.at("pre"), width, 1)?,
                convs: Separable::load(&w.at("convs"), width)?,
                after: pointwise(&w.at("proj"), NUMBERS, width)?,
            })
        };
        let last = flows.at(0);
        Ok(Self {
            before: pointwise(&w.at("pre"), width, width)?,
            style: pointwise(&w.at("cond"), width, config.style)?,
            convs: Separable::load(&w.at("convs"), width)?,
            after: pointwise(&w.at("proj"), width, width)?,
            splines: SPLINES.into_iter().map(spline).collect::<Result<_, LoadError>>()?,
            last: (last.values("m", &[2, 1])?[0], last.values("logs", &[2, 1])?[0]),
            width,
        })
    }

    /// Rows that the splines depend on, from the encoder's.
    pub fn rows(&self, ops: &O, encoded: &O::T, style: &O::T) -> O::T {
        let x = add_to_all(ops, linear(ops, encoded, &self.before), &linear(ops, style, &self.style));
        linear(ops, &self.convs.forward(ops, x), &self.after)
    }

    /// Logarithms of the durations, from normal noise of two numbers a unit.
    pub fn draw(&self, ops: &O, rows: &O::T, noise: impl Iterator<Item = [f32; 2]>) -> Vec<f32> {
        let mut pairs: Vec<[f32; 2]> = noise.map(|pair| pair.map(|number| number * NOISE)).collect();
        let scale = f64::from(self.width as u32).sqrt().recip();
        for spline in &self.splines {
            // All flows exchange both numbers first.
            pairs.iter_mut().for_each(|pair| pair.swap(0, 1));
            let firsts = ops.tensor(pairs.iter().map(|pair| pair[0]).collect(), 1);
            let x = spline.convs.forward(ops, ops.add(linear(ops, &firsts, &spline.before), rows));
            let numbers = ops.read(&linear(ops, &x, &spline.after));
            for (pair, numbers) in pairs.iter_mut().zip(numbers.chunks_exact(NUMBERS)) {
                pair[1] = undo(f64::from(pair[1]), numbers, scale) as f32;
            }
        }
        let (shift, log) = self.last;
        pairs.iter().map(|pair| (pair[1] - shift) * (-log).exp()).collect()
    }
}
