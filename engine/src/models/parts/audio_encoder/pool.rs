//! Attention that pools the rows of an encoder into one.

/// Returns the mean of `rows`, each of `width` numbers, weighted by the softmax of their scores.
pub fn attention_pool(rows: &[f32], width: usize, scores: &[f32]) -> Vec<f32> {
    let highest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let shares: Vec<f32> = scores.iter().map(|score| (score - highest).exp()).collect();
    let total: f32 = shares.iter().sum();
    let mut mean = vec![0.0; width];
    for (row, share) in rows.chunks_exact(width).zip(&shares) {
        for (mean, x) in mean.iter_mut().zip(row) {
            *mean += x * share / total;
        }
    }
    mean
}
