//! References between the files of one crate.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::modules::ModuleTree;
use super::resolve::Resolver;

/// Files of a crate, each with the files it refers to and the line of the first reference.
#[derive(Debug, Default)]
pub struct FileGraph {
    targets: BTreeMap<String, BTreeMap<String, usize>>,
}

/// Files that refer to each other, each directly or through others.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileCircle {
    /// Paths of the files, at least two.
    pub files: BTreeSet<String>,
    /// References between these files.
    pub references: Vec<FileReference>,
}

/// First reference of a file to another.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileReference {
    /// Path of the file that contains it.
    pub from: String,
    /// Line, counted from 1.
    pub line: usize,
    /// Path of the other file.
    pub to: String,
}

impl fmt::Display for FileReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{} refers to {}", self.from, self.line, self.to)
    }
}

impl FileGraph {
    /// Resolves the paths of every module.
    pub fn of(tree: &ModuleTree<'_>) -> Self {
        let resolver = Resolver::new(tree);
        let mut graph = Self::default();
        for (index, module) in tree.modules.iter().enumerate() {
            for path in resolver.paths(index) {
                for target in resolver.targets(index, path) {
                    graph.add(&module.file, path.line, &tree.modules[target].file);
                }
            }
        }
        graph
    }

    fn add(&mut self, from: &str, line: usize, to: &str) {
        if from != to {
            self.targets.entry(from.to_owned()).or_default().entry(to.to_owned()).or_insert(line);
        }
    }

    /// Returns the circles, largest sets of files that all reach each other.
    pub fn circles(&self) -> Vec<FileCircle> {
        let reached: BTreeMap<&String, BTreeSet<&String>> =
            self.targets.keys().map(|file| (file, self.reached_from(file))).collect();
        let reaches = |from: &String, to: &String| reached.get(from).is_some_and(|files| files.contains(to));
        let mut circles = Vec::new();
        let mut done = BTreeSet::new();
        for file in self.targets.keys().filter(|file| reaches(file, file)) {
            if !done.contains(file) {
                let others = self.targets.keys().filter(|other| reaches(file, other) && reaches(other, file));
                let files: BTreeSet<String> = others.cloned().collect();
                done.extend(files.iter().cloned());
                circles.push(FileCircle { references: self.between(&files), files });
            }
        }
        circles
    }

    fn reached_from(&self, file: &str) -> BTreeSet<&String> {
        let (mut reached, mut waiting) = (BTreeSet::new(), vec![file]);
        while let Some(file) = waiting.pop() {
            for target in self.targets.get(file).into_iter().flat_map(BTreeMap::keys) {
                if reached.insert(target) {
                    waiting.push(target);
                }
            }
        }
        reached
    }

    fn between(&self, files: &BTreeSet<String>) -> Vec<FileReference> {
        let from = self.targets.iter().filter(|(from, _)| files.contains(*from));
        let all = from.flat_map(|(from, targets)| targets.iter().map(move |(to, line)| (from, *line, to)));
        let inside = all.filter(|(_, _, to)| files.contains(*to));
        inside.map(|(from, line, to)| FileReference { from: from.clone(), line, to: to.clone() }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::circles::tests::sources;

    /// References of the files of a crate, as `from:line to`, without folder and ending.
    fn edges(files: &[(&str, &str)]) -> Vec<String> {
        let sources = sources(files);
        let graph = FileGraph::of(&ModuleTree::build("src/lib.rs", &sources).unwrap());
        let short = |file: &str| file.trim_start_matches("src/").trim_end_matches(".rs").to_owned();
        let all =
            graph.targets.iter().flat_map(|(from, targets)| targets.iter().map(move |(to, line)| (from, line, to)));
        all.map(|(from, line, to)| format!("{}:{line} {}", short(from), short(to))).collect()
    }

    #[test]
    fn paths_lead_to_the_innermost_module() {
        let root = ("src/lib.rs", "mod a; mod b;");
        let inner = ("src/a/inner.rs", "pub struct Inner; pub fn f() {}");
        let edges_of = |b: &str| edges(&[root, ("src/a/mod.rs", "pub mod inner;"), inner, ("src/b.rs", b)]);
        assert_eq!(edges_of("use crate::a::inner::Inner;"), ["b:1 a/inner"]);
        assert_eq!(edges_of("\nuse crate::a; fn f() { a::inner::f() }"), ["b:2 a/inner"]);
        assert_eq!(edges_of("use super::a::inner as i; fn f() { i::f() }"), ["b:1 a/inner"]);
        assert_eq!(edges_of("mod block { use super::super::a::A; }"), ["b:1 a/mod"]);
        assert!(edges_of("use crate::a; use a::inner;").is_empty());
        assert_eq!(edges_of("use crate::Root;"), ["b:1 lib"]);
    }

    #[test]
    fn paths_of_other_crates_lead_nowhere() {
        let files =
            [("src/lib.rs", "mod a; mod ogg;"), ("src/ogg.rs", ""), ("src/a.rs", "use ogg::X; fn f() { ogg::f() }")];
        assert!(edges(&files).is_empty());
    }

    #[test]
    fn circles_are_apart_if_one_way_leads_between() {
        let mut graph = FileGraph::default();
        for (from, to) in [("a", "b"), ("b", "c"), ("c", "a"), ("c", "d"), ("d", "e"), ("e", "d"), ("e", "f")] {
            graph.add(from, 1, to);
        }
        let files: Vec<String> = graph.circles().into_iter().map(|circle| circle.files.into_iter().collect()).collect();
        assert_eq!(files, ["abc", "de"]);
        assert_eq!(graph.circles()[1].references[0].to_string(), "d:1 refers to e");
    }
}
