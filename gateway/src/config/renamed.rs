//! Renamed settings. An old name still works; its use is reported.

use std::fmt;

use repartee_engine::RENAMED;
use toml::{Table, Value};

/// Use of a setting's old name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RenamedSetting {
    /// Source of the setting: file, environment or command line.
    pub from: String,
    /// Old name, which was used.
    pub old: String,
    /// Present name of the setting.
    pub new: String,
}

impl fmt::Display for RenamedSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} is now {}; the old name still works", self.from, self.old, self.new)
    }
}

/// Returns the present path of a setting.
pub(super) fn present_path(path: &str) -> String {
    RENAMED.iter().fold(path.to_owned(), |path, (old, new)| with_prefix(&path, old, new).unwrap_or(path))
}

/// Returns the old paths of a setting.
pub(super) fn old_paths(path: &str) -> Vec<String> {
    let mut paths = vec![path.to_owned()];
    for (old, new) in RENAMED.iter().rev() {
        let older: Vec<_> = paths.iter().filter_map(|path| with_prefix(path, new, old)).collect();
        paths.extend(older);
    }
    paths.split_off(1)
}

/// Moves values from old paths of a file's table to the present ones. Returns the pairs of moved paths, or the pair of
/// which both paths have a value.
pub(super) fn move_old(table: &mut Table) -> Result<Vec<Pair>, Pair> {
    let mut moved = Vec::new();
    for &(old, new) in RENAMED {
        if get(table, old).is_none() {
            continue;
        }
        if get(table, new).is_some() {
            return Err((old, new));
        }
        if let Some(value) = remove(table, old) {
            insert(table, new, value);
            moved.push((old, new));
        }
    }
    Ok(moved)
}

/// Old and present path of one setting.
type Pair = (&'static str, &'static str);

/// Inserts `value` at `path` and creates the tables above it. Does nothing if another kind of value is in the place of
/// a table.
pub(super) fn insert(table: &mut Table, path: &str, value: Value) {
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

fn get<'a>(table: &'a Table, path: &str) -> Option<&'a Value> {
    match path.split_once('.') {
        None => table.get(path),
        Some((name, rest)) => get(table.get(name)?.as_table()?, rest),
    }
}

fn remove(table: &mut Table, path: &str) -> Option<Value> {
    match path.split_once('.') {
        None => table.remove(path),
        Some((name, rest)) => remove(table.get_mut(name)?.as_table_mut()?, rest),
    }
}

/// Replaces the prefix `from` of `path` by `to`; `None` if `path` has another prefix.
fn with_prefix(path: &str, from: &str, to: &str) -> Option<String> {
    let rest = path.strip_prefix(from)?;
    (rest.is_empty() || rest.starts_with('.')).then(|| format!("{to}{rest}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_paths_lead_to_the_present_one() {
        for (old, new) in [
            ("engine.beside", "engine.out_of_band"),
            ("engine.waits.stage_s", "engine.timeouts.stage_s"),
            ("engine.waits.decision_s", "engine.timeouts.speculation_s"),
            ("engine.timeouts.decision_s", "engine.timeouts.speculation_s"),
            ("engine.waits", "engine.timeouts"),
        ] {
            assert_eq!(present_path(old), new);
            assert!(old_paths(new).iter().any(|path| path == old), "{old} in {:?}", old_paths(new));
        }
        for path in ["engine.sessions", "engine.besides", "limits.calls_per_key"] {
            assert_eq!((present_path(path).as_str(), old_paths(path)), (path, Vec::new()));
        }
    }

    #[test]
    fn old_paths_hold_no_duplicates() {
        let mut paths = old_paths("engine.timeouts.speculation_s");
        paths.sort();
        let all = ["engine.timeouts.decision_s", "engine.waits.decision_s", "engine.waits.speculation_s"];
        assert_eq!(paths, all);
    }
}
