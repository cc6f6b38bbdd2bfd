//! Target of a link: what stands in parentheses behind its text.

/// State of a target after another character.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TargetStep {
    /// The target goes on.
    More,
    /// The character ends the target.
    Done,
    /// This is no target, and the character is not a part of it.
    Failed,
}

/// Maximum length of a target that is held back, in bytes. A longer one is surely no text.
const MAX_HELD: usize = 256;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Address,
    /// White space follows the address.
    Space,
    /// Title, up to this mark.
    Title(char),
    /// The title has ended.
    Closing,
}

/// Recogniser of a target, from its opening parenthesis on.
#[derive(Debug, Clone)]
pub struct LinkTarget {
    stage: Stage,
    depth: u32,
    /// Characters so far, while they may turn out to be text.
    pub held: String,
    /// Offset of the parenthesis in the written text.
    pub start: usize,
    /// True once the target is too long to be text.
    long: bool,
}

impl LinkTarget {
    /// Begins behind an opening parenthesis at offset `start`.
    pub fn new(start: usize) -> Self {
        Self { stage: Stage::Address, depth: 0, held: "(".to_owned(), start, long: false }
    }

    /// Takes the next character.
    pub fn take(&mut self, next: char) -> TargetStep {
        if next == '\n' {
            return if self.long { TargetStep::Done } else { TargetStep::Failed };
        }
        let step = self.step(next);
        if step == TargetStep::Failed {
            return if self.long { TargetStep::Done } else { step };
        }
        self.held.push(next);
        if self.held.len() > MAX_HELD {
            self.long = true;
            self.held.clear();
        }
        step
    }

    fn step(&mut self, next: char) -> TargetStep {
        match (self.stage, next) {
            (Stage::Address, '(') => self.depth = self.depth.saturating_add(1),
            (Stage::Address, ')') if self.depth == 0 => return TargetStep::Done,
            (Stage::Address, ')') => self.depth -= 1,
            (Stage::Address, _) if next.is_whitespace() => self.stage = Stage::Space,
            (Stage::Space | Stage::Closing, ')') => return TargetStep::Done,
            (Stage::Space, '"' | '\'') => self.stage = Stage::Title(next),
            (Stage::Space, '(') => self.stage = Stage::Title(')'),
            (Stage::Title(end), _) if next == end => self.stage = Stage::Closing,
            (Stage::Space | Stage::Closing, _) if !next.is_whitespace() => return TargetStep::Failed,
            _ => {}
        }
        TargetStep::More
    }
}
