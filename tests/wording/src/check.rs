//! Runs all rules over the tracked files.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::circles::find_circles;
use crate::circles::listed::{CircleFinding, ListedCircles};
use crate::copies::FunctionIndex;
use crate::copies::listed::{CopyFinding, ListedGroups};
use crate::finding::Finding;
use crate::rules::{check_source, large_files, parse};
use crate::words::{AllowList, AllowedFinding, Words};

/// Result of a check of the whole repository.
#[derive(Debug)]
pub struct CheckReport {
    /// Findings that no entry of the allow-list covers, by path and line.
    pub findings: Vec<Finding>,
    /// Entries of the allow-list that cover no finding.
    pub unused: Vec<AllowedFinding>,
    /// Differences between the circles of files and their list.
    pub circles: Vec<CircleFinding>,
    /// Differences between the functions that are alike and their list.
    pub copies: Vec<CopyFinding>,
    /// Number of Rust files that were read.
    pub files: usize,
}

/// Checks every tracked file of the repository at `root`.
///
/// # Errors
/// A list or a tracked file cannot be read, a file is no Rust, or `git` fails.
pub fn check_repository(root: &Path) -> Result<CheckReport> {
    let list = |name: &str| {
        let path = root.join("tests/wording").join(name);
        std::fs::read_to_string(&path).with_context(|| path.display().to_string())
    };
    let words = Words::parse(&list("words.toml")?)?;
    let allowed = AllowList::parse(&list("allow.toml")?)?;
    let listed = ListedCircles::parse(&list("circles.toml")?)?;
    let listed_groups = ListedGroups::parse(&list("copies.toml")?)?;
    let (mut findings, mut sources, mut index) = (Vec::new(), BTreeMap::new(), FunctionIndex::default());
    for path in tracked(root)? {
        let file = root.join(&path);
        // A file that was deleted and not yet committed is still listed.
        let Ok(metadata) = std::fs::symlink_metadata(&file) else { continue };
        findings.extend(large_files::check(&path, metadata.len(), &words.large));
        if path.ends_with(".rs") {
            let text = std::fs::read_to_string(&file).with_context(|| path.clone())?;
            let (source, tokens) = parse(&path, &text)?;
            findings.extend(check_source(&path, &source, &tokens, &words));
            index.add(&path, &source, &tokens);
            sources.insert(path, source);
        }
    }
    ensure!(!sources.is_empty(), "{} has no tracked Rust files", root.display());
    findings.sort();
    let (findings, unused) = allowed.apply(findings);
    let circles = listed.compare(&find_circles(&sources)?);
    let copies = listed_groups.compare(index.groups());
    Ok(CheckReport { findings, unused, circles, copies, files: sources.len() })
}

/// Returns the paths that git tracks, or would after `git add`.
fn tracked(root: &Path) -> Result<Vec<String>> {
    let arguments = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    let output = Command::new("git").current_dir(root).args(arguments).output().context("git ls-files")?;
    ensure!(output.status.success(), "git ls-files: {}", String::from_utf8_lossy(&output.stderr));
    let listed = String::from_utf8(output.stdout).context("git ls-files")?;
    Ok(listed.split_terminator('\0').map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use super::*;

    /// One report for all tests.
    static REPOSITORY: LazyLock<CheckReport> =
        LazyLock::new(|| check_repository(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")).unwrap());

    #[test]
    fn this_repository_has_no_findings() {
        let findings: Vec<String> = REPOSITORY.findings.iter().map(ToString::to_string).collect();
        assert!(findings.is_empty(), "{}", findings.join("\n"));
    }

    #[test]
    fn every_allowed_finding_is_needed() {
        assert!(REPOSITORY.unused.is_empty(), "remove from allow.toml: {:#?}", REPOSITORY.unused);
    }

    #[test]
    fn every_circle_of_files_is_listed() {
        let circles: Vec<String> = REPOSITORY.circles.iter().map(ToString::to_string).collect();
        assert!(circles.is_empty(), "{}", circles.join("\n"));
    }

    #[test]
    fn every_copied_function_is_listed() {
        let groups: Vec<String> = REPOSITORY.copies.iter().map(ToString::to_string).collect();
        assert!(groups.is_empty(), "{}", groups.join("\n"));
    }

    #[test]
    fn an_allowed_finding_covers_one_item() {
        let words = Words::parse("replaced = []\nbare = { nouns = [\"Row\"] }\nlarge = { files = [] }").unwrap();
        let (file, tokens) = parse("a.rs", "pub struct Row; pub mod m { /// Whose.\npub fn f() {} }").unwrap();
        let findings = check_source("a.rs", &file, &tokens, &words);
        let entry = "[[allow]]\nrule = \"bare_noun\"\npath = \"a.rs\"\nitem = \"Row\"\nreason = \"r\"";
        let other = entry.replace("a.rs", "b.rs");
        let (left, unused) = AllowList::parse(&format!("{entry}\n{other}")).unwrap().apply(findings);
        assert_eq!(
            left.iter().map(|finding| finding.rule.to_string()).collect::<Vec<_>>(),
            ["doc_opening", "short_doc"]
        );
        assert_eq!(unused.iter().map(|entry| entry.path.as_str()).collect::<Vec<_>>(), ["b.rs"]);
    }

    #[test]
    fn the_allow_list_is_short() {
        let entry = "[[allow]]\nrule = \"bare_noun\"\npath = \"a.rs\"\nitem = \"Row\"\nreason = \"r\"\n";
        assert!(AllowList::parse(&entry.repeat(30)).is_ok());
        assert!(AllowList::parse(&entry.repeat(31)).is_err());
    }
}
