//! Numbers in a range, digit by digit: a number that was begun can always be completed within it.

/// Most digits before the point.
const WHOLE: u8 = 15;
/// Most digits behind the point.
const FRACTION: u8 = 9;
/// Most digits of an exponent.
const EXPONENT: u8 = 2;

/// Range of numbers: of magnitudes, for each sign, in units of 10^-9, or of 1 for integers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NumberRange {
    /// True for whole numbers.
    pub integer: bool,
    /// True if numbers of any size are in it: those may have an exponent.
    pub all: bool,
    /// Magnitudes of numbers from 0 on; `None` for none.
    pub positive: Option<(u128, u128)>,
    /// Magnitudes of numbers below 0.
    pub negative: Option<(u128, u128)>,
}

/// A bound of a range.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bound {
    /// The number at the range's end.
    pub at: f64,
    /// True if the number itself is outside.
    pub excluded: bool,
}

impl NumberRange {
    /// Range between bounds.
    pub fn new(integer: bool, low: &[Bound], high: &[Bound]) -> Self {
        let unit = if integer { 1 } else { 10_i128.pow(u32::from(FRACTION)) };
        let most = 10_i128.pow(u32::from(WHOLE)) * unit - 1;
        let low = low.iter().map(|bound| lowest(*bound, integer, most)).fold(-most, i128::max);
        let high =
            high.iter().map(|bound| -lowest(Bound { at: -bound.at, ..*bound }, integer, most)).fold(most, i128::min);
        let range = |low: i128, high: i128| (low <= high).then_some((low.unsigned_abs(), high.unsigned_abs()));
        Self {
            integer,
            all: (low, high) == (-most, most),
            positive: range(low.max(0), high),
            negative: range((-high).max(1), -low),
        }
    }

    fn of_sign(&self, negative: bool) -> Option<(u128, u128)> {
        if negative { self.negative } else { self.positive }
    }

    fn unit(&self) -> u128 {
        if self.integer { 1 } else { 10_u128.pow(u32::from(FRACTION)) }
    }

    /// Fewest bytes of a number; `None` if there is none.
    pub fn shortest(&self) -> Option<u32> {
        NumberText::default().more(self)
    }
}

/// The lowest number of a range that begins with a bound, in units; limited to `most` of either sign.
fn lowest(bound: Bound, integer: bool, most: i128) -> i128 {
    // The shortest decimal of a number, without an exponent.
    let text = bound.at.abs().min(1e16).to_string();
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    let places = if integer { 0 } else { usize::from(FRACTION) };
    let kept: String = fraction.chars().chain(std::iter::repeat('0')).take(places).collect();
    let rest = fraction.get(places..).is_some_and(|rest| rest.bytes().any(|digit| digit != b'0'));
    let magnitude: i128 = format!("{whole}{kept}").parse().unwrap_or(most);
    let mut low = if bound.at < 0.0 { -magnitude } else { magnitude + i128::from(rest) };
    if bound.excluded && !rest {
        // A step that a double of this size can tell.
        low += 1 + if integer { 0 } else { magnitude / 1_000_000_000_000 };
    }
    low.clamp(-most - 1, most + 1)
}

/// Part of a number's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// Nothing, or a sign.
    Sign,
    /// Digits before the point.
    Whole,
    /// The point, and digits behind it.
    Fraction,
    /// The letter of an exponent.
    Letter,
    /// Its sign.
    ExponentSign,
    /// Its digits.
    Exponent,
}

/// Text of a number so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NumberText {
    part: Part,
    negative: bool,
    /// Digits of this part.
    digits: u8,
    /// All digits before the exponent, as one number.
    magnitude: u128,
}

impl Default for NumberText {
    fn default() -> Self {
        Self { part: Part::Sign, negative: false, digits: 0, magnitude: 0 }
    }
}

