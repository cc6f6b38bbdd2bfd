//! Checks of a configuration's fields. Every error names the field, its value and the allowed values.

use std::fmt::Display;

use repartee_engine_api::Sampling;

use super::config::{AudioTowerConfig, Code2WavConfig, CodeInput, CodePredictorConfig, LayersConfig, Rope};
use crate::checkpoint::BadValue;

/// Result of a check; the error names the field.
pub type CheckResult = Result<(), BadValue>;

/// Section of config.json, as the path of its fields; empty for the top level.
#[derive(Debug, Clone, Copy)]
pub struct ConfigSection(pub &'static str);

impl ConfigSection {
    /// Fails unless `holds`.
    pub fn check(&self, field: &str, value: impl Display, holds: bool, allowed: &str) -> CheckResult {
        if holds {
            return Ok(());
        }
        let field = if self.0.is_empty() { field.to_owned() } else { format!("{}.{field}", self.0) };
        Err(BadValue { field, value: value.to_string(), allowed: allowed.to_owned() })
    }

    /// Requires at least 1.
    pub fn positive(&self, field: &str, value: usize) -> CheckResult {
        self.check(field, value, value > 0, "at least 1")
    }

    /// Requires a positive value equal to another field.
    pub fn equal(&self, field: &str, value: usize, other: &str, wanted: usize) -> CheckResult {
        self.check(
            field,
            value,
            value == wanted && value > 0,
            &format!("positive and equal to {other}, which is {wanted}"),
        )
    }

    /// Requires a positive multiple of another field.
    pub fn divisible(&self, field: &str, value: usize, by: &str, divisor: usize) -> CheckResult {
        let whole = value > 0 && divisor > 0 && value.is_multiple_of(divisor);
        self.check(field, value, whole, &format!("a positive multiple of {by}, which is {divisor}"))
    }

    /// Requires an id below the size of a vocabulary.
    pub fn id(&self, field: &str, id: u32, vocabulary: usize) -> CheckResult {
        let known = usize::try_from(id).is_ok_and(|id| id < vocabulary);
        self.check(field, id, known, &format!("below the vocabulary's size, which is {vocabulary}"))
    }

    /// Requires a positive multiple of 2 to the power of the number of entries in another field: each entry halves the
    /// value.
    pub fn halvable(&self, field: &str, value: usize, by: &str, entries: usize) -> CheckResult {
        let allowed = format!("a positive multiple of 2 to the power of {entries}, the number of {by}");
        let unit = u32::try_from(entries).ok().and_then(|entries| 1_usize.checked_shl(entries));
        let holds = unit.is_some_and(|unit| value > 0 && value.is_multiple_of(unit));
        self.check(field, value, holds, &allowed)
    }

    /// Checks sampling parameters in fields whose names begin with `prefix`.
    pub fn sampling(&self, prefix: &str, sampling: &Sampling) -> CheckResult {
        let Sampling { temperature, top_p, repetition_penalty, .. } = *sampling;
        let finite = temperature.is_finite() && temperature >= 0.0;
        self.check(&format!("{prefix}temperature"), temperature, finite, "a number from 0 upwards")?;
        let share = top_p > 0.0 && top_p <= 1.0;
        self.check(&format!("{prefix}top_p"), top_p, share, "above 0, at most 1")?;
        let penalty = repetition_penalty.is_finite() && repetition_penalty > 0.0;
        self.check(&format!("{prefix}repetition_penalty"), repetition_penalty, penalty, "above 0")
    }

    /// Checks that key and value heads divide the query heads, and that the head size allows rotation.
    pub fn attention(&self, heads: usize, key_value_heads: usize, head_dim: usize) -> CheckResult {
        self.positive("num_key_value_heads", key_value_heads)?;
        self.divisible("num_attention_heads", heads, "num_key_value_heads", key_value_heads)?;
        // Rotation pairs the halves of a head.
        self.check("head_dim", head_dim, head_dim > 0 && head_dim.is_multiple_of(2), "even and positive")
    }

    /// Requires projections without a bias.
    pub fn no_attention_bias(&self, bias: bool) -> CheckResult {
        self.check("attention_bias", bias, !bias, "false: projections with a bias are not supported")
    }

    /// Requires `silu`, the one supported activation.
    pub fn silu(&self, activation: &str) -> CheckResult {
        self.check("hidden_act", activation, activation == "silu", "silu")
    }

    /// Checks rotary positions for supported values.
    pub fn rope(&self, rope: &Rope) -> CheckResult {
        self.check("rope_parameters.rope_type", &rope.kind, rope.kind == "default", "default")?;
        self.check("rope_parameters.rope_theta", rope.theta, rope.theta.is_finite() && rope.theta > 1.0, "above 1")?;
        let factor = rope.partial_rotary_factor;
        self.check("rope_parameters.partial_rotary_factor", factor, factor == 1.0, "1")
    }

    /// Requires upsampling factors of 1 to 64.
    pub fn factors(&self, field: &str, factors: &[usize]) -> CheckResult {
        let shown = format!("{factors:?}");
        self.check(field, shown, factors.iter().all(|factor| (1..=64).contains(factor)), "factors of 1 to 64")
    }
}

impl LayersConfig {
    /// Refuses unsupported layers.
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
    /// Refuses an unsupported tower. Its output must have the language model's `hidden_size`. Each family checks
    /// windows and positions itself.
    pub fn check(&self, at: &ConfigSection, hidden_size: usize) -> CheckResult {
        at.positive("num_mel_bins", self.num_mel_bins)?;
        at.positive("encoder_layers", self.encoder_layers)?;
        at.positive("encoder_ffn_dim", self.encoder_ffn_dim)?;
        at.positive("encoder_attention_heads", self.encoder_attention_heads)?;
        at.divisible("d_model", self.d_model, "encoder_attention_heads", self.encoder_attention_heads)?;
        // Half of a position is sines and half cosines, with wavelengths spread over (half - 1) steps.
        at.check("d_model", self.d_model, self.d_model >= 4 && self.d_model.is_multiple_of(2), "even, at least 4")?;
        at.check("activation_function", &self.activation_function, self.activation_function == "gelu", "gelu")?;
        at.equal("output_dim", self.output_dim, "thinker_config.text_config.hidden_size", hidden_size)
    }
}

impl CodePredictorConfig {
    /// Refuses an unsupported code predictor. `groups` is the talker's number of codes in a frame. The codec's
    /// codebooks have `codebook_size` entries, set by the field `as_field`.
    pub fn check(&self, at: &ConfigSection, groups: usize, codebook_size: usize, as_field: &str) -> CheckResult {
        at.positive("vocab_size", self.vocab_size)?;
        self.layers.check(at)?;
        at.equal("num_code_groups", self.num_code_groups, "talker_config.num_code_groups", groups)?;
        if let Some(window) = self.sliding_window {
            // A frame has the talker's row and all codes but the last: a window that holds them changes nothing.
            let allowed = format!("none, or at least the {groups} code groups");
            at.check("sliding_window", window, window >= groups, &allowed)?;
        }
        let allowed = format!("at most {codebook_size}, {as_field}");
        at.check("vocab_size", self.vocab_size, self.vocab_size <= codebook_size, &allowed)
    }
}

impl Code2WavConfig {
    /// Refuses an unsupported decoder. `groups` is the number of codes in a frame, set by the field `as_field`.
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
