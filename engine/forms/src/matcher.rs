//! A text of a form while it is written: the tokens that may follow.

use std::sync::Arc;

use super::automaton::Automaton;
use super::grammar::{Grammar, Literal};
use super::mask::Mask;
use super::states::{At, FormState, Frame, ROOT, StringText};
use super::string::Letter;
use super::vocabulary::Vocabulary;

/// Most states at once. More alternatives are left out: those that are listed last.
const MAX_STATES: usize = 64;
/// Most bytes that a letter of a string needs after its first.
const LETTER: u32 = 5;
/// Most frames before those of closed containers are dropped.
const MAX_FRAMES: usize = 1_024;

/// A text that is held to a form.
#[derive(Debug, Clone)]
pub struct Matcher {
    grammar: Arc<Grammar>,
    vocabulary: Arc<Vocabulary>,
    frames: Vec<Frame>,
    states: Vec<FormState>,
    ended: bool,
    mask: Mask,
    /// States of the tokens that are tried, one list after the other.
    tried: Vec<FormState>,
}

impl Matcher {
    /// Begins a text.
    pub fn new(grammar: Arc<Grammar>, vocabulary: Arc<Vocabulary>) -> Self {
        Self::begin(grammar, vocabulary, false)
    }

    /// Begins a text, with the optional literals before the form.
    pub fn with_optional(grammar: Arc<Grammar>, vocabulary: Arc<Vocabulary>) -> Self {
        Self::begin(grammar, vocabulary, true)
    }

    fn begin(grammar: Arc<Grammar>, vocabulary: Arc<Vocabulary>, with_optional: bool) -> Self {
        let (states, mask) = (vec![grammar.start(with_optional)], Mask::new(vocabulary.size()));
        Self { grammar, vocabulary, frames: Vec::new(), states, ended: false, mask, tried: Vec::new() }
    }

    /// True if nothing may follow.
    pub fn is_ended(&self) -> bool {
        self.ended
    }

    /// Takes a token; false if it may not follow, and the text is as before.
    pub fn advance(&mut self, id: u32) -> bool {
        let Self { grammar, vocabulary, frames, states, .. } = self;
        let mut automaton = Automaton { grammar, frames };
        if self.ended {
            return false;
        }
        if vocabulary.stops().contains(&id) {
            self.ended = states.iter().any(|state| automaton.may_end(*state));
            return self.ended;
        }
        let mut next: Vec<FormState> = states.iter().filter_map(|state| after_mark(grammar, *state, id)).collect();
        if next.is_empty() {
            next.clone_from(states);
            for &byte in vocabulary.bytes(id).unwrap_or_default() {
                let mut stepped = Vec::new();
                step(&mut automaton, &next, byte, &mut stepped);
                next = stepped;
            }
            if vocabulary.bytes(id).is_none() || next.is_empty() {
                return false;
            }
        }
        *states = next;
        let all = grammar.after.len() as u32;
        self.ended = states.iter().all(|state| state.at == At::After(all));
        self.drop_closed();
        true
    }

    /// The tokens that may follow, of a text of at most `left` more tokens: it can be completed with them, if it could be
    /// before.
    pub fn mask(&mut self, left: usize) -> &Mask {
        self.mask.clear();
        if self.ended {
            return &self.mask;
        }
        let Self { grammar, vocabulary, frames, states, mask, tried, .. } = self;
        let mut automaton = Automaton { grammar, frames };
        let left = u32::try_from(left).unwrap_or(u32::MAX);
        let needed = states.iter().map(|state| automaton.to_end(*state, true)).min().unwrap_or(0);
        // Bytes that may be needed after the token.
        let most = if needed <= left { left.saturating_sub(1) } else { u32::MAX };
        let mut walk = Walk { vocabulary, mask, most, tried };
        for &state in &*states {
            match (state.at, literal(grammar, state)) {
                (_, Some(Err(mark))) => walk.mask.allow(mark),
                (At::Text(text), _) if walk.string(&mut automaton, state, text) => {}
                _ => walk.tokens(&mut automaton, &[state], (0, vocabulary.tree.len() as u32)),
            }
        }
        if states.iter().any(|state| automaton.may_end(*state)) {
            vocabulary.stops().iter().for_each(|stop| mask.allow(*stop));
        }
        &self.mask
    }

    /// Drops the frames of closed containers, now and then.
    fn drop_closed(&mut self) {
        if self.frames.len() < MAX_FRAMES {
            return;
        }
        let mut kept: Vec<(u32, Frame)> = Vec::new();
        for state in &self.states {
            let mut at = state.frame;
            while at != ROOT {
                let frame = self.frames[at as usize];
                kept.push((at, frame));
                at = frame.parent;
            }
        }
        kept.sort_unstable_by_key(|(at, _)| *at);
        kept.dedup_by_key(|(at, _)| *at);
        let moved = |at: u32| kept.binary_search_by_key(&at, |(at, _)| *at).map_or(ROOT, |index| index as u32);
        for state in &mut self.states {
            state.frame = moved(state.frame);
        }
        self.frames = kept.iter().map(|(_, frame)| Frame { parent: moved(frame.parent), ..*frame }).collect();
    }
}

/// Literal of a state: a byte, or as an error a token without text.
fn literal(grammar: &Grammar, state: FormState) -> Option<Result<u8, u32>> {
    let literal = match state.at {
        At::Before(index) => grammar.before.get(index as usize),
        At::After(index) => grammar.after.get(index as usize),
        _ => None,
    };
    literal.map(|literal| match *literal {
        Literal::Byte(byte) => Ok(byte),
        Literal::Mark(id) => Err(id),
    })
}

