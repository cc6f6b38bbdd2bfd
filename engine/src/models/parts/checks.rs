//! Checks of a configuration's fields: every refusal names the field, its value and what is allowed.

use std::fmt::Display;

use super::config::Rope;
use crate::checkpoint::BadValue;

/// Whether a configuration can be served.
pub type Check = Result<(), BadValue>;

/// A part of config.json, by the path of its fields; empty for the top level.
#[derive(Debug, Clone, Copy)]
pub struct Section(pub &'static str);

impl Section {
    /// Refuses a field whose condition does not hold.
    pub fn check(&self, field: &str, value: impl Display, holds: bool, allowed: &str) -> Check {
        if holds {
            return Ok(());
        }
        let field = if self.0.is_empty() { field.to_owned() } else { format!("{}.{field}", self.0) };
        Err(BadValue { field, value: value.to_string(), allowed: allowed.to_owned() })
    }

    /// At least 1.
    pub fn positive(&self, field: &str, value: usize) -> Check {
        self.check(field, value, value > 0, "at least 1")
    }

    /// Positive and equal to another field.
    pub fn same(&self, field: &str, value: usize, other: &str, wanted: usize) -> Check {
        self.check(
            field,
            value,
            value == wanted && value > 0,
            &format!("positive and equal to {other}, which is {wanted}"),
        )
    }

    /// A positive multiple of another field.
    pub fn divisible(&self, field: &str, value: usize, by: &str, divisor: usize) -> Check {
        let whole = value > 0 && divisor > 0 && value.is_multiple_of(divisor);
        self.check(field, value, whole, &format!("a positive multiple of {by}, which is {divisor}"))
    }

    /// Below the size of a vocabulary.
    pub fn id(&self, field: &str, id: u32, vocabulary: usize) -> Check {
        let known = usize::try_from(id).is_ok_and(|id| id < vocabulary);
        self.check(field, id, known, &format!("below the vocabulary's size, which is {vocabulary}"))
    }

    /// Heads that share keys and values evenly, of a size that can be rotated.
    pub fn attention(&self, heads: usize, key_value_heads: usize, head_dim: usize) -> Check {
        self.positive("num_key_value_heads", key_value_heads)?;
        self.divisible("num_attention_heads", heads, "num_key_value_heads", key_value_heads)?;
        // Rotation pairs the halves of a head.
        self.check("head_dim", head_dim, head_dim > 0 && head_dim.is_multiple_of(2), "even and positive")
    }

    /// Projections without a bias.
    pub fn no_attention_bias(&self, bias: bool) -> Check {
        self.check("attention_bias", bias, !bias, "false: projections with a bias are not supported")
    }

    /// The one activation that is built.
    pub fn silu(&self, activation: &str) -> Check {
        self.check("hidden_act", activation, activation == "silu", "silu")
    }

    /// What is added to a mean square.
    pub fn epsilon(&self, value: f64) -> Check {
        self.check("rms_norm_eps", value, value > 0.0 && value < 1.0, "between 0 and 1")
    }

    /// Rotary positions that are built.
    pub fn rope(&self, rope: &Rope) -> Check {
        self.check("rope_parameters.rope_type", &rope.kind, rope.kind == "default", "default")?;
        self.check("rope_parameters.rope_theta", rope.theta, rope.theta.is_finite() && rope.theta > 1.0, "above 1")?;
        let factor = rope.partial_rotary_factor;
        self.check("rope_parameters.partial_rotary_factor", factor, factor == 1.0, "1")
    }

    /// Factors of upsampling.
    pub fn factors(&self, field: &str, factors: &[usize]) -> Check {
        let shown = format!("{factors:?}");
        self.check(field, shown, factors.iter().all(|factor| (1..=64).contains(factor)), "factors of 1 to 64")
    }
}
