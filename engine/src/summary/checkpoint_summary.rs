//! Parts of a summary.

use std::collections::BTreeMap;

/// Tensors of one number format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorTotal {
    /// Name of the format.
    pub format: String,
    /// Number of tensors.
    pub count: usize,
    /// Bytes of all of them in the file.
    pub bytes: u64,
}

/// Summary of a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckpointSummary {
    /// Published form, and the number of weight files.
    pub form: String,
    /// Architecture and name, as the files say; `None` if they do not.
    pub architecture: Option<String>,
    /// Sizes of each stack of layers.
    pub stacks: Vec<String>,
    /// Tensors by number format, most bytes first.
    pub tensors: Vec<TensorTotal>,
    /// Tokenizer; `None` if there is none.
    pub tokenizer: Option<String>,
    /// Place of the template of conversations; `None` if there is none.
    pub template: Option<String>,
    /// Estimated bytes of all weights in memory, at the default `engine.weights`.
    pub memory: u64,
    /// Family that serves the checkpoint, or the reason why none does.
    pub served: Result<String, String>,
}

/// Adds tensors up by format.
pub(super) fn totals(tensors: impl IntoIterator<Item = (String, u64)>) -> Vec<TensorTotal> {
    let mut totals: BTreeMap<String, (usize, u64)> = BTreeMap::new();
    for (format, bytes) in tensors {
        let total = totals.entry(format).or_default();
        *total = (total.0 + 1, total.1 + bytes);
    }
    let totals = totals.into_iter().map(|(format, (count, bytes))| TensorTotal { format, count, bytes });
    let mut totals: Vec<_> = totals.collect();
    totals.sort_by_key(|total| std::cmp::Reverse(total.bytes));
    totals
}
