//! Top-p sampling against a plain version that sorts every id.

use proptest::prelude::*;
use repartee_kernels::cpu::simd::SimdLevel;
use repartee_kernels::cpu::{math, sample};
use repartee_kernels::random::uniform;

use crate::check;

/// Sorts every id by its logit, stably, and masks from the least likely on.
fn plain_top_p(level: SimdLevel, logits: &mut [f32], p: f32) {
    let mut probabilities = logits.to_vec();
    math::softmax(level, &mut probabilities);
    let mut order: Vec<usize> = (0..logits.len()).filter(|&id| logits[id] > f32::NEG_INFINITY).collect();
    order.sort_by(|&a, &b| logits[a].total_cmp(&logits[b]));
    order.pop();
    let mut sum = 0.0;
    for id in order {
        sum += probabilities[id];
        if sum > 1.0 - p {
            break;
        }
        logits[id] = f32::NEG_INFINITY;
    }
}

/// Logits around zero. Few `values` make many ties; every `ruled_out`-th id is masked beforehand.
fn logits(count: usize, values: u32, spread: f32, ruled_out: usize, seed: u64) -> Vec<f32> {
    let logit = |id: usize| {
        if id % ruled_out == ruled_out - 1 {
            return f32::NEG_INFINITY;
        }
        let step = (uniform(seed, id as u64, 0, 0) * values as f32).floor() - (values / 2) as f32;
        // A step of 0 gives zeros of both signs, which are not equal here.
        step * spread / values as f32 * if id.is_multiple_of(2) { 1.0 } else { -1.0 }
    };
    (0..count).map(logit).collect()
}

fn bits(logits: &[f32]) -> Vec<u32> {
    logits.iter().map(|logit| logit.to_bits()).collect()
}

pub fn top_p_equals_the_plain_sort(level: SimdLevel) {
    let count = prop_oneof![1usize..60, 1000usize..1100, 3000usize..6000];
    let values = prop::sample::select(vec![1u32, 2, 7, 300, 1 << 20]);
    let spread = prop::sample::select(vec![0.0f32, 1e-3, 2.0, 30.0, 300.0]);
    let drawn = (count, values, spread, 2usize..9, any::<u64>(), 0.0f32..1.0);
    check(192, &drawn, |(count, values, spread, ruled_out, seed, p)| {
        let mut ours = logits(count, values, spread, ruled_out, seed);
        let mut plain = ours.clone();
        sample::top_p(level, &mut ours, p);
        plain_top_p(level, &mut plain, p);
        prop_assert!(bits(&ours) == bits(&plain), "another nucleus");
        Ok(())
    });
    let mut ours = logits(150_000, 1 << 20, 20.0, 9, 5);
    let mut plain = ours.clone();
    sample::top_p(level, &mut ours, 0.9);
    plain_top_p(level, &mut plain, 0.9);
    assert!(bits(&ours) == bits(&plain), "another nucleus of a whole vocabulary");
}
