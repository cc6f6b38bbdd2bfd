//! Hearing by an encoder that always takes whole windows: what a recording lacks of its last one is silence. An adapter halves the
//! encoder's rows by convolutions; rows of the silence alone are left out.
//!
//! A window travels without its silence: its frames, those in whose transforms the sound ends, and one of silence, which stands for
//! the rest.

use std::ops::Range;
use std::sync::Arc;

use repartee_kernels::{Activation, Ops, ReadBack, RowSpec, WeightLayout};

use crate::audio::log_mel::{LogMel, LogMelStream};
use crate::device::Device;
use crate::elements::AudioRows;
use crate::model::{Encoder, EncodingProgress, FrontEnd, FrontEndStream, InputWindow, WindowInput};
use crate::models::load_error::LoadError;
use crate::models::parts::audio_encoder::pieces::ranges;
use crate::models::parts::audio_encoder::tower::AudioTower;
use crate::models::parts::rows::{HostRows, Padding, in_step};
use crate::models::parts::weights::Weights;
use crate::weight_policy::WeightPolicy;

/// Taps of a convolution of the adapter.
const TAPS: usize = 3;
/// Mel frames of a row of the encoder.
const FRAMES: usize = 2;
/// Frames behind the sound of a window: two in whose transforms it ends, and one of silence.
const BEHIND: usize = 3;

/// Spectrogram of whole windows.
#[derive(Debug, Clone)]
pub struct PaddedFrontEnd(pub Arc<LogMel>);

/// Spectrogram of one turn.
#[derive(Debug, Clone)]
pub struct PaddedStream {
    mel: LogMelStream,
    tables: Arc<LogMel>,
    /// Windows that are closed.
    closed: usize,
}

impl PaddedFrontEnd {
    /// Opens the stream of a new turn.
    pub fn stream(&self) -> PaddedStream {
        PaddedStream { mel: self.0.stream(), tables: Arc::clone(&self.0), closed: 0 }
    }
}

impl FrontEnd for PaddedFrontEnd {
    fn rate(&self) -> u32 {
        self.0.config().sampling_rate
    }

    fn stream(&self) -> Box<dyn FrontEndStream> {
        Box::new(Self::stream(self))
    }
}

impl FrontEndStream for PaddedStream {
    fn push(&mut self, samples: &[f32], closed: &mut Vec<InputWindow>) {
        let before = closed.len();
        self.mel.push(samples, closed);
        self.closed += closed.len() - before;
    }

    fn finish(self: Box<Self>) -> Option<InputWindow> {
        let Self { mut mel, tables, closed } = *self;
        let (config, most) = (tables.config(), tables.window_frames());
        let frames = (mel.samples() / config.hop_length).checked_sub(closed * most).filter(|frames| *frames > 0)?;
        let mut windows = Vec::new();
        mel.push(&vec![0.0; BEHIND * config.hop_length + config.n_fft], &mut windows);
        windows.extend(mel.finish());
        let mut data = windows.into_iter().next()?.data;
        data.truncate((frames + BEHIND).min(most) * config.feature_size);
        Some(InputWindow { frames, data })
    }

    fn samples(&self) -> usize {
        self.mel.samples()
    }

    fn fork(&self) -> Box<dyn FrontEndStream> {
        Box::new(self.clone())
    }
}

/// A convolution that halves the rows, with two linear layers behind it, each weight with its bias.
struct Halving<O: Ops> {
    conv: (O::Weight, O::Weight),
    linear1: (O::Weight, O::Weight),
    linear2: (O::Weight, O::Weight),
    /// Numbers of a row before and after it, and multiplications of a result.
    widths: (usize, usize),
    work: usize,
}

