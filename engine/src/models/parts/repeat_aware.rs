//! Repeat-aware sampling on the host: a draw out of the most likely ids; if it repeats one of the last draws, a draw out of
//! all others takes its place. After `ras_sampling` in CosyVoice's `utils/common.py`.

/// Settings of the draws.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RepeatAware {
    /// Probability that the most likely ids reach together.
    pub top_p: f32,
    /// Most of these ids.
    pub top_k: usize,
    /// Number of last draws in which a repetition counts.
    pub window: usize,
    /// Share of these draws from which on an id is drawn again.
    pub share: f32,
}

impl RepeatAware {
    /// Draws an id by its logit; `allowed` tells the ids that may be drawn. `recent` are the last draws, the newest last,
    /// `uniforms` a random number from 0 to 1 for each draw. `None` if a logit is not finite, or no id is allowed.
    pub fn draw(
        &self,
        logits: &[f32],
        allowed: impl Fn(usize) -> bool,
        recent: &[u32],
        uniforms: [f32; 2],
    ) -> Option<u32> {
        if logits.iter().any(|logit| !logit.is_finite()) {
            return None;
        }
        let mut weights = weights(logits, allowed)?;
        let mut order: Vec<usize> = (0..weights.len()).filter(|&id| weights[id] > 0.0).collect();
        // Equally likely ids stay in their order.
        order.sort_by(|&a, &b| weights[b].total_cmp(&weights[a]));
        let total: f64 = weights.iter().sum();
        let (mut kept, mut reached) = (0, 0.0);
        while kept < order.len() && kept < self.top_k.max(1) && (kept == 0 || reached < f64::from(self.top_p)) {
            reached += weights[order[kept]] / total;
            kept += 1;
        }
        let first = pick(order[..kept].iter().map(|&id| (id, weights[id])), uniforms[0])?;
        let window = &recent[recent.len().saturating_sub(self.window)..];
        let repeated = window.iter().filter(|&&id| id as usize == first).count();
        if (repeated as f32) < self.window as f32 * self.share {
            return u32::try_from(first).ok();
        }
        weights[first] = 0.0;
        let all = weights.iter().copied().enumerate();
        // The only allowed id repeats itself.
        let second = pick(all.filter(|(_, weight)| *weight > 0.0), uniforms[1]).unwrap_or(first);
        u32::try_from(second).ok()
    }
}

/// Probabilities of the allowed ids, up to a common factor; zeros for the others.
fn weights(logits: &[f32], allowed: impl Fn(usize) -> bool) -> Option<Vec<f64>> {
    let highest = logits.iter().enumerate().filter(|(id, _)| allowed(*id)).map(|(_, logit)| *logit);
    let highest = f64::from(highest.reduce(f32::max)?);
    let weight = |(id, logit): (usize, &f32)| if allowed(id) { (f64::from(*logit) - highest).exp() } else { 0.0 };
    Some(logits.iter().enumerate().map(weight).collect())
}

/// Draws one of the ids by their weights.
fn pick(ids: impl Iterator<Item = (usize, f64)> + Clone, uniform: f32) -> Option<usize> {
    let total: f64 = ids.clone().map(|(_, weight)| weight).sum();
    let mut left = f64::from(uniform) * total;
    let mut last = None;
    for (id, weight) in ids {
        last = Some(id);
        left -= weight;
        if left < 0.0 {
            break;
        }
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLING: RepeatAware = RepeatAware { top_p: 0.8, top_k: 3, window: 4, share: 0.25 };

    fn logits(probabilities: &[f32]) -> Vec<f32> {
        probabilities.iter().map(|p| p.ln() - 3.0).collect()
    }

    /// Share of each id in draws that are spread evenly over both random numbers.
    fn shares(sampling: RepeatAware, logits: &[f32], allowed: impl Fn(usize) -> bool, recent: &[u32]) -> Vec<f32> {
        let mut counts = vec![0.0; logits.len()];
        for a in 0..100 {
            for b in 0..100 {
                let uniforms = [(a as f32 + 0.5) / 100.0, (b as f32 + 0.5) / 100.0];
                counts[sampling.draw(logits, &allowed, recent, uniforms).unwrap() as usize] += 1.0 / 10_000.0;
            }
        }
        counts
    }

    fn close(a: &[f32], b: &[f32]) -> bool {
        a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() < 0.02)
    }

    #[test]
    fn the_most_likely_ids_are_drawn() {
        let logits = logits(&[0.1, 0.4, 0.25, 0.15, 0.1]);
        // 0.4 and 0.25 do not reach 0.8, three ids do.
        let three = shares(SAMPLING, &logits, |_| true, &[]);
        assert!(close(&three, &[0.0, 0.5, 0.3125, 0.1875, 0.0]), "{three:?}");
        let two = shares(RepeatAware { top_k: 2, ..SAMPLING }, &logits, |_| true, &[]);
        assert!(close(&two, &[0.0, 0.615, 0.385, 0.0, 0.0]), "{two:?}");
        // The probability of ids that are cut off by their number counts.
        let half = shares(RepeatAware { top_p: 0.5, ..SAMPLING }, &logits, |_| true, &[]);
        assert!(close(&half, &two), "{half:?}");
        let masked = shares(SAMPLING, &logits, |id| id != 1, &[]);
        assert!(close(&masked, &[0.2, 0.0, 0.5, 0.3, 0.0]), "{masked:?}");
    }

    #[test]
    fn a_repeated_id_is_replaced_out_of_all() {
        let logits = logits(&[0.1, 0.4, 0.25, 0.15, 0.1]);
        let drawn = shares(SAMPLING, &logits, |_| true, &[1, 0, 0, 0]);
        let rest = [0.1, 0.0, 0.25, 0.15, 0.1].map(|p| 0.5 * p / 0.6);
        let expected = [rest[0], 0.0, 0.3125 + rest[2], 0.1875 + rest[3], rest[4]];
        assert!(close(&drawn, &expected), "{drawn:?}");
        let forgotten = shares(SAMPLING, &logits, |_| true, &[1, 0, 0, 0, 0]);
        assert!(close(&forgotten, &[0.0, 0.5, 0.3125, 0.1875, 0.0]), "{forgotten:?}");
    }

    #[test]
    fn bad_logits_and_masks_draw_nothing() {
        assert_eq!(SAMPLING.draw(&[0.0, f32::NAN], |_| true, &[], [0.5; 2]), None);
        assert_eq!(SAMPLING.draw(&[0.0, 1.0], |_| false, &[], [0.5; 2]), None);
        assert_eq!(SAMPLING.draw(&[0.0, 1.0], |id| id == 0, &[0, 0], [0.5; 2]), Some(0), "the only one");
        assert_eq!(SAMPLING.draw(&[0.0, 1.0], |_| true, &[], [0.999_999; 2]), Some(0), "the last one");
    }
}
