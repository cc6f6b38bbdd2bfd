//! Rotary positions of language models, with their scaling.

use super::section::ConfigSection;
use crate::checkpoint::CheckpointError;
use crate::models::parts::rotary::RotaryScaling;

impl ConfigSection<'_> {
    /// Base of the rotary wavelengths and their scaling. `rope_parameters` may have a section for each kind of layers:
    /// then that of `layers`. `positions` are the positions that the model takes.
    pub fn rope(&self, absent: f64, layers: &str, positions: usize) -> Result<(f64, RotaryScaling), CheckpointError> {
        let all = self.optional_section(self.first_of(&["rope_scaling", "rope_parameters"]))?;
        let own = all.optional_section(layers)?;
        let table = if own.is_empty() { &all } else { &own };
        table.value("partial_rotary_factor", 1.0, |factor| factor == 1.0, "1")?;
        let at = if table.get::<f64>("rope_theta")?.is_some() { table } else { self };
        let theta = at.value("rope_theta", absent, |theta| theta.is_finite() && theta > 1.0, "above 1")?;
        let kind = table.first_of(&["rope_type", "type"]);
        let found = table.get::<String>(kind)?.unwrap_or_else(|| "default".to_owned());
        let factor = || table.positive("factor", None);
        let original = || {
            let at = if table.get::<f64>("original_max_position_embeddings")?.is_some() { table } else { self };
            at.positive("original_max_position_embeddings", Some(positions as f32))
        };
        let scaling = match &found[..] {
            "default" | "mrope" => RotaryScaling::None,
            "linear" => RotaryScaling::Linear { factor: factor()? },
            "llama3" => {
                let (low, high) = (table.positive("low_freq_factor", None)?, table.positive("high_freq_factor", None)?);
                table.check("high_freq_factor", high, high > low, "above low_freq_factor")?;
                RotaryScaling::Llama3 { factor: factor()?, low, high, original: original()? }
            }
            "yarn" => {
                for field in ["mscale", "mscale_all_dim"] {
                    table.value(field, 0.0, |scale: f64| scale == 0.0, "absent")?;
                }
                let factor = factor()?;
                RotaryScaling::Yarn {
                    factor,
                    original: original()?,
                    fast: table.positive("beta_fast", Some(32.0))?,
                    slow: table.positive("beta_slow", Some(1.0))?,
                    attention: table.positive("attention_factor", Some(0.1 * factor.max(1.0).ln() + 1.0))?,
                    truncate: table.switch("truncate", true)?,
                }
            }
            "stored" => RotaryScaling::Stored,
            other => return Err(table.refusal(kind, other, "default, linear, llama3 or yarn")),
        };
        Ok((theta, scaling))
    }

    /// Positive number; `absent` without the field.
    fn positive(&self, field: &str, absent: Option<f32>) -> Result<f32, CheckpointError> {
        let allowed = "a number above 0";
        match self.get::<f32>(field)?.or(absent) {
            Some(number) => {
                self.check(field, number, number.is_finite() && number > 0.0, allowed)?;
                Ok(number)
            }
            None => Err(self.refusal(field, "absent", allowed)),
        }
    }
}
