//! Frames that a transport has played, for the echo canceller. They wait for the caller's next sound.

use std::collections::VecDeque;
use std::time::Instant;

/// Frames of 20 ms that may wait, 4 s; beyond it the oldest are dropped, and their echo is not cancelled.
const CAPACITY: usize = 200;

/// Frames of one call, all of one rate.
#[derive(Debug)]
pub struct PlayedFrames {
    rate: u32,
    /// Due times and lengths of the frames, and their samples.
    frames: VecDeque<(Instant, usize)>,
    samples: VecDeque<f32>,
}

impl PlayedFrames {
    /// Creates an empty queue of frames at `rate` Hz.
    pub fn new(rate: u32) -> Self {
        Self { rate, frames: VecDeque::new(), samples: VecDeque::new() }
    }

    /// Sample rate of the frames, in Hz.
    pub fn rate(&self) -> u32 {
        self.rate
    }

    /// Adds a frame that was due at `due`.
    pub fn push(&mut self, due: Instant, samples: &[f32]) {
        if self.frames.len() == CAPACITY
            && let Some((_, length)) = self.frames.pop_front()
        {
            self.samples.drain(..length);
        }
        self.frames.push_back((due, samples.len()));
        self.samples.extend(samples);
    }

    /// Takes the oldest frame: replaces `samples` by its samples, and returns its due time.
    pub fn pop(&mut self, samples: &mut Vec<f32>) -> Option<Instant> {
        let (due, length) = self.frames.pop_front()?;
        samples.clear();
        samples.extend(self.samples.drain(..length));
        Some(due)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn oldest_frames_are_dropped_beyond_four_seconds() {
        let (mut frames, start) = (PlayedFrames::new(16_000), Instant::now());
        let at = |number: usize| start + Duration::from_millis(20) * number as u32;
        for number in 0..CAPACITY + 3 {
            frames.push(at(number), &[number as f32; 320]);
        }
        assert_eq!(frames.samples.len(), CAPACITY * 320);
        let mut samples = Vec::new();
        for number in 3..CAPACITY + 3 {
            assert_eq!(frames.pop(&mut samples), Some(at(number)));
            assert_eq!(samples, [number as f32; 320]);
        }
        assert_eq!(frames.pop(&mut samples), None);
    }
}
