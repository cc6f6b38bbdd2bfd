//! Start value of a solve: noise that depends only on the seed, the response and the frame, so no split of the work
//! changes it.

use repartee_kernels::random::normal;

/// Noise source of a response.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Noise {
    /// Seed for random numbers.
    pub seed: u64,
    /// Id of the response.
    pub response: u64,
}

impl Noise {
    /// Returns the noise of `count` mel frames from `first` on, each of `mel` numbers.
    pub fn frames(&self, first: usize, count: usize, mel: usize) -> Vec<f32> {
        let frames = first..first + count;
        frames.flat_map(|frame| (0..mel).map(move |bin| self.number(frame as u64, bin as u64))).collect()
    }

    fn number(self, frame: u64, bin: u64) -> f32 {
        normal(self.seed, self.response, frame, bin)
    }
}
