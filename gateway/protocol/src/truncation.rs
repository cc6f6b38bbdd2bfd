//! `truncation` of a session: a conversation that no longer fits the model's context.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::fields::{name_of, optional_integer, within};
use super::literal::literal;

literal!(
    /// The literal `auto`.
    Auto = "auto"
);

literal!(
    /// The literal `disabled`.
    Disabled = "disabled"
);

/// Policy for a conversation that no longer fits the context.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Truncation {
    /// The oldest items are evicted, as the server chooses.
    Auto(Auto),
    /// Nothing is evicted: a response whose input is too long fails.
    Disabled(Disabled),
    /// The oldest items are evicted until a share of the tokens is left.
    Retention(Retention),
}

impl Default for Truncation {
    fn default() -> Self {
        Self::Auto(Auto::Value)
    }
}

impl<'de> Deserialize<'de> for Truncation {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::String(name) if name == "auto" => Ok(Self::default()),
            Value::String(name) if name == "disabled" => Ok(Self::Disabled(Disabled::Value)),
            object @ Value::Object(_) => {
                name_of::<D::Error>(&object, "type", &["retention_ratio"])?;
                within(object).map(Self::Retention)
            }
            _ => Err(Error::custom("`auto`, `disabled` or an object of the type `retention_ratio` is expected")),
        }
    }
}

literal!(
    /// The `type` of [`Retention`].
    RetentionKind = "retention_ratio"
);

/// Eviction down to a share of the tokens.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Retention {
    /// Type of the policy.
    #[serde(rename = "type")]
    pub kind: RetentionKind,
    /// Share of the tokens after the instructions that stay, 0 to 1.
    pub retention_ratio: f64,
    /// Upper bounds below the model's context.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_limits: Option<TokenLimits>,
}

/// Upper bounds of a conversation's tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TokenLimits {
    /// Of the tokens after instructions and tools; `None` for what the model's context holds.
    #[serde(deserialize_with = "optional_integer", skip_serializing_if = "Option::is_none")]
    pub post_instructions: Option<u32>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn truncation_is_as_published() {
        for wire in [
            json!("auto"),
            json!("disabled"),
            json!({"type": "retention_ratio", "retention_ratio": 0.8}),
            json!({"type": "retention_ratio", "retention_ratio": 0.0, "token_limits": {"post_instructions": 8_000}}),
        ] {
            let truncation: Truncation = serde_json::from_value(wire.clone()).unwrap();
            assert_eq!(serde_json::to_value(truncation).unwrap(), wire);
        }
        for wire in [
            json!("some"),
            json!(1),
            json!({"retention_ratio": 0.8}),
            json!({"type": "retention_ratio"}),
            json!({"type": "retention_ratio", "retention_ratio": "most"}),
            json!({"type": "retention_ratio", "retention_ratio": 1, "token_limits": {"post_instructions": -1}}),
        ] {
            assert!(serde_json::from_value::<Truncation>(wire.clone()).is_err(), "{wire}");
        }
    }
}