impl<O: Ops> Halving<O> {
    fn load(w: &Weights<'_, O>, input: usize, inner: usize, output: usize) -> Result<Self, LoadError> {
        // Computed as a product over three rows. It remains a convolution, which no policy quantises.
        let (conv, shape) = (w.at("conv1d").with_policy(WeightPolicy::default()), [input, input, TAPS]);
        let affine = |name: &str, out, input| -> Result<_, LoadError> {
            let w = w.at(name);
            Ok((w.linear("weight", out, input)?, w.vector("bias", out)?))
        };
        let joined = [input, TAPS * input];
        Ok(Self {
            conv: (
                conv.swapped("weight", WeightLayout::Linear, &shape, (input, input, TAPS), &joined)?,
                conv.vector("bias", input)?,
            ),
            linear1: affine("linear1", inner, input)?,
            linear2: affine("linear2", output, inner)?,
            widths: (input, output),
            work: TAPS * input * input + inner * (input + output),
        })
    }

    /// Results of `range`; result `i` sees the rows `2 i - 1` to `2 i + 1`.
    fn forward(
        &self,
        ops: &O,
        rows: &HostRows,
        range: Range<usize>,
        (at, spec, back): (usize, &mut RowSpec, &mut ReadBack),
    ) -> HostRows {
        let padded = rows.padded(1, 2, Padding::Zero);
        let taps = range.flat_map(|result| padded.data[2 * result * rows.width..][..TAPS * rows.width].iter().copied());
        let taps = HostRows { width: TAPS * rows.width, data: taps.collect() };
        in_step(ops, &taps, ("adapter", at), (spec, back), |ops, x| {
            let x = ops.activation(ops.linear(&x, &self.conv.0, Some(&self.conv.1)), Activation::Relu);
            let x = ops.activation(ops.linear(&x, &self.linear1.0, Some(&self.linear1.1)), Activation::Relu);
            ops.linear(&x, &self.linear2.0, Some(&self.linear2.1))
        })
    }
}

/// The encoder and the adapter.
pub struct PaddedTower<O: Ops> {
    /// The encoder, whose windows are whole.
    pub tower: AudioTower<O>,
    adapter: Vec<Halving<O>>,
}

impl<O: Ops> PaddedTower<O> {
    /// Wraps an encoder with the adapter below `w`: `layers` halvings of this inner width, the last of which gives rows of `output`
    /// numbers.
    pub fn load(
        w: &Weights<'_, O>,
        tower: AudioTower<O>,
        (layers, inner, output): (usize, usize, usize),
    ) -> Result<Self, LoadError> {
        let width = tower.shape().output_width();
        let layer = |at: usize| {
            let out = if at + 1 == layers { output } else { width };
            Halving::load(&w.at("downsample_layers").at(at), width, inner, out)
        };
        Ok(Self { tower, adapter: (0..layers).map(layer).collect::<Result<_, _>>()? })
    }

    /// Mel frames of a row of the language model.
    fn frames_per_row(&self) -> usize {
        FRAMES << self.adapter.len()
    }

    /// Rows of the language model for a window.
    fn count(&self, window: &WindowInput<'_>) -> usize {
        let (bins, most) = (self.tower.shape().bins, self.tower.shape().window);
        let frames = window.data.len() / bins.max(1);
        let sound = if frames < most { frames.saturating_sub(BEHIND) } else { frames };
        sound.div_ceil(self.frames_per_row())
    }

    /// A window with its silence.
    pub fn padded(&self, window: &WindowInput<'_>) -> Vec<f32> {
        let (bins, most) = (self.tower.shape().bins, self.tower.shape().window);
        let mut data = window.data.to_vec();
        let silence = data[data.len().saturating_sub(bins)..].to_vec();
        data.extend(silence.iter().cycle().take((most * bins).saturating_sub(window.data.len())));
        data
    }

    /// Rows of the encoder that `count` results of the adapter see.
    fn seen(&self, count: usize) -> usize {
        (count << self.adapter.len()).min(self.tower.shape().tokens(self.tower.shape().window))
    }

    /// Units of the adapter over `count` results: layer, range of its results, and true for the last one of the layer.
    fn units(&self, count: usize) -> Vec<(usize, Range<usize>, bool)> {
        let mut rows = self.seen(count);
        let mut units = Vec::new();
        for (at, layer) in self.adapter.iter().enumerate() {
            rows = rows.div_ceil(2);
            let cut = ranges(rows, rows * layer.work, self.tower.unit());
            units.extend(cut.map(|range| (at, range.clone(), range.end == rows)));
        }
        units
    }
}

