//! Choosing an id from logits: the processors of the reference implementation, in its order, one function each.

use super::math;
use super::simd::Level;
use crate::ops::{NO_ID, SampleParams};

/// Divides positive and multiplies negative logits of `ids`, which were produced before.
pub fn repetition_penalty(logits: &mut [f32], ids: impl IntoIterator<Item = usize>, penalty: f32) {
    for id in ids {
        let logit = &mut logits[id];
        *logit = if *logit < 0.0 { *logit * penalty } else { *logit / penalty };
    }
}

/// Rules out each id whose entry in `allowed_mask` is 0.
pub fn suppress(logits: &mut [f32], allowed_mask: &[f32]) {
    for (logit, &allowed) in logits.iter_mut().zip(allowed_mask) {
        if allowed == 0.0 {
            *logit = f32::NEG_INFINITY;
        }
    }
}

/// Divides by the temperature, which is above 0.
pub fn temperature(logits: &mut [f32], temperature: f32) {
    for logit in logits {
        *logit /= temperature;
    }
}

/// Rules out what is less likely than the `k`-th most likely id; 0 rules out nothing.
pub fn top_k(logits: &mut [f32], k: usize) {
    if k == 0 || k >= logits.len() {
        return;
    }
    let mut order = logits.to_vec();
    let (_, &mut least, _) = order.select_nth_unstable_by(k - 1, |a, b| b.total_cmp(a));
    for logit in logits {
        if *logit < least {
            *logit = f32::NEG_INFINITY;
        }
    }
}

/// Rules out the least likely ids whose probabilities add up to no more than `1 - p`; the most likely one stays.
pub fn top_p(level: Level, logits: &mut [f32], p: f32) {
    if p >= 1.0 {
        return;
    }
    let mut probabilities = logits.to_vec();
    math::softmax(level, &mut probabilities);
    let mut order: Vec<usize> = (0..logits.len()).filter(|&id| logits[id] > f32::NEG_INFINITY).collect();
    order.sort_by(|&a, &b| logits[a].total_cmp(&logits[b]));
    let mut sum = 0.0;
    order.pop();
    for id in order {
        sum += probabilities[id];
        if sum > 1.0 - p {
            break;
        }
        logits[id] = f32::NEG_INFINITY;
    }
}

/// The id at which the running sum of the probabilities passes `uniform`.
fn draw(level: Level, logits: &mut [f32], uniform: f32) -> usize {
    math::softmax(level, logits);
    let mut sum = 0.0;
    let mut last = 0;
    for (id, &p) in logits.iter().enumerate().filter(|(_, p)| **p > 1e-30) {
        sum += p;
        last = id;
        if uniform < sum {
            break;
        }
    }
    last
}

/// Applies every processor to one row and chooses its id; `output_mask` holds the penalty's history and gains the id.
/// [`NO_ID`] if the row holds a value that is not finite.
pub fn choose(
    level: Level,
    logits: &mut [f32],
    params: &SampleParams,
    allowed_mask: Option<&[f32]>,
    output_mask: Option<&mut [bool]>,
) -> u32 {
    if logits.iter().any(|l| !l.is_finite()) {
        return NO_ID;
    }
    if let Some(output_mask) = output_mask.as_deref()
        && params.repetition_penalty != 1.0
    {
        let ids = output_mask.iter().enumerate().filter_map(|(id, &was)| was.then_some(id));
        repetition_penalty(logits, ids, params.repetition_penalty);
    }
    if let Some(allowed_mask) = allowed_mask {
        suppress(logits, allowed_mask);
    }
    let id = if params.temperature > 0.0 {
        temperature(logits, params.temperature);
        top_k(logits, params.top_k);
        top_p(level, logits, params.top_p);
        draw(level, logits, params.uniform)
    } else {
        let mut best = 0;
        for (id, &logit) in logits.iter().enumerate() {
            if logit > logits[best] {
                best = id;
            }
        }
        best
    };
    if let Some(output_mask) = output_mask {
        output_mask[id] = true;
    }
    id as u32
}
