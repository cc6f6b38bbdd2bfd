//! Loads the settings from a file, the environment and the command line; a later source overrides an earlier one.
//!
//! The environment variable of `limits.calls_per_key` is `REPARTEE_LIMITS_CALLS_PER_KEY`. Lists are separated by
//! commas.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use repartee_engine::StageConfig;
use repartee_protocol::suggestion::closest;
use serde::Deserialize as _;
use serde_json::Value as Json;
use thiserror::Error;
use toml::{Table, Value};

use super::renamed::{RenamedSetting, insert, move_old, old_paths, present_path};
use super::{Config, ConfigError};
use crate::auth::{KeyError, KeySet};

/// Environment variable of API keys, separated by commas or spaces.
const API_KEYS: &str = "REPARTEE_API_KEYS";
/// Environment variables that are no settings of a file.
const OTHER_VARIABLES: [&str; 6] =
    [API_KEYS, "REPARTEE_CONFIG", "REPARTEE_LOG", "REPARTEE_SIMD", "REPARTEE_MODELS", "REPARTEE_KEY"];

/// Error of [`load`].
#[derive(Debug, Error)]
pub enum LoadError {
    /// A file cannot be read.
    #[error("cannot read {path}: {error}")]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        error: std::io::Error,
    },
    /// A file is not TOML.
    #[error("{path} is not TOML: {error}")]
    NotToml {
        /// Path of the file.
        path: PathBuf,
        /// Position and reason of the parse error.
        error: Box<toml::de::Error>,
    },
    /// A setting is unknown, or its value does not fit.
    #[error("{from}: {path}: {message}")]
    Setting {
        /// Source: path of the file, environment variable or "command line".
        from: String,
        /// Path of the setting.
        path: String,
        /// Reason of the refusal.
        message: String,
    },
    /// Both the old and the present name of a setting are used.
    #[error("{from}: {old} is the old name of {new}, and both are set: remove {old}")]
    BothNames {
        /// Source of both: file, environment or command line.
        from: String,
        /// Old name of the setting.
        old: String,
        /// Present name of the setting.
        new: String,
    },
    /// A key cannot be used.
    #[error("{from}: {error}")]
    Key {
        /// Source: path of the file, or environment variable.
        from: String,
        /// Reason of the refusal; never contains the key.
        error: KeyError,
    },
    /// The settings contradict each other.
    #[error(transparent)]
    Refused(#[from] ConfigError),
}

/// Loaded settings, with the uses of old names.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadedConfig {
    /// Effective settings, not [checked](Config::check) yet.
    pub config: Config,
    /// Uses of old setting names.
    pub old_names: Vec<RenamedSetting>,
}

