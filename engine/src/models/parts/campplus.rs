//! Speaker's encoder CAM++: a spectrogram to one row. Convolutions over time and frequency, densely joined layers over time, of
//! which each is gated by its mean over the recording and over two seconds, then mean and deviation over time. After `CAMPPlus` of 3D-Speaker.

use repartee_checkpoint::onnx::OnnxLayerKind::{Convolution, Scale};
use repartee_kernels::Ops;

use super::onnx_layers::{LayerReader, NamedTensor};
use super::rows::{ConvShape, HostConv, HostRows, Padding};
use super::speech_tokenizer::shape;
use super::weights::Weights;
use crate::checkpoint::Checkpoint;
use crate::models::load_error::LoadError;

/// Blocks of the layers over time, and the dilation of each.
const DILATIONS: [usize; 3] = [1, 2, 2];
/// Rows that share a gate: 2 s.
const SEGMENT: usize = 100;
/// Layers over time and frequency, and blocks of each.
const IMAGE_LAYERS: [&str; 2] = ["layer1", "layer2"];
const IMAGE_BLOCKS: usize = 2;
/// Frequencies of the input for each of those after the layers.
const HALVED: usize = 8;
/// Taps of the convolution in front of the dense layers.
const FIRST_TAPS: usize = 5;
/// Least frames: the deviation is over two rows at least.
pub const LEAST_FRAMES: usize = 3;

/// Names the tensors of a published file; `None` if its layers are others.
pub fn tensors(file: &[u8]) -> Option<Vec<NamedTensor>> {
    let mut layers = LayerReader::open(file)?;
    image(&mut layers, "head.conv1")?;
    for layer in IMAGE_LAYERS {
        for block in 0..IMAGE_BLOCKS {
            let name = |part: &str| format!("head.{layer}.{block}.{part}");
            image(&mut layers, &name("conv1"))?;
            image(&mut layers, &name("conv2"))?;
            if block == 0 {
                image(&mut layers, &name("shortcut"))?;
            }
        }
    }
    image(&mut layers, "head.conv2")?;
    layers.take("tdnn", Convolution)?;
    for block in 0..DILATIONS.len() {
        for layer in 0.. {
            let kernel = layers.peek(2).and_then(|layer| layer.weight.shape.get(2));
            if kernel != Some(&3) {
                break;
            }
            let name = |part: &str| format!("block.{block}.{layer}.{part}");
            layers.take(&name("nonlinear"), Scale)?;
            for part in ["inner", "local", "squeeze", "excite"] {
                layers.take(&name(part), Convolution)?;
            }
        }
        layers.take(&format!("transit.{block}.nonlinear"), Scale)?;
        layers.take(&format!("transit.{block}.linear"), Convolution)?;
    }
    if layers.follows(Scale, 1) {
        layers.take("out", Scale)?;
    }
    layers.take("dense", Convolution)?;
    layers.finish()
}

/// Names a convolution over frequency and time, `[out, in, frequency, time]`, and joins frequencies and inputs: `[out, frequency * in, time]`.
fn image(layers: &mut LayerReader, name: &str) -> Option<()> {
    layers.take(name, Convolution)?;
    let (_, shape, values) = layers.last()?;
    let &mut [out, input, high, long] = &mut shape[..] else { return None };
    let from = |at: usize| {
        let (row, time) = (at / long, at % long);
        let (o, rest) = (row / (input * high), row % (input * high));
        let (frequency, channel) = (rest / input, rest % input);
        ((o * input + channel) * high + frequency) * long + time
    };
    *values = (0..values.len()).map(|at| values[from(at)]).collect();
    *shape = vec![out, high * input, long];
    Some(())
}

/// Rows over time for each frequency.
type Image = Vec<HostRows>;

/// Convolution over frequency and time, with zeros around.
struct ImageConv<O: Ops> {
    conv: HostConv<O>,
    taps: usize,
    stride: usize,
}

struct ImageBlock<O: Ops> {
    first: ImageConv<O>,
    second: ImageConv<O>,
    shortcut: Option<ImageConv<O>>,
}

/// Factors and summands of channels.
type Affine = (Vec<f32>, Vec<f32>);

struct DenseLayer<O: Ops> {
    nonlinear: Affine,
    inner: HostConv<O>,
    local: HostConv<O>,
    squeeze: HostConv<O>,
    excite: HostConv<O>,
}

struct DenseBlock<O: Ops> {
    layers: Vec<DenseLayer<O>>,
    dilation: usize,
    nonlinear: Affine,
    linear: HostConv<O>,
}

