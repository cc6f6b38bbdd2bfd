//! Ids sampled at a temperature follow the reference's distribution after each of its logits processors: chi-square
//! against its exact probabilities, with fixed seeds.
#![allow(clippy::unwrap_used)] // Helpers of tests: a panic is their report.

use repartee_engine_testkit::Expected;
use repartee_kernels::cpu::Cpu;
use repartee_kernels::cpu::sample::choose;
use repartee_kernels::cpu::simd::SimdLevel;
use repartee_kernels::random::uniform;
use repartee_kernels::{DType, Ops, RawTensor, SampleParams, StateSpec, WeightLayout};
use repartee_kernels_testkit::host::HostOps;

const DRAWS: usize = 10_000;
/// Least expected number of draws in a bin; rarer ids share one.
const BIN: f64 = 5.0;
/// Limit in standard deviations of the normal distribution: a correct sampler fails one chi-square in a million.
const LIMIT: f64 = 4.753;

/// Logits processors in the reference's order; each stage applies those up to its own.
const STAGES: [&str; 6] =
    ["logits", "after_repetition_penalty", "after_suppress", "after_temperature", "after_top_k", "after_top_p"];

/// One case of the fixture.
struct Case<'a> {
    expected: &'a Expected,
    index: usize,
}

impl Case<'_> {
    fn number(&self, field: &str) -> f32 {
        self.expected.facts["cases"][self.index][field].as_f64().unwrap() as f32
    }

    fn scores(&self, stage: &str) -> Vec<f32> {
        self.expected.tensor(&format!("case{}.{stage}", self.index)).0
    }

    /// Ids generated before.
    fn previous(&self) -> Vec<u32> {
        self.expected.ids(&format!("case{}.previous", self.index)).0
    }

    fn allowed_mask(&self) -> Vec<f32> {
        let mut allowed = vec![1.0; self.scores("logits").len()];
        for id in self.expected.facts["cases"][self.index]["suppress"].as_array().unwrap() {
            allowed[id.as_u64().unwrap() as usize] = 0.0;
        }
        allowed
    }

    /// Parameters of a stage: later processors have no effect.
    fn params(&self, stage: usize) -> SampleParams {
        let until = |at: usize, value: f32, nothing: f32| if stage >= at { value } else { nothing };
        SampleParams {
            slot: 0,
            repetition_penalty: until(1, self.number("repetition_penalty"), 1.0),
            temperature: until(3, self.number("temperature"), 1.0),
            top_k: until(4, self.number("top_k"), 0.0) as usize,
            top_p: until(5, self.number("top_p"), 1.0),
            uniform: 0.0,
        }
    }
}

fn softmax(scores: &[f32]) -> Vec<f64> {
    let top = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let weights: Vec<f64> = scores.iter().map(|&score| (f64::from(score) - f64::from(top)).exp()).collect();
    let total: f64 = weights.iter().sum();
    weights.iter().map(|weight| weight / total).collect()
}

/// Chi-square statistic of the counts, and its limit.
fn chi_square(counts: &[usize], probabilities: &[f64]) -> (f64, f64) {
    let draws = counts.iter().sum::<usize>() as f64;
    let (mut statistic, mut bins, mut rest) = (0.0, 0, (0.0, 0.0));
    let mut add = |count: f64, expected: f64| {
        statistic += (count - expected).powi(2) / expected;
        bins += 1;
    };
    for (&count, &p) in counts.iter().zip(probabilities) {
        if p * draws >= BIN {
            add(count as f64, p * draws);
        } else {
            rest = (rest.0 + count as f64, rest.1 + p * draws);
        }
    }
    if rest.1 >= BIN {
        add(rest.0, rest.1);
    }
    // The quantile by Wilson and Hilferty.
    let freedom = f64::from(bins - 1).max(1.0);
    let quantile = freedom * (1.0 - 2.0 / (9.0 * freedom) + LIMIT * (2.0 / (9.0 * freedom)).sqrt()).powi(3);
    (statistic, quantile)
}

