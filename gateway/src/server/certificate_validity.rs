//! Time for which a certificate is valid: the two times of its DER form (RFC 5280, 4.1.2.5).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Rest of its time from which on a certificate gets a warning: two weeks.
const SOON: Duration = Duration::from_secs(14 * DAY);
const DAY: u64 = 24 * 60 * 60;

/// Tags of DER.
const SEQUENCE: u8 = 0x30;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
/// Tag of the version, which may be left out.
const VERSION: u8 = 0xa0;

/// Times between which a certificate is valid, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Validity {
    from: SystemTime,
    until: SystemTime,
}

/// State of a certificate at a time, with its date.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ValidityState {
    /// Its time has not begun.
    NotYet(String),
    /// Its time is over.
    Expired(String),
    /// It ends within two weeks.
    EndsSoon(String),
    /// It is valid for longer.
    Valid,
}

impl Validity {
    /// Reads the times of a certificate in DER; `None` if it has none.
    pub(super) fn of(certificate: &[u8]) -> Option<Self> {
        let (certificate, _) = element(certificate, SEQUENCE)?;
        let (mut fields, _) = element(certificate, SEQUENCE)?;
        if fields.first() == Some(&VERSION) {
            (_, _, fields) = any_element(fields)?;
        }
        // Serial number, algorithm of the signature and issuer.
        for _ in 0..3 {
            (_, _, fields) = any_element(fields)?;
        }
        let (validity, _) = element(fields, SEQUENCE)?;
        let (tag, from, rest) = any_element(validity)?;
        let from = time(tag, from)?;
        let (tag, until, _) = any_element(rest)?;
        Some(Self { from, until: time(tag, until)? })
    }

    /// End of the time.
    pub(super) fn until(&self) -> SystemTime {
        self.until
    }

    /// State at `now`.
    pub(super) fn at(&self, now: SystemTime) -> ValidityState {
        let date = |time| httpdate::fmt_http_date(time);
        if now < self.from {
            ValidityState::NotYet(date(self.from))
        } else if now > self.until {
            ValidityState::Expired(date(self.until))
        } else if self.until.duration_since(now).is_ok_and(|left| left < SOON) {
            ValidityState::EndsSoon(date(self.until))
        } else {
            ValidityState::Valid
        }
    }
}

/// Splits the first element off: its tag, its contents, and what follows.
fn any_element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let [tag, first, rest @ ..] = bytes else { return None };
    let (len, rest) = match *first {
        len @ 0..=0x7f => (usize::from(len), rest),
        // A length of one to four bytes.
        count @ 0x81..=0x84 => {
            let (len, rest) = rest.split_at_checked(usize::from(count & 0x7f))?;
            (len.iter().fold(0, |len, byte| len << 8 | usize::from(*byte)), rest)
        }
        _ => return None,
    };
    let (contents, rest) = rest.split_at_checked(len)?;
    Some((*tag, contents, rest))
}

/// Splits the first element off if it has this tag: its contents, and what follows.
fn element(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    any_element(bytes).filter(|(found, ..)| *found == tag).map(|(_, contents, rest)| (contents, rest))
}

/// Reads a time: `YYMMDDHHMMSSZ` from 1950 to 2049, or `YYYYMMDDHHMMSSZ`. Times before 1970 become the begin of 1970.
fn time(tag: u8, digits: &[u8]) -> Option<SystemTime> {
    let digits = digits.strip_suffix(b"Z")?;
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let (year, rest) = match (tag, digits.len()) {
        (UTC_TIME, 12) => digits.split_at(2),
        (GENERALIZED_TIME, 14) => digits.split_at(4),
        _ => return None,
    };
    let number = |digits: &[u8]| digits.iter().fold(0_i64, |number, digit| number * 10 + i64::from(digit - b'0'));
    let year = match (tag, number(year)) {
        (UTC_TIME, year @ 50..) => 1900 + year,
        (UTC_TIME, year) => 2000 + year,
        (_, year) => year,
    };
    let mut parts = rest.chunks_exact(2).map(number);
    let mut part = |range: std::ops::RangeInclusive<i64>| parts.next().filter(|part| range.contains(part));
    let (month, day) = (part(1..=12)?, part(1..=31)?);
    let (hour, minute, second) = (part(0..=23)?, part(0..=59)?, part(0..=60)?);
    let seconds = days_from_1970(year, month, day) * DAY as i64 + hour * 3_600 + minute * 60 + second;
    UNIX_EPOCH.checked_add(Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
}

/// Days from 1 January 1970 to a day of the Gregorian calendar.
fn days_from_1970(year: i64, month: i64, day: i64) -> i64 {
    // Years that begin in March end with the leap day.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    let days = year * 365 + leap_days + (153 * month + 2) / 5 + day - 1;
    // Days from 1 March of the year 0 to 1 January 1970.
    days - 719_468
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::*;

    fn certificate(from: (i32, u8, u8), until: (i32, u8, u8)) -> Vec<u8> {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.not_before = date_time_ymd(from.0, from.1, from.2);
        params.not_after = date_time_ymd(until.0, until.1, until.2);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
    }

    fn at(date: &str) -> SystemTime {
        httpdate::parse_http_date(date).unwrap()
    }

    #[test]
    fn a_certificate_is_valid_between_its_times() {
        let validity = Validity::of(&certificate((2024, 2, 29), (2026, 11, 26))).unwrap();
        let (from, until) = ("Thu, 29 Feb 2024 00:00:00 GMT", "Thu, 26 Nov 2026 00:00:00 GMT");
        let second = Duration::from_secs(1);
        assert_eq!(validity.at(at(from) - second), ValidityState::NotYet(from.to_owned()));
        assert_eq!(validity.at(at(from)), ValidityState::Valid);
        assert_eq!(validity.at(at(until) - SOON), ValidityState::Valid);
        assert_eq!(validity.at(at(until) - SOON + second), ValidityState::EndsSoon(until.to_owned()));
        assert_eq!(validity.at(at(until)), ValidityState::EndsSoon(until.to_owned()));
        assert_eq!(validity.at(at(until) + second), ValidityState::Expired(until.to_owned()));
        // Years from 2050 on have another form.
        let validity = Validity::of(&certificate((1975, 1, 1), (4096, 1, 1))).unwrap();
        assert_eq!(validity.at(at("Sat, 01 Jan 2400 00:00:00 GMT")), ValidityState::Valid);
    }

    #[test]
    fn cut_and_changed_certificates_do_not_panic() {
        let whole = certificate((2024, 1, 1), (2049, 12, 31));
        assert!(Validity::of(&whole).is_some());
        for len in 0..whole.len() {
            assert_eq!(Validity::of(&whole[..len]), None);
        }
        for at in 0..whole.len().min(400) {
            for byte in [0, 0x7f, 0x80, 0x84, 0x88, 0xff] {
                let mut changed = whole.clone();
                changed[at] = byte;
                Validity::of(&changed);
            }
        }
        assert_eq!(time(UTC_TIME, b"240230"), None);
        assert_eq!(time(UTC_TIME, b"241330000000Z"), None);
    }
}
