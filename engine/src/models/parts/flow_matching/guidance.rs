//! Classifier-free guidance: one slope of two.

/// Guidance by a pair of evaluations, with and without the condition.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Guidance {
    /// Extrapolation beyond the guided slope, away from the unguided one.
    pub strength: f32,
}

impl Guidance {
    /// Combines slopes: the first half of `rows` is guided, the second half unguided.
    pub fn combine(self, rows: &[f32]) -> Vec<f32> {
        let (guided, null) = rows.split_at(rows.len() / 2);
        guided.iter().zip(null).map(|(guided, null)| guided + (guided - null) * self.strength).collect()
    }
}