/// Reads `file`, then the `environment` variable of each setting, then `set`: pairs of a setting's path and its value
/// as text. Does not [check](Config::check) the settings against each other.
pub fn load(
    file: Option<&Path>,
    environment: impl Fn(&str) -> Option<String>,
    set: &[(String, String)],
) -> Result<LoadedConfig, LoadError> {
    let mut table = Table::new();
    let mut old_names = Vec::new();
    if let Some(path) = file {
        let text = read(path)?;
        table = text.parse().map_err(|error| LoadError::NotToml { path: path.to_owned(), error: Box::new(error) })?;
        let from = path.display().to_string();
        let moved = move_old(&mut table).map_err(|(old, new)| both_names(&from, old, new))?;
        old_names.extend(moved.into_iter().map(|(old, new)| old_name(&from, old, new)));
        // The file is checked alone first, so that its errors are not attributed to the environment.
        deserialize(table.clone(), |_| from.clone())?;
    }
    let settings = settings();
    // Source of each setting that overrides the file.
    let mut origins = HashMap::new();
    for (path, kind) in &settings {
        if let Some((variable, text)) = from_environment(path, &environment, &mut old_names)? {
            let value = parse(&text, kind).map_err(|message| LoadError::Setting {
                from: variable.clone(),
                path: path.clone(),
                message,
            })?;
            insert(&mut table, path, value);
            origins.insert(path.clone(), variable);
        }
    }
    let from = "command line";
    // Name that the command line uses for each setting, by path.
    let mut names: HashMap<String, &str> = HashMap::new();
    for (name, text) in set {
        let path = present_path(name);
        let refuse = |message| LoadError::Setting { from: from.to_owned(), path: name.clone(), message };
        let kind = settings.iter().find(|(known, _)| *known == path).map(|(_, kind)| kind.clone());
        let Some(kind) = kind.or_else(|| stage_setting(&path)) else {
            let meant = closest(&path, settings.iter().map(|(known, _)| known.as_str()));
            let meant = meant.map(|meant| format!("did you mean {meant}? ")).unwrap_or_default();
            return Err(refuse(format!("there is no such setting: {meant}repartee.example.toml lists every setting")));
        };
        if let Some(other) = names.insert(path.clone(), name).filter(|other| other != name) {
            let old = if other == path { name } else { other };
            return Err(both_names(from, old, &path));
        }
        if *name != path {
            old_names.push(old_name(from, name, &path));
        }
        insert(&mut table, &path, parse(text, &kind).map_err(refuse)?);
        origins.insert(path, from.to_owned());
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
    Ok(LoadedConfig { config, old_names })
}

/// Returns the variable that sets `path`, and its value. Records the use of an old name.
fn from_environment(
    path: &str,
    environment: impl Fn(&str) -> Option<String>,
    old_names: &mut Vec<RenamedSetting>,
) -> Result<Option<(String, String)>, LoadError> {
    const FROM: &str = "environment";
    let present = variable(path);
    let mut found = environment(&present).map(|text| (present.clone(), text));
    for old in old_paths(path) {
        let old = variable(&old);
        let Some(text) = environment(&old) else { continue };
        if found.is_some() {
            return Err(both_names(FROM, &old, &present));
        }
        old_names.push(old_name(FROM, &old, &present));
        found = Some((old, text));
    }
    Ok(found)
}

fn old_name(from: &str, old: &str, new: &str) -> RenamedSetting {
    RenamedSetting { from: from.to_owned(), old: old.to_owned(), new: new.to_owned() }
}

fn both_names(from: &str, old: &str, new: &str) -> LoadError {
    LoadError::BothNames { from: from.to_owned(), old: old.to_owned(), new: new.to_owned() }
}

fn read(path: &Path) -> Result<String, LoadError> {
    std::fs::read_to_string(path).map_err(|error| LoadError::Read { path: path.to_owned(), error })
}

fn deserialize(table: Table, from: impl Fn(&str) -> String) -> Result<Config, LoadError> {
    let mut track = serde_path_to_error::Track::new();
    Config::deserialize(serde_path_to_error::Deserializer::new(Value::Table(table), &mut track)).map_err(|error| {
        let path = track.path().to_string();
        LoadError::Setting { from: from(&path), path, message: with_suggestion(error.message()) }
    })
}

/// Names the setting that an unknown one may mean, before the list of all.
fn with_suggestion(message: &str) -> String {
    // serde's words: unknown field `a`, expected one of `b`, `c`.
    let mut names = message.split('`').skip(1).step_by(2);
    match (message.starts_with("unknown field"), names.next()) {
        (true, Some(name)) => match closest(name, names) {
            Some(meant) => format!("there is no `{name}`: did you mean `{meant}`?"),
            None => message.to_owned(),
        },
        _ => message.to_owned(),
    }
}

/// Returns a warning for each of these environment variables that begins as a setting's and is none.
pub fn unknown_variables(names: impl IntoIterator<Item = String>) -> Vec<String> {
    let paths: Vec<String> = settings().into_iter().map(|(path, _)| path).collect();
    let mut known: Vec<String> = paths.iter().map(|path| variable(path)).collect();
    known.extend(OTHER_VARIABLES.map(str::to_owned));
    let old: Vec<String> = paths.iter().flat_map(|path| old_paths(path)).map(|path| variable(&path)).collect();
    let unknown = names.into_iter().filter(|name| {
        // The tests' and benchmarks' Pythons.
        name.starts_with("REPARTEE_") && !name.ends_with("_PYTHON") && !known.contains(name) && !old.contains(name)
    });
    let mut warnings: Vec<String> = unknown
        .map(|name| match closest(&name, known.iter().map(String::as_str)) {
            Some(meant) => format!("environment: {name} is no setting: did you mean {meant}?"),
            None => format!("environment: {name} is no setting: repartee.example.toml lists every setting"),
        })
        .collect();
    warnings.sort();
    warnings
}

/// Lists every setting: its path, and its default or else a value of its kind.
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
    // Set, because an unset number would not show its kind.
    let mut config = Config::default();
    config.engine.threads = Some(0);
    // Plain settings always serialize to JSON.
    collect("", serde_json::to_value(config).unwrap_or_default(), &mut found);
    found
}

/// Kind of a stage's setting. Only the model knows its stages, so the defaults hold none.
fn stage_setting(path: &str) -> Option<Json> {
    let (_, field) = path.strip_prefix("engine.stages.")?.split_once('.')?;
    serde_json::to_value(StageConfig::default()).ok()?.get(field).map(|_| Json::from(0))
}

fn variable(path: &str) -> String {
    format!("REPARTEE_{}", path.replace('.', "_").to_uppercase())
}

/// Parses `text` as a value of the same kind as the setting's default. Settings without a default are strings.
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
