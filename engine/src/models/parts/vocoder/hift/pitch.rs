//! Pitch of mel frames, in double precision: the phase of the source adds it up, so an error of one frame stays in all
//! frames after it. After `CausalConvRNNF0Predictor`.

use repartee_kernels::Ops;

use super::config::{HiftConfig, PITCH_LOOK_AHEAD};
use crate::models::load_error::LoadError;
use crate::models::parts::weights::Weights;

/// Taps of the convolutions after the first one.
const TAPS: usize = 3;
/// Convolutions, each before an ELU. Their indices in the reference's list are even.
const CONVOLUTIONS: usize = 5;
/// Numbers that are added up side by side.
const LANES: usize = 8;

/// Convolution as a product over the rows that a row reads.
struct DoubleConv {
    /// Weights of each output, tap by tap.
    weight: Vec<f64>,
    bias: Vec<f64>,
}

impl DoubleConv {
    fn load<O: Ops>(w: &Weights<'_, O>, [out, input, taps]: [usize; 3]) -> Result<Self, LoadError> {
        let values = w.normed_wide("weight", &[out, input, taps])?;
        let mut weight = Vec::with_capacity(values.len());
        for row in values.chunks_exact(input * taps) {
            weight.extend((0..taps).flat_map(|tap| (0..input).map(move |i| row[i * taps + tap])));
        }
        Ok(Self { weight, bias: w.values("bias", &[out])?.into_iter().map(f64::from).collect() })
    }

    /// Computes `count` rows, each from the consecutive rows of `width` numbers that it reads. A row of weights is read once
    /// for all of them: the weights are larger than the processor's caches.
    fn forward(&self, rows: &[f64], width: usize, count: usize) -> Vec<f64> {
        let outputs = self.bias.len();
        let mut out = vec![0.0; count * outputs];
        for (output, (weight, bias)) in
            self.weight.chunks_exact(self.weight.len() / outputs).zip(&self.bias).enumerate()
        {
            let read = rows.windows(weight.len()).step_by(width);
            for (number, read) in out.iter_mut().skip(output).step_by(outputs).zip(read) {
                *number = elu(bias + product(weight, read));
            }
        }
        out
    }
}

/// Sum of products, in an order that does not depend on the machine.
fn product(a: &[f64], b: &[f64]) -> f64 {
    let mut sums = [0.0; LANES];
    let (whole, rest) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    for (a, b) in whole.0.iter().zip(rest.0) {
        sums.iter_mut().zip(a.iter().zip(b)).for_each(|(sum, (a, b))| *sum += a * b);
    }
    let tail: f64 = whole.1.iter().zip(rest.1).map(|(a, b)| a * b).sum();
    sums.iter().sum::<f64>() + tail
}

fn elu(x: f64) -> f64 {
    if x > 0.0 { x } else { x.exp_m1() }
}

/// Predictor of the pitch, shared by all streams.
pub struct PitchPredictor {
    convs: Vec<DoubleConv>,
    classifier: (Vec<f64>, f64),
}

/// Stream of a [`PitchPredictor`]: for each convolution but the first, the rows before the next one.
#[derive(Debug, Clone, Default)]
pub struct PitchStream(Vec<Vec<f64>>);

impl PitchPredictor {
    /// Loads `condnet` and `classifier`.
    pub fn load<O: Ops>(w: &Weights<'_, O>, config: &HiftConfig) -> Result<Self, LoadError> {
        let channels = config.pitch_channels;
        let conv = |at: usize| {
            let shape =
                if at == 0 { [channels, config.in_channels, PITCH_LOOK_AHEAD + 1] } else { [channels, channels, TAPS] };
            DoubleConv::load(&w.at("condnet").at(2 * at), shape)
        };
        let classifier = w.at("classifier");
        let weight = classifier.values("weight", &[1, channels])?.into_iter().map(f64::from).collect();
        let bias = f64::from(classifier.values("bias", &[1])?[0]);
        Ok(Self { convs: (0..CONVOLUTIONS).map(conv).collect::<Result<_, _>>()?, classifier: (weight, bias) })
    }

    /// Computes the pitch of the stream's next `count` frames in Hz. `mel` has these and the [`PITCH_LOOK_AHEAD`] after them,
    /// zeros beyond the last one.
    pub fn next(&self, stream: &mut PitchStream, mel: &[f32], count: usize) -> Vec<f32> {
        let mut rows: Vec<f64> = mel.iter().map(|number| f64::from(*number)).collect();
        stream.0.resize_with(self.convs.len(), Vec::new);
        let mut width = rows.len() / (count + PITCH_LOOK_AHEAD);
        for (at, (conv, before)) in self.convs.iter().zip(&mut stream.0).enumerate() {
            if at > 0 {
                before.resize((TAPS - 1) * width, 0.0);
                before.append(&mut rows);
                rows = conv.forward(before, width, count);
                before.drain(..count * width);
            } else {
                rows = conv.forward(&rows, width, count);
            }
            width = conv.bias.len();
        }
        let (weight, bias) = &self.classifier;
        rows.chunks_exact(width).map(|row| (bias + product(weight, row)).abs() as f32).collect()
    }
}
