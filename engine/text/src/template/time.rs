//! Clock of `strftime_now`: a date and a time of day, and their formats.

use std::fmt::Write;

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

/// A date and a time of day, of the Gregorian calendar. The caller chooses the zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CivilTime {
    /// Seconds since the beginning of 1970 in the caller's zone.
    seconds: i64,
}

impl CivilTime {
    /// Creates a time of seconds since the beginning of 1970, in the zone of the caller.
    pub fn from_seconds(seconds: i64) -> Self {
        // A thousand years either way, so that no arithmetic overflows.
        Self { seconds: seconds.clamp(-31_556_952_000, 31_556_952_000) }
    }

    /// Seconds since the beginning of 1970, in the zone of the caller.
    pub(super) fn seconds(self) -> i64 {
        self.seconds
    }

    /// Year, month (1..=12), day of the month (1..=31).
    fn date(self) -> (i64, usize, i64) {
        // Eras of 400 years that begin in March, so that a leap day is the last day of a year.
        let days = self.seconds.div_euclid(86_400) + 719_468;
        let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
        let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year + year / 4 - year / 100);
        let from_march = (5 * of_year + 2) / 153;
        let day = of_year - (153 * from_march + 2) / 5 + 1;
        let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
        let year = year + era * 400 + i64::from(month <= 2);
        (year, month as usize, day)
    }

    /// Day of the year, from 1.
    fn day_of_year(self) -> i64 {
        let (year, month, day) = self.date();
        let leap = i64::from(month > 2 && (year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)));
        let before = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
        before[month - 1] + day + leap
    }

    /// Formats the time as Python's `strftime` does in the C locale. Unknown directives are copied.
    pub(super) fn format(self, format: &str) -> String {
        let (year, month, day) = self.date();
        let of_day = self.seconds.rem_euclid(86_400);
        let (hour, minute, second) = (of_day / 3_600, of_day / 60 % 60, of_day % 60);
        let weekday = (self.seconds.div_euclid(86_400) + 4).rem_euclid(7) as usize;
        let hour_of_12 = (hour + 11) % 12 + 1;
        let half = if hour < 12 { "AM" } else { "PM" };
        let short = |name: &str| name[..3].to_owned();
        let mut text = String::with_capacity(format.len() + 16);
        let mut characters = format.chars().peekable();
        while let Some(c) = characters.next() {
            if c != '%' {
                text.push(c);
                continue;
            }
            let bare = characters.next_if_eq(&'-').is_some();
            let mut number = |value: i64, width: usize| {
                let width = if bare { 1 } else { width };
                // Writing to a string cannot fail.
                let _ = write!(text, "{value:0width$}");
            };
            match characters.next() {
                Some('Y') => number(year, 4),
                Some('y') => number(year.rem_euclid(100), 2),
                Some('m') => number(month as i64, 2),
                Some('d') => number(day, 2),
                Some('H') => number(hour, 2),
                Some('I') => number(hour_of_12, 2),
                Some('M') => number(minute, 2),
                Some('S') => number(second, 2),
                Some('j') => number(self.day_of_year(), 3),
                Some('w') => number(weekday as i64, 1),
                Some('u') => number((weekday as i64 + 6) % 7 + 1, 1),
                Some('B') => text.push_str(MONTHS[month - 1]),
                Some('b' | 'h') => text.push_str(&short(MONTHS[month - 1])),
                Some('A') => text.push_str(DAYS[weekday]),
                Some('a') => text.push_str(&short(DAYS[weekday])),
                Some('p') => text.push_str(half),
                Some('F') => text.push_str(&self.format("%Y-%m-%d")),
                Some('D' | 'x') => text.push_str(&self.format("%m/%d/%y")),
                Some('T' | 'X') => text.push_str(&self.format("%H:%M:%S")),
                Some('R') => text.push_str(&self.format("%H:%M")),
                Some('c') => text.push_str(&self.format("%a %b %e %H:%M:%S %Y")),
                Some('e') => text.push_str(&format!("{day:2}")),
                Some('n') => text.push('\n'),
                Some('t') => text.push('\t'),
                // A time without a zone has none to name.
                Some('z' | 'Z') => {}
                Some('%') => text.push('%'),
                Some(other) => {
                    text.push('%');
                    if bare {
                        text.push('-');
                    }
                    text.push(other);
                }
                None => text.push('%'),
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_equal_the_calendar() {
        let shown = |seconds, format| CivilTime::from_seconds(seconds).format(format);
        assert_eq!(shown(0, "%d %b %Y %H:%M:%S %A %j"), "01 Jan 1970 00:00:00 Thursday 001");
        // 2000-02-29, 2000-03-01, 2100-03-01, 1999-12-31.
        assert_eq!(shown(951_782_400, "%F %j %a"), "2000-02-29 060 Tue");
        assert_eq!(shown(951_868_800, "%F %j"), "2000-03-01 061");
        assert_eq!(shown(4_107_542_400, "%F"), "2100-03-01");
        assert_eq!(shown(946_684_799, "%F %T %I %p %-d %-I"), "1999-12-31 23:59:59 11 PM 31 11");
        assert_eq!(shown(-1, "%F"), "1969-12-31");
        assert_eq!(shown(0, "100%% %Q %"), "100% %Q %");
    }
}
