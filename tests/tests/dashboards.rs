//! The Grafana dashboard and the alert rules ask for metrics that exist. `docs/metrics.md` lists them; the gateway's own test holds that list
//! against what it shows.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use repartee_tests::tools;
use serde_json::Value;

/// Every metric that `docs/metrics.md` lists, with the series that a histogram has.
fn documented() -> Result<BTreeSet<String>> {
    let page = std::fs::read_to_string(tools::root().join("docs/metrics.md"))?;
    let mut names = BTreeSet::new();
    for row in page.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = row.split('|').map(|cell| cell.trim().trim_matches('`')).collect();
        let [_, name, kind, ..] = cells[..] else { continue };
        match kind {
            "histogram" => names.extend(["bucket", "sum", "count"].map(|series| format!("{name}_{series}"))),
            _ => _ = names.insert(name.to_owned()),
        }
    }
    ensure!(names.len() > 20, "only {} names in docs/metrics.md", names.len());
    Ok(names)
}

/// The names of our metrics in a query.
fn named(query: &str) -> BTreeSet<String> {
    let words = query.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    words.filter(|word| word.starts_with("repartee_") || word.starts_with("process_")).map(str::to_owned).collect()
}

/// Title and query of everything that the dashboard draws.
fn dashboard() -> Result<Vec<(String, String)>> {
    let file = std::fs::read(tools::root().join("web/grafana/repartee.json"))?;
    let dashboard: Value = serde_json::from_slice(&file)?;
    let mut queries = Vec::new();
    for panel in dashboard["panels"].as_array().context("no panels")? {
        let title = panel["title"].as_str().context("a panel without a title")?;
        for target in panel["targets"].as_array().into_iter().flatten() {
            queries.push((title.to_owned(), target["expr"].as_str().context("a target without a query")?.to_owned()));
        }
    }
    Ok(queries)
}

#[test]
fn dashboard_asks_for_documented_metrics() -> Result<()> {
    let documented = documented()?;
    let queries = dashboard()?;
    ensure!(queries.len() > 20, "only {} queries", queries.len());
    for (title, query) in queries {
        let unknown: Vec<_> = named(&query).difference(&documented).cloned().collect();
        ensure!(!named(&query).is_empty() && unknown.is_empty(), "{title}: {unknown:?} in {query}");
    }
    Ok(())
}

#[test]
fn alerts_ask_for_documented_metrics() -> Result<()> {
    let rules = std::fs::read_to_string(tools::root().join("web/grafana/rules.yaml"))?;
    let queries: Vec<&str> = rules.lines().filter_map(|line| line.trim().strip_prefix("expr: ")).collect();
    ensure!(queries.len() >= 5, "only {} rules", queries.len());
    let documented = documented()?;
    for query in queries.into_iter().filter(|query| !query.starts_with("up{")) {
        let unknown: Vec<_> = named(query).difference(&documented).cloned().collect();
        ensure!(!named(query).is_empty() && unknown.is_empty(), "{unknown:?} in {query}");
    }
    Ok(())
}