/// Encoder of a speaker: mel bins of a recording to one row of numbers.
pub struct CamPlus<O: Ops> {
    first: ImageConv<O>,
    images: Vec<ImageBlock<O>>,
    last: ImageConv<O>,
    tdnn: HostConv<O>,
    blocks: Vec<DenseBlock<O>>,
    out: Option<Affine>,
    dense: HostConv<O>,
    bins: usize,
    width: usize,
}

fn relu(rows: HostRows) -> HostRows {
    rows.map(|value| value.max(0.0))
}

fn relu_image(image: Image) -> Image {
    image.into_iter().map(relu).collect()
}

/// Scales and shifts each channel, then drops negative numbers.
fn affine_relu(mut rows: HostRows, (scale, shift): &Affine) -> HostRows {
    for row in rows.data.chunks_exact_mut(rows.width) {
        row.iter_mut().zip(scale.iter().zip(shift)).for_each(|(x, (by, more))| *x = (*x * by + more).max(0.0));
    }
    rows
}

/// Mean of each channel over rows.
fn mean(rows: &[f32], width: usize) -> Vec<f32> {
    let count = (rows.len() / width) as f64;
    let sum = |channel: usize| rows.iter().skip(channel).step_by(width).map(|value| f64::from(*value)).sum::<f64>();
    (0..width).map(|channel| (sum(channel) / count) as f32).collect()
}

impl<O: Ops> ImageConv<O> {
    fn load(w: &Weights<'_, O>, checkpoint: &Checkpoint, name: &str, stride: usize) -> Result<Self, LoadError> {
        let [out, joined, taps] = shape(checkpoint, &format!("{name}.weight"))?;
        Ok(Self { conv: HostConv::load(&w.at(name), ConvShape::plain(joined, out, taps), true)?, taps, stride })
    }

    fn forward(&self, ops: &O, image: &Image) -> Image {
        let pad = self.taps / 2;
        let nothing = HostRows { width: image[0].width, data: vec![0.0; image[0].data.len()] };
        let row = |at: usize| {
            let tap = |tap: usize| (at + tap).checked_sub(pad).and_then(|at| image.get(at)).unwrap_or(&nothing);
            let taps: Vec<&HostRows> = (0..self.taps).map(tap).collect();
            self.conv.forward(ops, &HostRows::concat_columns(&taps).padded(pad, pad, Padding::Zero))
        };
        (0..image.len()).step_by(self.stride).map(row).collect()
    }
}

impl<O: Ops> ImageBlock<O> {
    fn forward(&self, ops: &O, x: Image) -> Image {
        let h = relu_image(self.first.forward(ops, &x));
        let h = self.second.forward(ops, &h);
        let x = self.shortcut.as_ref().map_or_else(|| x.clone(), |shortcut| shortcut.forward(ops, &x));
        relu_image(h.into_iter().zip(&x).map(|(h, x)| h.plus(x)).collect())
    }
}

impl<O: Ops> DenseLayer<O> {
    fn forward(&self, ops: &O, x: &HostRows, dilation: usize) -> HostRows {
        let h = relu(self.inner.forward(ops, &affine_relu(x.clone(), &self.nonlinear)));
        let mut y = self.local.forward(ops, &h.padded(dilation, dilation, Padding::Zero));
        let whole = mean(&h.data, h.width);
        let segments = h.data.chunks(SEGMENT * h.width);
        let context = segments.flat_map(|rows| mean(rows, h.width).into_iter().zip(&whole).map(|(a, b)| a + b));
        let context = HostRows { width: h.width, data: context.collect() };
        let gates = self.excite.forward(ops, &relu(self.squeeze.forward(ops, &context)));
        let gates = gates.map(|value| 1.0 / (1.0 + (-value).exp()));
        for (at, row) in y.data.chunks_exact_mut(y.width).enumerate() {
            row.iter_mut().zip(gates.row(at / SEGMENT)).for_each(|(value, gate)| *value *= gate);
        }
        y
    }
}

