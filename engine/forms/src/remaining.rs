//! Fewest bytes that complete a text from a state.

use super::automaton::Automaton;
use super::node::{Node, NodeId, Property};
use super::span::Span;
use super::states::{At, FormState, StringText};
use super::string::Letter;

impl Automaton<'_> {
    /// Fewest bytes and marks that complete the text. Without `exact` it may be more, where finding it would take long.
    pub fn to_end(&self, state: FormState, exact: bool) -> u32 {
        let FormState { frame, at } = state;
        let grammar = self.grammar;
        let least = |node: NodeId| grammar.nodes.least(node).bytes;
        let entry = match at {
            At::Before(index) => return grammar.to_end(index),
            At::Choice(span) => {
                let of = |at: u32| {
                    let (text, node) = &grammar.choices[at as usize];
                    (text.len() as u32 - span.offset).saturating_add(least(*node))
                };
                if exact { (span.low..span.high).map(of).min().unwrap_or(0) } else { of(span.low) }
            }
            At::Value { node, .. } => least(node),
            At::Texts { node, span } => match grammar.nodes.node(node) {
                Node::Texts(texts) => {
                    let of = |at: u32| texts[at as usize].len() as u32 - span.offset;
                    if exact { (span.low..span.high).map(of).min().unwrap_or(0) } else { of(span.low) }
                }
                _ => 0,
            },
            At::Text(text) => self.to_quote(frame, text),
            At::Number { node, text } => match grammar.nodes.node(node) {
                Node::Number(range) => text.more(range).unwrap_or(0),
                _ => 0,
            },
            At::Done => 0,
            At::Opened => {
                // Nothing separates the first entry; the rest counts a comma for each that is needed.
                let rest = self.rest(frame);
                let is_needed = rest > self.rest(self.frames[frame as usize].parent).saturating_add(1);
                return rest - u32::from(is_needed);
            }
            At::Next { .. } => return self.to_name(frame, None),
            At::Name(span) => return self.to_name(frame, Some(span)),
            At::Colon => {
                let name = StringText { letter: Letter::Between, least: 0, most: 0, is_name: true };
                self.to_quote(frame, name) - 1
            }
            At::After(index) => return grammar.after.len() as u32 - index,
        };
        entry.saturating_add(self.rest(frame))
    }

    /// Bytes that end a string; for a name with its value.
    fn to_quote(&self, frame: u32, text: StringText) -> u32 {
        // A letter that has begun is one of those that are needed.
        let begun = text.letter.more();
        let needed = text.least.saturating_sub(u32::from(begun > 0));
        let value = match text.is_name.then(|| self.node_of(frame)) {
            Some(Node::Map(node)) => self.grammar.nodes.least(*node).bytes.saturating_add(1),
            _ => 0,
        };
        needed.saturating_add(begun + 1).saturating_add(value)
    }

    /// Bytes of a name, of which a part may stand, and of all that follows.
    fn to_name(&self, frame: u32, span: Option<Span>) -> u32 {
        let rest = self.rest(frame);
        let (required, count) = match self.node_of(frame) {
            Node::Object { properties, required } => (*required, properties.len()),
            Node::Map(node) => return rest.saturating_add(self.grammar.nodes.least(*node).bytes).saturating_add(3),
            _ => (0, 0),
        };
        let span = span.unwrap_or(Span::all(count));
        let of = |(at, property): (u32, &Property)| match required >> at & 1 {
            // The rest has its bytes, and a comma.
            1 => rest.saturating_sub(span.offset + 1),
            _ => rest.saturating_add(self.bytes(property)).saturating_sub(span.offset + 1),
        };
        self.open_properties(frame, span).map(of).min().unwrap_or(rest)
    }
}
