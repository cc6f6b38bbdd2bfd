//! Checks of a configuration's fields: every refusal names the field, its value and what is allowed.

use std::fmt::Display;

use repartee_engine_api::Sampling;

use super::config::{AudioTowerConfig, Code2WavConfig, CodeInput, CodePredictorConfig, LayersConfig, Rope};
use crate::checkpoint::BadValue;

/// Whether a configuration can be served.
pub type CheckResult = Result<(), BadValue>;

/// A part of config.json, by the path of its fields; empty for the top level.
#[derive(Debug, Clone, Copy)]
pub struct ConfigSection(pub &'static str);

impl ConfigSection {
    /// Refuses a field whose condition does not hold.
    pub fn check(&self, field: &str, value: impl Display, holds: bool, allowed: &str) -> CheckResult {
        if holds {
            return Ok(());
        }
        let field = if self.0.is_empty() { field.to_owned() } else { format!("{}.{field}", self.0) };
        Err(BadValue { field, value: value.to_string(), allowed: allowed.to_owned() })
    }

    /// At least 1.
    pub fn positive(&self, field: &str, value: usize) -> CheckResult {
        self.check(field, value, value > 0, "at least 1")
    }

    /// Positive and equal to another field.
    pub fn equal(&self, field: &str, value: usize, other: &str, wanted: usize) -> CheckResult {
        self.check(
            field,
            value,
            value == wanted && value > 0,
            &format!("positive and equal to {other}, which is {wanted}"),
        )
    }

    /// A positive multiple of another field.
    pub fn divisible(&self, field: &str, value: usize, by: &str, divisor: usize) -> CheckResult {
        let whole = value > 0 && divisor > 0 && value.is_multiple_of(divisor);
        self.check(field, value, whole, &format!("a positive multiple of {by}, which is {divisor}"))
    }

    /// Below the size of a vocabulary.
    pub fn id(&self, field: &str, id: u32, vocabulary: usize) -> CheckResult {
        let known = usize::try_from(id).is_ok_and(|id| id < vocabulary);
        self.check(field, id, known, &format!("below the vocabulary's size, which is {vocabulary}"))
    }

    /// A positive multiple of 2 to the power of the number of another field's entries: each entry halves it.
    pub fn halvable(&self, field: &str, value: usize, by: &str, entries: usize) -> CheckResult {
        let allowed = format!("a positive multiple of 2 to the power of {entries}, the number of {by}");
        let unit = u32::try_from(entries).ok().and_then(|entries| 1_usize.checked_shl(entries));
        let holds = unit.is_some_and(|unit| value > 0 && value.is_multiple_of(unit));
        self.check(field, value, holds, &allowed)
    }

    /// How ids are sampled, by fields whose names begin with `prefix`.
    pub fn sampling(&self, prefix: &str, sampling: &Sampling) -> CheckResult {
        let Sampling { temperature, top_p, repetition_penalty, .. } = *sampling;
        let finite = temperature.is_finite() && temperature >= 0.0;
        self.check(&format!("{prefix}temperature"), temperature, finite, "a number from 0 upwards")?;
        let share = top_p > 0.0 && top_p <= 1.0;
        self.check(&format!("{prefix}top_p"), top_p, share, "above 0, at most 1")?;
        let penalty = repetition_penalty.is_finite() && repetition_penalty > 0.0;
        self.check(&format!("{prefix}repetition_penalty"), repetition_penalty, penalty, "above 0")
    }

    /// Heads that share keys and values evenly, of a size that can be rotated.
    pub fn attention(&self, heads: usize, key_value_heads: usize, head_dim: usize) -> CheckResult {
        self.positive("num_key_value_heads", key_value_heads)?;
        self.divisible("num_attention_heads", heads, "num_key_value_heads", key_value_heads)?;
        // Rotation pairs the halves of a head.
        self.check("head_dim", head_dim, head_dim > 0 && head_dim.is_multiple_of(2), "even and positive")
    }

    /// Projections without a bias.
    pub fn no_attention_bias(&self, bias: bool) -> CheckResult {
        self.check("attention_bias", bias, !bias, "false: projections with a bias are not supported")
    }

    /// The one activation that is built.
    pub fn silu(&self, activation: &str) -> CheckResult {
        self.check("hidden_act", activation, activation == "silu", "silu")
    }

    /// Rotary positions that are built.
    pub fn rope(&self, rope: &Rope) -> CheckResult {
        self.check("rope_parameters.rope_type", &rope.kind, rope.kind == "default", "default")?;
        self.check("rope_parameters.rope_theta", rope.theta, rope.theta.is_finite() && rope.theta > 1.0, "above 1")?;
        let factor = rope.partial_rotary_factor;
        self.check("rope_parameters.partial_rotary_factor", factor, factor == 1.0, "1")
    }

    /// Factors of upsampling.
    pub fn factors(&self, field: &str, factors: &[usize]) -> CheckResult {
        let shown = format!("{factors:?}");
        self.check(field, shown, factors.iter().all(|factor| (1..=64).contains(factor)), "factors of 1 to 64")
    }
}

impl LayersConfig {
    /// Refuses layers that are not built.
    pub fn check(&self, at: &ConfigSection) -> CheckResult {
        at.positive("hidden_size", self.hidden_size)?;
        at.positive("intermediate_size", self.intermediate_size)?;
        at.positive("num_hidden_layers", self.num_hidden_layers)?;
        at.attention(self.num_attention_heads, self.num_key_value_heads, self.head_dim)?;
        at.no_attention_bias(self.attention_bias)?;
        at.silu(&self.hidden_act)?;
        let epsilon = self.rms_norm_eps;
        at.check("rms_norm_eps", epsilon, epsilon > 0.0 && epsilon < 1.0, "between 0 and 1")?;
        at.rope(&self.rope)
    }
}

impl AudioTowerConfig {
    /// Refuses a tower that is not built, before language model layers of `hidden_size`. Windows and positions are the family's.
    pub fn check(&self, at: &ConfigSection, hidden_size: usize) -> CheckResult {
        at.positive("num_mel_bins", self.num_mel_bins)?;
        at.positive("encoder_layers", self.encoder_layers)?;
        at.positive("encoder_ffn_dim", self.encoder_ffn_dim)?;
        at.positive("encoder_attention_heads", self.encoder_attention_heads)?;
        at.divisible("d_model", self.d_model, "encoder_attention_heads", self.encoder_attention_heads)?;
        // Half of a position is sines and half cosines, whose wavelengths are spread over (half - 1) steps.
        at.check("d_model", self.d_model, self.d_model >= 4 && self.d_model.is_multiple_of(2), "even, at least 4")?;
        at.check("activation_function", &self.activation_function, self.activation_function == "gelu", "gelu")?;
        at.equal("output_dim", self.output_dim, "thinker_config.text_config.hidden_size", hidden_size)
    }
}

impl CodePredictorConfig {
    /// Refuses a code predictor that is not built, for the talker's frames of `groups` codes each. The codec's codebooks have
    /// `codebook_size` entries, which the field `as_field` says.
    pub fn check(&self, at: &ConfigSection, groups: usize, codebook_size: usize, as_field: &str) -> CheckResult {
        at.positive("vocab_size", self.vocab_size)?;
        self.layers.check(at)?;
        at.equal("num_code_groups", self.num_code_groups, "talker_config.num_code_groups", groups)?;
        if let Some(window) = self.sliding_window {
            // A frame is the talker's row and all codes but the last: windows that hold it change nothing.
            let allowed = format!("none, or at least the {groups} code groups");
            at.check("sliding_window", window, window >= groups, &allowed)?;
        }
        let allowed = format!("at most {codebook_size}, {as_field}");
        at.check("vocab_size", self.vocab_size, self.vocab_size <= codebook_size, &allowed)
    }
}

impl Code2WavConfig {
    /// Refuses a decoder that is not built, for frames of `groups` codes each, as the field `as_field` says.
    pub fn check(&self, at: &ConfigSection, groups: usize, as_field: &str) -> CheckResult {
        at.positive("codebook_size", self.codebook_size)?;
        at.positive("sliding_window", self.sliding_window)?;
        if let CodeInput::Quantizer { codebook_dim, latent_dim } = self.input {
            at.positive("latent_dim", latent_dim)?;
            let halves = codebook_dim > 0 && codebook_dim.is_multiple_of(2);
            at.check("codebook_dim", codebook_dim, halves, "even and positive")?;
        }
        self.layers.check(at)?;
        at.equal("num_quantizers", self.num_quantizers, as_field, groups)?;
        at.factors("upsampling_ratios", &self.upsampling_ratios)?;
        at.factors("upsample_rates", &self.upsample_rates)?;
        at.check("upsample_rates", "[]", !self.upsample_rates.is_empty(), "at least one factor")?;
        // Every decoder block halves the channels.
        at.halvable("decoder_dim", self.decoder_dim, "upsample_rates", self.upsample_rates.len())
    }
}
