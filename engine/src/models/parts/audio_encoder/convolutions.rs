//! Convolutions in front of the layers: the mel frames of a chunk become rows.

use repartee_kernels::row_spec::SpecSection;
use repartee_kernels::{Activation, NO_ROW, Ops, RowSpec, SpecLayout, WeightLayout};

use super::shape::{Convolutions, EncoderShape};
use crate::models::load_error::LoadError;
use crate::models::parts::weights::Weights;
use crate::weight_policy::WeightPolicy;

/// Rows that a convolution over the time sees.
pub(super) const TAPS: usize = 3;

/// Part of a window that the convolutions see at a time.
#[derive(Clone, Copy)]
pub struct Chunk<'a> {
    /// Its mel frames, `[frames, bins]`.
    pub mel: &'a [f32],
    /// Number of frames that the convolutions see: its own, then zeros.
    pub frames: usize,
    /// Number of rows that its own frames give.
    pub rows: usize,
    /// Position of the first row.
    pub first: usize,
}

/// The convolutions, each a weight and a bias.
pub enum Stem<O: Ops> {
    /// The two of [`Convolutions::Conv1d`], in order.
    Conv1d([(O::Weight, O::Weight); 2]),
    /// [`Convolutions::Conv2d`], with the weight of `conv_out` and the width of its input.
    Conv2d(Vec<(O::Weight, O::Weight)>, (O::Weight, usize)),
}

/// Sections of the row spec that the convolutions of a step use.
pub struct StemSections {
    mel: SpecSection,
    /// Number of images of a step, and frames of each.
    images: (usize, usize),
    /// Over the time: the rows that the taps of each convolution see. Over images: the rows that chunks' own frames give.
    rows: Vec<SpecSection>,
}

/// For each length, the sum of those before it, and itself.
pub fn starts(lengths: impl Iterator<Item = usize>) -> impl Iterator<Item = (usize, usize)> {
    lengths.scan(0, |before, length| {
        *before += length;
        Some((*before - length, length))
    })
}

/// Rows that the taps see at each `stride`-th of `rows` rows from `first` on; taps beyond both ends read zeros.
fn seen(first: usize, rows: usize, stride: usize) -> impl Iterator<Item = u32> {
    (0..rows).step_by(stride).flat_map(move |at| {
        (0..TAPS).map(move |tap| match (at + tap).checked_sub(1) {
            Some(at) if at < rows => (first + at) as u32,
            _ => NO_ROW,
        })
    })
}

impl<O: Ops> Stem<O> {
    /// Loads the convolutions of an encoder; `w` is its prefix.
    pub fn load(w: &Weights<'_, O>, shape: &EncoderShape) -> Result<Self, LoadError> {
        let (d, bins) = (shape.layer.width, shape.bins);
        let Convolutions::Conv2d { channels: c } = shape.convolutions else {
            let convolution = |name: &str, input| -> Result<_, LoadError> {
                // Computed as a product over three concatenated rows. It remains a convolution, which no policy quantises.
                let w = w.at(name).with_policy(WeightPolicy::default());
                let (shape, sizes) = ([d, input, TAPS], (d, input, TAPS));
                let weight = w.swapped("weight", WeightLayout::Linear, &shape, sizes, &[d, TAPS * input])?;
                Ok((weight, w.vector("bias", d)?))
            };
            return Ok(Self::Conv1d([convolution("conv1", bins)?, convolution("conv2", d)?]));
        };
        // The reference's images are [mel, time]. Ours are [time, mel], so that a time step is one row.
        let convolution = |i: usize| -> Result<_, LoadError> {
            let w = w.at(format_args!("conv2d{i}"));
            let input = if i == 1 { 1 } else { c };
            let (layout, shape) = (WeightLayout::Conv2d { stride: 2 }, [c, input, 3, 3]);
            Ok((w.swapped("weight", layout, &shape, (c * input, 3, 3), &shape)?, w.vector("bias", c)?))
        };
        let convolutions = (1..=3).map(convolution).collect::<Result<_, _>>()?;
        // The bins are halved as the frames are.
        let bins = shape.convolutions.rows(bins);
        let shape = [d, c * bins];
        let out = w.swapped("conv_out.weight", WeightLayout::Linear, &shape, (d, c, bins), &shape)?;
        Ok(Self::Conv2d(convolutions, (out, c * bins)))
    }

