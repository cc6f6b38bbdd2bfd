//! Steadiness of the noise beside a voice, which tells a fan from many voices.
//!
//! Steady noise is near its lowest level whenever the voice pauses; many voices at once are there for moments. So the share of the last
//! seconds in which the sound was near its lowest level tells how steady its noise is, whatever a voice above it does.

use std::collections::VecDeque;

/// Blocks of 10 ms whose level is one step, 50 ms.
const STEP: u32 = 5;
/// Steps that tell, 5 s, and those from which on they do, 0.3 s.
const STEPS: usize = 100;
const LEAST_STEPS: usize = 6;
/// One step in so many may be lower than the lowest level.
const LOWER: usize = 50;
/// Levels this far above the lowest are near it, in dB.
const NEAR_DB: f32 = 2.0;
/// Share of the steps near the lowest level at which noise is not steady, and at which it surely is. Chosen on synthetic voices in white
/// noise, fans, streets and four to ten voices, none of them in the scenes that judge.
const UNSTEADY: f32 = 0.10;
const STEADY: f32 = 0.16;
/// Share of the last result in the next.
const KEPT: f32 = 0.8;

/// Levels of one stream's latest seconds.
#[derive(Debug)]
pub(crate) struct NoiseSteadiness {
    power: f32,
    blocks: u32,
    levels: VecDeque<f32>,
    sorted: Vec<f32>,
    steadiness: f32,
}

impl NoiseSteadiness {
    /// Creates the state before any sound.
    pub fn new() -> Self {
        Self {
            power: 0.0,
            blocks: 0,
            levels: VecDeque::with_capacity(STEPS),
            sorted: Vec::with_capacity(STEPS),
            steadiness: 0.0,
        }
    }

    /// Adds a block with its power. Returns the steadiness, 0 to 1, after the last block of a step.
    pub fn push(&mut self, power: f32) -> Option<f32> {
        self.power += power;
        self.blocks += 1;
        if self.blocks < STEP {
            return None;
        }
        if self.levels.len() == STEPS {
            self.levels.pop_front();
        }
        self.levels.push_back(10.0 * (self.power + 1e-12).log10());
        (self.power, self.blocks) = (0.0, 0);
        let share = self.share_near_lowest()?;
        let found = ((share - UNSTEADY) / (STEADY - UNSTEADY)).clamp(0.0, 1.0);
        self.steadiness = KEPT * self.steadiness + (1.0 - KEPT) * found;
        Some(self.steadiness)
    }

    /// Share of the steps near the lowest level; `None` before there are enough.
    fn share_near_lowest(&mut self) -> Option<f32> {
        if self.levels.len() < LEAST_STEPS {
            return None;
        }
        self.sorted.clear();
        self.sorted.extend(&self.levels);
        let lowest = self.sorted.len() / LOWER;
        let (_, lowest_db, _) = self.sorted.select_nth_unstable_by(lowest, f32::total_cmp);
        let near = *lowest_db + NEAR_DB;
        Some(self.levels.iter().filter(|level| **level <= near).count() as f32 / self.levels.len() as f32)
    }
}

#[cfg(test)]
mod tests {
    use repartee_testkit::random::Random;

    use super::*;

    /// Last result for 7 s of blocks of these levels.
    fn steadiness(mut level_db: impl FnMut(usize) -> f32) -> f32 {
        let mut steadiness = NoiseSteadiness::new();
        let results = (0..700).filter_map(|block| steadiness.push(10_f32.powf(level_db(block) / 10.0)));
        results.last().unwrap()
    }

    #[test]
    fn noise_beside_a_voice_is_steady() {
        let mut random = Random::new(1);
        let mut noise = move || random.unit() as f32 - 0.5;
        assert!(steadiness(|_| -40.0 + noise()) > 0.99);
        // Syllables of 200 ms, and a pause of 300 ms in each 1.5 s.
        let voice = |block: usize| if block % 150 < 30 { -40.0 } else { -20.0 - (block % 20) as f32 };
        assert!(steadiness(voice) > 0.8);
    }

    #[test]
    fn sound_that_always_moves_is_unsteady() {
        let mut random = Random::new(2);
        let mut level = -40.0;
        let moving = |block: usize| {
            if block.is_multiple_of(10) {
                level = -50.0 + 7.0 * (0..3).map(|_| random.unit() as f32).sum::<f32>();
            }
            level
        };
        assert!(steadiness(moving) < 0.2);
    }

    #[test]
    fn noise_that_begins_is_soon_steady() {
        let begins = |block: usize| if block < 30 { -75.0 } else { -40.0 };
        assert!(steadiness(begins) > 0.9);
    }
}
