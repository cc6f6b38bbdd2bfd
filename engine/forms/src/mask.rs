//! Sets of token ids.

/// Set of token ids.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mask {
    words: Vec<u64>,
}

impl Mask {
    /// An empty set of ids below `size`.
    pub fn new(size: usize) -> Self {
        Self { words: vec![0; size.div_ceil(64)] }
    }

    /// Empties the set.
    pub fn clear(&mut self) {
        self.words.fill(0);
    }

    /// Adds an id below the size; others are left out.
    pub fn allow(&mut self, id: u32) {
        if let Some(word) = self.words.get_mut(id as usize / 64) {
            *word |= 1 << (id % 64);
        }
    }

    /// Adds the ids of another set.
    pub fn allow_all(&mut self, other: &Self) {
        for (word, more) in self.words.iter_mut().zip(&other.words) {
            *word |= more;
        }
    }

    /// True if an id is in the set.
    pub fn allows(&self, id: u32) -> bool {
        self.words.get(id as usize / 64).is_some_and(|word| word >> (id % 64) & 1 == 1)
    }

    /// True if no id is in the set.
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }

    /// The ids, ascending.
    pub fn ids(&self) -> impl Iterator<Item = u32> {
        self.words.iter().enumerate().flat_map(|(at, &word)| {
            let mut left = word;
            std::iter::from_fn(move || {
                let bit = (left != 0).then(|| left.trailing_zeros())?;
                left &= left - 1;
                Some(at as u32 * 64 + bit)
            })
        })
    }

    /// The set as words: bit `i` of word `j` is id `32 j + i`.
    pub fn words(&self) -> impl Iterator<Item = u32> {
        self.words.iter().flat_map(|word| [*word as u32, (word >> 32) as u32])
    }
}
