//! Input audio on its way to the realtime session: resampled to the model's rate, and searched for turns.

use std::time::Duration;

use repartee_media::echo_guard::EchoLevel;
use repartee_media::endpointing::Question;
use repartee_media::resample::{ResampleError, Resampler};
use repartee_media::vad::{self, TurnDetector, TurnEvent, TurnSettings};
use repartee_realtime::{Input, PIECE_MS};

/// Resampling and turn detection of one call's input audio. [`Self::push`] any amount, then [`Self::process`] while it
/// [has more](Self::has_more).
#[derive(Debug)]
pub(super) struct InputPipeline {
    model_rate: u32,
    /// Samples that were not processed yet, and where in them the next piece begins.
    pending: Vec<f32>,
    at: usize,
    rate: u32,
    resamplers: Option<Resamplers>,
    detector: TurnDetector,
    /// Whether turn detection is on; without, the detector only counts samples.
    detecting: bool,
    /// Where the voice of the open turn ended, in samples of the detector.
    voice_end: Option<u64>,
    endpointing: Option<Duration>,
}

/// Resamplers from one input rate.
#[derive(Debug)]
struct Resamplers {
    model: Resampler,
    /// `None` where the model's input rate is the detector's.
    detector: Option<Resampler>,
}

impl Resamplers {
    fn new(rate: u32, model_rate: u32) -> Result<Self, ResampleError> {
        let detector = (model_rate != vad::RATE).then(|| Resampler::new(rate, vad::RATE)).transpose()?;
        Ok(Self { model: Resampler::new(rate, model_rate)?, detector })
    }
}

impl InputPipeline {
    /// A pipeline at the call's beginning; `judged` where a model judges pauses.
    pub fn new(model_rate: u32, judged: bool) -> Self {
        let detector = TurnDetector::default();
        Self {
            model_rate,
            pending: Vec::new(),
            at: 0,
            rate: model_rate,
            resamplers: None,
            detector: if judged { detector.with_judge() } else { detector },
            detecting: false,
            voice_end: None,
            endpointing: None,
        }
    }

    /// Sets the turn detection; `None` for push-to-talk.
    pub fn configure(&mut self, turns: Option<TurnSettings>) {
        if turns.is_some() != self.detecting {
            self.detector.end_turn();
        }
        self.detecting = turns.is_some();
        if let Some(turns) = turns {
            self.detector.configure(turns);
        }
    }

    /// Ends the open turn, which was committed by other means.
    pub fn end_turn(&mut self) {
        self.detector.end_turn();
        self.voice_end = None;
    }

    /// Takes samples at `rate`. Returns what a change of the rate flushed.
    pub fn push(&mut self, samples: Vec<f32>, rate: u32) -> Result<Vec<Input>, ResampleError> {
        let mut inputs = Vec::new();
        if rate != self.rate || self.resamplers.is_none() {
            inputs = self.flush()?;
            self.resamplers = Some(Resamplers::new(rate, self.model_rate)?);
            self.rate = rate;
        }
        if self.has_more() {
            self.pending.extend(samples);
        } else {
            (self.pending, self.at) = (samples, 0);
        }
        Ok(inputs)
    }

    /// Whether there are samples to process.
    pub fn has_more(&self) -> bool {
        self.at < self.pending.len()
    }

    /// Sets what of the next samples may be echo, and whether what plays can be paused; see [`TurnDetector::set_echo_level`] and
    /// [`TurnDetector::set_pausable`].
    pub fn set_playback(&mut self, level: Option<EchoLevel>, pausable: bool) {
        self.detector.set_echo_level(level);
        self.detector.set_pausable(pausable);
    }

    /// Processes one piece of what was pushed, and adds what came of it to `inputs`.
    pub fn process(&mut self, inputs: &mut Vec<Input>) -> Result<(), ResampleError> {
        let end = self.pending.len().min(self.at + (self.rate * PIECE_MS / 1_000) as usize);
        let Some(resamplers) = &mut self.resamplers else { return Ok(()) };
        let piece = &self.pending[self.at..end];
        let whole = piece.len() == self.pending.len();
        let for_detector = resamplers.detector.as_mut().map(|filter| filter.push(piece)).transpose()?;
        // A packet at the model's rate is one piece, which is handed on as it is.
        let for_model = match resamplers.model.is_identity() && whole {
            true => std::mem::take(&mut self.pending),
            false => resamplers.model.push(piece)?,
        };
        self.at = end;
        if !self.has_more() {
            (self.pending, self.at) = (Vec::new(), 0);
        }
        self.detect(for_model, for_detector, inputs);
        Ok(())
    }

