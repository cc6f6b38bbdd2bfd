//! Sorted texts, byte by byte.

/// Range of sorted texts that share their first bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Index of the first text.
    pub low: u32,
    /// Text after the last.
    pub high: u32,
    /// Number of these bytes.
    pub offset: u32,
}

impl Span {
    /// All of so many texts.
    pub fn all(count: usize) -> Self {
        Self { low: 0, high: count as u32, offset: 0 }
    }

    /// Takes the next byte; `None` if no text goes on so.
    pub fn take<'a>(self, byte: u8, text: impl Fn(u32) -> &'a [u8]) -> Option<Self> {
        let next = |at: u32| text(at).get(self.offset as usize).copied();
        let first = |least: Option<u8>| {
            let (mut low, mut high) = (self.low, self.high);
            while low < high {
                let middle = low.midpoint(high);
                if next(middle) < least { low = middle + 1 } else { high = middle }
            }
            low
        };
        let low = first(Some(byte));
        let high = if byte == u8::MAX { self.high } else { first(Some(byte + 1)) };
        (low < high).then_some(Self { low, high, offset: self.offset + 1 })
    }
}
