//! The targets of `cargo fuzz` over their seeds, and over some changes of them: neither panics nor memory above their
//! bounds.

use repartee_fuzz_targets::{Bounds, TARGETS, Target, seeds};
use repartee_testkit::fuzz::fuzz;
use std::hint::black_box;

use super::alone;

fn run_seeds(count: usize, seed: u64) {
    let _alone = alone();
    for target in TARGETS {
        let seeds = seeds::read(target.name).unwrap();
        assert!(seeds.len() >= 3, "{} has {} seeds", target.name, seeds.len());
        println!("{}: {} seeds", target.name, seeds.len());
        fuzz(&seeds, count, seed, |input| target.check(input));
    }
}

#[test]
fn seeds_of_fuzz_targets_stay_within_bounds() {
    run_seeds(150, 0x5eed);
}

#[test]
#[ignore = "many more of the same: for the long suite"]
fn changed_seeds_of_fuzz_targets_stay_within_bounds() {
    run_seeds(20_000, 0xfeed);
}

#[test]
#[should_panic(expected = "bytes of memory")]
fn memory_above_the_bound_fails_a_target() {
    let _alone = alone();
    let run = |input: &[u8]| drop(black_box(vec![0_u8; 10 * input.len()]));
    let bounds = Bounds { bytes: 1_000, bytes_per_byte: 8, ms: 60_000, us_per_byte: 0 };
    Target { name: "wasteful", run, bounds }.check(&[0; 1_000]);
}

#[test]
#[should_panic(expected = "0ns are allowed")]
fn time_above_the_bound_fails_a_target() {
    let _alone = alone();
    let run = |input: &[u8]| drop(black_box(input.to_vec()));
    let bounds = Bounds { bytes: 1_000, bytes_per_byte: 8, ms: 0, us_per_byte: 0 };
    Target { name: "slow", run, bounds }.check_timed(&[]);
}