#[test]
fn draws_follow_the_reference_after_each_processor() {
    let expected = Expected::load("sampling");
    let cases = expected.facts["cases"].as_array().unwrap().len();
    assert!(cases >= 6);
    for level in SimdLevel::available() {
        for case in (0..cases).map(|index| Case { expected: &expected, index }) {
            let (logits, allowed) = (case.scores("logits"), case.allowed_mask());
            let mut history = vec![false; logits.len()];
            case.previous().iter().for_each(|&id| history[id as usize] = true);
            for (stage, name) in STAGES.iter().enumerate() {
                let probabilities = softmax(&case.scores(name));
                let mut counts = vec![0; logits.len()];
                for draw in 0..DRAWS {
                    let uniform = uniform(19, case.index as u64, draw as u64, stage as u64);
                    let params = SampleParams { uniform, ..case.params(stage) };
                    let (mut row, mut output_mask) = (logits.clone(), history.clone());
                    let allowed = (stage >= 2).then_some(&allowed[..]);
                    let id = choose(level, &mut row, &params, allowed, Some(&mut output_mask)) as usize;
                    assert!(output_mask[id], "an id that was produced is not in the mask");
                    counts[id] += 1;
                }
                let at = format!("case {}, {name}, {level:?}", case.index);
                for (id, (&count, &p)) in counts.iter().zip(&probabilities).enumerate() {
                    assert!(count == 0 || p > 0.0, "{at}: {count} times {id}, which is ruled out");
                }
                let (statistic, limit) = chi_square(&counts, &probabilities);
                assert!(statistic < limit, "{at}: chi-square {statistic:.1}, at most {limit:.1}");
            }
        }
    }
}

#[test]
fn each_row_uses_its_own_slot_and_params() {
    let expected = Expected::load("sampling");
    let cases: Vec<_> = (0..expected.facts["cases"].as_array().unwrap().len())
        .map(|index| Case { expected: &expected, index })
        .collect();
    let ops = Cpu::default();
    let vocabulary = cases[0].scores("logits").len();
    let mut output_mask = ops.state(StateSpec::TokenMask { slots: cases.len(), vocabulary });
    let greedy =
        |slot| SampleParams { slot, repetition_penalty: 1.0, temperature: 0.0, top_k: 0, top_p: 1.0, uniform: 0.0 };
    let allowed = cases[3].allowed_mask();
    let bytes: Vec<u8> = allowed.iter().flat_map(|v| v.to_le_bytes()).collect();
    let mask = RawTensor { name: "allowed", bytes: &bytes, dtype: DType::F32, shape: &[vocabulary] };
    let mask = ops.stored_weight(WeightLayout::Vector, &[mask]).unwrap();
    for round in 0..50 {
        let mut alone = Vec::new();
        let (mut logits, mut rows) = (Vec::new(), Vec::new());
        // Slots in another order than rows.
        for slot in (0..cases.len()).rev() {
            let case = &cases[slot];
            ops.reset(&mut output_mask, slot);
            let mut history = vec![false; vocabulary];
            for id in case.previous() {
                // Its own logit is the highest: greedy sampling puts the id into the slot's mask.
                let mut one = vec![0.0; vocabulary];
                one[id as usize] = 1.0;
                history[id as usize] = true;
                ops.sample(&ops.tensor(one, vocabulary), &[greedy(slot)], None, Some(&mut output_mask));
            }
            let params = SampleParams { slot, uniform: uniform(23, slot as u64, round, 0), ..case.params(5) };
            let mut row = case.scores("logits");
            logits.extend_from_slice(&row);
            rows.push(params);
            alone.push(choose(ops.level(), &mut row, &params, Some(&allowed), Some(&mut history)));
        }
        let together = ops.sample(&ops.tensor(logits, vocabulary), &rows, Some(&mask), Some(&mut output_mask));
        assert_eq!(together, alone, "round {round}");
    }
}
