//! `docs/limits.md` against the settings, the sources and the codes of errors.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use repartee::config::Config;
use serde_json::Value;

/// Settings outside of `[limits]` that limit a client, too.
const OTHER_LIMITS: &[&str] = &[
    "recording.keep_s",
    "recording.longest_s",
    "recording.mib",
    "sip.decide_within_s",
    "sip.ring_s",
    "sip.trunk_calls",
    "stalled_after_s",
    "ping_every_s",
    "drain_s",
    "voices.most",
    "webrtc.max_message_bytes",
    "webrtc.connect_within_s",
    "engine.sessions",
    "engine.out_of_band",
    "engine.cache_mib",
    "engine.session_tokens",
    "engine.timeouts.unread_s",
    "engine.timeouts.stage_s",
    "engine.timeouts.speculation_s",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn text(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Rows of the table under a heading, each a list of four cells.
fn rows(heading: &str) -> Vec<[String; 4]> {
    let page = text("docs/limits.md");
    let (_, section) = page.split_once(&format!("\n## {heading}\n")).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |"));
    let cells = rows.skip(1).map(|row| row.split(" | ").map(str::to_owned).collect::<Vec<_>>());
    cells.map(|cells| cells.try_into().unwrap_or_else(|cells| panic!("four cells: {cells:?}"))).collect()
}

/// Words of a cell between two marks, such as codes between backticks.
fn marked(cell: &str, mark: char) -> impl Iterator<Item = &str> {
    cell.split(mark).skip(1).step_by(2)
}

/// Settings that are numbers or switches, by their paths.
fn defaults_of(value: &Value, path: &str, found: &mut BTreeMap<String, String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                defaults_of(value, &path, found);
            }
        }
        Value::Number(_) | Value::Bool(_) => drop(found.insert(path.to_owned(), value.to_string())),
        _ => {}
    }
}

#[test]
fn page_has_every_limit_with_its_default() {
    let mut defaults = BTreeMap::new();
    defaults_of(&serde_json::to_value(Config::default()).unwrap(), "", &mut defaults);
    let rows = rows("Settings");
    for [setting, default, ..] in &rows {
        let path = setting.trim_matches('`');
        assert_eq!(defaults.get(path), Some(default), "{path}");
    }
    let named: BTreeSet<_> = rows.iter().map(|[setting, ..]| setting.trim_matches('`')).collect();
    assert_eq!(named.len(), rows.len(), "a setting twice");
    let limits = defaults.keys().map(String::as_str).filter(|path| path.starts_with("limits."));
    let expected: BTreeSet<_> = limits.chain(OTHER_LIMITS.iter().copied()).collect();
    assert_eq!(named, expected);
}

/// All Rust of a folder as one text.
fn sources(folder: &Path, found: &mut String) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            found.push_str(&std::fs::read_to_string(path).unwrap());
        }
    }
}

#[test]
fn errors_of_the_page_are_the_servers() {
    let kinds = text("gateway/protocol/src/error.rs");
    let mut all = String::new();
    for folder in ["gateway/src", "gateway/realtime/src", "gateway/protocol/src", "gateway/sip/src", "engine/api/src"] {
        sources(&root().join(folder), &mut all);
    }
    // A message may go on in the next line.
    let all = all.split_whitespace().collect::<Vec<_>>().join(" ").replace("\\ ", "");
    let (mut codes, mut messages) = (0, 0);
    let over = rows("Settings").into_iter().map(|[_, _, _, over]| over);
    for cell in over.chain(rows("Fixed bounds").into_iter().map(|[_, _, over, _]| over)) {
        for code in marked(&cell, '`').filter(|code| *code != "Retry-After") {
            assert!(kinds.contains(&format!("=> \"{code}\"")), "{code} is no code of an error");
            codes += 1;
        }
        for message in marked(&cell, '*') {
            // `N` stands for the limit.
            for piece in message.split('N').map(str::trim).filter(|piece| !piece.is_empty()) {
                assert!(all.contains(piece), "no error says: {piece}");
            }
            messages += 1;
        }
    }
    assert!(codes > 20 && messages > 8, "{codes} codes, {messages} messages");
}

/// Value of a constant expression in bytes, numbers or milliseconds: integers, names, `+`, `*`, `<<` and durations.
fn value(expression: &str, source: &str) -> u64 {
    let expression = expression.trim();
    let inner = expression.strip_prefix('(').and_then(|rest| rest.strip_suffix(')'));
    if let Some(inner) = inner.filter(|inner| !inner.contains(['(', ')'])) {
        return value(inner, source);
    }
    if let Some((left, right)) = expression.split_once(" + ") {
        return value(left, source) + value(right, source);
    }
    if let Some((left, right)) = expression.split_once(" << ") {
        return value(left, source) << value(right, source);
    }
    if let Some((left, right)) = expression.split_once(" * ") {
        return value(left, source) * value(right, source);
    }
    if let Some(seconds) = expression.strip_prefix("Duration::from_secs(") {
        return 1_000 * value(seconds.trim_end_matches(')'), source);
    }
    if let Ok(number) = expression.replace('_', "").parse() {
        return number;
    }
    constant(expression, source)
}

/// Value of the constant `name` of a source.
fn constant(name: &str, source: &str) -> u64 {
    let declared = format!("const {name}: ");
    let line = source.lines().find(|line| line.contains(&declared)).unwrap_or_else(|| panic!("no constant {name}"));
    let (_, expression) = line.split_once(" = ").unwrap();
    match expression.split_once("values: ") {
        Some((_, values)) => value(values.split(',').next().unwrap(), source),
        None => value(expression.trim_end_matches(';'), source),
    }
}

/// Value of a cell such as `20 MiB`, `600 s` or `4096`, in bytes, milliseconds or as a number.
fn bound(cell: &str) -> u64 {
    let (number, unit) = cell.split_once(' ').unwrap_or((cell, ""));
    let number: u64 = number.parse().unwrap_or_else(|error| panic!("{cell}: {error}"));
    match unit {
        "" => number,
        "KiB" => number << 10,
        "MiB" => number << 20,
        "s" => 1_000 * number,
        _ => panic!("{unit} is no unit"),
    }
}

#[test]
fn bounds_of_the_page_are_the_sources() {
    for [counted, cell, _, place] in rows("Fixed bounds") {
        let mut named = marked(&place, '`');
        let (name, file) = (named.next().unwrap(), named.next().unwrap());
        let source = text(file);
        // Some constants are seconds as a plain number.
        let scale = if name.ends_with("_S") { 1_000 } else { 1 };
        assert_eq!(constant(name, &source) * scale, bound(&cell), "{counted}");
    }
}
