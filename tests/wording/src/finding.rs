//! One violation of a rule.

use std::fmt;

/// A rule, as printed and as named in `allow.toml`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    /// A doc comment opens with a question word.
    DocOpening,
    /// The doc of a public item has fewer than three words.
    ShortDoc,
    /// An item is declared under a replaced name.
    ReplacedName,
    /// A public type is a bare noun.
    BareNoun,
    /// A `use` gives one of our items another name.
    RenamedImport,
    /// The name of a test has more than eight words.
    LongTestName,
    /// A tracked file is over 1 MiB.
    LargeFile,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::DocOpening => "doc_opening",
            Self::ShortDoc => "short_doc",
            Self::ReplacedName => "replaced_name",
            Self::BareNoun => "bare_noun",
            Self::RenamedImport => "renamed_import",
            Self::LongTestName => "long_test_name",
            Self::LargeFile => "large_file",
        })
    }
}

/// A violation of a rule at one place.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// Path of the file, relative to the root of the repository.
    pub path: String,
    /// Line, counted from 1; 0 for the file as a whole.
    pub line: usize,
    /// The violated rule.
    pub rule: Rule,
    /// Name of the item, or the first words of the comment: what `allow.toml` refers to.
    pub item: String,
    /// Instruction for the author.
    pub advice: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, line, rule, item, advice } = self;
        write!(f, "{path}:{line}: {rule}: `{item}`: {advice}")
    }
}
