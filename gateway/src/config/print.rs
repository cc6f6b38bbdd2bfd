//! Prints the effective settings as TOML, for `repartee check`. Secrets are shown as set or unset.

use std::fmt::{Display, Formatter, Result};

use serde_json::{Map, Value};

use super::settings::Config;

/// Writes every setting as TOML, and unset ones as comments.
impl Display for Config {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let Ok(Value::Object(fields)) = serde_json::to_value(self) else { return Err(std::fmt::Error) };
        table("", &fields, f)?;
        let keys = self.api_keys.len();
        writeln!(f, "\n# API keys: {}", if keys == 0 { "unset".to_owned() } else { format!("{keys} set") })
    }
}

fn table(path: &str, fields: &Map<String, Value>, f: &mut Formatter<'_>) -> Result {
    for (name, value) in fields {
        match value {
            Value::Object(_) => {}
            Value::Null => writeln!(f, "# {name} is unset")?,
            // JSON and TOML write these kinds of values alike.
            value => writeln!(f, "{name} = {value}")?,
        }
    }
    for (name, value) in fields {
        if let Value::Object(fields) = value {
            let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            writeln!(f, "\n[{path}]")?;
            table(&path, fields, f)?;
        }
    }
    Ok(())
}