/// The encoder with its adapter, device and buffers.
pub struct PaddedHearing<O: Ops> {
    ops: O,
    tower: PaddedTower<O>,
    spec: RowSpec,
    back: ReadBack,
}

impl<O: Device> PaddedHearing<O> {
    /// Creates an encoder on a device with buffers of its own.
    pub fn new(ops: &O, tower: PaddedTower<O>) -> Self {
        Self { ops: ops.with_own_buffers(), tower, spec: RowSpec::default(), back: ReadBack::default() }
    }

    /// Progress of a window whose encoder is done.
    fn encoded(&self, mut rows: Vec<f32>, count: usize) -> EncodingProgress {
        rows.truncate(self.tower.seen(count) * self.tower.tower.shape().output_width());
        let units = self.tower.tower.units(self.tower.tower.shape().window);
        EncodingProgress { units, rows, ..EncodingProgress::default() }
    }

    /// Runs units of the adapter over the rows in `progress`; `units` of it were done.
    fn adapt(&mut self, progress: &mut EncodingProgress, count: usize, units: Range<usize>) -> Option<AudioRows> {
        let all = self.tower.units(count);
        for (layer, range, ends) in all.iter().take(units.end).skip(units.start).cloned() {
            let Self { ops, tower, spec, back } = self;
            let halving = &tower.adapter[layer];
            let mut rows = HostRows { width: halving.widths.0, data: std::mem::take(&mut progress.rows) };
            let results = halving.forward(ops, &rows, range, (layer, spec, back));
            progress.attended.extend(results.data);
            if ends {
                rows = HostRows { width: halving.widths.1, data: std::mem::take(&mut progress.attended) };
            }
            progress.rows = rows.data;
        }
        (units.end >= all.len()).then(|| AudioRows { count, rows: std::mem::take(&mut progress.rows) })
    }
}

impl<O: Device> Encoder for PaddedHearing<O> {
    fn encode(&mut self, windows: &[WindowInput<'_>]) -> Vec<AudioRows> {
        let encode = |window: &WindowInput<'_>| {
            let (count, data) = (self.tower.count(window), self.tower.padded(window));
            let Self { ops, tower, spec, back } = &mut *self;
            let input = WindowInput { data: &data, index: window.index };
            let rows = tower.tower.encode(ops, &[input], spec, back).concat();
            let mut progress = self.encoded(rows, count);
            let units = 0..self.tower.units(count).len();
            self.adapt(&mut progress, count, units).unwrap_or_default()
        };
        windows.iter().map(encode).collect()
    }

    fn units(&self, window: &WindowInput<'_>) -> usize {
        self.tower.tower.units(self.tower.tower.shape().window) + self.tower.units(self.tower.count(window)).len()
    }

    fn advance(
        &mut self,
        window: &WindowInput<'_>,
        progress: &mut EncodingProgress,
        units: usize,
    ) -> Option<AudioRows> {
        let (count, of_tower) = (self.tower.count(window), self.tower.tower.units(self.tower.tower.shape().window));
        let mut left = units;
        if progress.units < of_tower {
            let next = left.min(of_tower - progress.units);
            let data = self.tower.padded(window);
            let Self { ops, tower, spec, back } = &mut *self;
            let input = WindowInput { data: &data, index: window.index };
            if let Some(rows) = tower.tower.advance(ops, &input, progress, next, (spec, back)) {
                *progress = self.encoded(rows, count);
            }
            left -= next;
        }
        if left == 0 && progress.units < self.units(window) {
            return None;
        }
        let done = progress.units - of_tower;
        progress.units += left;
        self.adapt(progress, count, done..done + left)
    }

    fn unfinished_bytes(&self) -> usize {
        let shape = self.tower.tower.shape();
        let rows = shape.tokens(shape.window) * shape.output_width();
        let results = shape.window.div_ceil(self.tower.frames_per_row());
        let last = self.tower.adapter.last().map_or(0, |last| last.widths.1);
        self.tower.tower.unfinished_bytes() + (2 * rows + results * last) * size_of::<f32>()
    }

    fn end_idle_period(&mut self) -> bool {
        self.ops.shrink()
    }
}
