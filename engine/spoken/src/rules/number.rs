//! Numbers as they are written: digits with separators, decimals, fractions.

use crate::numbers;

/// Number as it is written, without a sign.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrittenNumber<'a> {
    /// Digits before the point, without separators; may be empty.
    pub integer: String,
    /// True if separators of thousands stand between the digits.
    pub grouped: bool,
    /// Digits behind the point.
    pub decimals: Option<&'a str>,
    /// Numerator and denominator of a fraction behind the integer.
    pub fraction: Option<(u64, u64)>,
}

/// Fractions with a character of their own.
const FRACTIONS: [(char, (u64, u64)); 15] = [
    ('½', (1, 2)),
    ('⅓', (1, 3)),
    ('⅔', (2, 3)),
    ('¼', (1, 4)),
    ('¾', (3, 4)),
    ('⅕', (1, 5)),
    ('⅖', (2, 5)),
    ('⅗', (3, 5)),
    ('⅘', (4, 5)),
    ('⅙', (1, 6)),
    ('⅚', (5, 6)),
    ('⅛', (1, 8)),
    ('⅜', (3, 8)),
    ('⅝', (5, 8)),
    ('⅞', (7, 8)),
];

/// Returns the digits that `text` begins with, and the rest.
pub fn split_digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

/// Returns a number of up to 18 digits.
pub fn whole(text: &str) -> Option<u64> {
    let fits = !text.is_empty() && text.len() <= 18 && text.bytes().all(|b| b.is_ascii_digit());
    fits.then(|| text.parse().ok()).flatten()
}

impl<'a> WrittenNumber<'a> {
    /// Parses the number that `text` begins with; returns it and the rest.
    pub fn parse(text: &'a str) -> Option<(Self, &'a str)> {
        let (first, mut rest) = split_digits(text);
        let mut integer = first.to_owned();
        let mut grouped = false;
        if (1..=3).contains(&first.len()) {
            while let Some(group) = rest.strip_prefix(',')
                && let (digits, behind) = split_digits(group)
                && digits.len() == 3
            {
                integer.push_str(digits);
                (grouped, rest) = (true, behind);
            }
        }
        let mut decimals = None;
        if let Some((digits, behind)) = rest.strip_prefix('.').map(split_digits)
            && !digits.is_empty()
        {
            (decimals, rest) = (Some(digits), behind);
        }
        let mut fraction = None;
        if decimals.is_none()
            && let Some(sign) = rest.chars().next()
            && let Some((_, parts)) = FRACTIONS.iter().find(|(known, _)| *known == sign)
        {
            (fraction, rest) = (Some(*parts), &rest[sign.len_utf8()..]);
        }
        let found = !integer.is_empty() || decimals.is_some() || fraction.is_some();
        found.then_some((Self { integer, grouped, decimals, fraction }, rest))
    }

    /// Returns the value of an integer of up to 18 digits.
    pub fn value(&self) -> Option<u64> {
        whole(&self.integer).filter(|_| self.decimals.is_none() && self.fraction.is_none())
    }

    /// True if a unit behind the number has no plural: for one, and for a fraction of one.
    pub fn is_singular(&self) -> bool {
        self.value() == Some(1) || (self.integer.is_empty() && self.fraction.is_some())
    }

    /// True if the digits may be a year.
    pub fn is_year(&self) -> bool {
        !self.grouped && self.integer.len() == 4 && self.value().is_some_and(|value| (1000..2200).contains(&value))
    }

    /// Returns the words.
    pub fn words(&self) -> String {
        let integer = numbers::integer(&self.integer);
        match (self.decimals, self.fraction) {
            (Some(decimals), _) if self.integer.is_empty() => format!("point {}", numbers::digits(decimals)),
            (Some(decimals), _) => format!("{integer} point {}", numbers::digits(decimals)),
            (None, Some(parts)) if self.integer.is_empty() => fraction_words(parts),
            (None, Some(parts)) => format!("{integer} and {}", behind_integer(parts)),
            (None, None) => integer,
        }
    }
}

fn fraction_words((numerator, denominator): (u64, u64)) -> String {
    numbers::fraction(numerator, denominator)
        .unwrap_or_else(|| format!("{} over {}", numbers::cardinal(numerator), numbers::cardinal(denominator)))
}

/// Returns the words of a fraction behind an integer: "a half", "three quarters".
pub fn behind_integer(parts: (u64, u64)) -> String {
    let words = fraction_words(parts);
    match words.strip_prefix("one ") {
        Some(part) => format!("a {part}"),
        None => words,
    }
}

/// Parses a fraction such as `3/4`, which is all of `text`.
pub fn slash_fraction(text: &str) -> Option<(u64, u64)> {
    let (numerator, denominator) = text.split_once('/')?;
    let (numerator, denominator) = (whole(numerator)?, whole(denominator)?);
    ((1..=100).contains(&numerator) && (2..=100).contains(&denominator)).then_some((numerator, denominator))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn separators_stand_between_groups_of_three() {
        let parsed = |text| WrittenNumber::parse(text).map(|(number, rest)| (number.integer, rest));
        let some = |integer: &str, rest| Some((integer.to_owned(), rest));
        assert_eq!(parsed("1,234,567 of"), some("1234567", " of"));
        assert_eq!(parsed("1,2345"), some("1", ",2345"));
        assert_eq!(parsed("1234,567"), some("1234", ",567"));
        assert_eq!(parsed("12,34"), some("12", ",34"));
        assert_eq!(parsed("1,"), some("1", ","));
        assert_eq!(parsed("a"), None);
    }
}
