//! Plain values of the operations: states, shapes, and sampling parameters.

/// Device memory that operations update in place, addressed by slot or block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StateSpec {
    /// KV cache of one attention layer.
    KeyValue {
        /// Number of blocks in the pool.
        blocks: usize,
        /// Positions in a block.
        block_len: usize,
        /// Key width: kv heads times head width.
        width: usize,
    },
    /// State of a causal convolution: the last `rows` input rows of each slot.
    Tail {
        /// Number of slots.
        slots: usize,
        /// Input rows kept for each slot.
        rows: usize,
        /// Channels of a row.
        columns: usize,
    },
    /// Ids that each slot has produced, for the repetition penalty.
    TokenMask {
        /// Number of slots.
        slots: usize,
        /// Size of the vocabulary.
        vocabulary: usize,
    },
    /// Rows that outlive a step, addressed by index.
    Rows {
        /// Number of rows.
        rows: usize,
        /// Numbers in a row.
        columns: usize,
    },
}

/// Shape of one attention layer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AttentionShape {
    /// Number of query heads.
    pub heads: usize,
    /// Number of key and value heads; `heads` is a multiple.
    pub kv_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// Sliding window: positions that a row attends to, its own included; `None` for all up to its own.
    pub window: Option<usize>,
}

/// Settings of a mixture's router.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RouterShape {
    /// Experts chosen for each row.
    pub top_k: usize,
    /// True if the chosen probabilities are scaled to sum to 1.
    pub normalise: bool,
}

/// Sampling parameters of one row. They apply in the order of the fields, which is the reference implementation's.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SampleParams {
    /// Slot of the penalty's history; the sampled id is added to it.
    pub slot: usize,
    /// Divides positive and multiplies negative logits of ids produced before; 1 disables it.
    pub repetition_penalty: f32,
    /// Softmax temperature; 0 takes the most likely id (the lowest on a tie).
    pub temperature: f32,
    /// Keeps the most likely `top_k` ids; 0 keeps all.
    pub top_k: usize,
    /// Keeps the smallest set that reaches this probability; 1 keeps all.
    pub top_p: f32,
    /// Random number in 0..1 that the draw uses.
    pub uniform: f32,
}

/// Marks "no id": a row with logits that are not finite.
pub const NO_ID: u32 = u32::MAX;

/// Taps of the filter of [`Ops::segment_snake_at`](crate::Ops::segment_snake_at).
pub const FILTER_TAPS: usize = 12;
