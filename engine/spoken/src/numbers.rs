//! English words of numbers.

const ONES: [&str; 20] = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
];
const TENS: [&str; 10] = ["", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"];
const THOUSANDS: [(u64, &str); 6] = [
    (1_000_000_000_000_000_000, "quintillion"),
    (1_000_000_000_000_000, "quadrillion"),
    (1_000_000_000_000, "trillion"),
    (1_000_000_000, "billion"),
    (1_000_000, "million"),
    (1_000, "thousand"),
];
/// Ordinals that are no cardinal with "th".
const ORDINALS: [(&str, &str); 8] = [
    ("one", "first"),
    ("two", "second"),
    ("three", "third"),
    ("five", "fifth"),
    ("eight", "eighth"),
    ("nine", "ninth"),
    ("twelve", "twelfth"),
    ("y", "ieth"),
];

/// Returns a cardinal: "three hundred sixty-five".
pub fn cardinal(number: u64) -> String {
    let mut words = String::new();
    write_cardinal(number, &mut words);
    words
}

fn write_cardinal(mut number: u64, words: &mut String) {
    if number == 0 {
        words.push_str(ONES[0]);
        return;
    }
    for (thousand, name) in THOUSANDS.into_iter().chain([(100, "hundred")]) {
        if number >= thousand {
            write_cardinal(number / thousand, words);
            words.push(' ');
            words.push_str(name);
            number %= thousand;
            if number > 0 {
                words.push(' ');
            }
        }
    }
    let number = number as usize;
    match number {
        0 => {}
        1..20 => words.push_str(ONES[number]),
        _ => {
            words.push_str(TENS[number / 10]);
            if !number.is_multiple_of(10) {
                words.push('-');
                words.push_str(ONES[number % 10]);
            }
        }
    }
}

/// Returns an ordinal: "twenty-first".
pub fn ordinal(number: u64) -> String {
    let mut words = cardinal(number);
    for (cardinal, ordinal) in ORDINALS {
        if words.ends_with(cardinal) {
            words.truncate(words.len() - cardinal.len());
            words.push_str(ordinal);
            return words;
        }
    }
    // "eighth" has one t, and is in the table.
    words + "th"
}

/// Returns the plural of a cardinal: "nineties", "hundreds", "sixes".
pub fn plural(cardinal: &str) -> String {
    match cardinal.strip_suffix('y') {
        Some(stem) => format!("{stem}ies"),
        None if cardinal.ends_with('x') => format!("{cardinal}es"),
        None => format!("{cardinal}s"),
    }
}

/// Returns the name of each digit: "zero zero seven".
pub fn digits(digits: &str) -> String {
    let names = digits.chars().filter_map(|digit| digit.to_digit(10));
    names.map(|digit| ONES[digit as usize]).collect::<Vec<_>>().join(" ")
}

/// Returns the words of a year: "nineteen oh five", "two thousand eight", "twenty twenty-six".
pub fn year(year: u64) -> String {
    let (century, rest) = (year / 100, year % 100);
    match rest {
        _ if !(1000..10_000).contains(&year) || (year % 1000 < 10) => cardinal(year),
        0 => format!("{} hundred", cardinal(century)),
        1..10 => format!("{} oh {}", cardinal(century), cardinal(rest)),
        _ => format!("{} {}", cardinal(century), cardinal(rest)),
    }
}

/// Returns the words of a fraction: "one half", "three quarters", "five eighths". `None` if it has no such words.
pub fn fraction(numerator: u64, denominator: u64) -> Option<String> {
    let part = match denominator {
        2 => "half".to_owned(),
        4 => "quarter".to_owned(),
        3 | 5..=100 => ordinal(denominator),
        _ => return None,
    };
    let part = match (numerator, denominator) {
        (1, _) => part,
        (_, 2) => "halves".to_owned(),
        _ => part + "s",
    };
    Some(format!("{} {part}", cardinal(numerator)))
}

/// Returns the words of digits as they are written: a cardinal, or digit by digit if they begin with a zero or are too
/// many to be a count.
pub fn integer(written: &str) -> String {
    let counted = written.len() < 10 || (written.len() <= 18 && written.ends_with("000"));
    match written.parse::<u64>() {
        Ok(number) if counted && (written.len() == 1 || !written.starts_with('0')) => cardinal(number),
        _ => digits(written),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_of_number_has_words() {
        assert_eq!(cardinal(0), "zero");
        assert_eq!(cardinal(1_000_010), "one million ten");
        assert_eq!(cardinal(u64::MAX).split(' ').next(), Some("eighteen"));
        let ordinals = [8, 9, 12, 20, 21, 30, 100, 1_000].map(ordinal);
        let expected = "eighth ninth twelfth twentieth twenty-first thirtieth one hundredth one thousandth";
        assert_eq!(ordinals.join(" "), expected);
        assert_eq!([6, 20, 100].map(|number| plural(&cardinal(number))), ["sixes", "twenties", "one hundreds"]);
    }

    #[test]
    fn years_are_two_numbers() {
        let years = [1066, 1100, 1905, 1999, 2000, 2009, 2010, 2026, 3001].map(year);
        let expected = [
            "ten sixty-six",
            "eleven hundred",
            "nineteen oh five",
            "nineteen ninety-nine",
            "two thousand",
            "two thousand nine",
            "twenty ten",
            "twenty twenty-six",
            "three thousand one",
        ];
        assert_eq!(years, expected);
    }

    #[test]
    fn long_digits_are_read_one_by_one() {
        assert_eq!(integer("5551234567"), "five five five one two three four five six seven");
        assert_eq!(integer("3000000000"), "three billion");
        assert_eq!(integer("0"), "zero");
        assert_eq!(integer("00"), "zero zero");
        assert_eq!(integer(&"9".repeat(40)).split(' ').count(), 40);
    }
}
