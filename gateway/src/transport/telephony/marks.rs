//! Position that the person on the telephone has heard. A mark follows every few frames of sound, and the provider
//! returns it once the sound before it has played.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use repartee_engine_api::ResponseId;

use super::messages::Mark;

/// Sound between two marks.
const EVERY: Duration = Duration::from_millis(100);
/// Marks on their way; without answers no more are sent.
const MAX_OPEN: usize = 64;
/// Assumed delay between our clock and the person's ear, while no mark has come back.
const ASSUMED_DELAY: Duration = Duration::from_millis(150);

/// Mark on its way.
#[derive(Debug, Clone, Copy)]
struct OpenMark {
    number: u64,
    response: ResponseId,
    /// Sound of the response before the mark.
    sent: Duration,
}

/// Marks of a call.
#[derive(Debug, Default)]
pub(super) struct SentMarks {
    open: VecDeque<OpenMark>,
    /// Number of the next mark.
    next: u64,
    /// Response and position of the newest mark, sent.
    newest: Option<(ResponseId, Duration)>,
    /// The last mark that came back, and when.
    returned: Option<(ResponseId, Duration, Instant)>,
}

impl SentMarks {
    /// Returns the mark to send after `sent` of a response, if one is due: `last` for the response's last sound.
    pub fn after(&mut self, response: ResponseId, sent: Duration, last: bool) -> Option<Mark> {
        let before = self.newest.filter(|(of, _)| *of == response).map_or(Duration::ZERO, |(_, at)| at);
        if self.open.len() == MAX_OPEN || sent == before || !(last || sent >= before + EVERY) {
            return None;
        }
        self.newest = Some((response, sent));
        let number = self.next;
        self.next += 1;
        self.open.push_back(OpenMark { number, response, sent });
        Some(Mark { name: number.to_string() })
    }

    /// Takes a mark that came back at `now`; those before it were lost. Others' marks are ignored.
    pub fn came_back(&mut self, name: &str, now: Instant) {
        let Ok(number) = name.parse::<u64>() else { return };
        let Some(place) = self.open.iter().position(|mark| mark.number == number) else { return };
        if let Some(mark) = self.open.drain(..=place).next_back() {
            self.returned = Some((mark.response, mark.sent, now));
        }
    }

    /// Forgets the marks on their way: their sound is cleared, and they come back unplayed.
    pub fn clear(&mut self) {
        self.open.clear();
    }

    /// Estimates at `now` how much of a response was heard, of which `sent` has left.
    pub fn heard(&self, response: ResponseId, sent: Duration, now: Instant) -> Duration {
        match self.returned {
            // The sound after the mark plays on.
            Some((of, at, when)) if of == response => (at + now.saturating_duration_since(when)).min(sent),
            _ => sent.saturating_sub(ASSUMED_DELAY),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn returned_marks_tell_the_heard_position() {
        let (mut marks, start) = (SentMarks::default(), Instant::now());
        let sent: Vec<u64> =
            (1..=25).map(|frame| frame * 20).filter(|&at| marks.after(7, ms(at), false).is_some()).collect();
        assert_eq!(sent, [100, 200, 300, 400, 500]);
        assert_eq!(marks.heard(7, ms(500), start), ms(350), "no mark has come back");
        marks.came_back("1", start);
        assert_eq!(marks.heard(7, ms(500), start), ms(200));
        assert_eq!(marks.heard(7, ms(500), start + ms(60)), ms(260));
        assert_eq!(marks.heard(7, ms(500), start + ms(900)), ms(500), "no more than was sent");
        // A mark that came back late or is not ours changes nothing.
        for name in ["0", "1", "99", "another", ""] {
            marks.came_back(name, start + ms(900));
        }
        assert_eq!(marks.heard(7, ms(500), start + ms(60)), ms(260));
        assert_eq!(marks.heard(8, ms(500), start), ms(350), "another response");
    }

    #[test]
    fn last_sound_is_marked_and_cleared_marks_forgotten() {
        let (mut marks, now) = (SentMarks::default(), Instant::now());
        assert_eq!(marks.after(1, ms(40), true), Some(Mark { name: "0".to_owned() }));
        assert_eq!(marks.after(1, ms(40), true), None, "once");
        assert_eq!(marks.after(2, ms(100), false), Some(Mark { name: "1".to_owned() }));
        marks.clear();
        marks.came_back("1", now);
        assert_eq!(marks.heard(2, ms(200), now), ms(50), "it came back because it was cleared");
    }

    #[test]
    fn marks_without_answer_are_bounded() {
        let mut marks = SentMarks::default();
        let sent = (1..1_000).filter(|&at| marks.after(1, ms(at * 100), false).is_some()).count();
        assert_eq!(sent, MAX_OPEN);
    }
}
