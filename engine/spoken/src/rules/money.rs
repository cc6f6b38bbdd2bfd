//! Amounts of money.

use super::number::WrittenNumber;
use crate::numbers::cardinal;

/// Currency: signs before an amount, names of one and of many, and of the hundredth part.
struct Currency {
    signs: &'static [&'static str],
    names: [&'static str; 2],
    parts: Option<[&'static str; 2]>,
}

const CENTS: Option<[&str; 2]> = Some(["cent", "cents"]);
const CURRENCIES: &[Currency] = &[
    Currency { signs: &["US$", "USD"], names: ["US dollar", "US dollars"], parts: CENTS },
    Currency { signs: &["A$", "AU$"], names: ["Australian dollar", "Australian dollars"], parts: CENTS },
    Currency { signs: &["C$", "CA$"], names: ["Canadian dollar", "Canadian dollars"], parts: CENTS },
    Currency { signs: &["$"], names: ["dollar", "dollars"], parts: CENTS },
    Currency { signs: &["€", "EUR"], names: ["euro", "euros"], parts: CENTS },
    Currency { signs: &["£", "GBP"], names: ["pound", "pounds"], parts: Some(["penny", "pence"]) },
    Currency { signs: &["¥", "￥"], names: ["yen", "yen"], parts: None },
    Currency { signs: &["₹"], names: ["rupee", "rupees"], parts: None },
    Currency { signs: &["₩"], names: ["won", "won"], parts: None },
    Currency { signs: &["₽"], names: ["ruble", "rubles"], parts: None },
    Currency { signs: &["₿"], names: ["bitcoin", "bitcoins"], parts: None },
];

/// Words and letters for large numbers behind an amount.
const MAGNITUDES: &[(&str, &str)] = &[
    ("k", "thousand"),
    ("K", "thousand"),
    ("m", "million"),
    ("M", "million"),
    ("mn", "million"),
    ("mm", "million"),
    ("b", "billion"),
    ("B", "billion"),
    ("bn", "billion"),
    ("t", "trillion"),
    ("T", "trillion"),
    ("tn", "trillion"),
];

/// Amount of money, with its sign.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Money {
    /// Words before the name of the currency.
    pub amount: String,
    /// Name of the currency for this amount, and for millions of it.
    pub name: &'static str,
    pub plural: &'static str,
    /// Words behind the name: cents.
    pub parts: Option<String>,
}

impl Money {
    /// Returns all words.
    pub fn words(&self) -> String {
        let name = if self.amount.is_empty() { String::new() } else { format!("{} {}", self.amount, self.name) };
        match &self.parts {
            Some(parts) if name.is_empty() => parts.clone(),
            Some(parts) => format!("{name} and {parts}"),
            None => name,
        }
    }
}

/// Returns the name of a magnitude written in full.
pub fn magnitude(text: &str) -> Option<&'static str> {
    ["hundred", "thousand", "million", "billion", "trillion"].into_iter().find(|name| *name == text)
}

/// Returns the name of a magnitude written as a letter behind a number that is no amount of money.
pub fn letter(text: &str) -> Option<&'static str> {
    MAGNITUDES.iter().find(|(sign, _)| *sign == text).filter(|_| matches!(text, "k" | "M" | "bn" | "mn")).map(|m| m.1)
}

fn currency(text: &str) -> Option<(&'static Currency, &str)> {
    CURRENCIES.iter().find_map(|currency| {
        currency.signs.iter().find_map(|sign| text.strip_prefix(sign)).map(|rest| (currency, rest))
    })
}

/// Parses the amount of money that `text` begins with, such as `$5.50`, `-€5`, `$5M` or `$5–10`; returns it and the rest.
pub fn parse(text: &str) -> Option<(Money, &str)> {
    let (mut sign, text) = minus(text);
    let (currency, text) = currency(text)?;
    if sign.is_empty() {
        sign = minus(text).0;
    }
    let (number, rest) = WrittenNumber::parse(minus(text).1)?;
    let [one, many] = currency.names;
    if let Some(to) = rest.strip_prefix(['-', '–']) {
        let to = self::currency(to).map_or(to, |(_, to)| to);
        let (to, rest) = WrittenNumber::parse(to)?;
        let amount = format!("{sign}{} to {}", number.words(), to.words());
        let (amount, rest) = with_letter(amount, rest);
        return Some((Money { amount, name: many, plural: many, parts: None }, rest));
    }
    if let (Some(parts), Some(decimals)) = (currency.parts, number.decimals)
        && decimals.len() == 2
        && !rest.starts_with(|c: char| c.is_ascii_alphabetic())
        && let Ok(count) = decimals.parse::<u64>()
    {
        let none = number.integer.trim_start_matches('0').is_empty();
        let whole = WrittenNumber { decimals: None, ..number };
        let amount = if none && count > 0 { String::new() } else { format!("{sign}{}", whole.words()) };
        let parts = (count > 0).then(|| {
            let sign = if none { sign } else { "" };
            format!("{sign}{} {}", cardinal(count), parts[usize::from(count != 1)])
        });
        let name = if whole.is_singular() { one } else { many };
        return Some((Money { amount, name, plural: many, parts }, rest));
    }
    let (amount, behind) = with_letter(format!("{sign}{}", number.words()), rest);
    let name = if number.is_singular() && behind.len() == rest.len() { one } else { many };
    Some((Money { amount, name, plural: many, parts: None }, behind))
}

fn minus(text: &str) -> (&'static str, &str) {
    match text.strip_prefix(['-', '−']) {
        Some(rest) => ("minus ", rest),
        None => ("", text),
    }
}

/// Adds the name of a magnitude, if `rest` begins with its letters.
fn with_letter(amount: String, rest: &str) -> (String, &str) {
    let end = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
    match MAGNITUDES.iter().find(|(letters, _)| *letters == &rest[..end]) {
        Some((_, name)) => (format!("{amount} {name}"), &rest[end..]),
        None => (amount, rest),
    }
}
