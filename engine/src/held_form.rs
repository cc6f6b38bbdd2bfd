//! A form that an answer is held to, as a stage gets it.

use std::sync::Arc;

use repartee_forms::{Grammar, Matcher, Vocabulary};

/// Ids of a stage whose answers can be held to a form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FormIds {
    /// Number of ids that it chooses from.
    pub count: usize,
    /// Those that end a text.
    pub stops: Vec<u32>,
}

/// A form that an answer is held to.
#[derive(Debug, Clone)]
pub struct HeldForm {
    grammar: Arc<Grammar>,
    vocabulary: Arc<Vocabulary>,
    /// True if the answer begins by closing reasoning text, which its prompt opens.
    closes_reasoning: bool,
}

impl PartialEq for HeldForm {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.grammar, &other.grammar) && self.closes_reasoning == other.closes_reasoning
    }
}

impl HeldForm {
    /// Creates the form of an answer without reasoning text.
    pub fn new(grammar: Grammar, vocabulary: Arc<Vocabulary>) -> Self {
        Self { grammar: Arc::new(grammar), vocabulary, closes_reasoning: false }
    }

    /// The form of an answer whose prompt opens reasoning text, or does not.
    #[must_use]
    pub fn after_reasoning(self, closes_reasoning: bool) -> Self {
        Self { closes_reasoning, ..self }
    }

    /// Begins an answer.
    pub fn matcher(&self) -> Matcher {
        let (grammar, vocabulary) = (Arc::clone(&self.grammar), Arc::clone(&self.vocabulary));
        if self.closes_reasoning {
            Matcher::with_optional(grammar, vocabulary)
        } else {
            Matcher::new(grammar, vocabulary)
        }
    }
}
