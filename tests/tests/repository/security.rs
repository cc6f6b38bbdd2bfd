//! `SECURITY.md`: each promise names tests, and each named test exists.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use repartee_tests::tools::root;

/// Folders with tests of Rust.
const FOLDERS: [&str; 4] = ["engine", "gateway", "tests/tests", "tests/kit"];
/// Files with tests in Python.
const PYTHON: &str = "tests/scripts";

/// Names of the tests under a folder: functions after an attribute `test`, or in a property test.
fn tests_of(folder: &Path, found: &mut BTreeSet<String>) -> Result<()> {
    for entry in std::fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            tests_of(&path, found)?;
            continue;
        }
        let ending = path.extension().and_then(|ending| ending.to_str());
        let Some(ending) = ending.filter(|ending| ["rs", "py"].contains(ending)) else { continue };
        let text = std::fs::read_to_string(&path)?;
        let mut is_test = ending == "py";
        for line in text.lines().map(str::trim) {
            is_test |= line.starts_with("#[test]") || line.starts_with("#[tokio::test");
            let head = line.trim_start_matches("async ").trim_start_matches("fn ").trim_start_matches("def ");
            let is_function = head != line;
            if is_function && is_test {
                let name = head.split('(').next().unwrap_or_default();
                found.insert(name.to_owned());
                is_test = ending == "py";
            }
        }
    }
    Ok(())
}

/// Promises of the page with the names behind them: items of a list, up to the next item.
fn promises(page: &str) -> Result<Vec<(String, Vec<String>)>> {
    let (_, section) = page.split_once("\n## Promises\n").context("the promises")?;
    let section = section.split("\n## ").next().unwrap_or_default();
    let mut items = Vec::new();
    for item in section.split("\n- ").skip(1) {
        let item = item.split("\n\n").next().unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ");
        let (promise, names) = item.rsplit_once(" Tests: ").with_context(|| format!("no tests: {item}"))?;
        let names = names.split('`').skip(1).step_by(2).map(str::to_owned).collect();
        items.push((promise.to_owned(), names));
    }
    Ok(items)
}

#[test]
fn each_promise_names_existing_tests() -> Result<()> {
    let page = std::fs::read_to_string(root().join("SECURITY.md"))?;
    let mut tests = BTreeSet::new();
    for folder in FOLDERS.iter().chain([&PYTHON]) {
        tests_of(&root().join(folder), &mut tests)?;
    }
    ensure!(tests.len() > 1_000, "{} tests are found", tests.len());
    let promises = promises(&page)?;
    ensure!(promises.len() > 20, "{} promises", promises.len());
    for (promise, names) in promises {
        ensure!(!names.is_empty(), "no test for: {promise}");
        for name in names {
            ensure!(tests.contains(&name), "{name} is no test, for: {promise}");
        }
    }
    Ok(())
}

#[test]
fn promises_without_tests_are_found() {
    let page = |item: &str| format!("# Security\n\n## Promises\n\n### Somebody\n\n{item}\n\n## Limits\n\n- No test.\n");
    let found = promises(&page("- One thing\n  holds. Tests: `a`,\n  `b`.\n- Another. Tests: `c`.")).unwrap();
    let expected = [("One thing holds.", vec!["a", "b"]), ("Another.", vec!["c"])];
    let expected =
        expected.map(|(promise, names)| (promise.to_owned(), names.into_iter().map(str::to_owned).collect()));
    assert_eq!(found, expected);
    assert!(promises(&page("- A thing holds.")).is_err());
}
