//! Texts that are held to a form: the set of the tokens that may follow, and what a device adds to a row of logits.

use std::sync::Arc;
use std::time::Instant;

use anyhow::Result;
use repartee_forms::{Grammar, Matcher, Vocabulary};
use repartee_kernels::cpu::Cpu;
use repartee_kernels::random::uniform;
use repartee_kernels::shapes::held_words;
use repartee_kernels::{Ops as _, SpecLayout};
use repartee_report::ReportRow;

use crate::bed::median;

/// Number of tokens of a large language model.
const VOCABULARY: u32 = 151_936;
/// Texts and their most tokens.
const TEXTS: u64 = 40;
const MOST: usize = 200;
/// Number of timed repetitions of the operations.
const REPEATS: usize = 101;
/// Letters of the tokens: as likely as in texts and programs, about.
const LETTERS: &[u8] = b"eeeeettttaaaooiinnsshhrrdlucmfwypvbgkjqxz0123456789.,;:'\"\\(){}[]<>=/_-\n";
const SCHEMA: &str = r##"{"type": "object", "required": ["name", "steps", "price"], "properties": {"name": {"type": "string"},
    "price": {"type": "number", "minimum": 0}, "kind": {"enum": ["div", "button", "form"]}, "steps": {"type": "array",
    "items": {"$ref": "#/$defs/step"}}, "others": {"additionalProperties": {"type": "string", "maxLength": 40}}},
    "$defs": {"step": {"type": "object", "required": ["text"], "properties": {"text": {"type": "string"}, "next":
    {"anyOf": [{"$ref": "#/$defs/step"}, {"type": "null"}]}}}}}"##;

/// Tokens of one to twelve letters, half of them after a space; all bytes are tokens.
fn vocabulary() -> Result<Vocabulary> {
    let token = |id: u32| {
        if id < 256 {
            return vec![id as u8];
        }
        let draw = |stream: u64, end: usize| (uniform(17, u64::from(id), stream, 0) * end as f32) as usize;
        let length = 1 + draw(0, 12);
        let space = (draw(1, 2) == 0).then_some(b' ');
        space.into_iter().chain((0..length).map(|at| LETTERS[draw(2 + at as u64, LETTERS.len())])).collect()
    };
    let tokens = (0..VOCABULARY - 1).map(|id| (id, token(id)));
    Ok(Vocabulary::new(tokens, VOCABULARY as usize, vec![VOCABULARY - 1])?)
}

pub fn rows() -> Result<Vec<ReportRow>> {
    let begun = Instant::now();
    let vocabulary = Arc::new(vocabulary()?);
    let read = begun.elapsed().as_secs_f64() * 1e3;
    let begun = Instant::now();
    let grammar = Arc::new(Grammar::json(SCHEMA)?);
    let compiled = begun.elapsed().as_secs_f64() * 1e6;
    let mut times = Vec::new();
    for text in 0..TEXTS {
        let mut matcher = Matcher::new(Arc::clone(&grammar), Arc::clone(&vocabulary));
        for left in (1..=MOST).rev() {
            let begun = Instant::now();
            let mask = matcher.mask(left);
            let found = begun.elapsed();
            let allowed: Vec<u32> = mask.ids().collect();
            let at = (uniform(text, left as u64, 0, 0) * allowed.len() as f32) as usize;
            let begun = Instant::now();
            matcher.advance(allowed[at.min(allowed.len() - 1)]);
            times.push((found + begun.elapsed()).as_secs_f64() * 1e6);
            if matcher.is_ended() {
                break;
            }
        }
    }
    times.sort_by(f64::total_cmp);
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
    let note = |what: &str| format!("{what}, {VOCABULARY} ids, {} tokens of {TEXTS} texts", times.len());
    Ok(vec![
        ReportRow::without_peer("held_mask", at(0.5), "us", note("tokens that may follow, and taking one: median")),
        ReportRow::without_peer("held_mask_p99", at(0.99), "us", note("p99")),
        ReportRow::without_peer("held_mask_most", at(1.0), "us", note("the longest")),
        ReportRow::without_peer("held_logits", logits()?, "us", format!("a row of {VOCABULARY} logits, one thread")),
        ReportRow::without_peer("held_vocabulary", read, "ms", "reading the vocabulary, once for a model".to_owned()),
        ReportRow::without_peer("held_schema", compiled, "us", "reading a schema of 600 bytes".to_owned()),
    ])
}

/// Time of the operations on one row of logits, in microseconds. In half of the words half of the bits are set, so more are
/// than of a text.
fn logits() -> Result<f64> {
    let ops = Cpu::default();
    let columns = VOCABULARY as usize;
    let mut layout = SpecLayout::default();
    let (rows, bits) = (layout.list(1), layout.list(held_words(columns)));
    let mut spec = layout.spec();
    let mut logits = Some(ops.tensor(vec![1.0; columns], columns));
    let mut one = || {
        let begun = Instant::now();
        spec.set(rows, &[0]);
        spec.set_each(bits, (0..held_words(columns)).map(|at| (at as u32).wrapping_mul(0x9e37_79b9)));
        let uploaded = ops.upload(&spec);
        let (at, bits) = (ops.index(&uploaded, rows), ops.index(&uploaded, bits));
        logits = logits.take().map(|before| ops.hold_at(before, &at, &bits));
        begun.elapsed().as_secs_f64() * 1e6
    };
    Ok(median((0..REPEATS).map(|_| one()).collect()))
}
