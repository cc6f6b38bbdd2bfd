//! Lists of ids and row indices, out of a row spec.

use std::ops::Range;
use std::sync::Arc;

use super::conv_state::StreamSpan;
use crate::row_spec::{self, NO_ROW, StreamRows};
use crate::shapes::{BITS, HELD_PENALTY, held_words};
use crate::step::StreamLevel;

/// A list of ids or row indices.
#[derive(Debug, Clone)]
pub struct CpuIndex {
    pub(super) words: Arc<Vec<u32>>,
    pub(super) range: Range<usize>,
}

impl CpuIndex {
    pub(super) fn words(&self) -> &[u32] {
        &self.words[self.range.clone()]
    }

    /// Yields each valid number with its place; skips [`NO_ROW`].
    pub(super) fn some(&self) -> impl Iterator<Item = (usize, usize)> {
        let numbers = self.words().iter().enumerate();
        numbers.filter(|(_, number)| **number != NO_ROW).map(|(place, &number)| (place, number as usize))
    }
}

impl StreamLevel<CpuIndex> {
    /// Yields the existing rows of each chunk.
    pub(super) fn spans(&self) -> impl Iterator<Item = StreamSpan> {
        let span = move |(row, StreamRows { slot, position, rows }): (usize, StreamRows)| {
            let (row, before, rows) = (row * self.scale, position * self.scale, rows * self.scale);
            let absent = self.skip.saturating_sub(before).min(rows);
            StreamSpan { slot, row: row + absent, rows: rows - absent, first: before <= self.skip }
        };
        row_spec::read_streams(self.chunks.words()).filter(|(_, chunk)| chunk.rows > 0).map(span)
    }
}

/// Copies row `at[i]` of `from` to row `i` of `to`, if there is such a row.
pub(super) fn copy_rows(to: &mut [f32], from: &[f32], columns: usize, at: &CpuIndex) {
    for (place, row) in at.some() {
        to[place * columns..(place + 1) * columns].copy_from_slice(&from[row * columns..(row + 1) * columns]);
    }
}

/// Copies row `i` of `from` to row `at[i]` of `to`, if there is such a row.
pub(super) fn spread_rows(to: &mut [f32], from: &[f32], columns: usize, at: &CpuIndex) {
    for (place, row) in at.some() {
        to[row * columns..(row + 1) * columns].copy_from_slice(&from[place * columns..(place + 1) * columns]);
    }
}

/// Adds the penalty to the columns of row `at[i]` whose bits are 0, if there is such a row.
pub(super) fn hold_rows(x: &mut [f32], columns: usize, at: &CpuIndex, bits: &[u32]) {
    let words = held_words(columns);
    for (place, row) in at.some() {
        let row = x[row * columns..(row + 1) * columns].chunks_mut(BITS);
        for (numbers, &word) in row.zip(&bits[place * words..(place + 1) * words]) {
            let count = numbers.len();
            // Most words have few bits or nearly all, so the rarer ones are visited.
            if word.count_ones() as usize > BITS / 2 {
                for bit in bits_of(!word).take_while(|bit| *bit < count) {
                    numbers[bit] += HELD_PENALTY;
                }
            } else {
                let mut before = [0.0; BITS];
                before[..count].copy_from_slice(numbers);
                numbers.iter_mut().for_each(|number| *number += HELD_PENALTY);
                for bit in bits_of(word).take_while(|bit| *bit < count) {
                    numbers[bit] = before[bit];
                }
            }
        }
    }
}

/// Yields the bits of a word that are 1, ascending.
fn bits_of(mut word: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        if word == 0 {
            return None;
        }
        let bit = word.trailing_zeros() as usize;
        word &= word - 1;
        Some(bit)
    })
}
