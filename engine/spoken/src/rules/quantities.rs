//! Quantities in one word: numbers with signs before them and units, endings or further numbers behind them.

use super::number::{WrittenNumber, slash_fraction};
use super::{dates, money, phones, times, units};
use crate::numbers::{cardinal, fraction, ordinal, plural, year};

/// Number with its signs and units.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quantity {
    /// Spoken form, unit included.
    pub words: String,
    /// True if a unit behind it is in the singular.
    pub singular: bool,
    /// Value of an integer without signs.
    pub value: Option<u64>,
    /// True if a unit may follow as a word of its own.
    pub takes_unit: bool,
    /// Amount of money in it, if that is all.
    pub money: Option<money::Money>,
}

impl Quantity {
    fn new(words: impl Into<String>) -> Self {
        Self { words: words.into(), singular: false, value: None, takes_unit: false, money: None }
    }
}

/// Signs before a number.
const PREFIXES: &[(&str, &str)] = &[
    ("~", "about "),
    ("≈", "about "),
    ("±", "plus or minus "),
    ("+/-", "plus or minus "),
    ("<=", "at most "),
    ("≤", "at most "),
    (">=", "at least "),
    ("≥", "at least "),
    ("<", "less than "),
    (">", "more than "),
    ("+", "plus "),
    ("-", "minus "),
    ("−", "minus "),
    ("#", "number "),
    ("№", "number "),
    ("v", "version "),
    ("§", "section "),
];

/// Parses a quantity which is all of `text`. With `is_year` a number of four digits is a year.
pub fn parse(text: &str, is_year: bool) -> Option<Quantity> {
    let whole = phones::phone(text).or_else(|| dates::digits(text)).or_else(|| times::time(text, false));
    if let Some(words) = whole {
        return Some(Quantity::new(words));
    }
    if text == "24/7" {
        return Some(Quantity::new("twenty-four seven"));
    }
    let found = PREFIXES.iter().find_map(|(sign, words)| text.strip_prefix(sign).map(|rest| (*words, rest)));
    let (prefix, body) = found.unwrap_or(("", text));
    // The sign of an amount of money stands before its currency.
    if let Some((money, rest)) = money::parse(text).or_else(|| money::parse(body)) {
        let prefix = if money::parse(text).is_some() { "" } else { prefix };
        let words = format!("{prefix}{}{}", money.words(), behind_money(rest)?);
        let money = rest.is_empty().then_some(money::Money { amount: format!("{prefix}{}", money.amount), ..money });
        return Some(Quantity { money, ..Quantity::new(words) });
    }
    let quantity = phones::pointed(body).map(Quantity::new).or_else(|| unsigned(body, is_year))?;
    let value = quantity.value.filter(|_| prefix.is_empty());
    Some(Quantity { words: format!("{prefix}{}", quantity.words), value, ..quantity })
}

fn behind_money(rest: &str) -> Option<String> {
    match rest {
        "" => Some(String::new()),
        "+" => Some(" plus".to_owned()),
        _ => Some(format!(" {}", units::per_words(rest.strip_prefix('/')?)?)),
    }
}

/// Words of a number that may be a year: from 1900 on it is one without further signs.
fn plain(number: &WrittenNumber<'_>, is_year: bool) -> String {
    match number.value().filter(|_| number.is_year()) {
        Some(value) if is_year || value >= 1900 => year(value),
        _ => number.words(),
    }
}

fn unsigned(text: &str, is_year: bool) -> Option<Quantity> {
    let (number, rest) = WrittenNumber::parse(text)?;
    let (singular, value) = (number.is_singular(), number.value());
    let counted = |words: String| Some(Quantity { singular, value, takes_unit: true, ..Quantity::new(words) });
    if rest.is_empty() {
        return counted(plain(&number, is_year));
    }
    if let Some(words) = value.and_then(|value| with_ending(value, &number, rest)) {
        return Some(Quantity::new(words));
    }
    if let Some((numerator, denominator)) = slash_fraction(text) {
        let words = match denominator {
            _ if numerator == denominator => Some(format!("{0} {0}", cardinal(numerator))),
            10 | 100 => Some(format!("{} out of {}", cardinal(numerator), cardinal(denominator))),
            _ if numerator < denominator => fraction(numerator, denominator),
            _ => None,
        };
        let singular = numerator < denominator;
        return Some(Quantity { singular, takes_unit: true, ..Quantity::new(words?) });
    }
    if let Some(quantity) = with_number(&number, rest) {
        return Some(quantity);
    }
    let words = number.words();
    if let Some(name) = money::letter(rest) {
        return Some(Quantity { takes_unit: true, ..Quantity::new(format!("{words} {name}")) });
    }
    if let Some(unit) = units::unit(rest, singular) {
        return Some(Quantity::new(format!("{words} {unit}")));
    }
    let behind = match rest {
        "+" => Some(" plus".to_owned()),
        "²" => Some(" squared".to_owned()),
        "³" => Some(" cubed".to_owned()),
        _ => rest.strip_prefix('/').and_then(units::per_words).map(|per| format!(" {per}")),
    };
    if let Some(behind) = behind {
        return Some(Quantity::new(words + &behind));
    }
    let compound = rest.strip_prefix('-').filter(|word| word.starts_with(char::is_alphabetic))?;
    let letters = compound.chars().all(|c| c.is_alphabetic() || c == '-');
    letters.then(|| Quantity::new(format!("{words}-{compound}")))
}

/// Words of an ordinal or of a decade: `21st`, `1st-class`, `1990s`.
fn with_ending(value: u64, number: &WrittenNumber<'_>, rest: &str) -> Option<String> {
    if matches!(rest, "s" | "'s" | "’s") && value.is_multiple_of(10) {
        return Some(plural(&plain(number, number.integer.len() == 4)));
    }
    let (ending, behind) = rest.split_at_checked(2)?;
    let fits = matches!(ending, "st" | "nd" | "rd" | "th");
    let word = behind.is_empty() || behind.starts_with('-');
    (fits && word && behind.chars().all(|c| c.is_alphabetic() || c == '-')).then(|| ordinal(value) + behind)
}

/// Two numbers: a range, a product, or a power.
fn with_number(number: &WrittenNumber<'_>, rest: &str) -> Option<Quantity> {
    let sign = rest.chars().next()?;
    let (second, behind) = WrittenNumber::parse(&rest[sign.len_utf8()..])?;
    let years = number.is_year() && second.is_year();
    let (first, last) = match years {
        true => (plain(number, true), plain(&second, true)),
        false => (number.words(), second.words()),
    };
    let words = match sign {
        '-' | '–' | '—' | '‑' => format!("{first} to {last}"),
        '/' if number.decimals.is_some() => format!("{first} out of {last}"),
        'x' | 'X' => format!("{} by {}", number.words(), second.words()),
        '×' | '*' => format!("{first} times {last}"),
        '^' => match second.value() {
            Some(2) => format!("{first} squared"),
            Some(3) => format!("{first} cubed"),
            _ => format!("{first} to the power of {last}"),
        },
        _ => return None,
    };
    if behind.is_empty() {
        return Some(Quantity { takes_unit: true, ..Quantity::new(words) });
    }
    if let Some(name) = money::letter(behind) {
        return Some(Quantity { takes_unit: true, ..Quantity::new(format!("{words} {name}")) });
    }
    let unit = units::unit(behind, false).or_else(|| behind.strip_prefix('/').and_then(units::per_words));
    unit.map(|unit| Quantity::new(format!("{words} {unit}")))
}
