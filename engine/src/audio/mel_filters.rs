//! Triangular mel filters: as transformers' `mel_filter_bank` makes them with norm and scale "slaney", and as torchaudio does
//! by default, with the scale "htk" and no norm.

/// Frequency at which the scale turns from linear to logarithmic.
const KNEE_HZ: f64 = 1000.0;
const KNEE_MEL: f64 = 15.0;
/// Frequency of HTK's scale above which it is logarithmic.
const HTK_HZ: f64 = 700.0;

/// One filter: weights of the frequency bins from `first` on; zero elsewhere.
#[derive(Debug, Clone, PartialEq)]
pub struct Filter {
    first: usize,
    weights: Vec<f32>,
}

impl Filter {
    /// Returns the power that passes the filter.
    pub fn apply(&self, power: &[f32]) -> f32 {
        self.weights.iter().zip(&power[self.first..]).map(|(weight, power)| weight * power).sum()
    }
}

/// Builds `count` filters from 0 to `highest_hz`, over the `frequencies` bins of a real transform, which span 0 to half
/// of `rate`.
pub fn filters(count: usize, highest_hz: f64, frequencies: usize, rate: u32) -> Vec<Filter> {
    let highest = mel(highest_hz);
    // Filters of equal energy: a triangle's area in hertz is one.
    let height = |low: f64, high: f64| 2.0 / (high - low);
    let edge = |index: usize| hertz(highest * index as f64 / (count + 1) as f64);
    triangles(count, (frequencies, rate), edge, height)
}

/// Builds filters as [`filters`], of height 1, at equal distances on HTK's scale.
pub fn htk_filters(count: usize, highest_hz: f64, frequencies: usize, rate: u32) -> Vec<Filter> {
    let highest = (1.0 + highest_hz / HTK_HZ).log10();
    let edge = |index: usize| HTK_HZ * (10_f64.powf(highest * index as f64 / (count + 1) as f64) - 1.0);
    triangles(count, (frequencies, rate), edge, |_, _| 1.0)
}

/// Builds triangles of which each lies between the edges of its index and of the next but one. `height` takes these two.
fn triangles(
    count: usize,
    (frequencies, rate): (usize, u32),
    edge: impl Fn(usize) -> f64,
    height: impl Fn(f64, f64) -> f64,
) -> Vec<Filter> {
    // The references halve the rate as an integer.
    let step = f64::from(rate / 2) / (frequencies - 1) as f64;
    (0..count)
        .map(|index| {
            let (low, centre, high) = (edge(index), edge(index + 1), edge(index + 2));
            let height = height(low, high);
            let weight = |bin: usize| {
                let hz = bin as f64 * step;
                let triangle = ((hz - low) / (centre - low)).min((high - hz) / (high - centre));
                (triangle.max(0.0) * height) as f32
            };
            let weights: Vec<f32> = (0..frequencies).map(weight).collect();
            let first = weights.iter().position(|weight| *weight > 0.0).unwrap_or(0);
            let end = weights.iter().rposition(|weight| *weight > 0.0).map_or(0, |last| last + 1);
            Filter { first, weights: weights[first..end].to_vec() }
        })
        .collect()
}

fn mel(hertz: f64) -> f64 {
    if hertz < KNEE_HZ { hertz * 3.0 / 200.0 } else { KNEE_MEL + (hertz / KNEE_HZ).ln() * 27.0 / 6.4_f64.ln() }
}

fn hertz(mel: f64) -> f64 {
    if mel < KNEE_MEL { mel * 200.0 / 3.0 } else { KNEE_HZ * ((mel - KNEE_MEL) * 6.4_f64.ln() / 27.0).exp() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mel_scale_is_invertible_and_continuous() {
        for hz in [0.0, 40.0, 999.9, 1000.0, 1000.1, 7999.0] {
            assert!((hertz(mel(hz)) - hz).abs() < 1e-9, "{hz}");
        }
        assert!((mel(999.999_999) - mel(1000.0)).abs() < 1e-6);
    }

    #[test]
    fn a_flat_spectrum_passes_wide_filters_alike() {
        // 5 Hz bins are fine enough for a triangle's sum to come near its area.
        let flat = vec![1.0; 1601];
        for filter in filters(40, 8000.0, 1601, 16_000) {
            assert!((filter.apply(&flat) * 5.0 - 1.0).abs() < 0.02);
        }
    }
}
