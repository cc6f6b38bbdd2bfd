//! Bounds for a count of independent trials, each of which succeeds with the same probability.

/// Returns the lower bound of successes in `trials`: fewer occur with a probability of at most `false_alarm`.
pub fn lower_bound(trials: u32, probability: f64, false_alarm: f64) -> u32 {
    let mut below = 0.0;
    for (successes, term) in terms(trials, probability) {
        below += term;
        if below > false_alarm {
            return successes;
        }
    }
    trials
}

/// Returns the upper bound of successes in `trials`: more occur with a probability of at most `false_alarm`.
pub fn upper_bound(trials: u32, probability: f64, false_alarm: f64) -> u32 {
    trials - lower_bound(trials, 1.0 - probability, false_alarm)
}

/// Iterates over the numbers of successes from 0, each with its probability.
fn terms(trials: u32, probability: f64) -> impl Iterator<Item = (u32, f64)> {
    // The odds are infinite at a probability of 1.
    let probability = probability.clamp(1e-12, 1.0 - 1e-12);
    let (n, odds) = (f64::from(trials), probability / (1.0 - probability));
    let first = (1.0 - probability).powi(trials as i32);
    let next = move |&(k, term): &(u32, f64)| {
        let more = term * odds * (n - f64::from(k)) / f64::from(k + 1);
        (k < trials).then_some((k + 1, more))
    };
    std::iter::successors(Some((0, first)), next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coins_are_bounded_as_counted() {
        // Ten coins: no heads in 1 of 1,024 cases, at most one in 11, at most two in 56.
        assert_eq!(lower_bound(10, 0.5, 1.0 / 2_048.0), 0);
        assert_eq!(lower_bound(10, 0.5, 1.0 / 1_024.0), 1);
        assert_eq!(lower_bound(10, 0.5, 11.0 / 1_024.0), 2);
        assert_eq!(lower_bound(10, 0.5, 0.05), 2);
        assert_eq!(upper_bound(10, 0.5, 0.05), 8);
        assert_eq!((lower_bound(10, 1.0, 0.001), upper_bound(10, 0.0, 0.001)), (10, 0));
    }

    #[test]
    fn bounds_hold_at_their_false_alarm() {
        for (trials, probability) in [(20, 0.02), (38, 0.8), (38, 0.367), (5, 0.99)] {
            let below = |count| terms(trials, probability).take(count as usize).map(|(_, term)| term).sum::<f64>();
            let least = lower_bound(trials, probability, 0.001);
            assert!(below(least) <= 0.001 && below(least + 1) > 0.001, "{trials} {probability}");
            let most = upper_bound(trials, probability, 0.001);
            assert!(1.0 - below(most + 1) <= 0.001 && 1.0 - below(most) > 0.001, "{trials} {probability}");
        }
    }
}
