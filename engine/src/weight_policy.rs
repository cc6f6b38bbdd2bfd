//! Weight formats (`engine.weights`) and formats of the KV cache (`engine.kv_cache`).
//!
//! | setting | matrices | matrices of experts | tables of embeddings | everything else |
//! |---|---|---|---|---|
//! | `bf16` | as in the checkpoint | as in the checkpoint | as in the checkpoint | as in the checkpoint, or wider |
//! | `int8` | int8 | int8 | int8, a scale for each entry | likewise |
//! | `int4` | int4 | int4 | likewise | likewise |
//! | `mixed` | int8 | int4 | likewise | likewise |
//!
//! Convolutions of [`segment_convolutions`](WeightPolicy::segment_convolutions) are int8 too, with every setting but `bf16`.
//!
//! Matrices are those of attention, feed-forward blocks, projections and heads, in all stages. A table that is the
//! head's matrix too is stored once, as that matrix, except with `int4`. Everything else: norms, biases and scales,
//! convolutions, and the routers that choose experts and weigh shared ones. An error in a router would change which
//! experts a row goes through. [`WeightFormat`] defines the formats.

use repartee_kernels::cpu::KvFormat;
use repartee_kernels::{WeightFormat, WeightLayout};
use serde::{Deserialize, Serialize};

/// Storage format of matrices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WeightPolicy {
    /// As in the checkpoint; published ones have bfloat16.
    #[default]
    Bf16,
    /// Matrices and embedding tables as eight-bit integers.
    Int8,
    /// Four-bit integers; embedding tables as eight-bit integers.
    Int4,
    /// Experts as four-bit integers, other matrices as eight-bit integers.
    Mixed,
}

impl WeightPolicy {
    /// Every policy, in the order of the variants.
    pub const ALL: [Self; 4] = [Self::Bf16, Self::Int8, Self::Int4, Self::Mixed];

    /// Name of the policy, as in `engine.weights`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bf16 => "bf16",
            Self::Int8 => "int8",
            Self::Int4 => "int4",
            Self::Mixed => "mixed",
        }
    }

    /// Storage format of a weight of this layout. Routers stay as they are.
    pub fn format(self, layout: WeightLayout) -> WeightFormat {
        match (layout, self) {
            (WeightLayout::Linear | WeightLayout::Experts { .. }, Self::Int8) | (WeightLayout::Linear, Self::Mixed) => {
                WeightFormat::Int8
            }
            (WeightLayout::Table, Self::Int8 | Self::Int4 | Self::Mixed) => WeightFormat::Int8,
            (WeightLayout::Linear | WeightLayout::Experts { .. }, Self::Int4)
            | (WeightLayout::Experts { .. }, Self::Mixed) => WeightFormat::Int4,
            _ => WeightFormat::Float,
        }
    }

    /// Storage format of the centred convolutions of a vocoder whose time is theirs. Their rows are quantised as those of
    /// matrices are.
    pub fn segment_convolutions(self) -> WeightFormat {
        if self == Self::Bf16 { WeightFormat::Float } else { WeightFormat::Int8 }
    }
}

/// Storage format of keys and values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KvCacheFormat {
    /// Single precision, four bytes a value.
    #[default]
    F32,
    /// bfloat16, rounded to the nearest: half the memory.
    Bf16,
}

impl From<KvCacheFormat> for KvFormat {
    fn from(format: KvCacheFormat) -> Self {
        match format {
            KvCacheFormat::F32 => Self::F32,
            KvCacheFormat::Bf16 => Self::Bf16,
        }
    }
}
