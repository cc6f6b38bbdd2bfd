//! Rows of attention matrices as GGUF's architecture `llama` orders them.
//!
//! Its rotary embedding turns neighbouring rows, so the converter moves row `half * size / 2 + i` of a head of `size`
//! rows to `2 * i + half`, in the matrices of queries and keys and in their biases. Models that turn the two halves of
//! a head, as published code does, need the rows in their first order. Other architectures of GGUF, such as `qwen2` and
//! `gemma3`, keep that order.

use crate::packed::PackedMatrix;

/// Returns rows of `row` bytes in the order of published code. `heads` heads share all rows evenly; otherwise, or with
/// heads of an odd number of rows, the order stays.
pub fn unpermuted(rows: &[u8], row: usize, heads: usize) -> Vec<u8> {
    let count = rows.len().checked_div(row).unwrap_or(0);
    if heads == 0 || !count.is_multiple_of(2 * heads) {
        return rows.to_vec();
    }
    let size = count / heads;
    let mut ordered = Vec::with_capacity(rows.len());
    for head in 0..heads {
        for half in 0..2 {
            for i in 0..size / 2 {
                let from = head * size + 2 * i + half;
                ordered.extend_from_slice(&rows[from * row..][..row]);
            }
        }
    }
    ordered
}

impl PackedMatrix {
    /// Orders the rows of a matrix of queries or keys as published code does; `heads` is the number of heads in it.
    #[must_use]
    pub fn unpermuted(self, heads: usize) -> Self {
        let out = self.shape[0].max(1);
        let ordered = |rows: Vec<u8>| unpermuted(&rows, rows.len() / out, heads);
        Self {
            integers: ordered(self.integers),
            scales: ordered(self.scales),
            minimums: self.minimums.map(ordered),
            super_scales: self.super_scales.map(ordered),
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_each_head_are_restored() {
        // Two heads of six rows of two bytes, permuted as the converter does.
        let first: Vec<u8> = (0..24).collect();
        let mut permuted = vec![0; 24];
        for head in 0..2 {
            for half in 0..2 {
                for i in 0..3 {
                    let (from, to) = (head * 6 + half * 3 + i, head * 6 + 2 * i + half);
                    permuted[2 * to..2 * to + 2].copy_from_slice(&first[2 * from..2 * from + 2]);
                }
            }
        }
        assert_ne!(permuted, first);
        assert_eq!(unpermuted(&permuted, 2, 2), first);
        assert_eq!(unpermuted(&permuted, 2, 5), permuted, "five heads cannot share twelve rows");
    }
}
