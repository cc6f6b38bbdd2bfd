//! Simulated playback of one call at the caller: the times at which sound is due at the loudspeaker. It stores no
//! sound.
//!
//! A gap is an audible interruption: audible sound breaks off and continues later in the same answer. It has two
//! causes. `Underrun`: the receiver's buffer runs out before the sound arrives (an underrun). `Hole`: the sender's time
//! stamps skip time within audible sound. A longer pause of the speech is no gap but a stretched pause. Silence that
//! the sender omits (DTX) is neither, because the time stamps include it.

use std::time::{Duration, Instant};

use super::level::{WINDOW, first_audible, is_audible};
use crate::sample_rate::duration_of;

/// Longest lateness that the loudspeaker's own buffer covers.
const INAUDIBLE: Duration = Duration::from_millis(5);

/// Cause of a gap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GapCause {
    /// The receiver's buffer ran out (underrun).
    Underrun,
    /// The sender's time stamps skip time within sound.
    Hole,
}

/// An audible gap in an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gap {
    /// Cause of the gap.
    pub cause: GapCause,
    /// Duration of the interruption.
    pub duration: Duration,
}

/// Playback times of one answer.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AnswerPlayback {
    /// Arrival of the first audible packet.
    pub first_packet: Option<Instant>,
    /// First audible sound: arrival of its packet plus the offset within it.
    pub first_sound: Option<Instant>,
    /// Arrival of the last audible packet.
    pub last_packet: Option<Instant>,
    /// Audible gaps, in order.
    pub gaps: Vec<Gap>,
    /// Number of times the buffer ran out in a pause of the speech.
    pub stretched_pauses: u32,
    /// Duration of the sound, from the first audible packet on.
    pub duration: Duration,
    /// Duration of sound that the decoder concealed (lost packets).
    pub concealed: Duration,
}

/// Playback of one call.
#[derive(Debug)]
pub struct Playback {
    /// Delay of the receiver's buffer before it plays.
    buffer: Duration,
    /// Position of the next sample in the sender's time, and its due time.
    next: Option<(u64, Instant)>,
    /// True if the last window of sound is audible.
    ends_audible: bool,
    answer: AnswerPlayback,
}

impl Playback {
    /// Creates playback behind a buffer of this length.
    pub fn new(buffer: Duration) -> Self {
        Self { buffer, next: None, ends_audible: false, answer: AnswerPlayback::default() }
    }

    /// Ends the current answer and returns it. Later sound belongs to the next answer.
    pub fn take_answer(&mut self) -> AnswerPlayback {
        self.ends_audible = false;
        self.next = None;
        std::mem::take(&mut self.answer)
    }

    /// Returns the current answer.
    pub fn answer(&self) -> &AnswerPlayback {
        &self.answer
    }

    /// Returns the time at which everything that has arrived is played; `None` before the first sound.
    pub fn played_until(&self) -> Option<Instant> {
        self.next.map(|(_, due)| due)
    }

    /// Adds sound at [`RATE`](crate::sample_rate::RATE) that arrived at `arrival`. `position` of the first sample is in samples of the sender's
    /// time.
    pub fn push(&mut self, position: u64, samples: &[f32], arrival: Instant, concealed: bool) {
        let due = match self.next {
            None => arrival + self.buffer,
            Some((expected, _)) if position > expected => {
                let hole = duration_of(position - expected);
                if self.ends_audible && starts_audible(samples) {
                    self.gap(GapCause::Hole, hole);
                }
                // In silence a receiver can reset its delay.
                arrival + self.buffer
            }
            Some((_, due)) if arrival > due + INAUDIBLE => {
                if self.ends_audible {
                    self.gap(GapCause::Underrun, arrival + self.buffer - due);
                } else if self.answer.first_sound.is_some() {
                    self.answer.stretched_pauses += 1;
                }
                arrival + self.buffer
            }
            Some((_, due)) => due,
        };
        self.next = Some((position + samples.len() as u64, due + duration_of(samples.len() as u64)));
        self.listen(samples, arrival, concealed);
    }

    fn listen(&mut self, samples: &[f32], arrival: Instant, concealed: bool) {
        let answer = &mut self.answer;
        if let Some(first) = first_audible(samples) {
            if answer.first_sound.is_none() {
                answer.first_packet = Some(arrival);
                answer.first_sound = Some(arrival + duration_of(first as u64));
            }
            answer.last_packet = Some(arrival);
        }
        if answer.first_sound.is_some() {
            let duration = duration_of(samples.len() as u64);
            answer.duration += duration;
            answer.concealed += if concealed { duration } else { Duration::ZERO };
        }
        if !samples.is_empty() {
            self.ends_audible = is_audible(&samples[samples.len().saturating_sub(WINDOW)..]);
        }
    }

