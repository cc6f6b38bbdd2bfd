//! Counter-based random numbers. Each is a pure function of its counters, so batching, chunking and replay do not change it.

/// Returns a number in `[0, 1)` for the given counters.
pub fn uniform(seed: u64, response: u64, step: u64, codebook: u64) -> f32 {
    let mut state = mix(seed ^ 0x9e37_79b9_7f4a_7c15);
    for counter in [response, step, codebook] {
        state = mix(state ^ counter.wrapping_mul(0xd6e8_feb8_6659_fd93).wrapping_add(0x2545_f491_4f6c_dd1d));
    }
    // The upper 24 bits are exact in single precision.
    (state >> 40) as f32 / (1u32 << 24) as f32
}

/// Returns a normally distributed number of mean 0 and variance 1 for the given counters (Box and Muller, 1958). It shares no counter with
/// [`uniform`]'s numbers for codebooks.
pub fn normal(seed: u64, response: u64, step: u64, number: u64) -> f32 {
    let draw = |of: u64| f64::from(uniform(seed, response, step, (1 << 32) + 2 * number + of));
    // Avoids the logarithm of 0.
    let radius = (-2.0 * (1.0 - draw(0)).ln()).sqrt();
    (radius * (std::f64::consts::TAU * draw(1)).cos()) as f32
}

/// The finaliser of SplitMix64 (Steele, Lea and Flood, 2014).
#[inline(always)]
pub(crate) fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_repeatable_and_spread_evenly() {
        assert_eq!(uniform(1, 2, 3, 4), uniform(1, 2, 3, 4));
        let mut bins = [0u32; 16];
        for step in 0..16_000 {
            let u = uniform(7, 1, step, step % 8);
            assert!((0.0..1.0).contains(&u));
            bins[(u * 16.0) as usize] += 1;
        }
        assert!(bins.iter().all(|&n| (850..1150).contains(&n)), "{bins:?}");
    }

    #[test]
    fn normal_numbers_have_their_moments() {
        let numbers: Vec<f64> = (0..20_000).map(|i| f64::from(normal(3, 1, i / 80, i % 80))).collect();
        let moment = |power: i32| numbers.iter().map(|x| x.powi(power)).sum::<f64>() / numbers.len() as f64;
        assert!(moment(1).abs() < 0.03 && (moment(2) - 1.0).abs() < 0.03, "{} {}", moment(1), moment(2));
        assert!((moment(4) - 3.0).abs() < 0.2, "{}", moment(4));
        assert_ne!(normal(3, 1, 2, 4), normal(3, 1, 2, 5));
        assert_ne!(normal(3, 1, 2, 4), normal(3, 2, 2, 4));
    }

    #[test]
    fn each_counter_matters() {
        let base = uniform(1, 1, 1, 1);
        for other in [uniform(2, 1, 1, 1), uniform(1, 2, 1, 1), uniform(1, 1, 2, 1), uniform(1, 1, 1, 2)] {
            assert_ne!(base, other);
        }
    }
}
