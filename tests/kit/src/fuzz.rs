//! Fuzz inputs, mutated from a saved corpus with a fixed seed, and a bound on the growth of allocated memory.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::memory::{CountScope, MemoryGrowth};
use crate::random::Random;

/// Limit of the growth in allocated bytes between the first quarter of the inputs and the last: a buffer keeps the
/// capacity of the largest input, and inputs have a few KiB. A leak of three bytes per input exceeds this after 10,000
/// inputs.
pub const MAX_GROWTH: i64 = 16 << 10;

/// Asserts that this thread's allocated memory grew by less than [`MAX_GROWTH`] since `growth` began, `inputs` inputs ago.
pub fn assert_bounded(growth: &MemoryGrowth, inputs: usize) {
    let bytes = growth.bytes();
    println!("{bytes} bytes more are allocated after {inputs} inputs");
    assert!(bytes < MAX_GROWTH, "{bytes} bytes more are allocated after {inputs} inputs");
}

/// Calls `target` with every entry of `corpus`, then with `count` mutations. After the first quarter of the inputs,
/// allocated memory of this thread must not grow.
///
/// # Panics
/// `target` panics (the message contains the input), memory grows, or [`crate::memory::CountingAllocator`] is not the
/// global allocator.
pub fn fuzz(corpus: &[Vec<u8>], count: usize, seed: u64, mut target: impl FnMut(&[u8])) {
    let mut random = Random::new(seed);
    let (inputs, mut growth) = (corpus.len() + count, MemoryGrowth::begin(CountScope::Thread));
    for round in 0..inputs {
        if round == inputs / 4 {
            growth = MemoryGrowth::begin(CountScope::Thread);
        }
        let input = match corpus.get(round) {
            Some(saved) => saved.clone(),
            None => mutation(corpus, &mut random),
        };
        if catch_unwind(AssertUnwindSafe(|| target(&input))).is_err() {
            panic!("this input is worth a place in the corpus: {}", input.escape_ascii());
        }
    }
    assert_bounded(&growth, inputs - inputs / 4);
}

/// Returns a random entry of the corpus, changed in a few places.
pub fn mutation(corpus: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let mut bytes = random.choose(corpus).clone();
    for _ in 0..=random.below(4) {
        let at = random.below(bytes.len() + 1);
        let length = random.below(40).min(bytes.len() - at);
        match random.below(8) {
            0 => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << random.below(8)),
            1 => drop(bytes.drain(at..at + length)),
            2 => {
                let piece = bytes[at..at + length].to_vec();
                bytes.splice(at..at, piece);
            }
            3 => {
                let other = random.choose(corpus);
                let from = random.below(other.len());
                let piece: Vec<u8> = other[from..].iter().copied().take(random.below(200)).collect();
                bytes.splice(at..at, piece);
            }
            4 => bytes.insert(at, random.below(256) as u8),
            5 => number(&mut bytes, at, random),
            6 => swap_lines(&mut bytes, random),
            _ => bytes.truncate(at),
        }
    }
    bytes
}

/// Replaces the next number after `at` with an edge case.
fn number(bytes: &mut Vec<u8>, at: usize, random: &mut Random) {
    const ODD: [&str; 9] = ["0", "-1", "1", "255", "65535", "65536", "4294967296", "18446744073709551616", "1e9"];
    let Some(begin) = bytes[at..].iter().position(u8::is_ascii_digit).map(|offset| at + offset) else { return };
    let end =
        bytes[begin..].iter().position(|byte| !byte.is_ascii_digit()).map_or(bytes.len(), |length| begin + length);
    bytes.splice(begin..end, random.choose(&ODD).bytes());
}

/// Swaps two random lines, or doubles one.
fn swap_lines(bytes: &mut Vec<u8>, random: &mut Random) {
    let mut lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
    if lines.is_empty() {
        return;
    }
    let (first, second) = (random.below(lines.len()), random.below(lines.len()));
    if first == second {
        lines.insert(first, lines[first]);
    } else {
        lines.swap(first, second);
    }
    *bytes = lines.concat();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn corpus() -> Vec<Vec<u8>> {
        vec![b"one 1\ntwo 22\nthree 333\n".to_vec(), vec![0, 1, 2, 3]]
    }

    #[test]
    fn target_that_frees_everything_stays_within_bound() {
        let mut largest = Vec::new();
        fuzz(&corpus(), 10_000, 1, |input| {
            if input.len() > largest.len() {
                largest = input.to_vec();
            }
        });
        assert!(!largest.is_empty());
    }

    #[test]
    #[should_panic(expected = "bytes more are allocated after 7")]
    fn leak_of_three_bytes_an_input_is_noticed() {
        let mut kept = Vec::with_capacity(10_002);
        fuzz(&corpus(), 10_000, 1, |_| kept.push(Box::new([0_u8; 3])));
    }

    #[test]
    #[should_panic(expected = "worth a place in the corpus: BANG")]
    fn panicking_input_is_named() {
        fuzz(&[b"BANG".to_vec()], 0, 1, |_| panic!("for the test"));
    }

    #[test]
    fn same_seed_makes_same_inputs() {
        let inputs = |seed| {
            let mut inputs = Vec::new();
            let mut random = Random::new(seed);
            inputs.extend((0..100).map(|_| mutation(&corpus(), &mut random)));
            inputs
        };
        assert_eq!(inputs(1), inputs(1));
        assert_ne!(inputs(1), inputs(2));
    }
}
