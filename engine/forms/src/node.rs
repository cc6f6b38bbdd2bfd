//! Nodes of compiled schemas.

use std::collections::HashSet;

use super::error::FormError;
use super::number::NumberRange;

/// Index of a node.
pub type NodeId = u32;

/// Most levels of a value: objects and arrays within each other.
pub const MAX_LEVELS: u16 = 64;
/// Most alternatives of all nodes together.
const MAX_ALTERNATIVES: usize = 100_000;
/// Marks a node that no value fits.
const NONE: u16 = u16::MAX;

/// Values of a schema.
#[derive(Debug, Clone)]
pub enum Node {
    /// A reference that was not followed yet, or one of several.
    AnyOf(Vec<NodeId>),
    /// One of these JSON texts, sorted.
    Texts(Vec<Box<[u8]>>),
    /// A number within a range.
    Number(NumberRange),
    /// A string of `least` to `most` characters.
    String {
        /// Fewest characters.
        least: u32,
        /// Most characters; `u32::MAX` for any number.
        most: u32,
    },
    /// An array of `least` to `most` entries.
    Array {
        /// Entries.
        items: NodeId,
        /// Fewest entries.
        least: u32,
        /// Most entries.
        most: u32,
    },
    /// An object of these properties, in any order.
    Object {
        /// Properties, sorted by their text.
        properties: Vec<Property>,
        /// Bit set of those that are required.
        required: u128,
    },
    /// An object of any names.
    Map(NodeId),
}

/// A property of an object.
#[derive(Debug, Clone)]
pub struct Property {
    /// Its name as JSON, and a colon.
    pub text: Box<[u8]>,
    /// Schema of its value.
    pub value: NodeId,
}

/// The lowest value of a node: the one that most easily ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Least {
    /// Levels of arrays and objects.
    pub levels: u16,
    /// Length of its text in bytes.
    pub bytes: u32,
}

impl Least {
    const UNKNOWN: Self = Self { levels: NONE, bytes: u32::MAX };

    /// True if there is such a value.
    pub fn exists(self) -> bool {
        self.levels != NONE
    }

    /// A container of such values: with `bytes` of its own.
    fn around(levels: impl Iterator<Item = Self>, bytes: u32) -> Self {
        let start = Self { levels: 0, bytes };
        let all = levels.fold(start, |all, one| Self {
            levels: all.levels.max(one.levels),
            bytes: all.bytes.saturating_add(one.bytes),
        });
        if all.levels >= MAX_LEVELS { Self::UNKNOWN } else { Self { levels: all.levels + 1, ..all } }
    }
}

/// Compiled schemas, each node by its index.
#[derive(Debug, Clone)]
pub struct Nodes {
    /// Nodes of all schemas of a form.
    pub nodes: Vec<Node>,
    /// The lowest value of each.
    pub least: Vec<Least>,
}

impl Nodes {
    /// Completes nodes: alternatives are without alternatives of their own, and without those that no value fits.
    ///
    /// # Errors
    ///
    /// If there are too many alternatives.
    pub fn new(mut nodes: Vec<Node>) -> Result<Self, FormError> {
        flatten(&mut nodes)?;
        let mut least = vec![Least::UNKNOWN; nodes.len()];
        // A value of so many levels is found after as many rounds.
        for _ in 0..=MAX_LEVELS + 1 {
            let mut changed = false;
            for at in (0..nodes.len()).rev() {
                let found = of_node(&nodes[at], &least);
                changed |= found < least[at];
                least[at] = found.min(least[at]);
            }
            if !changed {
                break;
            }
        }
        for node in &mut nodes {
            if let Node::AnyOf(some) = node {
                some.retain(|one| least[*one as usize].exists());
            }
        }
        Ok(Self { nodes, least })
    }

    /// Bytes of texts and names.
    pub fn fixed_bytes(&self) -> impl Iterator<Item = u8> {
        self.nodes.iter().flat_map(|node| {
            let (texts, properties) = match node {
                Node::Texts(texts) => (&texts[..], &[][..]),
                Node::Object { properties, .. } => (&[][..], &properties[..]),
                _ => (&[][..], &[][..]),
            };
            texts
                .iter()
                .chain(properties.iter().map(|property: &Property| &property.text))
                .flat_map(|text| text.iter().copied())
        })
    }

    /// Returns the node of an id, which is one of this list.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id as usize]
    }

    /// The lowest value of a node.
    pub fn least(&self, id: NodeId) -> Least {
        self.least[id as usize]
    }
}

/// Replaces alternatives that have alternatives by these.
fn flatten(nodes: &mut [Node]) -> Result<(), FormError> {
    let mut all = 0;
    let mut flat = Vec::with_capacity(nodes.len());
    for (at, node) in nodes.iter().enumerate() {
        let Node::AnyOf(some) = node else {
            flat.push(None);
            continue;
        };
        let (mut open, mut seen) = (some.clone(), HashSet::from([at as NodeId]));
        open.reverse();
        let mut found = Vec::new();
        while let Some(id) = open.pop() {
            if !seen.insert(id) {
                continue;
            }
            all += 1;
            if all > MAX_ALTERNATIVES {
                return Err(FormError::TooLarge { what: "alternatives", limit: MAX_ALTERNATIVES });
            }
            match &nodes[id as usize] {
                Node::AnyOf(more) => open.extend(more.iter().rev()),
                _ => found.push(id),
            }
        }
        flat.push(Some(found));
    }
    for (node, flat) in nodes.iter_mut().zip(flat) {
        if let Some(flat) = flat {
            *node = Node::AnyOf(flat);
        }
    }
    Ok(())
}

/// The lowest value of a node, as far as those of others are known.
fn of_node(node: &Node, least: &[Least]) -> Least {
    let of = |id: &NodeId| least[*id as usize];
    let leaf = |bytes: u32| Least { levels: 0, bytes };
    match node {
        Node::AnyOf(some) => some.iter().map(of).min().unwrap_or(Least::UNKNOWN),
        Node::Texts(texts) => texts.iter().map(|text| leaf(text.len() as u32)).min().unwrap_or(Least::UNKNOWN),
        Node::Number(range) => range.shortest().map_or(Least::UNKNOWN, leaf),
        Node::String { least, most } if least <= most => leaf(least.saturating_add(2)),
        Node::String { .. } => Least::UNKNOWN,
        Node::Array { least: count, most, .. } if count > most => Least::UNKNOWN,
        Node::Array { least: 0, .. } => Least { levels: 1, bytes: 2 },
        Node::Array { items, least: count, .. } => {
            let item = of(items);
            let bytes = item.bytes.saturating_add(1).saturating_mul(*count).saturating_add(1);
            Least::around(std::iter::once(Least { bytes: 0, ..item }), bytes)
        }
        Node::Object { properties, required } => {
            let needed = || properties.iter().enumerate().filter(|(at, _)| required >> at & 1 == 1).map(|(_, of)| of);
            let texts: u32 = needed().map(|property| property.text.len() as u32 + 1).sum();
            Least::around(needed().map(|property| of(&property.value)), texts.max(1) + 1)
        }
        Node::Map(_) => Least { levels: 1, bytes: 2 },
    }
}