impl NumberText {
    /// Takes a byte; `None` if no number of the range goes on so.
    pub fn take(self, byte: u8, range: &NumberRange) -> Option<Self> {
        let digit = byte.is_ascii_digit().then(|| u128::from(byte - b'0'));
        let next = match (self.part, byte) {
            (Part::Sign, b'-') if !self.negative => Self { negative: true, ..self },
            (Part::Sign | Part::Whole, b'0'..=b'9') => {
                let zero = self.part == Part::Whole && self.magnitude == 0;
                if zero || self.digits == WHOLE {
                    return None;
                }
                let magnitude = self.magnitude * 10 + digit?;
                Self { part: Part::Whole, digits: self.digits + 1, magnitude, ..self }
            }
            (Part::Whole, b'.') if !range.integer => Self { part: Part::Fraction, digits: 0, ..self },
            (Part::Fraction, b'0'..=b'9') if self.digits < FRACTION => {
                Self { digits: self.digits + 1, magnitude: self.magnitude * 10 + digit?, ..self }
            }
            (Part::Whole | Part::Fraction, b'e' | b'E') if range.all && !range.integer && self.is_complete(range) => {
                Self { part: Part::Letter, digits: 0, ..self }
            }
            (Part::Letter, b'+' | b'-') => Self { part: Part::ExponentSign, ..self },
            (Part::Letter | Part::ExponentSign | Part::Exponent, b'0'..=b'9') if self.digits < EXPONENT => {
                Self { part: Part::Exponent, digits: self.digits + 1, ..self }
            }
            _ => return None,
        };
        next.more(range).is_some().then_some(next)
    }

    /// True if the text is a number of the range.
    pub fn is_complete(self, range: &NumberRange) -> bool {
        match self.part {
            Part::Sign | Part::Letter | Part::ExponentSign => false,
            Part::Exponent => true,
            Part::Fraction if self.digits == 0 => false,
            Part::Whole | Part::Fraction => {
                let (low, high) = self.scaled(range);
                let value = if self.part == Part::Whole { self.magnitude * range.unit() } else { low };
                debug_assert!(low <= high);
                range.of_sign(self.negative).is_some_and(|(low, high)| (low..=high).contains(&value))
            }
        }
    }

    /// Magnitudes of what begins with this text, without more digits before the point.
    fn scaled(self, range: &NumberRange) -> (u128, u128) {
        let places = if self.part == Part::Fraction { self.digits } else { 0 };
        let unit = if range.integer { 1 } else { 10_u128.pow(u32::from(FRACTION - places)) };
        let low = self.magnitude * unit;
        (low, low + unit - 1)
    }

    /// Fewest bytes that complete the text; `None` if no number of the range begins so.
    pub fn more(self, range: &NumberRange) -> Option<u32> {
        match self.part {
            Part::Letter | Part::ExponentSign => return Some(1),
            Part::Exponent => return Some(0),
            Part::Sign if !self.negative => {
                let negative = Self { negative: true, ..self };
                let with_sign = negative.whole(range).map(|more| more + 1);
                return self.whole(range).into_iter().chain(with_sign).min();
            }
            Part::Sign => return self.whole(range),
            Part::Whole | Part::Fraction => {}
        }
        if self.is_complete(range) {
            return Some(0);
        }
        if self.part == Part::Fraction { self.fraction(self.digits, range) } else { self.whole(range) }
    }

    /// Fewest digits before the point, and behind it, that complete the text.
    fn whole(self, range: &NumberRange) -> Option<u32> {
        let (low, high) = range.of_sign(self.negative)?;
        let unit = range.unit();
        let fits = |from: u128, to: u128, step: u128| {
            // The first multiple of `step` that is not below.
            let first = from.max(low).div_ceil(step) * step;
            first <= to.min(high)
        };
        let mut best: Option<u32> = None;
        let begun = self.part == Part::Whole;
        let most = if begun && self.magnitude == 0 { 0 } else { WHOLE - self.digits };
        for more in u8::from(!begun)..=most {
            let ten = 10_u128.pow(u32::from(more));
            // Digits that stand first are not 0, but for the number 0 itself.
            let first = if begun || more == 1 { self.magnitude * ten } else { ten / 10 };
            let (from, to) = (first * unit, (self.magnitude + 1) * ten * unit - 1);
            let count = if fits(from, to, unit) {
                Some(0)
            } else if range.integer {
                None
            } else {
                (1..=FRACTION)
                    .find(|places| fits(from, to, unit / 10_u128.pow(u32::from(*places))))
                    .map(|places| u32::from(places) + 1)
            };
            let count = count.map(|count| count + u32::from(more));
            best = best.into_iter().chain(count).min();
        }
        best
    }

    /// Fewest digits behind the point, after `digits` of them, that complete the text.
    fn fraction(self, digits: u8, range: &NumberRange) -> Option<u32> {
        let (low, high) = range.of_sign(self.negative)?;
        let (from, to) = self.scaled(range);
        let places = digits.max(1)..=FRACTION;
        let fits = |places: &u8| {
            let step = 10_u128.pow(u32::from(FRACTION - places));
            from.max(low).div_ceil(step) * step <= to.min(high)
        };
        places.into_iter().find(fits).map(|places| u32::from(places - digits))
    }
}