impl<O: Ops> CamPlus<O> {
    /// Loads the encoder out of tensors with the names of [`tensors`].
    ///
    /// # Errors
    /// The tensors do not fit each other.
    pub fn load(ops: &O, checkpoint: &Checkpoint) -> Result<Self, LoadError> {
        let w = Weights::new(ops, checkpoint);
        let image = |name: &str, stride: usize| ImageConv::load(&w, checkpoint, name, stride);
        let conv = |name: &str, stride: usize, dilation: usize| -> Result<_, LoadError> {
            let [out, channels, kernel] = shape(checkpoint, &format!("{name}.weight"))?;
            HostConv::load(&w.at(name), ConvShape { channels, out, kernel, stride, dilation }, true)
        };
        let affine = |name: &str| -> Result<Affine, LoadError> {
            let [channels] = shape(checkpoint, &format!("{name}.weight"))?;
            let w = w.at(name);
            Ok((w.values("weight", &[channels])?, w.values("bias", &[channels])?))
        };
        let mut images = Vec::new();
        for layer in IMAGE_LAYERS {
            for block in 0..IMAGE_BLOCKS {
                let name = |part: &str| format!("head.{layer}.{block}.{part}");
                let stride = if block == 0 { 2 } else { 1 };
                let shortcut = || image(&name("shortcut"), stride);
                images.push(ImageBlock {
                    first: image(&name("conv1"), stride)?,
                    second: image(&name("conv2"), 1)?,
                    shortcut: (block == 0).then(shortcut).transpose()?,
                });
            }
        }
        let block = |(at, &dilation): (usize, &usize)| -> Result<_, LoadError> {
            let name = |layer: usize, part: &str| format!("block.{at}.{layer}.{part}");
            let layers = (0..).take_while(|&layer| checkpoint.has_tensor(&name(layer, "local.weight")));
            let layer = |layer: usize| -> Result<_, LoadError> {
                Ok(DenseLayer {
                    nonlinear: affine(&name(layer, "nonlinear"))?,
                    inner: conv(&name(layer, "inner"), 1, 1)?,
                    local: conv(&name(layer, "local"), 1, dilation)?,
                    squeeze: conv(&name(layer, "squeeze"), 1, 1)?,
                    excite: conv(&name(layer, "excite"), 1, 1)?,
                })
            };
            Ok(DenseBlock {
                layers: layers.map(layer).collect::<Result<_, _>>()?,
                dilation,
                nonlinear: affine(&format!("transit.{at}.nonlinear"))?,
                linear: conv(&format!("transit.{at}.linear"), 1, 1)?,
            })
        };
        let [channels, ..]: [usize; 3] = shape(checkpoint, "head.conv1.weight")?;
        let [_, joined, _] = shape(checkpoint, "tdnn.weight")?;
        let [width, ..]: [usize; 3] = shape(checkpoint, "dense.weight")?;
        Ok(Self {
            first: image("head.conv1", 1)?,
            images,
            last: image("head.conv2", 2)?,
            tdnn: conv("tdnn", 2, 1)?,
            blocks: DILATIONS.iter().enumerate().map(block).collect::<Result<_, _>>()?,
            out: checkpoint.has_tensor("out.weight").then(|| affine("out")).transpose()?,
            dense: conv("dense", 1, 1)?,
            bins: joined / channels.max(1) * HALVED,
            width,
        })
    }

    /// Mel bins of a frame.
    pub fn bins(&self) -> usize {
        self.bins
    }

    /// Numbers of an embedding.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Embeds a spectrogram of at least [`LEAST_FRAMES`] frames as one row.
    pub fn forward(&self, ops: &O, mel: &HostRows) -> Vec<f32> {
        let mut image: Image = (0..mel.width).map(|bin| mel.columns(bin, 1)).collect();
        image = relu_image(self.first.forward(ops, &image));
        for block in &self.images {
            image = block.forward(ops, image);
        }
        image = relu_image(self.last.forward(ops, &image));
        // A row has all frequencies of a channel, then those of the next one.
        let (rows, channels) = (image[0].count(), image[0].width);
        let row = |at: usize| {
            let image = &image;
            (0..channels).flat_map(move |channel| image.iter().map(move |rows| rows.row(at)[channel]))
        };
        let data = (0..rows).flat_map(row).collect();
        let x = HostRows { width: channels * image.len(), data };
        let pad = FIRST_TAPS / 2;
        let mut x = relu(self.tdnn.forward(ops, &x.padded(pad, pad, Padding::Zero)));
        for block in &self.blocks {
            for layer in &block.layers {
                let made = layer.forward(ops, &x, block.dilation);
                x = HostRows::concat_columns(&[&x, &made]);
            }
            x = block.linear.forward(ops, &affine_relu(x, &block.nonlinear));
        }
        let x = match &self.out {
            Some(out) => affine_relu(x, out),
            None => relu(x),
        };
        let mut pooled = mean(&x.data, x.width);
        let others = x.count().saturating_sub(1).max(1) as f32;
        let deviation = |channel: usize| {
            let square = |row: usize| (x.row(row)[channel] - pooled[channel]).powi(2);
            ((0..x.count()).map(square).sum::<f32>() / others).sqrt()
        };
        let deviations: Vec<f32> = (0..x.width).map(deviation).collect();
        pooled.extend(deviations);
        self.dense.forward(ops, &HostRows { width: pooled.len(), data: pooled }).data
    }
}
