//! Fields as clients write them: integers with a zero fraction, objects whose `type` names their form. Errors carry the
//! whole path of the field.

use serde::de::{DeserializeOwned, Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::error::FieldPath;

/// Deserializes an integer; `500.0` is 500.
pub fn integer<'de, D: Deserializer<'de>, T: TryFrom<i128>>(deserializer: D) -> Result<T, D::Error> {
    deserializer.deserialize_any(IntegerVisitor).and_then(fitted)
}

/// Deserializes an integer or `null`; `500.0` is 500.
pub fn optional_integer<'de, D: Deserializer<'de>, T: TryFrom<i128>>(deserializer: D) -> Result<Option<T>, D::Error> {
    Option::<WholeNumber>::deserialize(deserializer)?.map(|WholeNumber(number)| fitted(number)).transpose()
}

fn fitted<T: TryFrom<i128>, E: Error>(number: i128) -> Result<T, E> {
    T::try_from(number).map_err(|_| E::custom(format!("the integer {number} is out of range")))
}

struct WholeNumber(i128);

impl<'de> Deserialize<'de> for WholeNumber {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(IntegerVisitor).map(Self)
    }
}

struct IntegerVisitor;

impl Visitor<'_> for IntegerVisitor {
    type Value = i128;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an integer")
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<i128, E> {
        Ok(number.into())
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<i128, E> {
        Ok(number.into())
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<i128, E> {
        // `as` saturates, and no field takes so large a number.
        if number.fract() == 0.0 { Ok(number as i128) } else { Err(E::invalid_value(Unexpected::Float(number), &self)) }
    }
}

/// Deserializes a part of a message; the error carries the path within it.
pub fn within<T: DeserializeOwned, E: Error>(part: Value) -> Result<T, E> {
    serde_path_to_error::deserialize(part).map_err(|error| E::custom(FieldPath::of(&error).marked(error.inner())))
}

/// Returns the one of `names` that the field `field` of `object` has.
///
/// # Errors
///
/// The value is no object, or the field is missing, no string or another name.
pub fn name_of<E: Error>(
    object: &Value,
    field: &'static str,
    names: &'static [&'static str],
) -> Result<&'static str, E> {
    let wrong = |error: &dyn std::fmt::Display| E::custom(FieldPath::new(field).marked(error));
    let Some(fields) = object.as_object() else { return Err(E::custom("an object is expected")) };
    match fields.get(field) {
        None | Some(Value::Null) => Err(E::missing_field(field)),
        Some(Value::String(name)) => names.iter().find(|known| **known == name.as_str()).copied().ok_or_else(|| {
            let expected: Vec<_> = names.iter().map(|known| format!("`{known}`")).collect();
            wrong(&format!("unknown value `{}`, expected {}", name.escape_debug(), expected.join(", ")))
        }),
        Some(_) => Err(wrong(&"a string is expected")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Default, PartialEq, Deserialize)]
    #[serde(default)]
    struct Numbers {
        #[serde(deserialize_with = "integer")]
        whole: u32,
        #[serde(deserialize_with = "optional_integer")]
        maybe: Option<i64>,
    }

    #[test]
    fn integers_may_have_a_zero_fraction() {
        for (text, whole, maybe) in [
            (r#"{"whole": 500.0, "maybe": -2.0}"#, 500, Some(-2)),
            (r#"{"whole": 5e2, "maybe": null}"#, 500, None),
            (r#"{"whole": 500}"#, 500, None),
        ] {
            assert_eq!(serde_json::from_str::<Numbers>(text).unwrap(), Numbers { whole, maybe }, "{text}");
        }
        for text in [r#"{"whole": 0.5}"#, r#"{"whole": -1}"#, r#"{"whole": "1"}"#, r#"{"whole": 1e300}"#] {
            assert!(serde_json::from_str::<Numbers>(text).is_err(), "{text}");
        }
    }
}
