//! The texts of a form, byte by byte. Each state can be completed: no byte leads where nothing fits.
//!
//! A state is small and is copied. Containers lie in a list of frames, in which a state has the innermost one; the frame of
//! another state is never changed.

use super::grammar::{Grammar, Literal};
use super::node::{MAX_LEVELS, Node, NodeId, Property};
use super::number::NumberText;
use super::span::Span;
use super::states::{At, FormState, Frame, ROOT, StringText};
use super::string::Letter;

/// A form with the containers of its states.
#[derive(Debug)]
pub struct Automaton<'a> {
    /// The form that texts are held to.
    pub grammar: &'a Grammar,
    /// Containers of all states, each after the one around it.
    pub frames: &'a mut Vec<Frame>,
}

impl Automaton<'_> {
    /// States after a byte, appended to `out`.
    pub fn step(&mut self, state: FormState, byte: u8, out: &mut Vec<FormState>) {
        let FormState { frame, at } = state;
        let next = match at {
            At::Before(index) => {
                self.literal(&self.grammar.before, index, byte).then(|| self.grammar.before(index + 1))
            }
            At::Choice(span) => {
                let choices = &self.grammar.choices;
                let span = span.take(byte, |at| &choices[at as usize].0);
                span.map(|span| self.grammar.choice(span.low, span.offset).unwrap_or(At::Choice(span)))
            }
            At::Value { node, space: true } if byte == b' ' => Some(At::Value { node, space: false }),
            At::Value { node, .. } => return self.begin(frame, node, byte, out),
            At::Texts { node, span } => match self.texts(node, span, byte) {
                Some(at) => return out.push(self.normal(frame, at)),
                None if self.is_text(node, span) => return self.done(frame, byte, out),
                None => None,
            },
            At::Text(text) => self.string(frame, text, byte),
            At::Number { node, text } => {
                let Node::Number(range) = self.grammar.nodes.node(node) else { return };
                match text.take(byte, range) {
                    Some(text) => Some(At::Number { node, text }),
                    None if text.is_complete(range) => return self.done(frame, byte, out),
                    None => None,
                }
            }
            At::Opened => return self.opened(frame, byte, out),
            At::Next { space: true } if byte == b' ' => Some(At::Next { space: false }),
            At::Next { .. } => self.name(frame, byte),
            At::Name(span) => return self.in_name(frame, span, byte, out),
            At::Colon => match self.node_of(frame) {
                Node::Map(node) if byte == b':' => Some(At::Value { node: *node, space: true }),
                _ => None,
            },
            At::Done => return self.done(frame, byte, out),
            At::After(index) => self.literal(&self.grammar.after, index, byte).then_some(At::After(index + 1)),
        };
        out.extend(next.map(|at| self.normal(frame, at)));
    }

    /// A state; after a value that is in no container the literals follow.
    fn normal(&self, frame: u32, at: At) -> FormState {
        let at = if frame == ROOT && at == At::Done { At::After(0) } else { at };
        FormState { frame, at }
    }

    fn literal(&self, literals: &[Literal], index: u32, byte: u8) -> bool {
        literals.get(index as usize) == Some(&Literal::Byte(byte))
    }

    /// Schema of a container.
    pub fn node_of(&self, frame: u32) -> &Node {
        self.grammar.nodes.node(self.frames[frame as usize].node)
    }

    fn levels(&self, frame: u32) -> u16 {
        if frame == ROOT { 0 } else { self.frames[frame as usize].levels }
    }

    /// Bytes that close a container and those around it.
    pub fn rest(&self, frame: u32) -> u32 {
        if frame == ROOT { self.grammar.after.len() as u32 } else { self.frames[frame as usize].rest }
    }

    /// True if a value of a node fits within a frame.
    fn fits(&self, frame: u32, node: NodeId) -> bool {
        let least = self.grammar.nodes.least(node);
        least.exists() && self.levels(frame) + least.levels <= MAX_LEVELS
    }

    fn push(&mut self, frame: Frame) -> u32 {
        let nodes = &self.grammar.nodes;
        let around = self.rest(frame.parent).saturating_add(1);
        let own = match nodes.node(frame.node) {
            Node::Array { items, least, .. } => {
                let item = nodes.least(*items).bytes.saturating_add(1);
                least.saturating_sub(frame.count).saturating_mul(item)
            }
            Node::Object { properties, required } => {
                let needed = properties.iter().enumerate().filter(|(at, _)| (required & !frame.seen) >> at & 1 == 1);
                needed.map(|(_, property)| self.bytes(property)).fold(0, u32::saturating_add)
            }
            _ => 0,
        };
        self.frames.push(Frame { rest: around.saturating_add(own), ..frame });
        (self.frames.len() - 1) as u32
    }

    /// Fewest bytes of a property, with a comma.
    pub fn bytes(&self, property: &Property) -> u32 {
        self.grammar.nodes.least(property.value).bytes.saturating_add(property.text.len() as u32 + 1)
    }

    /// Begins a value with a byte.
    fn begin(&mut self, frame: u32, node: NodeId, byte: u8, out: &mut Vec<FormState>) {
        let grammar = self.grammar;
        let at = match grammar.nodes.node(node) {
            Node::AnyOf(some) => {
                for one in some {
                    if self.fits(frame, *one) {
                        self.begin(frame, *one, byte, out);
                    }
                }
                return;
            }
            Node::Texts(texts) => self.texts(node, Span::all(texts.len()), byte),
            Node::Number(range) => NumberText::default().take(byte, range).map(|text| At::Number { node, text }),
            Node::String { least, most } => (byte == b'"').then_some(At::Text(StringText {
                letter: Letter::Between,
                least: *least,
                most: *most,
                is_name: false,
            })),
            Node::Array { .. } | Node::Object { .. } | Node::Map(_) => {
                let opens = if matches!(grammar.nodes.node(node), Node::Array { .. }) { b'[' } else { b'{' };
                if byte == opens {
                    let levels = self.levels(frame) + 1;
                    let frame = self.push(Frame { node, parent: frame, levels, count: 0, seen: 0, rest: 0 });
                    out.push(FormState { frame, at: At::Opened });
                }
                return;
            }
        };
        out.extend(at.map(|at| self.normal(frame, at)));
    }

    fn texts(&self, node: NodeId, span: Span, byte: u8) -> Option<At> {
        let Node::Texts(texts) = self.grammar.nodes.node(node) else { return None };
        let span = span.take(byte, |at| &texts[at as usize])?;
        let only = span.low + 1 == span.high && self.is_text(node, span);
        Some(if only { At::Done } else { At::Texts { node, span } })
    }

    /// True if one of the texts ends here.
    fn is_text(&self, node: NodeId, span: Span) -> bool {
        let Node::Texts(texts) = self.grammar.nodes.node(node) else { return false };
        texts[span.low as usize].len() == span.offset as usize
    }

    fn string(&self, frame: u32, text: StringText, byte: u8) -> Option<At> {
        let StringText { letter, least, most, is_name } = text;
        if letter == Letter::Between && byte == b'"' {
            let ended = if is_name { At::Colon } else { At::Done };
            return (least == 0).then_some(ended).filter(|at| *at == At::Done || frame != ROOT);
        }
        if most == 0 {
            return None;
        }
        let (letter, whole) = letter.take(byte)?;
        let most = if whole && most != u32::MAX { most - 1 } else { most };
        Some(At::Text(StringText { letter, least: least.saturating_sub(u32::from(whole)), most, is_name }))
    }

    /// Takes the first byte within a container.
    fn opened(&mut self, frame: u32, byte: u8, out: &mut Vec<FormState>) {
        if self.closes(frame, byte) {
            let parent = self.frames[frame as usize].parent;
            return out.push(self.normal(parent, At::Done));
        }
        if let Node::Array { items, most, .. } = *self.node_of(frame) {
            if most > 0 && self.fits(frame, items) {
                let frame = self.push(Frame { count: 1, ..self.frames[frame as usize] });
                self.begin(frame, items, byte, out);
            }
            return;
        }
        out.extend(self.name(frame, byte).map(|at| FormState { frame, at }));
    }

    /// True if a byte closes a container that may be closed.
    fn closes(&self, frame: u32, byte: u8) -> bool {
        let Frame { count, seen, .. } = self.frames[frame as usize];
        match self.node_of(frame) {
            Node::Array { least, .. } => byte == b']' && count >= *least,
            Node::Object { required, .. } => byte == b'}' && required & !seen == 0,
            _ => byte == b'}',
        }
    }

    /// Takes the quote before a name.
    fn name(&self, frame: u32, byte: u8) -> Option<At> {
        if byte != b'"' {
            return None;
        }
        match self.node_of(frame) {
            Node::Object { properties, .. } => {
                let span = Span { offset: 1, ..Span::all(properties.len()) };
                self.open_properties(frame, span).next().map(|_| At::Name(span))
            }
            Node::Map(node) if self.fits(frame, *node) => {
                Some(At::Text(StringText { letter: Letter::Between, least: 0, most: u32::MAX, is_name: true }))
            }
            _ => None,
        }
    }

    /// Properties of a range of names that an object does not have yet.
    pub fn open_properties(&self, frame: u32, span: Span) -> impl Iterator<Item = (u32, &Property)> {
        let properties = match self.node_of(frame) {
            Node::Object { properties, .. } => &properties[..],
            _ => &[],
        };
        let seen = self.frames[frame as usize].seen;
        let range = (span.low..span.high).filter(move |at| seen >> at & 1 == 0);
        let open = range.map(|at| (at, &properties[at as usize]));
        open.filter(move |(_, property)| self.fits(frame, property.value))
    }

    fn in_name(&mut self, frame: u32, span: Span, byte: u8, out: &mut Vec<FormState>) {
        let grammar = self.grammar;
        let Node::Object { properties, .. } = grammar.nodes.node(self.frames[frame as usize].node) else { return };
        let Some(span) = span.take(byte, |at| &properties[at as usize].text) else { return };
        if self.open_properties(frame, span).next().is_none() {
            return;
        }
        let property = &properties[span.low as usize];
        if property.text.len() != span.offset as usize {
            return out.push(FormState { frame, at: At::Name(span) });
        }
        let before = self.frames[frame as usize];
        let frame = self.push(Frame { seen: before.seen | 1 << span.low, ..before });
        out.push(FormState { frame, at: At::Value { node: property.value, space: true } });
    }

    /// Takes the byte after a value.
    fn done(&mut self, frame: u32, byte: u8, out: &mut Vec<FormState>) {
        if frame == ROOT {
            let next = self.literal(&self.grammar.after, 0, byte).then_some(At::After(1));
            return out.extend(next.map(|at| FormState { frame, at }));
        }
        if self.closes(frame, byte) {
            let parent = self.frames[frame as usize].parent;
            return out.push(self.normal(parent, At::Done));
        }
        if byte != b',' {
            return;
        }
        let before = self.frames[frame as usize];
        match *self.node_of(frame) {
            Node::Array { items, most, .. } => {
                if before.count < most && self.fits(frame, items) {
                    let frame = self.push(Frame { count: before.count + 1, ..before });
                    out.push(FormState { frame, at: At::Value { node: items, space: true } });
                }
            }
            _ => out.extend(self.name(frame, b'"').map(|_| FormState { frame, at: At::Next { space: true } })),
        }
    }

    /// True if the text may end here.
    pub fn may_end(&self, state: FormState) -> bool {
        let all = self.grammar.after.len() as u32;
        match state.at {
            At::After(index) => index == all,
            At::Texts { node, span } => state.frame == ROOT && all == 0 && self.is_text(node, span),
            At::Number { node, text } => match self.grammar.nodes.node(node) {
                Node::Number(range) => state.frame == ROOT && all == 0 && text.is_complete(range),
                _ => false,
            },
            _ => false,
        }
    }
}
