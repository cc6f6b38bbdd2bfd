//! candle's interpreter of pickles, step by step within bounds: it takes lengths from the file, copies what a pickle
//! repeats, and nests without end.

use std::io::Cursor;

use candle_core::pickle::{Object, Stack};

use crate::error::FormatError;

/// Most nested objects: a dictionary of dictionaries of tensors has eight.
const DEPTH: usize = 64;
/// Most objects that are kept or repeated. A tensor takes about a hundred.
const OBJECTS: usize = 4 << 20;
/// Most objects that are visited while objects grow.
const VISITS: usize = 64 << 20;

// Codes with bounds of their own, as in Python's pickletools.
const UNICODE: u8 = b'X';
const LONG: u8 = 0x8a;
const DICT: u8 = b'd';
const REPEATS: [u8; 4] = [b'h', b'j', b'q', b'r'];

/// Runs a pickle; returns its object.
pub(super) fn run(file: &str, pickle: &[u8]) -> Result<Object, FormatError> {
    let (mut stack, mut bytes) = (Stack::empty(), Cursor::new(pickle));
    let (mut objects, mut visits) = (0, 0);
    loop {
        let at = bytes.position() as usize;
        let refused = |message: &str| {
            let field = format!("byte {at} of data.pkl");
            FormatError::refused(file, field, format!("{message}: copy the file again, or save only its tensors"))
        };
        let Some((code, rest)) = pickle.get(at..).and_then(<[u8]>::split_first) else {
            return Err(refused("the pickle is truncated"));
        };
        check(*code, rest).map_err(refused)?;
        if stack.read(&mut bytes).map_err(|error| refused(&first_line(&error.to_string())))? {
            return stack.finalize().map_err(|error| refused(&first_line(&error.to_string())));
        }
        let Some(top) = stack.stack().last() else { continue };
        let size = size(top, DEPTH).ok_or_else(|| refused(&format!("objects are nested more than {DEPTH} deep")))?;
        visits += size;
        // A repeated object is copied; the others are as many as the bytes.
        objects += if REPEATS.contains(code) { size } else { 1 };
        if objects > OBJECTS || visits > VISITS {
            return Err(refused("the pickle has too many objects"));
        }
    }
}

/// Checks the length of a code's argument, and what candle reads otherwise than Python.
fn check(code: u8, rest: &[u8]) -> Result<(), &'static str> {
    match (code, rest) {
        (UNICODE, [a, b, c, d, rest @ ..]) if u32::from_le_bytes([*a, *b, *c, *d]) as usize > rest.len() => {
            Err("a text is longer than the pickle")
        }
        (LONG, [length, rest @ ..]) => {
            let bytes = rest.get(..usize::from(*length)).ok_or("an integer is longer than the pickle")?;
            let is_negative = bytes.last().is_some_and(|byte| *byte > 127);
            // Python writes those of four bytes otherwise.
            if bytes.len() > 8 || is_negative && bytes.len() < 8 { Err("an integer is too large") } else { Ok(()) }
        }
        (DICT, _) => Err("the code `d` is not read"),
        _ => Ok(()),
    }
}

/// Number of objects in an object, itself included; `None` if they are nested more than `depth` deep.
fn size(object: &Object, depth: usize) -> Option<usize> {
    let depth = depth.checked_sub(1)?;
    let sum =
        |mut objects: std::slice::Iter<'_, Object>| objects.try_fold(1, |sum, object| Some(sum + size(object, depth)?));
    match object {
        Object::Tuple(items) | Object::List(items) => sum(items.iter()),
        Object::Dict(entries) => {
            entries.iter().try_fold(1, |sum, (key, value)| Some(sum + size(key, depth)? + size(value, depth)?))
        }
        Object::Reduce { callable, args } | Object::Build { callable, args } => {
            Some(1 + size(callable, depth)? + size(args, depth)?)
        }
        Object::PersistentLoad(object) => Some(1 + size(object, depth)?),
        _ => Some(1),
    }
}

/// First line of one of candle's errors, which adds a backtrace where one is wanted.
fn first_line(error: &str) -> String {
    error.lines().next().unwrap_or_default().chars().take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(pickle: &[u8]) -> String {
        run("a.pt", pickle).unwrap_err().to_string()
    }

    #[test]
    fn plain_values_are_read() {
        assert_eq!(run("a.pt", b"\x80\x02K\x07.").unwrap(), Object::Int(7));
        let list = Object::List(vec![Object::None, Object::Bool(true)]);
        assert_eq!(run("a.pt", b"\x80\x02]q\x00(N\x88e.").unwrap(), list);
    }

    #[test]
    fn bounds_hold_for_hostile_pickles() {
        assert!(refusal(b"\x80\x02X\xff\xff\xff\xffabc").contains("byte 2 of data.pkl: a text is longer"));
        assert!(refusal(b"\x80\x02\x8a\x09abcdefghi.").contains("an integer is too large"));
        assert!(refusal(b"\x80\x02K").contains("byte 2 of data.pkl"));
        let deep = [&b"\x80\x02N"[..], &[0x85; 100], b"."].concat();
        assert!(refusal(&deep).contains("nested more than 64 deep"));
        // Each step makes a tuple of two copies: two to the power of the steps.
        let step = [b'q', 0, b'h', 0, 0x86];
        let doubled = [&b"\x80\x02N"[..], &step.repeat(40), b"."].concat();
        assert!(refusal(&doubled).contains("too many objects"));
    }
}
