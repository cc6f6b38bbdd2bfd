//! Sampling of ids from logits: the reference implementation's logits processors, in its order, one function each.

use super::device::Cpu;
use super::math;
use super::scratch::SampleScratch;
use super::simd::SimdLevel;
use super::tensor::{CpuState, Tensor};
use super::weight::Weight;
use crate::row_spec::NO_ROW;
use crate::shapes::{NO_ID, SampleParams};

/// Penalises `ids`, which were produced before: divides positive and multiplies negative logits by `penalty`.
pub fn repetition_penalty(logits: &mut [f32], ids: impl IntoIterator<Item = usize>, penalty: f32) {
    for id in ids {
        let logit = &mut logits[id];
        *logit = if *logit < 0.0 { *logit * penalty } else { *logit / penalty };
    }
}

/// Masks each id whose entry in `allowed_mask` is 0.
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

/// Masks all ids below the `k`-th most likely one; 0 masks none.
pub fn top_k(logits: &mut [f32], k: usize) {
    top_k_with(logits, k, &mut Vec::new());
}

fn top_k_with(logits: &mut [f32], k: usize, order: &mut Vec<f32>) {
    if k == 0 || k >= logits.len() {
        return;
    }
    order.clear();
    order.extend_from_slice(logits);
    let (_, &mut least, _) = order.select_nth_unstable_by(k - 1, |a, b| b.total_cmp(a));
    for logit in logits {
        if *logit < least {
            *logit = f32::NEG_INFINITY;
        }
    }
}

/// Masks the least likely ids whose probabilities add up to no more than `1 - p`; the most likely one stays.
///
/// The probabilities are added up from the least likely id on; of equal logits the lower id comes first.
pub fn top_p(level: SimdLevel, logits: &mut [f32], p: f32) {
    top_p_with(level, logits, p, &mut SampleScratch::default());
}

fn top_p_with(level: SimdLevel, logits: &mut [f32], p: f32, scratch: &mut SampleScratch) {
    if p >= 1.0 {
        return;
    }
    let SampleScratch { numbers, keys, sorted, .. } = scratch;
    numbers.clear();
    numbers.extend_from_slice(logits);
    let shape = math::exponentials(level, numbers);
    // Equal logits have equal probabilities: the sum needs their order, not their ids.
    keys.clear();
    keys.extend(logits.iter().filter(|logit| **logit > f32::NEG_INFINITY).map(|&logit| ascending(logit)));
    sort(keys, sorted);
    keys.pop();
    numbers.clear();
    numbers.extend(keys.iter().map(|&key| logit(key)));
    math::softmax_of(level, numbers, shape);
    let mut sum = 0.0;
    let passes = |probability: &f32| {
        sum += probability;
        sum > 1.0 - p
    };
    let out = numbers.iter().position(passes).unwrap_or(numbers.len());
    // The last masked id, and how many of its equals are masked, the lowest ids first.
    let Some(&last) = keys[..out].last() else { return };
    let mut equals = keys[..out].iter().rev().take_while(|key| **key == last).count();
    for logit in logits.iter_mut().filter(|logit| **logit > f32::NEG_INFINITY) {
        let key = ascending(*logit);
        if key == last && equals > 0 {
            equals -= 1;
            *logit = f32::NEG_INFINITY;
        } else if key < last {
            *logit = f32::NEG_INFINITY;
        }
    }
}

/// Maps a logit to an integer of the same order as [`f32::total_cmp`].
fn ascending(logit: f32) -> u32 {
    let bits = logit.to_bits();
    if bits >> 31 == 0 { bits | 1 << 31 } else { !bits }
}

/// Inverts [`ascending`]: returns the logit.
fn logit(key: u32) -> f32 {
    f32::from_bits(if key >> 31 == 0 { !key } else { key & !(1 << 31) })
}

/// Largest number of keys for a comparison sort; the digit tables cost more.
const COMPARED: usize = 1024;
/// Bits of a radix digit: three digits make a key.
const DIGIT: u32 = 11;

/// Sorts in linear time, because a vocabulary has more than a hundred thousand ids.
fn sort(keys: &mut Vec<u32>, sorted: &mut Vec<u32>) {
    if keys.len() <= COMPARED {
        keys.sort_unstable();
        return;
    }
    sorted.resize(keys.len(), 0);
    for shift in (0..32).step_by(DIGIT as usize) {
        let digit = |key: u32| (key >> shift) as usize % (1 << DIGIT);
        let mut places = [0usize; 1 << DIGIT];
        keys.iter().for_each(|&key| places[digit(key)] += 1);
        let mut next = 0;
        for place in &mut places {
            next += std::mem::replace(place, next);
        }
        for &key in &*keys {
            let place = &mut places[digit(key)];
            sorted[*place] = key;
            *place += 1;
        }
        std::mem::swap(keys, sorted);
    }
}

/// Returns the id at which the cumulative probability passes `uniform`.
fn draw(level: SimdLevel, logits: &mut [f32], uniform: f32) -> usize {
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

/// Applies every processor to one row and samples its id; `output_mask` holds the penalty's history and gains the id.
/// Returns [`NO_ID`] if the row has a value that is not finite.
pub fn choose(
    level: SimdLevel,
    logits: &mut [f32],
    params: &SampleParams,
    allowed_mask: Option<&[f32]>,
    output_mask: Option<&mut [bool]>,
) -> u32 {
    choose_with(level, logits, params, allowed_mask, output_mask, &mut SampleScratch::default())
}

fn choose_with(
    level: SimdLevel,
    logits: &mut [f32],
    params: &SampleParams,
    allowed_mask: Option<&[f32]>,
    output_mask: Option<&mut [bool]>,
    scratch: &mut SampleScratch,
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
        top_k_with(logits, params.top_k, &mut scratch.numbers);
        top_p_with(level, logits, params.top_p, scratch);
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

/// Appends an id for each row of logits that has parameters; the slot [`NO_ROW`] has no history.
pub(super) fn rows(
    cpu: &Cpu,
    logits: &Tensor,
    params: impl Iterator<Item = SampleParams>,
    allowed_mask: Option<&Weight>,
    mut output_mask: Option<&mut CpuState>,
    ids: &mut Vec<u32>,
) {
    let allowed_mask = allowed_mask.map(|mask| mask.vector());
    let scratch = &mut cpu.scratch.take().sample;
    let mut row = std::mem::take(&mut scratch.row);
    for (logits, params) in logits.data.chunks_exact(logits.columns).zip(params) {
        row.clear();
        row.extend_from_slice(logits);
        let history = match output_mask.as_deref_mut() {
            Some(CpuState::TokenMask { vocabulary, flags }) if params.slot != NO_ROW as usize => {
                Some(&mut flags[params.slot * *vocabulary..(params.slot + 1) * *vocabulary])
            }
            _ => None,
        };
        ids.push(choose_with(cpu.level, &mut row, &params, allowed_mask, history, scratch));
    }
    scratch.row = row;
}
