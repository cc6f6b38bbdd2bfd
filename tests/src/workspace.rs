//! The crates of this workspace and their dependencies, from cargo's metadata.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::tools;

/// Marker before the graph in `ARCHITECTURE.md`.
const BEGIN: &str = "<!-- crate graph: begin -->";
/// Marker after the graph.
const END: &str = "<!-- crate graph: end -->";

/// The crates of this workspace by name.
#[derive(Debug)]
pub struct Workspace {
    crates: BTreeMap<String, WorkspaceCrate>,
}

/// A crate of this workspace.
#[derive(Debug)]
pub struct WorkspaceCrate {
    /// Folder of the crate's `Cargo.toml`.
    pub folder: PathBuf,
    /// Crates of this workspace that it needs to build; dev-dependencies are not included.
    pub dependencies: BTreeSet<String>,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    manifest_path: PathBuf,
    dependencies: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
    /// `None` for a normal dependency, `dev`, or `build`.
    kind: Option<String>,
    /// Path of the crate, if it is one of ours.
    path: Option<PathBuf>,
}

impl Workspace {
    /// Loads the workspace from `cargo metadata`.
    pub fn load() -> Result<Self> {
        let metadata = cargo(&["metadata", "--offline", "--no-deps", "--format-version", "1"])?;
        let metadata: Metadata = serde_json::from_str(&metadata).context("cargo's metadata")?;
        let crates = metadata.packages.into_iter().map(|package| {
            let ours = package.dependencies.into_iter().filter(|dependency| dependency.path.is_some());
            let needed = ours.filter(|dependency| dependency.kind.as_deref() != Some("dev"));
            let folder = package.manifest_path.parent().map(PathBuf::from).unwrap_or_default();
            (package.name, WorkspaceCrate { folder, dependencies: needed.map(|dependency| dependency.name).collect() })
        });
        Ok(Self { crates: crates.collect() })
    }

    /// Iterates over all crates by name.
    pub fn crates(&self) -> impl Iterator<Item = (&str, &WorkspaceCrate)> {
        self.crates.iter().map(|(name, found)| (name.as_str(), found))
    }

    /// Returns the dependency graph in mermaid, as in `ARCHITECTURE.md`.
    pub fn graph(&self) -> String {
        let mut graph = "```mermaid\ngraph TD\n".to_owned();
        for (name, found) in &self.crates {
            for needed in &found.dependencies {
                // Writing to a string cannot fail.
                let _ = writeln!(graph, "  {name} --> {needed}");
            }
        }
        graph + "```\n"
    }
}

/// Returns the names of all crates, third-party ones included, that `name` needs to build on this platform.
pub fn all_dependencies(name: &str) -> Result<BTreeSet<String>> {
    let tree = cargo(&["tree", "--offline", "--package", name, "--edges", "normal,build", "--prefix", "none"])?;
    Ok(tree.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect())
}

/// Returns the graph between the markers in `page`; `None` without markers.
pub fn graph_in(page: &str) -> Option<&str> {
    let (_, rest) = page.split_once(BEGIN)?;
    let (graph, _) = rest.split_once(END)?;
    Some(graph.trim_start_matches('\n'))
}

/// Returns `page` with `graph` between the markers. Fails without markers.
pub fn with_graph(page: &str, graph: &str) -> Result<String> {
    let before = page.split_once(BEGIN).with_context(|| format!("no {BEGIN}"))?.0;
    let after = page.split_once(END).with_context(|| format!("no {END}"))?.1;
    Ok(format!("{before}{BEGIN}\n{graph}{END}{after}"))
}

fn cargo(arguments: &[&str]) -> Result<String> {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(program).args(arguments).current_dir(tools::root()).output().context("cargo")?;
    ensure!(output.status.success(), "cargo {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).context("cargo's output")
}