    /// Reserves the inputs of a step over `chunks`, which give `rows` rows, padding included. Also returns a number that
    /// differs if another step with as many rows has other sizes.
    pub fn layout(
        &self,
        ops: &O,
        layout: &mut SpecLayout,
        (chunks, rows): (&[Chunk<'_>], usize),
        shape: &EncoderShape,
    ) -> (StemSections, usize) {
        match self {
            Self::Conv1d(_) => {
                let frames = ops.bucket(chunks.iter().map(|chunk| chunk.frames).sum());
                let mel = layout.list(frames * shape.bins);
                let rows = [frames, rows].map(|rows| layout.list(rows * TAPS)).into();
                (StemSections { mel, images: (1, frames), rows }, frames)
            }
            Self::Conv2d(..) => {
                // The images of a step have one size.
                let frames = chunks.first().map_or(0, |chunk| chunk.frames);
                let images = (ops.bucket(chunks.len()), frames);
                let mel = layout.list(images.0 * frames * shape.bins);
                let rows = vec![layout.list(rows)];
                (StemSections { mel, images, rows }, images.0 * (shape.chunk + 1) + frames)
            }
        }
    }

    /// Sets the inputs of a step.
    pub fn fill(&self, spec: &mut RowSpec, sections: &StemSections, chunks: &[Chunk<'_>], shape: &EncoderShape) {
        let mel = chunks.iter().flat_map(|chunk| {
            let padding = chunk.frames * shape.bins - chunk.mel.len();
            chunk.mel.iter().copied().chain(std::iter::repeat_n(0.0, padding))
        });
        spec.set_floats_each(sections.mel, mel);
        match self {
            Self::Conv1d(_) => {
                for (&section, stride) in sections.rows.iter().zip([1, 2]) {
                    let frames = starts(chunks.iter().map(|chunk| chunk.frames));
                    spec.set_each(section, frames.flat_map(|(first, frames)| seen(first, frames, stride)));
                }
            }
            Self::Conv2d(..) => {
                let all = shape.convolutions.rows(sections.images.1);
                let own = chunks.iter().enumerate().flat_map(|(i, chunk)| i * all..i * all + chunk.rows);
                spec.set_each(sections.rows[0], own.map(|row| row as u32));
            }
        }
    }

    /// Returns the rows of the step's chunks, one chunk after the other.
    pub fn forward(&self, ops: &O, spec: &O::Spec, sections: &StemSections, shape: &EncoderShape) -> O::T {
        match self {
            Self::Conv1d(convolutions) => {
                let (mut x, mut columns) = (ops.floats(spec, sections.mel, shape.bins), shape.bins);
                for ((weight, bias), &rows) in convolutions.iter().zip(&sections.rows) {
                    let seen = ops.reshape(ops.gather_at(&x, &ops.index(spec, rows)), TAPS * columns);
                    x = ops.activation(ops.linear(&seen, weight, Some(bias)), Activation::Gelu);
                    columns = shape.layer.width;
                }
                x
            }
            Self::Conv2d(convolutions, (out, columns)) => {
                let mut x = ops.floats(spec, sections.mel, 1);
                let ((images, mut height), mut width) = (sections.images, shape.bins);
                for (weight, bias) in convolutions {
                    x = ops.activation(ops.conv2d(&x, images, height, width, weight, bias), Activation::Gelu);
                    (height, width) = (height.div_ceil(2), width.div_ceil(2));
                }
                let x = ops.linear(&ops.reshape(x, *columns), out, None);
                ops.gather_at(&x, &ops.index(spec, sections.rows[0]))
            }
        }
    }
}