    fn gap(&mut self, cause: GapCause, duration: Duration) {
        if duration > INAUDIBLE {
            self.answer.gaps.push(Gap { cause, duration });
        }
    }
}

fn starts_audible(samples: &[f32]) -> bool {
    is_audible(&samples[..samples.len().min(WINDOW)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample_rate::RATE;

    const MS: Duration = Duration::from_millis(1);
    const PACKET: usize = RATE as usize / 50;
    const BUFFER: Duration = Duration::from_millis(60);

    /// Returns a packet of speech; packets 30 to 44 are a pause.
    fn packet(number: usize) -> Vec<f32> {
        let level = if (30..45).contains(&number) { 0.0 } else { 0.3 };
        (0..PACKET).map(|i| level * (i as f32 * 0.3).sin()).collect()
    }

    /// Plays all packets in real time; `change` moves a packet's arrival or drops it.
    fn play(change: impl Fn(usize) -> Option<Duration>) -> AnswerPlayback {
        let (start, mut playback) = (Instant::now(), Playback::new(BUFFER));
        for number in 0..60 {
            if let Some(late) = change(number) {
                let arrival = start + 20 * MS * number as u32 + late;
                playback.push((number * PACKET) as u64, &packet(number), arrival, false);
            }
        }
        playback.take_answer()
    }

    #[test]
    fn steady_sound_has_no_gap() {
        let answer = play(|_| Some(Duration::ZERO));
        assert_eq!((answer.gaps.len(), answer.stretched_pauses, answer.duration), (0, 0, 1_200 * MS));
        // Lateness within the buffer is not audible.
        assert_eq!(play(|number| Some(if number % 7 == 3 { 60 * MS } else { Duration::ZERO })).gaps, []);
    }

    #[test]
    fn late_sound_is_one_gap() {
        // Everything from packet 20 on is 200 ms late; once the receiver has waited, no more gaps follow.
        let answer = play(|number| Some(if number >= 20 { 200 * MS } else { Duration::ZERO }));
        assert_eq!(answer.gaps, [Gap { cause: GapCause::Underrun, duration: 200 * MS }]);
    }

    #[test]
    fn each_planted_gap_is_counted() {
        let late = |number| 150 * MS * [10, 20, 50].iter().filter(|at| number >= **at).count() as u32;
        assert_eq!(play(|number| Some(late(number))).gaps.len(), 3);
    }

    #[test]
    fn late_sound_after_pause_is_no_gap() {
        let answer = play(|number| Some(if number >= 40 { 200 * MS } else { Duration::ZERO }));
        assert_eq!((answer.gaps.len(), answer.stretched_pauses), (0, 1));
    }

    #[test]
    fn silence_left_out_is_no_gap() {
        // Silent packets are not sent; the time stamps go on.
        let answer = play(|number| (!(31..45).contains(&number)).then_some(Duration::ZERO));
        assert_eq!((answer.gaps.len(), answer.stretched_pauses), (0, 0));
    }

    #[test]
    fn hole_within_sound_is_gap() {
        let answer = play(|number| (!(10..14).contains(&number)).then_some(Duration::ZERO));
        assert_eq!(answer.gaps, [Gap { cause: GapCause::Hole, duration: 80 * MS }]);
    }

    #[test]
    fn first_sound_counts_from_its_sample() {
        let (start, mut playback) = (Instant::now(), Playback::new(BUFFER));
        playback.push(0, &[0.003; PACKET], start, false);
        assert_eq!(playback.answer().first_sound, None);
        let half = [vec![0.0; PACKET / 2], vec![0.1; PACKET / 2]].concat();
        playback.push(PACKET as u64, &half, start + 20 * MS, false);
        let answer = playback.take_answer();
        assert_eq!((answer.first_packet, answer.first_sound), (Some(start + 20 * MS), Some(start + 30 * MS)));
    }

    #[test]
    fn next_answer_starts_anew() {
        let (start, mut playback) = (Instant::now(), Playback::new(BUFFER));
        playback.push(0, &packet(0), start, false);
        playback.take_answer();
        playback.push(PACKET as u64, &packet(1), start + 3_000 * MS, false);
        assert_eq!(playback.answer().gaps, []);
    }
}
