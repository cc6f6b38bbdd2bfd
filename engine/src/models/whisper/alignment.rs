//! Times of words by cross attention: the heads that follow the sound say where each token stands, and dynamic time
//! warping makes of it a path that never goes back. The method is that of Whisper's own package (`timing.py`).

use std::ops::Range;

/// Width of the median filter over the sound.
const MEDIAN: usize = 7;

/// Attention of tokens to rows of sound, `[tokens, rows]`: the mean of some heads.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Alignment {
    /// Sum of the heads.
    weights: Vec<f32>,
    tokens: usize,
    rows: usize,
    /// Number of heads.
    heads: usize,
}

impl Alignment {
    /// Creates an alignment of no heads yet.
    pub fn new(tokens: usize, rows: usize) -> Self {
        Self { weights: vec![0.0; tokens * rows], tokens, rows, heads: 0 }
    }

    /// Adds a head: its attention, normalised over the tokens and smoothed over the sound. Its queries are of all tokens; of
    /// its keys the first rows count.
    pub fn add(&mut self, head: AlignmentHead<'_>) {
        let smooth = head.attention(self.tokens, self.rows);
        self.weights.iter_mut().zip(&smooth).for_each(|(sum, weight)| *sum += weight);
        self.heads += 1;
    }

    /// Row of the sound at which each of these tokens begins.
    pub fn begins(&self, tokens: Range<usize>) -> Vec<usize> {
        let rows = self.rows;
        let heads = self.heads.max(1) as f32;
        let weights = &self.weights[tokens.start * rows..tokens.end * rows];
        let tokens = tokens.len();
        // Least cost of a path to each pair, with a border before the first token and the first row.
        let wide = rows + 1;
        let mut cost = vec![f32::INFINITY; (tokens + 1) * wide];
        let mut step = vec![0u8; (tokens + 1) * wide];
        cost[0] = 0.0;
        for token in 1..=tokens {
            for row in 1..=rows {
                let at = token * wide + row;
                let from = [cost[at - wide - 1], cost[at - wide], cost[at - 1]];
                // The order decides a tie, as in the reference: back, unless the diagonal or the token is strictly less.
                let best = match from {
                    [both, token, row] if both < token && both < row => 0,
                    [both, token, row] if token < both && token < row => 1,
                    _ => 2,
                };
                cost[at] = from[best] - weights[(token - 1) * rows + row - 1] / heads;
                step[at] = best as u8;
            }
        }
        let mut begins = vec![0; tokens];
        let (mut token, mut row) = (tokens, rows);
        while token > 0 && row > 0 {
            begins[token - 1] = row - 1;
            match step[token * wide + row] {
                0 => (token, row) = (token - 1, row - 1),
                1 => token -= 1,
                _ => row -= 1,
            }
        }
        begins
    }
}

/// Queries and keys of a head.
#[derive(Debug, Clone, Copy)]
pub struct AlignmentHead<'a> {
    /// Queries of all heads, `[tokens, width]`.
    pub queries: &'a [f32],
    /// Keys of all heads, `[rows, width]`.
    pub keys: &'a [f32],
    /// Numbers of a row.
    pub width: usize,
    /// First column of the head.
    pub column: usize,
    /// Width of the head.
    pub dim: usize,
}

impl AlignmentHead<'_> {
    fn attention(&self, tokens: usize, rows: usize) -> Vec<f32> {
        let Self { width, column, dim, .. } = *self;
        let scale = (dim as f32).sqrt().recip();
        let mut weights = Vec::with_capacity(tokens * rows);
        for token in 0..tokens {
            let query = &self.queries[token * width + column..][..dim];
            let score = |row: usize| {
                let key = &self.keys[row * width + column..][..dim];
                scale * query.iter().zip(key).map(|(q, k)| q * k).sum::<f32>()
            };
            let scores: Vec<f32> = (0..rows).map(score).collect();
            let highest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let shares: Vec<f32> = scores.iter().map(|score| (score - highest).exp()).collect();
            let total: f32 = shares.iter().sum();
            weights.extend(shares.iter().map(|share| share / total));
        }
        normalise(&mut weights, tokens, rows);
        weights.chunks_exact(rows.max(1)).flat_map(median).collect()
    }
}

/// Subtracts the mean of each row of sound over the tokens, and divides by the standard deviation.
fn normalise(weights: &mut [f32], tokens: usize, rows: usize) {
    for row in 0..rows {
        let column = || (0..tokens).map(|token| token * rows + row);
        let mean = column().map(|at| weights[at]).sum::<f32>() / tokens as f32;
        let deviation = (column().map(|at| (weights[at] - mean).powi(2)).sum::<f32>() / tokens as f32).sqrt();
        for at in column() {
            weights[at] = if deviation > 0.0 { (weights[at] - mean) / deviation } else { 0.0 };
        }
    }
}

/// Median of each number and those around it, reflected at the ends; too few numbers stay as they are.
fn median(row: &[f32]) -> Vec<f32> {
    let reach = MEDIAN / 2;
    if row.len() <= reach {
        return row.to_vec();
    }
    let last = row.len() - 1;
    let around = |at: usize| {
        let mut near = [0.0; MEDIAN];
        for (near, offset) in near.iter_mut().zip(0..) {
            let place = (at + offset).abs_diff(reach);
            *near = row[if place > last { 2 * last - place } else { place }];
        }
        near.sort_by(f32::total_cmp);
        near[reach]
    };
    (0..row.len()).map(around).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_diagonal_gives_rising_times() {
        // Token t looks at rows 10 t to 10 t + 9. Elsewhere it is below the mean, so that no other path costs as little.
        let weights = (0..4 * 40).map(|i| if i / 40 == i % 40 / 10 { 1.0 } else { -0.3 }).collect();
        assert_eq!(Alignment { weights, tokens: 4, rows: 40, heads: 1 }.begins(0..4), [0, 10, 20, 30]);
    }

    #[test]
    fn the_median_drops_single_peaks() {
        let mut row = vec![0.0; 12];
        row[0] = 5.0;
        row[6] = 9.0;
        assert_eq!(median(&row), vec![0.0; 12]);
        assert_eq!(median(&[0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0])[4..6], [1.0, 1.0]);
        assert_eq!(median(&[3.0, 1.0]), [3.0, 1.0]);
    }

    #[test]
    fn heads_that_follow_the_sound_align_it() {
        // Queries and keys of equal direction: token t fits rows 5 t to 5 t + 4. A second head is noise of the first.
        let (tokens, rows, width) = (4, 20, 8);
        let one = |hot: usize| (0..width).map(move |i| if i % 4 == hot { 8.0 } else { 0.0 });
        let queries: Vec<f32> = (0..tokens).flat_map(one).collect();
        let keys: Vec<f32> = (0..rows + 3).flat_map(|row| one((row / 5).min(3))).collect();
        let head = |column| AlignmentHead { queries: &queries, keys: &keys, width, column, dim: 4 };
        let mut alignment = Alignment::new(tokens, rows);
        [head(0), head(4)].into_iter().for_each(|head| alignment.add(head));
        assert_eq!(alignment.begins(0..tokens), [0, 5, 10, 15]);
    }
}
