//! Monotone spline of quotients of quadratics (Durkan and others, 2019), backwards: the number that it maps to a value.

/// Bins of a spline.
pub const BINS: usize = 10;
/// Numbers that describe a spline: widths and heights of its bins, and the slopes between them.
pub const NUMBERS: usize = 3 * BINS - 1;
/// The spline maps numbers from `-BOUND` to `BOUND`; others stay.
const BOUND: f64 = 5.0;
/// Least share of a bin, and least slope.
const LEAST: f64 = 1e-3;

/// Edges of bins whose shares are softmax weights.
fn edges(weights: &[f32], scale: f64) -> [f64; BINS + 1] {
    let weight = |at: usize| f64::from(weights[at]) * scale;
    let most = (0..BINS).map(weight).fold(f64::NEG_INFINITY, f64::max);
    let parts: [f64; BINS] = std::array::from_fn(|at| (weight(at) - most).exp());
    let sum: f64 = parts.iter().sum();
    let mut edges = [BOUND; BINS + 1];
    let mut reached = 0.0;
    for (at, part) in parts.iter().enumerate() {
        edges[at] = 2.0 * BOUND * reached - BOUND;
        reached += LEAST + (1.0 - LEAST * BINS as f64) * part / sum;
    }
    edges
}

/// Finds the number that the spline of `numbers` maps to `value`. `scale` multiplies the weights of the bins.
pub fn undo(value: f64, numbers: &[f32], scale: f64) -> f64 {
    if !(-BOUND..=BOUND).contains(&value) {
        return value;
    }
    let (widths, rest) = numbers.split_at(BINS);
    let (heights, slopes) = rest.split_at(BINS);
    let (x, y) = (edges(widths, scale), edges(heights, scale));
    let slope = |at: usize| match at {
        0 | BINS => 1.0,
        _ => {
            let number = f64::from(slopes[at - 1]);
            // ln(1 + e^x) without overflow.
            LEAST + number.max(0.0) + (-number.abs()).exp().ln_1p()
        }
    };
    let at = y[1..BINS].iter().take_while(|edge| **edge <= value).count();
    let (wide, high, rise) = (x[at + 1] - x[at], y[at + 1] - y[at], value - y[at]);
    let (mean, left, right) = (high / wide, slope(at), slope(at + 1));
    let bend = left + right - 2.0 * mean;
    let a = rise * bend + high * (mean - left);
    let b = high * left - rise * bend;
    let c = -mean * rise;
    let root = 2.0 * c / (-b - (b * b - 4.0 * a * c).max(0.0).sqrt());
    root * wide + x[at]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn even_bins_with_unit_slopes_change_nothing() {
        // ln(e - 1) is the number whose slope is 1, less the least one.
        let one = ((1.0 - LEAST).exp() - 1.0).ln() as f32;
        let numbers = [&[0.3; 2 * BINS][..], &[one; BINS - 1]].concat();
        for value in [-7.0, -5.0, -1.234, 0.0, 3.3, 5.0, 9.0] {
            assert!((undo(value, &numbers, 1.0) - value).abs() < 1e-6, "{value}");
        }
    }

    #[test]
    fn larger_values_come_of_larger_numbers() {
        let numbers: Vec<f32> = (0..NUMBERS).map(|at| ((at * 7 % 5) as f32 - 2.0) * 0.8).collect();
        let found: Vec<f64> = (-50..=50).map(|at| undo(f64::from(at) / 10.0, &numbers, 0.5)).collect();
        assert!(found.windows(2).all(|pair| pair[0] < pair[1]), "{found:?}");
        assert!((found[0] + 5.0).abs() < 1e-6 && (found[100] - 5.0).abs() < 1e-6, "{found:?}");
    }
}
