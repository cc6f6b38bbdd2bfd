//! Forms: a value with literals around it.

use super::error::FormError;
use super::node::{MAX_LEVELS, NodeId, Nodes};
use super::schema::Compiler;
use super::span::Span;
use super::states::{At, FormState, ROOT};

/// A byte, or a token that has no text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Literal {
    /// A byte of text.
    Byte(u8),
    /// Id of a token without text.
    Mark(u32),
}

impl Literal {
    /// Literals of a text.
    pub fn text(text: &str) -> impl Iterator<Item = Self> {
        text.bytes().map(Self::Byte)
    }
}

/// Form of a text.
#[derive(Debug)]
pub struct Grammar {
    /// Literals before the value.
    pub(crate) before: Vec<Literal>,
    /// Texts that tell the value, sorted, with its schema; one empty text if there is one schema.
    pub(crate) choices: Vec<(Box<[u8]>, NodeId)>,
    /// Literals after the value.
    pub(crate) after: Vec<Literal>,
    pub(crate) nodes: Nodes,
    /// Leading literals that are left out on demand.
    optional: u32,
}

impl Grammar {
    /// JSON of a schema.
    ///
    /// # Errors
    ///
    /// If the schema is wrong, too large, not understood, or no value fits it.
    pub fn json(schema: &str) -> Result<Self, FormError> {
        let mut compiler = Compiler::default();
        let node = compiler.add(schema)?;
        Self::new(Vec::new(), vec![(Box::default(), node)], Vec::new(), compiler)
    }

    /// Any JSON object.
    ///
    /// # Errors
    ///
    /// None is known: the form is fixed.
    pub fn json_object() -> Result<Self, FormError> {
        let mut compiler = Compiler::default();
        let node = compiler.object()?;
        Self::new(Vec::new(), vec![(Box::default(), node)], Vec::new(), compiler)
    }

    /// One of some texts, each with JSON of its schema behind it, between literals. No text begins another one.
    ///
    /// # Errors
    ///
    /// As those of [`Grammar::json`], of any of the schemas.
    pub fn one_of<'a>(
        before: Vec<Literal>,
        texts: impl IntoIterator<Item = (String, &'a str)>,
        after: Vec<Literal>,
    ) -> Result<Self, FormError> {
        let mut compiler = Compiler::default();
        let mut choices = Vec::new();
        for (text, schema) in texts {
            choices.push((text.into_bytes().into(), compiler.add(schema)?));
        }
        choices.sort_unstable();
        Self::new(before, choices, after, compiler)
    }

    fn new(
        before: Vec<Literal>,
        choices: Vec<(Box<[u8]>, NodeId)>,
        after: Vec<Literal>,
        compiler: Compiler,
    ) -> Result<Self, FormError> {
        let nodes = Nodes::new(compiler.nodes)?;
        let fits = |node: NodeId| nodes.least(node).exists() && nodes.least(node).levels <= MAX_LEVELS;
        if choices.is_empty() || !choices.iter().all(|(_, node)| fits(*node)) {
            return Err(FormError::Unsatisfiable { limit: usize::from(MAX_LEVELS) });
        }
        Ok(Self { before, choices, after, nodes, optional: 0 })
    }

    /// Adds literals before all others, which a text may do without.
    #[must_use]
    pub fn after_optional(mut self, literals: impl IntoIterator<Item = Literal>) -> Self {
        let mut before: Vec<Literal> = literals.into_iter().collect();
        self.optional = before.len() as u32;
        before.append(&mut self.before);
        self.before = before;
        self
    }

    /// Fewest bytes and tokens without text of a text of the form, its optional literals left out.
    pub fn shortest(&self) -> u32 {
        self.to_end(self.optional)
    }

    /// The state at the beginning of a text, with the optional literals or without.
    pub(crate) fn start(&self, with_optional: bool) -> FormState {
        FormState { frame: ROOT, at: self.before(if with_optional { 0 } else { self.optional }) }
    }

    /// The place before a literal.
    pub(crate) fn before(&self, index: u32) -> At {
        if (index as usize) < self.before.len() {
            return At::Before(index);
        }
        self.choice(0, 0).unwrap_or(At::Choice(Span::all(self.choices.len())))
    }

    /// The place after a whole text of the choice; `None` within it.
    pub(crate) fn choice(&self, at: u32, offset: u32) -> Option<At> {
        let (text, node) = &self.choices[at as usize];
        (text.len() == offset as usize).then_some(At::Value { node: *node, space: false })
    }

    /// Fewest bytes and marks from a literal before the value on.
    pub(crate) fn to_end(&self, index: u32) -> u32 {
        let literals = (self.before.len() + self.after.len()) as u32 - index;
        let of = |(text, node): &(Box<[u8]>, NodeId)| self.nodes.least(*node).bytes.saturating_add(text.len() as u32);
        self.choices.iter().map(of).min().unwrap_or(0).saturating_add(literals)
    }

    /// Bytes that the form asks for, by name: each has to be a token.
    pub(crate) fn fixed_bytes(&self) -> impl Iterator<Item = u8> {
        let literals = self.before.iter().chain(&self.after).filter_map(|literal| match literal {
            Literal::Byte(byte) => Some(*byte),
            Literal::Mark(_) => None,
        });
        let texts = self.choices.iter().flat_map(|(text, _)| text.iter().copied());
        literals.chain(texts).chain(self.nodes.fixed_bytes())
    }
}
