//! Weights of the interruption network, which the recipe exports (models/interruptions).

use std::sync::LazyLock;

use super::features::BANDS;

/// The weights one behind the other, in half precision, little-endian.
const FILE: &[u8] = include_bytes!("../../../../models/interruptions/weights.f16");
/// Frames that the first layer sees at once, and its width.
pub(super) const KERNEL: usize = 3;
pub(super) const WIDTH: usize = 96;
/// Width of the recurrent layer.
pub(super) const STATE: usize = 160;
/// Outputs: an interruption, a backchannel, neither.
pub(super) const KINDS: usize = 3;

/// Linear layer.
#[derive(Debug)]
pub(super) struct Layer {
    /// Weights, row by row of the output.
    weight: Vec<f32>,
    bias: Vec<f32>,
}

/// All layers. The recurrent one has a reset gate, an update gate and a candidate, in this order.
#[derive(Debug)]
pub(super) struct Weights {
    pub frames: Layer,
    pub from_input: Layer,
    pub from_state: Layer,
    pub out: Layer,
}

/// Weights of all calls; `None` if the file has another length, which a test excludes.
pub(super) static WEIGHTS: LazyLock<Option<Weights>> = LazyLock::new(|| {
    let mut numbers = FILE.as_chunks::<2>().0.iter().map(|bytes| widened(u16::from_le_bytes(*bytes)));
    let mut take = |count: usize| -> Option<Vec<f32>> {
        let taken: Vec<f32> = numbers.by_ref().take(count).collect();
        (taken.len() == count).then_some(taken)
    };
    let (weight, bias) = (take(WIDTH * KERNEL * BANDS)?, take(WIDTH)?);
    let frames = Layer { weight, bias };
    let (input, state) = (take(3 * STATE * WIDTH)?, take(3 * STATE * STATE)?);
    let from_input = Layer { weight: input, bias: take(3 * STATE)? };
    let from_state = Layer { weight: state, bias: take(3 * STATE)? };
    let out = Layer { weight: take(KINDS * STATE)?, bias: take(KINDS)? };
    take(1).is_none().then_some(Weights { frames, from_input, from_state, out })
});

impl Layer {
    /// Writes the output for `x`.
    pub fn apply(&self, x: &[f32], out: &mut [f32]) {
        for ((out, row), bias) in out.iter_mut().zip(self.weight.chunks_exact(x.len())).zip(&self.bias) {
            *out = bias + dot(row, x);
        }
    }
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    let (a, b) = (a.as_chunks::<16>().0, b.as_chunks::<16>().0);
    let mut sums = [0.0; 16];
    for (a, b) in a.iter().zip(b) {
        for ((sum, a), b) in sums.iter_mut().zip(a).zip(b) {
            *sum += a * b;
        }
    }
    sums.iter().sum()
}

/// Returns a number of half precision; weights are finite.
fn widened(bits: u16) -> f32 {
    let (sign, exponent, fraction) = (u32::from(bits >> 15), u32::from(bits >> 10 & 31), u32::from(bits & 1_023));
    let magnitude = match exponent {
        0 => fraction as f32 * (1.0 / 16_777_216.0),
        _ => f32::from_bits((exponent + 112) << 23 | fraction << 13),
    };
    if sign == 1 { -magnitude } else { magnitude }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_have_their_length() {
        assert!(WEIGHTS.is_some());
        assert!(FILE.len() < 1 << 20);
    }

    #[test]
    fn half_precision_is_widened() {
        for (bits, value) in [(0x3c00, 1.0), (0xc000, -2.0), (0x3555, 0.333_251_95), (0x0001, 5.960_464_5e-8), (0, 0.0)]
        {
            assert_eq!(widened(bits), value, "{bits:x}");
        }
    }
}
