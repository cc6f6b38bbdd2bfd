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
    /// Sliding window: positions up to its own that a row attends to, its own included; `None` for all.
    pub window: Option<usize>,
    /// Positions of a chunk: a row also attends to those after it up to the end of its chunk, as far as its step has them. So the rows of a
    /// chunk come in one step. `None` for causal attention.
    pub chunk: Option<usize>,
}

/// Shape of attention within segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentShape {
    /// Number of heads.
    pub heads: usize,
    /// Rows before a row that it attends to; `None` for all.
    pub left: Option<usize>,
    /// Rows after a row that it attends to; `None` for all, 0 for causal attention.
    pub right: Option<usize>,
}

impl SegmentShape {
    /// Returns attention of each row to its whole segment.
    pub fn whole(heads: usize) -> Self {
        Self { heads, left: None, right: None }
    }
}

/// Function of one number. Where the exponential is taken, it is 0 below -87 and capped above 88.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Activation {
    /// Sigmoid linear unit, `x sigmoid(x)`.
    Silu,
    /// Gaussian error linear unit in the exact (erf) form.
    Gelu,
    /// Gaussian error linear unit, approximated with a hyperbolic tangent.
    GeluTanh,
    /// Positive part: 0 for negative numbers.
    Relu,
    /// Negative numbers times `slope`.
    LeakyRelu {
        /// Factor of negative numbers.
        slope: f32,
    },
    /// Exponential linear unit: `eˣ - 1` for negative numbers.
    Elu,
    /// `x tanh(ln(1 + eˣ))`.
    Mish,
    /// Hyperbolic tangent, -1 to 1.
    Tanh,
    /// Exponential: 0 below -87 and capped above 88.
    Exp,
    /// Magnitude: negative numbers change their sign.
    Abs,
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

/// Added to the logit of an id that may not follow: lower than any logit, and finite, as a logit has to be.
pub const HELD_PENALTY: f32 = -1e30;
/// Bits of a word of a bit set.
pub(crate) const BITS: usize = u32::BITS as usize;

/// Number of words of a bit set of so many columns.
pub fn held_words(columns: usize) -> usize {
    columns.div_ceil(BITS)
}

/// Taps of the filter of [`Ops::segment_snake_at`](crate::Ops::segment_snake_at).
pub const FILTER_TAPS: usize = 12;

/// Returns inverse frequencies of a rotary embedding with wavelengths of base `theta`, one for each pair of a head's numbers.
pub fn rotary_frequencies(head_dim: usize, theta: f32) -> Vec<f32> {
    // As in the reference: in single precision.
    (0..head_dim / 2).map(|i| 1.0 / theta.powf((2 * i) as f32 / head_dim as f32)).collect()
}

/// Smallest magnitude's denominator of a snake, as in the reference implementations.
const SNAKE_EPSILON: f32 = 1e-9;

/// Returns frequencies and magnitudes of a snake, `x + sin²(x α) / (β + 1e-9)`, of its parameters: their logarithms if `logarithmic`, or the
/// numbers themselves, which may be negative.
pub fn snake_vectors(alpha: &[f32], beta: &[f32], logarithmic: bool) -> (Vec<f32>, Vec<f32>) {
    let plain = |numbers: &[f32]| -> Vec<f32> {
        numbers.iter().map(|&number| if logarithmic { number.exp() } else { number }).collect()
    };
    (plain(alpha), plain(beta).into_iter().map(|beta| 1.0 / (beta + SNAKE_EPSILON)).collect())
}
