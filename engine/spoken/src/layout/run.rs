//! Runs of marks of emphasis within a line.

/// Meaning of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunMeaning {
    /// Mark of emphasis, or a decoration.
    Silent,
    /// Text: this character, so many times.
    Text(char, usize),
}

/// Returns the meaning of `count` marks between the characters `before` and `behind`; `None` stands for the border of a line.
///
/// A mark of emphasis is silent whether another one closes it or not: so nothing waits for the end of the emphasis.
pub fn meaning(mark: char, count: usize, before: Option<char>, behind: Option<char>) -> RunMeaning {
    let space = |c: Option<char>| c.is_none_or(char::is_whitespace);
    let letter = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
    let free = space(before) && space(behind);
    let factor = |c: Option<char>, bracket: char| c.is_some_and(|c| c.is_ascii_digit() || c == bracket);
    let factors = factor(before, ')') && factor(behind, '(');
    match (mark, count) {
        ('*', 1) if factors => RunMeaning::Text('×', 1),
        ('*', 2) if factors => RunMeaning::Text('^', 1),
        ('*', 1) if free => RunMeaning::Text('×', 1),
        ('_', _) if letter(before) && letter(behind) => RunMeaning::Text('_', 1),
        ('~', 1) | ('=', 1) => RunMeaning::Text(mark, 1),
        ('=', 2 | 3) if free || (letter(before) && letter(behind)) => RunMeaning::Text('=', 2),
        _ => RunMeaning::Silent,
    }
}
