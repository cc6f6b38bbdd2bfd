//! Playback of one response at the receiver: time of the first audible packet, and underruns.

use std::time::{Duration, Instant};

use crate::speech::RATE;

/// Sound above this level is audible: dB of full scale, root mean square over [`WINDOW`].
const AUDIBLE_DB: f32 = -45.0;
/// The level is measured in pieces as long as the shortest packet.
const WINDOW: usize = RATE as usize / 100;
/// A sender uses DTX only after at least this much silence; a gap sooner is an underrun.
const DTX_AFTER: Duration = Duration::from_millis(100);

/// Simulated receiver of one response.
#[derive(Debug)]
pub struct PlaybackMeter {
    /// The receiver's jitter buffer.
    buffer: Duration,
    first_sound: Option<Instant>,
    last_sound: Option<Instant>,
    /// When all that has arrived will have been played.
    played_until: Option<Instant>,
    /// How long the latest sound has been inaudible.
    quiet: Duration,
    underruns: u64,
}

impl PlaybackMeter {
    /// A meter behind a jitter buffer of `buffer`.
    pub fn new(buffer: Duration) -> Self {
        Self { buffer, first_sound: None, last_sound: None, played_until: None, quiet: Duration::ZERO, underruns: 0 }
    }

    /// Adds audio that arrived at `arrival`, at [`RATE`]. Silence before the first audible packet is ignored.
    pub fn push(&mut self, samples: &[f32], arrival: Instant) {
        if self.first_sound.is_none() {
            if !is_voiced(samples) {
                return;
            }
            self.first_sound = Some(arrival);
        }
        if is_voiced(samples) {
            self.last_sound = Some(arrival);
        }
        let begin = match self.played_until {
            Some(until) if arrival <= until => until,
            Some(_) => {
                if self.quiet < DTX_AFTER {
                    self.underruns += 1;
                }
                arrival + self.buffer
            }
            None => arrival + self.buffer,
        };
        self.played_until = Some(begin + duration_of(samples));
        for piece in samples.chunks(WINDOW) {
            self.quiet = if is_audible(piece) { Duration::ZERO } else { self.quiet + duration_of(piece) };
        }
    }

    /// When the first audible packet arrived.
    pub fn first_sound(&self) -> Option<Instant> {
        self.first_sound
    }

    /// When the last audible packet arrived.
    pub fn last_sound(&self) -> Option<Instant> {
        self.last_sound
    }

    /// How often audio arrived after all before it had been played.
    pub fn underruns(&self) -> u64 {
        self.underruns
    }
}

fn duration_of(samples: &[f32]) -> Duration {
    Duration::from_secs_f64(samples.len() as f64 / f64::from(RATE))
}

/// Whether any part of a frame is audible.
pub fn is_voiced(frame: &[f32]) -> bool {
    frame.chunks(WINDOW).any(is_audible)
}

fn is_audible(samples: &[f32]) -> bool {
    let power = samples.iter().map(|sample| sample * sample).sum::<f32>() / samples.len().max(1) as f32;
    10.0 * power.max(f32::MIN_POSITIVE).log10() > AUDIBLE_DB
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn the_first_audible_packet_is_noted() {
        let start = Instant::now();
        let mut meter = PlaybackMeter::new(Duration::ZERO);
        meter.push(&[0.003; 480], start);
        assert_eq!(meter.first_sound(), None);
        let mut packet = vec![0.0; 480];
        packet[240..].fill(0.01);
        meter.push(&packet, start + 20 * MS);
        assert_eq!(meter.first_sound(), Some(start + 20 * MS));
    }

    #[test]
    fn late_audio_is_an_underrun() {
        let start = Instant::now();
        for (buffer, expected) in [(0, 1), (60, 0)] {
            let mut meter = PlaybackMeter::new(buffer * MS);
            for arrival in [0, 20, 40, 90, 91, 92, 100, 120, 140] {
                meter.push(&[0.1; 480], start + arrival * MS);
            }
            assert_eq!(meter.underruns(), expected, "buffer of {buffer} ms");
        }
    }

    #[test]
    fn a_gap_after_silence_is_no_underrun() {
        let start = Instant::now();
        let mut meter = PlaybackMeter::new(Duration::ZERO);
        meter.push(&[0.1; 480], start);
        for i in 1..=5 {
            meter.push(&[0.0; 480], start + i * 20 * MS);
        }
        meter.push(&[0.1; 480], start + 900 * MS);
        assert_eq!(meter.underruns(), 0);
        meter.push(&[0.1; 480], start + 990 * MS);
        assert_eq!(meter.underruns(), 1);
    }
}
