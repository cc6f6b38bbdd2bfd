//! Arithmetic at every level of vector instructions of this processor: correct, and with the same bits for each row beside any neighbours.
//!
//! The test has a `main` of its own, so that its last line is always shown: the tested and the untested levels. With `CI` set, a run
//! without AVX2 fails on x86-64.

#![allow(clippy::unwrap_used)] // Helpers of tests: a panic is their report.

mod attention;
mod convolutions;
mod functions;
mod integers;
mod products;
mod recurrent;
mod rotary;
mod sampling;
mod segments;

use std::panic::catch_unwind;
use std::process::ExitCode;

use proptest::prelude::*;
use proptest::test_runner::{TestCaseResult, TestRunner};
use repartee_kernels::cpu::simd::SimdLevel;
use repartee_kernels::random::uniform;

/// Name and function of a check; a panic is a failure.
type Check = (&'static str, fn(SimdLevel));

/// Checks that run at each level.
const CHECKS: &[Check] = &[
    ("product_equals_the_plain_sum", products::product_equals_the_plain_sum),
    ("bfloat16_equals_its_widened_numbers", products::bfloat16_equals_its_widened_numbers),
    ("row_is_independent_of_its_neighbours", products::row_is_independent_of_its_neighbours),
    ("streamed_row_is_independent_of_its_neighbours", products::streamed_row_is_independent_of_its_neighbours),
    ("integers_stand_for_their_numbers", integers::integers_stand_for_their_numbers),
    ("stored_integers_stand_for_their_numbers", integers::stored_integers_stand_for_their_numbers),
    ("joined_kinds_have_the_bits_of_each", integers::joined_kinds_have_the_bits_of_each),
    ("half_precision_is_widened_exactly", integers::half_precision_is_widened_exactly),
    ("integer_products_have_the_plain_bits", integers::integer_products_have_the_plain_bits),
    ("integer_rows_are_independent", integers::integer_rows_are_independent),
    ("greatest_integers_do_not_overflow", integers::greatest_integers_do_not_overflow),
    ("greatest_stored_integers_do_not_overflow", integers::greatest_stored_integers_do_not_overflow),
    ("rows_that_are_not_finite_give_nan", integers::rows_that_are_not_finite_give_nan),
    ("weights_that_are_not_finite_are_refused", integers::weights_that_are_not_finite_are_refused),
    ("snake_matches_its_formula", functions::snake_matches_its_formula),
    ("gelu_matches_a_series", functions::gelu_matches_a_series),
    ("gelu_tanh_matches_its_formula", functions::gelu_tanh_matches_its_formula),
    ("silu_and_gates_match_the_sigmoid", functions::silu_and_gates_match_the_sigmoid),
    ("norms_match_their_formulas", functions::norms_match_their_formulas),
    ("softmax_sums_to_one_and_keeps_order", functions::softmax_sums_to_one_and_keeps_order),
    ("experts_take_the_lower_of_equals", functions::experts_take_the_lower_of_equals),
    ("attention_any_split_equals_the_formula", attention::any_split_equals_the_formula),
    ("stored_attention_equals_the_formula", attention::stored_attention_equals_the_formula),
    ("rotary_computes_angles_once_a_batch", rotary::rotary_computes_angles_once_a_batch),
    ("top_p_equals_the_plain_sort", sampling::top_p_equals_the_plain_sort),
    ("convolution_any_split_equals_the_formula", convolutions::any_split_equals_the_formula),
    ("conv2d_equals_the_formula", convolutions::conv2d_equals_the_formula),
    ("segment_conv1d_equals_the_formula", segments::conv1d_equals_the_formula),
    ("segment_conv1d_in_ranges_equals_the_whole", segments::conv1d_in_ranges_equals_the_whole),
    ("integer_conv1d_is_near_the_formula", segments::integer_conv1d_is_near_the_formula),
    ("segment_snake_equals_the_formula", segments::snake_equals_the_formula),
    ("segment_norm_equals_the_formula", segments::norm_equals_the_formula),
    ("segment_instance_norm_equals_the_formula", recurrent::instance_norm_equals_the_formula),
    ("instance_norm_is_independent_of_threads", recurrent::instance_norm_is_independent_of_threads),
    ("segment_lstm_equals_the_formula", recurrent::lstm_equals_the_formula),
    ("segment_reach_equals_the_formula", segments::attention_with_a_reach_equals_the_formula),
    ("activations_match_their_formulas", functions::activations_match_their_formulas),
];

/// Numbers between `-limit` and `limit`, determined by the seed.
fn numbers(count: usize, limit: f32, seed: u64) -> Vec<f32> {
    (0..count).map(|i| (uniform(seed, i as u64, 0, 0) * 2.0 - 1.0) * limit).collect()
}

/// Draws `cases` values and panics with the smallest one for which `test` fails.
fn check<S: Strategy>(cases: u32, strategy: &S, test: impl Fn(S::Value) -> TestCaseResult) {
    let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    if let Err(error) = TestRunner::new(config).run(strategy, test) {
        panic!("{error}");
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|argument| argument == "--list") {
        CHECKS.iter().for_each(|(name, _)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    let filters: Vec<_> = arguments.iter().filter(|argument| !argument.starts_with('-')).collect();
    let wanted = |name: &str| filters.is_empty() || filters.iter().any(|filter| name.contains(filter.as_str()));
    let checks: Vec<_> = CHECKS.iter().filter(|(name, _)| wanted(name)).collect();
    let mut failed = 0;
    for level in SimdLevel::available() {
        for (name, run) in &checks {
            let passed = catch_unwind(|| run(level)).is_ok();
            println!("{}::{name} ... {}", level.name(), if passed { "ok" } else { "FAILED" });
            failed += usize::from(!passed);
        }
    }
    let tested: Vec<_> = SimdLevel::available().map(SimdLevel::name).collect();
    let skipped: Vec<_> = SimdLevel::unavailable().collect();
    let compiled = cfg!(all(any(target_arch = "x86_64", target_arch = "aarch64"), feature = "simd"));
    let x86 = cfg!(target_arch = "x86_64");
    let about = match (compiled, &skipped[..]) {
        (false, _) => "; vector instructions are switched off".to_owned(),
        (true, []) => String::new(),
        (true, _) => format!("; SKIPPED, not on this processor or ruled out by REPARTEE_SIMD: {}", skipped.join(", ")),
    };
    println!("levels: {} checks at {}, {failed} failed{about}", checks.len(), tested.join(", "));
    if compiled && x86 && !SimdLevel::detect().has_vnni() {
        println!(
            "levels: SKIPPED, not on this processor or ruled out by REPARTEE_SIMD: integer products with AVX-512 VNNI"
        );
    }
    let in_ci = std::env::var("CI").is_ok_and(|value| !value.is_empty());
    if compiled && x86 && in_ci && !tested.contains(&"avx2") {
        println!("levels: FAILED, because CI is set and AVX2 was not tested");
        return ExitCode::FAILURE;
    }
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