/// The state after a token without text.
fn after_mark(grammar: &Grammar, state: FormState, id: u32) -> Option<FormState> {
    let at = match (literal(grammar, state)?, state.at) {
        (Err(mark), At::Before(index)) if mark == id => grammar.before(index + 1),
        (Err(mark), At::After(index)) if mark == id => At::After(index + 1),
        _ => return None,
    };
    Some(FormState { at, ..state })
}

/// Appends the states after a byte to `out`, each once.
fn step(automaton: &mut Automaton<'_>, states: &[FormState], byte: u8, out: &mut Vec<FormState>) {
    let from = out.len();
    for &state in states {
        let begin = out.len();
        automaton.step(state, byte, out);
        let mut at = begin;
        while at < out.len() {
            if out[from..at].contains(&out[at]) {
                out.remove(at);
            } else {
                at += 1;
            }
        }
    }
    out.truncate(from + MAX_STATES);
}

/// Search for the tokens that may follow.
struct Walk<'a> {
    vocabulary: &'a Vocabulary,
    mask: &'a mut Mask,
    /// Most bytes that may be needed after a token.
    most: u32,
    tried: &'a mut Vec<FormState>,
}

impl Walk<'_> {
    /// True if a text of one of these states can be completed in time.
    fn is_in_time(&self, automaton: &Automaton<'_>, states: &[FormState]) -> bool {
        let within = |exact: bool| states.iter().any(|state| automaton.to_end(*state, exact) <= self.most);
        within(false) || within(true)
    }

    /// Adds the tokens of a range of the tree that go on from states.
    fn tokens(&mut self, automaton: &mut Automaton<'_>, states: &[FormState], (from, to): (u32, u32)) {
        self.tried.clear();
        self.tried.extend_from_slice(states);
        // For each byte so far: the end of its nodes, its states, and the frames before it.
        let mut path = vec![(to, 0, automaton.frames.len())];
        let (mut at, mut next) = (from, Vec::new());
        while let Some(&(end, first, _)) = path.last() {
            if at >= end {
                let (_, first, frames) = path.pop().unwrap_or((0, 0, 0));
                self.tried.truncate(first);
                automaton.frames.truncate(frames);
                continue;
            }
            let node = self.vocabulary.tree[at as usize];
            let (begin, frames) = (self.tried.len(), automaton.frames.len());
            next.clear();
            step(automaton, &self.tried[first..begin], node.byte, &mut next);
            if next.is_empty() {
                automaton.frames.truncate(frames);
                at = node.end;
                continue;
            }
            if !self.vocabulary.ids_of(node).is_empty() && self.is_in_time(automaton, &next) {
                for id in self.vocabulary.ids_of(node) {
                    self.mask.allow(*id);
                }
            }
            self.tried.extend_from_slice(&next);
            path.push((node.end, begin, frames));
            at += 1;
        }
    }

    /// Adds the tokens that go on from within a string; false if they have to be tried one by one.
    fn string(&mut self, automaton: &mut Automaton<'_>, state: FormState, text: StringText) -> bool {
        let vocabulary = self.vocabulary;
        if automaton.to_end(state, true).saturating_add(LETTER) > self.most {
            // Little is left: bytes suffice.
            for byte in 0..=u8::MAX {
                let Some(id) = vocabulary.singles[usize::from(byte)] else { continue };
                let (frames, mut next) = (automaton.frames.len(), Vec::new());
                step(automaton, &[state], byte, &mut next);
                if !next.is_empty() && self.is_in_time(automaton, &next) {
                    self.mask.allow(id);
                }
                automaton.frames.truncate(frames);
            }
            return true;
        }
        let bounded = text.most != u32::MAX;
        if bounded && text.letter != Letter::Between {
            return false;
        }
        let tokens = vocabulary.in_string(text.letter);
        if bounded {
            vocabulary.allow_letters(text.most, self.mask);
        } else {
            self.mask.allow_all(&tokens.inside);
        }
        let closed = StringText { letter: Letter::Between, least: 0, ..text };
        let frames = automaton.frames.len();
        let (mut after_quote, mut states, mut stepped) = (Vec::new(), Vec::new(), Vec::new());
        step(automaton, &[FormState { at: At::Text(closed), ..state }], b'"', &mut after_quote);
        let fits = |letters: u32| text.least <= letters && letters <= text.most;
        // What stands behind the quote is sorted: what begins as a wrong one is wrong.
        let mut wrong: Option<&[u8]> = None;
        for (rest, ids) in &tokens.closing {
            if wrong.is_some_and(|wrong| rest.starts_with(wrong)) || !ids.iter().any(|(letters, _)| fits(*letters)) {
                continue;
            }
            let opened = automaton.frames.len();
            states.clone_from(&after_quote);
            for (at, &byte) in rest.iter().enumerate() {
                stepped.clear();
                step(automaton, &states, byte, &mut stepped);
                std::mem::swap(&mut states, &mut stepped);
                if states.is_empty() {
                    wrong = Some(&rest[..=at]);
                    break;
                }
            }
            if !states.is_empty() && self.is_in_time(automaton, &states) {
                for (_, id) in ids.iter().filter(|(letters, _)| fits(*letters)) {
                    self.mask.allow(*id);
                }
            }
            automaton.frames.truncate(opened);
        }
        automaton.frames.truncate(frames);
        true
    }
}
