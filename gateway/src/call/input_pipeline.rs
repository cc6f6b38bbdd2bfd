//! The caller's sound on its way to the conversation: brought to the model's rate, and searched for turns.

use std::time::Duration;

use repartee_media::resample::{ResampleError, Resampler};
use repartee_media::vad::{self, TurnDetector, TurnEvent, TurnSettings};
use repartee_realtime::{Input, PIECE_MS};

/// The caller's sound. [`Self::take`] any amount, then [`Self::listen`] while it [has more](Self::has_more).
#[derive(Debug)]
pub(super) struct Microphone {
    model_rate: u32,
    /// Sound that was not worked on yet, and where in it the next piece begins.
    waiting: Vec<f32>,
    at: usize,
    rate: u32,
    filters: Option<Filters>,
    detector: TurnDetector,
    /// Whether turns are looked for; without, the detector only counts.
    detecting: bool,
    /// Where the voice of the open turn ended, in the detector's samples.
    voice_end: Option<u64>,
    endpointing: Option<Duration>,
}

/// The converters for one source rate.
#[derive(Debug)]
struct Filters {
    model: Resampler,
    /// `None` where the model hears at the detector's rate.
    detector: Option<Resampler>,
}

impl Filters {
    fn new(rate: u32, model_rate: u32) -> Result<Self, ResampleError> {
        let detector = (model_rate != vad::RATE).then(|| Resampler::new(rate, vad::RATE)).transpose()?;
        Ok(Self { model: Resampler::new(rate, model_rate)?, detector })
    }
}

impl Microphone {
    pub fn new(model_rate: u32) -> Self {
        Self {
            model_rate,
            waiting: Vec::new(),
            at: 0,
            rate: model_rate,
            filters: None,
            detector: TurnDetector::default(),
            detecting: false,
            voice_end: None,
            endpointing: None,
        }
    }

    /// How to find turns from now on; `None` for push-to-talk.
    pub fn configure(&mut self, turns: Option<TurnSettings>) {
        if turns.is_some() != self.detecting {
            self.detector.end_turn();
        }
        self.detecting = turns.is_some();
        if let Some(turns) = turns {
            self.detector.configure(turns);
        }
    }

    /// The turn was ended by other means.
    pub fn end_turn(&mut self) {
        self.detector.end_turn();
        self.voice_end = None;
    }

    /// Takes sound at `rate`. Returns what the change from another rate set free.
    pub fn take(&mut self, samples: Vec<f32>, rate: u32) -> Result<Vec<Input>, ResampleError> {
        let mut inputs = Vec::new();
        if rate != self.rate || self.filters.is_none() {
            inputs = self.flush()?;
            self.filters = Some(Filters::new(rate, self.model_rate)?);
            self.rate = rate;
        }
        if self.has_more() {
            self.waiting.extend(samples);
        } else {
            (self.waiting, self.at) = (samples, 0);
        }
        Ok(inputs)
    }

    /// Whether there is sound to work on.
    pub fn has_more(&self) -> bool {
        self.at < self.waiting.len()
    }

    /// What the sound that is worked on next could interrupt; see [`TurnDetector::guard`].
    pub fn guard(&mut self, own: Option<f32>) {
        self.detector.guard(own);
    }

    /// Works on one piece of the sound that was taken.
    pub fn listen(&mut self) -> Result<Vec<Input>, ResampleError> {
        let end = self.waiting.len().min(self.at + (self.rate * PIECE_MS / 1_000) as usize);
        let piece = &self.waiting[self.at..end];
        let Some(filters) = &mut self.filters else { return Ok(Vec::new()) };
        let heard = filters.model.push(piece)?;
        let judged = filters.detector.as_mut().map(|filter| filter.push(piece)).transpose()?;
        self.at = end;
        if !self.has_more() {
            (self.waiting, self.at) = (Vec::new(), 0);
        }
        Ok(self.judge(heard, judged))
    }

    /// Works on all that was taken, and brings out what is still inside the filters.
    pub fn flush(&mut self) -> Result<Vec<Input>, ResampleError> {
        let mut inputs = Vec::new();
        while self.has_more() {
            inputs.extend(self.listen()?);
        }
        if let Some(filters) = &mut self.filters {
            let heard = filters.model.flush()?;
            let judged = filters.detector.as_mut().map(Resampler::flush).transpose()?;
            inputs.extend(self.judge(heard, judged));
        }
        Ok(inputs)
    }

    /// How long the last turn's end was waited for, told once.
    pub fn endpointing(&mut self) -> Option<Duration> {
        self.endpointing.take()
    }

    fn judge(&mut self, heard: Vec<f32>, judged: Option<Vec<f32>>) -> Vec<Input> {
        let events = self.detector.push(judged.as_deref().unwrap_or(&heard));
        let mut inputs = vec![Input::Audio(heard)];
        for event in events {
            if let (TurnEvent::SpeechStopped { .. }, Some(voice_end)) = (event, self.voice_end) {
                let waited = event.sample().saturating_sub(voice_end);
                self.endpointing = Some(Duration::from_secs_f64(waited as f64 / f64::from(vad::RATE)));
            }
            if self.detecting {
                inputs.push(Input::Turn(event));
            }
        }
        self.voice_end = self.detector.voice_end();
        inputs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(inputs: &[Input]) -> usize {
        inputs.iter().map(|input| if let Input::Audio(samples) = input { samples.len() } else { 0 }).sum()
    }

    #[test]
    fn all_sound_comes_out_at_the_models_rate_however_it_comes_in() {
        for (rate, model_rate) in [(24_000, 16_000), (8_000, 16_000), (48_000, 24_000), (16_000, 16_000)] {
            for piece in [1, 37, 480, 24_000] {
                let mut microphone = Microphone::new(model_rate);
                let mut count = 0;
                for chunk in vec![0.1; rate as usize].chunks(piece) {
                    count += heard(&microphone.take(chunk.to_vec(), rate).unwrap());
                    while microphone.has_more() {
                        count += heard(&microphone.listen().unwrap());
                    }
                }
                count += heard(&microphone.flush().unwrap());
                assert_eq!(count, model_rate as usize, "{rate} to {model_rate} in pieces of {piece}");
            }
        }
    }

    #[test]
    fn another_rate_loses_nothing() {
        let mut microphone = Microphone::new(16_000);
        let mut count = heard(&microphone.take(vec![0.1; 24_000], 24_000).unwrap());
        count += heard(&microphone.take(vec![0.1; 8_000], 8_000).unwrap());
        count += heard(&microphone.flush().unwrap());
        assert_eq!(count, 32_000);
    }
}