    /// Processes all that was pushed, and flushes the resamplers.
    pub fn flush(&mut self) -> Result<Vec<Input>, ResampleError> {
        let mut inputs = Vec::new();
        while self.has_more() {
            self.process(&mut inputs)?;
        }
        if let Some(resamplers) = &mut self.resamplers {
            let for_model = resamplers.model.flush()?;
            let for_detector = resamplers.detector.as_mut().map(Resampler::flush).transpose()?;
            self.detect(for_model, for_detector, &mut inputs);
        }
        Ok(inputs)
    }

    /// The endpointing delay of the last turn; returned once.
    pub fn endpointing(&mut self) -> Option<Duration> {
        self.endpointing.take()
    }

    /// How long the voice of the last turn had sounded when the turn was found.
    pub fn onset(&self) -> Duration {
        self.detector.onset()
    }

    /// What to ask the model that judges pauses, if there is anything; see [`TurnDetector::question`].
    pub fn question(&mut self) -> Option<Question> {
        self.detecting.then(|| self.detector.question()).flatten()
    }

    /// The model's answer to a question; see [`TurnDetector::judged`]. Returns the end of the turn if that is what it means.
    pub fn judged(&mut self, id: u64, probability: Option<f32>) -> Option<Input> {
        let event = self.detector.judged(id, probability)?;
        let mut inputs = Vec::new();
        self.report(event, &mut inputs);
        self.voice_end = self.detector.voice_end();
        inputs.pop()
    }

    fn detect(&mut self, for_model: Vec<f32>, for_detector: Option<Vec<f32>>, inputs: &mut Vec<Input>) {
        let events = self.detector.push(for_detector.as_deref().unwrap_or(&for_model));
        inputs.push(Input::Audio(for_model));
        for event in events {
            self.report(event, inputs);
        }
        self.voice_end = self.detector.voice_end();
    }

    fn report(&mut self, event: TurnEvent, inputs: &mut Vec<Input>) {
        if let (TurnEvent::SpeechStopped { .. }, Some(voice_end)) = (event, self.voice_end) {
            let waited = event.sample().saturating_sub(voice_end);
            self.endpointing = Some(Duration::from_secs_f64(waited as f64 / f64::from(vad::RATE)));
        }
        if self.detecting {
            inputs.push(Input::Turn(event));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(inputs: &[Input]) -> usize {
        inputs.iter().map(|input| if let Input::Audio(samples) = input { samples.len() } else { 0 }).sum()
    }

    #[test]
    fn any_input_rate_and_split_keeps_all_samples() {
        for (rate, model_rate) in [(24_000, 16_000), (8_000, 16_000), (48_000, 24_000), (16_000, 16_000)] {
            for piece in [1, 37, 480, 24_000] {
                let mut pipeline = InputPipeline::new(model_rate, false);
                let mut count = 0;
                for chunk in vec![0.1; rate as usize].chunks(piece) {
                    count += samples(&pipeline.push(chunk.to_vec(), rate).unwrap());
                    while pipeline.has_more() {
                        let mut inputs = Vec::new();
                        pipeline.process(&mut inputs).unwrap();
                        count += samples(&inputs);
                    }
                }
                count += samples(&pipeline.flush().unwrap());
                assert_eq!(count, model_rate as usize, "{rate} to {model_rate} in pieces of {piece}");
            }
        }
    }

    #[test]
    fn changing_the_input_rate_loses_no_samples() {
        let mut pipeline = InputPipeline::new(16_000, false);
        let mut count = samples(&pipeline.push(vec![0.1; 24_000], 24_000).unwrap());
        count += samples(&pipeline.push(vec![0.1; 8_000], 8_000).unwrap());
        count += samples(&pipeline.flush().unwrap());
        assert_eq!(count, 32_000);
    }
}
