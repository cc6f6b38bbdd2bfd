//! Convolutions in front of the layers, `ConvSubsampling` of NeMo as `dw_striding`: each halves frames and bins.
//!
//! The second and the third are a depthwise convolution and a pointwise one with nothing between them. They are joined to one
//! at loading.

use repartee_kernels::row_spec::SpecSection;
use repartee_kernels::{Activation, Ops, RowSpec, SpecLayout, WeightLayout};

use super::shape::ConformerShape;
use crate::models::load_error::LoadError;
use crate::models::parts::weights::Weights;

/// Numbers of one convolution's window.
const TAPS: usize = 9;

/// The convolutions, and the matrix to the width of a row.
pub struct Subsampling<O: Ops> {
    convolutions: Vec<(O::Weight, O::Weight)>,
    out: (O::Weight, O::Weight),
    channels: usize,
    /// Bins before each convolution, and after the last one.
    bins: [usize; ConformerShape::HALVINGS + 1],
}

/// Sections of the row spec for one window.
pub struct SubsamplingSections {
    mel: SpecSection,
    /// Frames, or rows, before each convolution and after the last one, padding included.
    heights: [usize; ConformerShape::HALVINGS + 1],
    /// Rows after each convolution that are of the window's own frames, if there are others.
    own: Option<[SpecSection; ConformerShape::HALVINGS]>,
}

impl<O: Ops> Subsampling<O> {
    /// Loads `pre_encode`; `w` is its prefix.
    pub fn load(w: &Weights<'_, O>, shape: &ConformerShape) -> Result<Self, LoadError> {
        let (channels, bins) = (shape.channels, ConformerShape::halved(shape.bins));
        let layout = WeightLayout::Conv2d { stride: 2 };
        let first = w.at("conv.0");
        let sizes = [channels, 1, 3, 3];
        let mut convolutions = vec![(
            first.swapped("weight", layout, &sizes, (channels, 1, TAPS), &sizes)?,
            first.vector("bias", channels)?,
        )];
        for at in 1..ConformerShape::HALVINGS {
            let [depth, point] = [3 * at - 1, 3 * at].map(|at| w.at("conv").at(at));
            let (taps, before) = (depth.values("weight", &sizes)?, depth.values("bias", &[channels])?);
            let (mix, after) =
                (point.values("weight", &[channels, channels, 1, 1])?, point.values("bias", &[channels])?);
            let (joined, bias) = join(&taps, &before, &mix, &after);
            convolutions.push((
                w.made("joined convolution", layout, &joined, &[channels, channels, 3, 3])?,
                w.made("joined bias", WeightLayout::Vector, &bias, &[channels])?,
            ));
        }
        let (width, out) = (shape.width, w.at("out"));
        let last = bins[ConformerShape::HALVINGS];
        let sizes = [width, channels * last];
        // The reference has channels, each of some bins; our rows have bins, each of some channels.
        let weight = out.swapped("weight", WeightLayout::Linear, &sizes, (width, channels, last), &sizes)?;
        Ok(Self { convolutions, out: (weight, out.vector("bias", width)?), channels, bins })
    }

    /// Reserves the inputs of a step over `frames` frames.
    pub fn layout(&self, ops: &O, layout: &mut SpecLayout, frames: usize) -> SubsamplingSections {
        let heights = ConformerShape::halved(ops.bucket(frames));
        let own = (heights[0] > frames).then(|| [1, 2, 3].map(|at| layout.list(heights[at])));
        SubsamplingSections { mel: layout.list(heights[0] * self.bins[0]), heights, own }
    }

    /// Sets the inputs of a step: `[frames, bins]`.
    pub fn fill(&self, spec: &mut RowSpec, sections: &SubsamplingSections, mel: &[f32]) {
        spec.set_floats(sections.mel, mel);
        let rows = ConformerShape::halved(mel.len() / self.bins[0]);
        for (section, rows) in sections.own.iter().flatten().zip(&rows[1..]) {
            spec.set_each(*section, 0..*rows as u32);
        }
    }

    /// Returns the rows of the window, zeros or the bias's row after its own.
    pub fn forward(&self, ops: &O, spec: &O::Spec, sections: &SubsamplingSections) -> O::T {
        let mut x = ops.floats(spec, sections.mel, 1);
        for (at, (weight, bias)) in self.convolutions.iter().enumerate() {
            x = ops.conv2d(&x, 1, sections.heights[at], self.bins[at], weight, bias);
            x = ops.reshape(ops.activation(x, Activation::Relu), self.channels * self.bins[at + 1]);
            // The next convolution sees zeros after the window.
            if let Some(own) = sections.own {
                x = ops.gather_at(&x, &ops.index(spec, own[at]));
            }
            if at + 1 < self.convolutions.len() {
                x = ops.reshape(x, self.channels);
            }
        }
        ops.linear(&x, &self.out.0, Some(&self.out.1))
    }
}

impl SubsamplingSections {
    /// Rows of the step, padding included.
    pub fn rows(&self) -> usize {
        self.heights[ConformerShape::HALVINGS]
    }

    /// Number that differs for steps of other operations or sizes.
    pub fn variant(&self) -> usize {
        2 * self.heights[0] + usize::from(self.own.is_some())
    }
}

/// Joins a depthwise convolution and a pointwise one after it: taps `[channels, 1, 3, 3]` and mix `[out, channels, 1, 1]`,
/// with their biases, to weights `[out, channels, 3, 3]` and a bias.
fn join(taps: &[f32], before: &[f32], mix: &[f32], after: &[f32]) -> (Vec<f32>, Vec<f32>) {
    let channels = before.len();
    let mut joined = Vec::with_capacity(mix.len() * TAPS);
    let mut bias = Vec::with_capacity(after.len());
    for (row, after) in mix.chunks_exact(channels).zip(after) {
        for (mix, taps) in row.iter().zip(taps.chunks_exact(TAPS)) {
            joined.extend(taps.iter().map(|tap| mix * tap));
        }
        bias.push(after + row.iter().zip(before).map(|(mix, before)| mix * before).sum::<f32>());
    }
    (joined, bias)
}
