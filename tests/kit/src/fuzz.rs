//! Inputs for fuzz tests, made from a saved corpus by a fixed seed.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::memory::resident;
use crate::random::Random;

/// Memory that a test may hold on to after all of its inputs, in MiB; other tests run beside it.
const GROWTH: u64 = 256;

/// Calls `target` with every entry of `corpus` and then with `count` mutations of them. A panic names the input.
pub fn fuzz(corpus: &[Vec<u8>], count: usize, seed: u64, mut target: impl FnMut(&[u8])) {
    let mut random = Random::new(seed);
    let mut before = 0;
    for round in 0..corpus.len() + count {
        let input = match corpus.get(round) {
            Some(saved) => saved.clone(),
            None => mutation(corpus, &mut random),
        };
        if catch_unwind(AssertUnwindSafe(|| target(&input))).is_err() {
            panic!("this input is worth a place in the corpus: {}", input.escape_ascii());
        }
        if round == corpus.len() + count / 4 {
            before = resident();
        }
    }
    let grown = resident().saturating_sub(before);
    assert!(grown < GROWTH, "{grown} MiB more after {count} inputs");
}

/// One of the corpus, changed in a few places.
pub fn mutation(corpus: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let mut bytes = corpus[below(random, corpus.len())].clone();
    for _ in 0..=below(random, 4) {
        let at = below(random, bytes.len() + 1);
        let length = below(random, 40).min(bytes.len() - at);
        match below(random, 8) {
            0 => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << below(random, 8)),
            1 => drop(bytes.drain(at..at + length)),
            2 => {
                let piece = bytes[at..at + length].to_vec();
                bytes.splice(at..at, piece);
            }
            3 => {
                let other = &corpus[below(random, corpus.len())];
                let from = below(random, other.len());
                let piece: Vec<u8> = other[from..].iter().copied().take(below(random, 200)).collect();
                bytes.splice(at..at, piece);
            }
            4 => bytes.insert(at, below(random, 256) as u8),
            5 => number(&mut bytes, at, random),
            6 => swap_lines(&mut bytes, random),
            _ => bytes.truncate(at),
        }
    }
    bytes
}

/// Puts another number in the place of the next one after `at`.
fn number(bytes: &mut Vec<u8>, at: usize, random: &mut Random) {
    const ODD: [&str; 9] = ["0", "-1", "1", "255", "65535", "65536", "4294967296", "18446744073709551616", "1e9"];
    let Some(begin) = bytes[at..].iter().position(u8::is_ascii_digit).map(|offset| at + offset) else { return };
    let end =
        bytes[begin..].iter().position(|byte| !byte.is_ascii_digit()).map_or(bytes.len(), |length| begin + length);
    bytes.splice(begin..end, ODD[below(random, ODD.len())].bytes());
}

/// Exchanges two lines, or doubles one.
fn swap_lines(bytes: &mut Vec<u8>, random: &mut Random) {
    let mut lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
    if lines.is_empty() {
        return;
    }
    let (first, second) = (below(random, lines.len()), below(random, lines.len()));
    if first == second {
        lines.insert(first, lines[first]);
    } else {
        lines.swap(first, second);
    }
    *bytes = lines.concat();
}

/// A random number below `limit`, which is at least one.
pub fn below(random: &mut Random, limit: usize) -> usize {
    (random.unit() * limit.max(1) as f64) as usize
}
