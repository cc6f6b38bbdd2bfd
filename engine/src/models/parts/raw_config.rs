//! What the published config.json files have in common: rotary parameters in several places, and defaults.

use serde::Deserialize;

use super::config::Rope;

/// Rotary parameters: in `rope_parameters`, or in the older `rope_scaling`.
#[derive(Default, Deserialize)]
pub struct RopeTable {
    rope_theta: Option<f64>,
    rope_type: Option<String>,
    #[serde(rename = "type")]
    old_type: Option<String>,
    partial_rotary_factor: Option<f64>,
}

/// The reference's order: the older table, the newer one, the field outside of both, the class's default.
pub fn rope(scaling: Option<RopeTable>, parameters: Option<RopeTable>, theta: Option<f64>, default_theta: f64) -> Rope {
    let table = scaling.or(parameters).unwrap_or_default();
    Rope {
        theta: table.rope_theta.or(theta).unwrap_or(default_theta),
        kind: table.rope_type.or(table.old_type).unwrap_or_else(|| "default".to_owned()),
        partial_rotary_factor: table.partial_rotary_factor.unwrap_or(1.0),
    }
}

/// The default of every transformer's `hidden_act`.
pub fn silu() -> String {
    "silu".to_owned()
}

/// Size of one head. Zero heads are reported by validation and must not divide here.
pub fn head_size(hidden: usize, heads: usize) -> usize {
    hidden.checked_div(heads).unwrap_or_default()
}
