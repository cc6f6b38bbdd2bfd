//! Parsed opcodes with their modifiers, and the table of covered opcodes.

use std::collections::HashSet;
use std::sync::OnceLock;

use crate::ptx::{Space, Ty};

/// Table of the crate's description.
const TABLE: &str = include_str!("../coverage.md");

/// An opcode, split at its dots.
#[derive(Clone, Debug)]
pub struct Opcode<'a> {
    /// Part before the first dot.
    pub base: &'a str,
    /// Modifiers in order.
    pub modifiers: Vec<&'a str>,
}

impl<'a> Opcode<'a> {
    /// Splits an opcode at its dots.
    pub fn of(opcode: &'a str) -> Self {
        let mut parts = opcode.split('.');
        let base = parts.next().unwrap_or_default();
        Self { base, modifiers: parts.collect() }
    }

    /// True if it has this modifier.
    pub fn has(&self, modifier: &str) -> bool {
        self.modifiers.contains(&modifier)
    }

    /// Type of its last modifier.
    pub fn ty(&self) -> Option<Ty> {
        Ty::named(self.modifiers.last()?)
    }

    /// State space of its modifiers; generic if none.
    pub fn space(&self) -> Space {
        let named = |modifier: &&str| match *modifier {
            "global" | "const" => Some(Space::Global),
            "shared" => Some(Space::Shared),
            "local" => Some(Space::Local),
            "param" => Some(Space::Param),
            _ => None,
        };
        self.modifiers.iter().find_map(named).unwrap_or(Space::Generic)
    }

    /// Number of elements of its vector modifier; 1 without one.
    pub fn elements(&self) -> usize {
        if self.has("v4") {
            4
        } else if self.has("v2") {
            2
        } else {
            1
        }
    }
}

/// Lists every form in the table of [`crate`]'s description.
pub fn covered() -> &'static HashSet<String> {
    static FORMS: OnceLock<HashSet<String>> = OnceLock::new();
    FORMS.get_or_init(|| {
        // Every other piece between the backquotes of a row's first cell is a pattern.
        let cells = TABLE.lines().filter_map(|line| line.strip_prefix("| `")).filter_map(|row| row.split(" |").next());
        cells.flat_map(|cell| cell.split('`').step_by(2)).flat_map(expand).collect()
    })
}

/// Expands `a{b,c}d` to `abd` and `acd`.
fn expand(pattern: &str) -> Vec<String> {
    let Some((before, rest)) = pattern.split_once('{') else {
        return if pattern.is_empty() { Vec::new() } else { vec![pattern.to_owned()] };
    };
    let (choices, after) = rest.split_once('}').unwrap_or((rest, ""));
    choices.split(',').flat_map(|choice| expand(&format!("{before}{choice}{after}"))).collect()
}
