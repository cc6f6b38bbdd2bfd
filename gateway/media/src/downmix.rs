//! Downmix of several channels to one: their mean, or the loudest channel where the mean cancels out.
//!
//! A microphone cable with swapped poles gives two channels in opposite phase, whose mean is silence. And the mean of six
//! channels, five of them silent, is quiet.

/// Power of the mean, relative to that of the loudest channel, below which the mean is not used. One silent channel of two
/// leaves a quarter.
const CANCELLED: f64 = 0.05;
/// Relative power from which the mean is used again.
const RESTORED: f64 = 0.2;
/// Share of the measured power that remains after one block.
const DECAY: f64 = 0.8;

/// Streaming downmix of one signal. Measures the power block by block; a change of the output is a ramp over one block.
#[derive(Debug, Clone)]
pub struct Downmix {
    /// Power of each channel, then of their mean; decays.
    power: Vec<f64>,
    /// Channel that is the output; `None` for the mean.
    selected: Option<usize>,
    begun: bool,
}

impl Downmix {
    /// Creates a downmix of `channels` channels, at least one.
    pub fn new(channels: usize) -> Self {
        Self { power: vec![0.0; channels.max(1) + 1], selected: None, begun: false }
    }

    /// Number of channels.
    pub fn channels(&self) -> usize {
        self.power.len() - 1
    }

    /// Appends the mono samples of one block of interleaved `samples` to `mono`; an incomplete last frame is dropped. Blocks of
    /// 10 to 100 ms follow a change within a syllable.
    pub fn mix(&mut self, samples: &[f32], mono: &mut Vec<f32>) {
        let channels = self.channels();
        if channels == 1 {
            mono.extend_from_slice(samples);
            return;
        }
        let before = self.selected;
        self.measure(samples);
        let share = 1.0 / channels as f32;
        let output = |frame: &[f32], selected: Option<usize>| match selected {
            Some(channel) => frame[channel],
            None => frame.iter().sum::<f32>() * share,
        };
        let (frames, ramps) = (samples.chunks_exact(channels), before != self.selected && self.begun);
        let step = 1.0 / frames.len().max(1) as f32;
        mono.extend(frames.enumerate().map(|(index, frame)| {
            let now = output(frame, self.selected);
            if !ramps {
                return now;
            }
            let weight = index as f32 * step;
            now * weight + output(frame, before) * (1.0 - weight)
        }));
        self.begun = true;
    }

    /// Measures a block, and selects the output.
    fn measure(&mut self, samples: &[f32]) {
        let channels = self.channels();
        self.power.iter_mut().for_each(|power| *power *= DECAY);
        for frame in samples.chunks_exact(channels) {
            for (power, sample) in self.power.iter_mut().zip(frame) {
                *power += f64::from(sample * sample);
            }
            let mean = frame.iter().sum::<f32>() / channels as f32;
            self.power[channels] += f64::from(mean * mean);
        }
        let loudest = (0..channels).max_by(|a, b| self.power[*a].total_cmp(&self.power[*b])).unwrap_or(0);
        let (mean, most) = (self.power[channels], self.power[loudest]);
        match self.selected {
            None if mean < CANCELLED * most => self.selected = Some(loudest),
            Some(_) if mean > RESTORED * most => self.selected = None,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use repartee_testkit::signal::{level_db, sine};

    use super::*;

    /// Downmix of channels that are `tone` times a factor each.
    fn mixed(factors: &[f32]) -> Vec<f32> {
        let (tone, mut mono) = (sine(440.0, 16_000, 16_000), Vec::new());
        let mut downmix = Downmix::new(factors.len());
        for block in tone.chunks(320) {
            let frames: Vec<f32> = block.iter().flat_map(|sample| factors.iter().map(move |f| f * sample)).collect();
            downmix.mix(&frames, &mut mono);
        }
        mono
    }

    #[test]
    fn opposite_channels_are_heard() {
        let level = level_db(&sine(440.0, 16_000, 16_000));
        for factors in [&[1.0, -1.0][..], &[0.9, -1.0], &[0.0, 0.0, 1.0, 0.0, 0.0, 0.0]] {
            assert!((level_db(&mixed(factors)) - level).abs() < 1.0, "{factors:?}");
        }
    }

    #[test]
    fn channels_alike_become_their_mean() {
        let tone = sine(440.0, 16_000, 16_000);
        assert_eq!(mixed(&[1.0]), tone);
        for (sample, mixed) in tone.iter().zip(mixed(&[1.0, 0.5])) {
            assert!((sample * 0.75 - mixed).abs() < 1e-6);
        }
        assert!((level_db(&mixed(&[1.0, 0.0])) - level_db(&tone) + 6.02).abs() < 0.1, "one silent channel");
    }

    #[test]
    fn change_of_output_has_no_click() {
        let (tone, mut mono, mut downmix) = (sine(100.0, 16_000, 16_000), Vec::new(), Downmix::new(2));
        for (index, block) in tone.chunks(320).enumerate() {
            let sign = if index < 25 { 1.0 } else { -1.0 };
            let frames: Vec<f32> = block.iter().flat_map(|sample| [*sample, sign * sample]).collect();
            downmix.mix(&frames, &mut mono);
        }
        let step = |samples: &[f32]| samples.windows(2).map(|pair| (pair[1] - pair[0]).abs()).fold(0.0, f32::max);
        assert!(step(&mono) < 2.0 * step(&tone), "{} against {}", step(&mono), step(&tone));
        assert!((level_db(&mono[12_000..]) - level_db(&tone)).abs() < 1.0);
    }
}
