//! Loads the settings from a file, the environment and the command line; the later source wins.
//!
//! A setting `limits.calls_per_key` is `REPARTEE_LIMITS_CALLS_PER_KEY` in the environment. Lists are separated by commas.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use repartee_engine::StageConfig;
use serde::Deserialize as _;
use serde_json::Value as Json;
use thiserror::Error;
use toml::{Table, Value};

use super::{Config, ConfigError};
use crate::auth::{KeyError, KeySet};

/// Keys from the environment, separated by commas or white space.
const API_KEYS: &str = "REPARTEE_API_KEYS";

/// Why the settings cannot be loaded.
#[derive(Debug, Error)]
pub enum LoadError {
    /// A file that cannot be read.
    #[error("cannot read {path}: {error}")]
    Read {
        /// Which.
        path: PathBuf,
        /// Why not.
        error: std::io::Error,
    },
    /// A file that is not TOML.
    #[error("{path} is not TOML: {error}")]
    NotToml {
        /// Which.
        path: PathBuf,
        /// Where and why not.
        error: Box<toml::de::Error>,
    },
    /// A setting that is not known, or a value that does not fit.
    #[error("{from}: {path}: {message}")]
    Setting {
        /// File, variable or argument.
        from: String,
        /// Which setting.
        path: String,
        /// What is wrong.
        message: String,
    },
    /// A key that cannot be used.
    #[error("{from}: {error}")]
    Key {
        /// File or variable.
        from: String,
        /// What is wrong; never the key.
        error: KeyError,
    },
    /// Settings that contradict each other.
    #[error(transparent)]
    Refused(#[from] ConfigError),
}

/// Reads `file`, then the `environment` variable of each setting, then `set`: pairs of a setting's path and its value as text.
/// Does not [check](Config::check) what the settings mean together.
pub fn load(
    file: Option<&Path>,
    environment: impl Fn(&str) -> Option<String>,
    set: &[(String, String)],
) -> Result<Config, LoadError> {
    let mut table = Table::new();
    if let Some(path) = file {
        let text = read(path)?;
        table = text.parse().map_err(|error| LoadError::NotToml { path: path.to_owned(), error: Box::new(error) })?;
        // Checked by itself first, so that its errors are not blamed on the environment.
        deserialize(table.clone(), |_| path.display().to_string())?;
    }
    let settings = settings();
    // The source of each setting that overrides the file.
    let mut origins = HashMap::new();
    for (path, kind) in &settings {
        let variable = variable(path);
        if let Some(text) = environment(&variable) {
            let value = parse(&text, kind).map_err(|message| LoadError::Setting {
                from: variable.clone(),
                path: path.clone(),
                message,
            })?;
            insert(&mut table, path, value);
            origins.insert(path.clone(), variable);
        }
    }
    for (path, text) in set {
        let from = "command line".to_owned();
        let refuse = |message| LoadError::Setting { from: from.clone(), path: path.clone(), message };
        let kind = settings.iter().find(|(known, _)| known == path).map(|(_, kind)| kind.clone());
        let Some(kind) = kind.or_else(|| stage_setting(path)) else {
            return Err(refuse("there is no such setting: repartee.example.toml lists all".into()));
        };
        insert(&mut table, path, parse(text, &kind).map_err(refuse)?);
        origins.insert(path.clone(), from);
    }
    let mut config = deserialize(table, |path| origins.get(path).cloned().unwrap_or_else(|| "settings".into()))?;
    if let Some(path) = &config.keys.file {
        let from = path.display().to_string();
        config.api_keys = KeySet::parse(&read(path)?).map_err(|error| LoadError::Key { from, error })?;
    }
    if let Some(keys) = environment(API_KEYS) {
        let lines = keys.replace([',', ' '], "\n");
        let keys = KeySet::parse(&lines).map_err(|error| LoadError::Key { from: API_KEYS.into(), error })?;
        config.api_keys.extend(keys);
    }
    Ok(config)
}

fn read(path: &Path) -> Result<String, LoadError> {
    std::fs::read_to_string(path).map_err(|error| LoadError::Read { path: path.to_owned(), error })
}

fn deserialize(table: Table, from: impl Fn(&str) -> String) -> Result<Config, LoadError> {
    let mut track = serde_path_to_error::Track::new();
    Config::deserialize(serde_path_to_error::Deserializer::new(Value::Table(table), &mut track)).map_err(|error| {
        let path = track.path().to_string();
        LoadError::Setting { from: from(&path), path, message: error.message().to_owned() }
    })
}

/// Every setting's path and its default.
pub(super) fn settings() -> Vec<(String, Json)> {
    fn collect(path: &str, value: Json, found: &mut Vec<(String, Json)>) {
        match value {
            Json::Object(fields) => {
                for (name, value) in fields {
                    let path = if path.is_empty() { name } else { format!("{path}.{name}") };
                    collect(&path, value, found);
                }
            }
            value => found.push((path.to_owned(), value)),
        }
    }
    let mut found = Vec::new();
    // Writing plain settings as JSON cannot fail.
    collect("", serde_json::to_value(Config::default()).unwrap_or_default(), &mut found);
    found
}

/// The kind of a stage's setting. The model has the list of stages, so none is among the defaults.
fn stage_setting(path: &str) -> Option<Json> {
    let (_, field) = path.strip_prefix("engine.stages.")?.split_once('.')?;
    serde_json::to_value(StageConfig::default()).ok()?.get(field).map(|_| Json::from(0))
}

fn variable(path: &str) -> String {
    format!("REPARTEE_{}", path.replace('.', "_").to_uppercase())
}

/// Parses `text` as a value of the same kind as the setting's default. Settings that are unset by default are strings.
fn parse(text: &str, kind: &Json) -> Result<Value, String> {
    match kind {
        Json::Bool(_) => text.parse().map(Value::Boolean).map_err(|_| format!("`{text}` is neither true nor false")),
        Json::Number(_) => match text.parse() {
            Ok(number) => Ok(Value::Integer(number)),
            Err(_) => text.parse().map(Value::Float).map_err(|_| format!("`{text}` is not a number")),
        },
        Json::Array(_) => {
            let entries = text.split(',').map(str::trim).filter(|entry| !entry.is_empty());
            Ok(Value::Array(entries.map(|entry| Value::String(entry.to_owned())).collect()))
        }
        _ => Ok(Value::String(text.to_owned())),
    }
}

/// Inserts `value` at `path`.
fn insert(table: &mut Table, path: &str, value: Value) {
    match path.split_once('.') {
        None => {
            table.insert(path.to_owned(), value);
        }
        Some((name, rest)) => {
            if let Value::Table(inner) = table.entry(name.to_owned()).or_insert_with(|| Value::Table(Table::new())) {
                insert(inner, rest, value);
            }
        }
    }
}
