//! Bounds of a Vorbis stream's code books (Vorbis I specification, 3.2.1 and 4.2.4).
//!
//! A book of few bytes may declare 2 million values, and a header has up to 256 books: 2 GiB from 10 KB. The decoder bounds each book,
//! and not their sum, so the books are measured before it is created.

/// Maximum numbers in all books: real encoders use a twentieth.
const MAX_VALUES: u64 = 1 << 22;
/// Maximum entries in all books.
const MAX_ENTRIES: u64 = 1 << 19;
/// Length of the identification header, which stands before the setup header.
const IDENTIFICATION: usize = 30;
/// Length of the setup header's own head: packet type and signature.
const HEAD: usize = 7;
/// First byte of the identification header. The decoder takes another form, too, which no container here has.
const IDENTIFICATION_TYPE: u8 = 1;
/// First bits of a code book.
const SYNC: u32 = 0x56_4342;

/// Reader of bit fields, the lowest bit first.
struct Bits<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Bits<'_> {
    /// Reads `count` bits, at most 32; `None` at the end.
    fn take(&mut self, count: u32) -> Option<u32> {
        let mut value = 0;
        for bit in 0..count {
            let byte = self.bytes.get(self.at / 8)?;
            value |= u32::from(byte >> (self.at % 8) & 1) << bit;
            self.at += 1;
        }
        Some(value)
    }

    /// Skips `count` bits; `None` beyond the end.
    fn skip(&mut self, count: u64) -> Option<()> {
        let end = self.at as u64 + count;
        self.at = usize::try_from(end).ok().filter(|end| *end <= self.bytes.len() * 8)?;
        Some(())
    }
}

/// True if the books of a stream with these headers, identification and setup, are complete and within the limits.
pub(super) fn is_bounded(headers: &[u8]) -> bool {
    let (Some(&IDENTIFICATION_TYPE), Some(setup)) = (headers.first(), headers.get(IDENTIFICATION + HEAD..)) else {
        return false;
    };
    let mut bits = Bits { bytes: setup, at: 0 };
    let (mut values, mut entries) = (0, 0);
    let Some(last) = bits.take(8) else { return false };
    for _ in 0..=last {
        let Some(book) = book(&mut bits) else { return false };
        values += book.values;
        entries += book.entries;
        if values > MAX_VALUES || entries > MAX_ENTRIES {
            return false;
        }
    }
    true
}

/// Size of a code book.
struct BookSize {
    entries: u64,
    values: u64,
}

/// Reads one book.
fn book(bits: &mut Bits<'_>) -> Option<BookSize> {
    if bits.take(24)? != SYNC {
        return None;
    }
    let (dimensions, entries) = (u64::from(bits.take(16)?), u64::from(bits.take(24)?));
    if entries > MAX_ENTRIES {
        return None;
    }
    if bits.take(1)? == 1 {
        bits.take(5)?;
        let mut current = 0;
        while current < entries {
            current += u64::from(bits.take((entries - current).ilog2() + 1)?);
        }
    } else if bits.take(1)? == 1 {
        for _ in 0..entries {
            if bits.take(1)? == 1 {
                bits.skip(5)?;
            }
        }
    } else {
        bits.skip(5 * entries)?;
    }
    let lookup = bits.take(4)?;
    if lookup == 0 {
        return Some(BookSize { entries, values: 0 });
    }
    bits.skip(64)?;
    let width = u64::from(bits.take(4)? + 1);
    bits.skip(1)?;
    let numbers = match lookup {
        1 => lattice_side(entries, dimensions),
        _ => entries * dimensions,
    };
    bits.skip(numbers * width)?;
    Some(BookSize { entries, values: entries * dimensions })
}

/// Largest number whose power of `dimensions` is at most `entries`.
fn lattice_side(entries: u64, dimensions: u64) -> u64 {
    let fits = |side: u64| {
        let mut product = 1_u64;
        // A side of 2 exceeds every number of entries after 64 dimensions.
        (0..dimensions.min(64)).all(|_| {
            product = product.saturating_mul(side);
            product <= entries
        })
    };
    (1..=entries).take_while(|side| fits(*side)).last().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Headers with `books` books of `entries` entries and `dimensions` dimensions, in order of length.
    fn headers(books: u32, entries: u32, dimensions: u32) -> Vec<u8> {
        let mut bits = Vec::new();
        let mut put = |value: u32, count: u32| bits.extend((0..count).map(|bit| bit < 32 && value >> bit & 1 == 1));
        put(books - 1, 8);
        for _ in 0..books {
            put(SYNC, 24);
            put(dimensions, 16);
            put(entries, 24);
            // All codewords have the same length.
            put(1, 1);
            put(entries.ilog2() - 1, 5);
            put(entries, entries.ilog2() + 1);
            put(1, 4);
            put(0, 32);
            put(0, 32);
            put(0, 4);
            put(0, 1);
            put(0, lattice_side(u64::from(entries), u64::from(dimensions)) as u32);
        }
        let mut file = vec![IDENTIFICATION_TYPE; IDENTIFICATION + HEAD];
        file.extend(bits.chunks(8).map(|byte| byte.iter().rev().fold(0, |value, bit| value << 1 | u8::from(*bit))));
        file
    }

    #[test]
    fn sum_of_the_books_is_bounded() {
        assert!(is_bounded(&headers(40, 1 << 12, 4)));
        let hostile = headers(256, 1 << 17, 32);
        assert!(hostile.len() < 10_000 && !is_bounded(&hostile), "2 GiB from {} bytes", hostile.len());
        assert!(!is_bounded(&headers(256, 1 << 12, 1)), "entries count too");
        let mut cut = headers(4, 64, 4);
        cut.truncate(cut.len() - 8);
        assert!(!is_bounded(&cut) && !is_bounded(&[]));
    }

    #[test]
    fn side_of_a_lattice() {
        for (entries, dimensions, side) in
            [(6_561, 8, 3), (81, 4, 3), (80, 4, 2), (1 << 17, 32, 1), (9, 1, 9), (0, 2, 0)]
        {
            assert_eq!(lattice_side(entries, dimensions), side, "{entries} {dimensions}");
        }
    }
}
