//! Sound of a caller on its way to the model and to the turn detector: without the echo of our playback, with reduced noise if the session
//! asks for that, at the rates of both.

use std::borrow::Cow;

use repartee_media::call_echo::CallEcho;
use repartee_media::decision::{Decision, DecisionKind, DecisionReason};
use repartee_media::noise_reducer::{FAR_FIELD_DB, NEAR_FIELD_DB, NoiseReducer};
use repartee_media::resample::{ResampleError, Resampler};
use repartee_media::vad;
use repartee_protocol::noise_reduction::NoiseReductionKind;

/// Converter of one call's input.
#[derive(Debug)]
pub(super) struct InputSound {
    model_rate: u32,
    rate: u32,
    resamplers: Option<Resamplers>,
    /// The echo canceller; `None` if the server cancels no echo.
    pub echo: Option<CallEcho>,
    /// True if the last piece passed the canceller.
    cancels: bool,
    /// Sound that the canceller gives for a listener, of the last piece.
    plain: Vec<f32>,
    /// Noise reduction of the next piece; `None` for none.
    pub noise_reduction: Option<NoiseReductionKind>,
    /// Noise reducer that the last piece passed, behind the canceller.
    reducer: Option<(NoiseReductionKind, Box<NoiseReducer>)>,
    /// Noise reduction that was told last; false where its noise is not steady.
    told: Option<(NoiseReductionKind, bool)>,
}

/// Resamplers from one input rate.
#[derive(Debug)]
struct Resamplers {
    model: Resampler,
    /// `None` if the model's input rate is the detector's.
    detector: Option<Resampler>,
    /// From the detector's rate to the model's, if these differ and the sound is changed at the detector's rate.
    changed: Option<Resampler>,
}

/// Converted sound.
#[derive(Debug, Default)]
pub(super) struct ConvertedSound {
    pub for_model: Vec<f32>,
    /// `None` if it is the model's.
    pub for_detector: Option<Vec<f32>>,
}

impl ConvertedSound {
    /// Returns the samples for the detector.
    pub fn heard(&self) -> &[f32] {
        self.for_detector.as_deref().unwrap_or(&self.for_model)
    }

    /// Puts `before` in front.
    fn follow(&mut self, before: Self) {
        match (&mut self.for_detector, before.for_detector) {
            (Some(after), heard) => {
                after.splice(0..0, heard.as_ref().unwrap_or(&before.for_model).iter().copied());
            }
            (None, Some(mut heard)) => {
                heard.extend_from_slice(&self.for_model);
                self.for_detector = Some(heard);
            }
            (None, None) => {}
        }
        self.for_model.splice(0..0, before.for_model);
    }
}

impl InputSound {
    /// Creates the converter of a new call.
    pub fn new(model_rate: u32, cancels_echo: bool) -> Self {
        let echo = cancels_echo.then(CallEcho::new);
        Self {
            model_rate,
            rate: model_rate,
            resamplers: None,
            echo,
            cancels: false,
            plain: Vec::new(),
            noise_reduction: None,
            reducer: None,
            told: None,
        }
    }

    /// Returns the decision about noise since the last call, if any; `audio_ms` is the position of the input.
    pub fn noise_decision(&mut self, audio_ms: u64) -> Option<Decision> {
        let state = self.reducer.as_ref().map(|(kind, reducer)| (*kind, reducer.is_reducing()));
        if state == self.told {
            return None;
        }
        let before = std::mem::replace(&mut self.told, state);
        let (decision, reason) = match state {
            Some((_, false)) => (DecisionKind::NoiseLeft, DecisionReason::UnsteadyNoise),
            Some((kind, true)) if before == Some((kind, false)) => {
                (DecisionKind::NoiseReduced, DecisionReason::SteadyNoise)
            }
            Some((NoiseReductionKind::NearField, true)) => (DecisionKind::NoiseReduced, DecisionReason::NearField),
            Some((NoiseReductionKind::FarField, true)) => (DecisionKind::NoiseReduced, DecisionReason::FarField),
            None => (DecisionKind::NoiseLeft, DecisionReason::Session),
        };
        Some(Decision::new(decision, reason, audio_ms))
    }

    /// Rate of the input, in Hz.
    pub fn rate(&self) -> u32 {
        self.rate
    }

    /// True if `rate` needs [`Self::set_rate`]. The sound before it is to be [flushed](Self::flush) first.
    pub fn is_new(&self, rate: u32) -> bool {
        rate != self.rate || self.resamplers.is_none()
    }

    /// Sets the rate of the input that follows.
    pub fn set_rate(&mut self, rate: u32) -> Result<(), ResampleError> {
        let detector = (self.model_rate != vad::RATE).then(|| Resampler::new(rate, vad::RATE)).transpose()?;
        let model = Resampler::new(rate, self.model_rate)?;
        (self.resamplers, self.rate) = (Some(Resamplers { model, detector, changed: self.changed()? }), rate);
        Ok(())
    }

    /// Converts a piece of the input. `is_recorded`: true if it was recorded before and has no echo.
    pub fn convert(&mut self, piece: Cow<'_, [f32]>, is_recorded: bool) -> Result<ConvertedSound, ResampleError> {
        let cancels = self.echo.as_mut().is_some_and(CallEcho::begin_piece) && !is_recorded;
        let is_same = cancels == self.cancels && self.noise_reduction == self.reducer.as_ref().map(|(kind, _)| *kind);
        let before = if is_same { None } else { Some(self.switch(cancels)?) };
        let Some(resamplers) = &mut self.resamplers else { return Ok(ConvertedSound::default()) };
        let is_apart = cancels && self.reducer.is_none();
        self.plain.clear();
        let mut pass = |samples: &mut Vec<f32>| {
            match &mut self.echo {
                Some(echo) if cancels => echo.cancel(samples, &mut self.plain),
                Some(echo) if is_recorded => echo.skip(samples.len()),
                Some(echo) => echo.hear(samples),
                None => {}
            }
            if let Some((_, reducer)) = &mut self.reducer {
                reducer.process(samples);
            }
        };
        let mut sound = match &mut resamplers.detector {
            Some(detector) => {
                let mut heard = detector.push(&piece)?;
                pass(&mut heard);
                let for_model = match &mut resamplers.changed {
                    Some(resampler) => resampler.push(if is_apart { &self.plain } else { &heard })?,
                    None => resamplers.model.push(&piece)?,
                };
                ConvertedSound { for_model, for_detector: Some(heard) }
            }
            None => {
                // A packet at the model's rate is one piece and passes without a copy.
                let mut for_model = match resamplers.model.is_identity() {
                    true => piece.into_owned(),
                    false => resamplers.model.push(&piece)?,
                };
                pass(&mut for_model);
                match is_apart {
                    true => {
                        ConvertedSound { for_model: std::mem::take(&mut self.plain), for_detector: Some(for_model) }
                    }
                    false => ConvertedSound { for_model, for_detector: None },
                }
            }
        };
        if let Some(before) = before {
            sound.follow(before);
        }
        Ok(sound)
    }

    /// Begins or ends cancelling or noise reduction; returns the sound that the other path still holds.
    fn switch(&mut self, cancels: bool) -> Result<ConvertedSound, ResampleError> {
        let before = if self.resamplers.is_some() { self.drain(false)? } else { ConvertedSound::default() };
        self.cancels = cancels;
        if self.noise_reduction != self.reducer.as_ref().map(|(kind, _)| *kind) {
            self.reducer = self.noise_reduction.map(|kind| {
                let most_db = match kind {
                    NoiseReductionKind::NearField => NEAR_FIELD_DB,
                    NoiseReductionKind::FarField => FAR_FIELD_DB,
                };
                (kind, Box::new(NoiseReducer::new(most_db)))
            });
        }
        let changed = self.changed()?;
        if let Some(resamplers) = &mut self.resamplers {
            resamplers.changed = changed;
        }
        Ok(before)
    }

    /// Resampler behind the canceller and the noise reducer, if one of them is at work.
    fn changed(&self) -> Result<Option<Resampler>, ResampleError> {
        let is_changed = self.cancels || self.reducer.is_some();
        (is_changed && self.model_rate != vad::RATE).then(|| Resampler::new(vad::RATE, self.model_rate)).transpose()
    }

    /// Returns the sound that is inside the converter.
    pub fn flush(&mut self) -> Result<ConvertedSound, ResampleError> {
        self.drain(true)
    }

    /// Returns the sound that is inside; `all`: also that of a resampler to a rate that detector and model share.
    fn drain(&mut self, all: bool) -> Result<ConvertedSound, ResampleError> {
        let Some(resamplers) = &mut self.resamplers else { return Ok(ConvertedSound::default()) };
        let is_apart = self.cancels && self.reducer.is_none();
        let mut plain = Vec::new();
        let mut pass = |samples: &mut Vec<f32>| {
            match &mut self.echo {
                Some(echo) if self.cancels => {
                    echo.cancel(samples, &mut plain);
                    echo.flush(samples, &mut plain);
                }
                Some(echo) => echo.hear(samples),
                None => {}
            }
            if let Some((_, reducer)) = &mut self.reducer {
                reducer.process(samples);
                reducer.flush(samples);
            }
        };
        let Some(detector) = &mut resamplers.detector else {
            let mut for_model = if all { resamplers.model.flush()? } else { Vec::new() };
            pass(&mut for_model);
            return Ok(match is_apart {
                true => ConvertedSound { for_model: plain, for_detector: Some(for_model) },
                false => ConvertedSound { for_model, for_detector: None },
            });
        };
        let mut heard = detector.flush()?;
        pass(&mut heard);
        let for_model = match &mut resamplers.changed {
            Some(resampler) => end(resampler, if is_apart { &plain } else { &heard })?,
            None => resamplers.model.flush()?,
        };
        Ok(ConvertedSound { for_model, for_detector: Some(heard) })
    }
}

/// Converts the end of a signal.
fn end(resampler: &mut Resampler, samples: &[f32]) -> Result<Vec<f32>, ResampleError> {
    let mut end = resampler.push(samples)?;
    end.extend(resampler.flush()?);
    Ok(end)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use repartee_media::call_echo::EchoFinding;
    use repartee_media::level::is_audible;
    use repartee_testkit::random::Random;
    use repartee_testkit::signal::level_db;

    use super::*;

    const KINDS: [Option<NoiseReductionKind>; 4] =
        [None, Some(NoiseReductionKind::NearField), Some(NoiseReductionKind::FarField), None];

    /// A tone of -35 dBFS, which is no echo of a noise.
    fn tone(rate: u32, seconds: u32) -> Vec<f32> {
        (0..rate * seconds).map(|at| 0.025 * (at as f32 * 2_764.6 / rate as f32).sin()).collect()
    }

    /// Steady noise of some -35 dBFS.
    fn noise(rate: u32, seconds: u32) -> Vec<f32> {
        let mut random = Random::new(5);
        (0..rate * seconds).map(|_| 0.06 * (random.unit() as f32 - 0.5)).collect()
    }

    #[test]
    fn changed_noise_reduction_keeps_every_sample() {
        for (rate, model_rate) in [(24_000, 16_000), (8_000, 24_000), (16_000, 16_000)] {
            let mut sound = InputSound::new(model_rate, true);
            sound.set_rate(rate).unwrap();
            let (mut model, mut detector) = (0, 0);
            let mut count = |converted: &ConvertedSound| {
                model += converted.for_model.len();
                detector += converted.heard().len();
            };
            for (number, piece) in noise(rate, 4).chunks(rate as usize / 50).enumerate() {
                sound.noise_reduction = KINDS[number / 50];
                count(&sound.convert(Cow::Borrowed(piece), false).unwrap());
            }
            count(&sound.flush().unwrap());
            // Each change ends a signal, whose length is rounded.
            assert!(model.abs_diff(4 * model_rate as usize) <= 3, "{rate}: {model}");
            assert!(detector.abs_diff(4 * vad::RATE as usize) <= 3, "{rate}: {detector}");
        }
    }

    #[test]
    fn model_hears_callers_over_an_answer_untouched() {
        for (rate, model_rate) in [(24_000, 24_000), (16_000, 16_000), (24_000, 16_000)] {
            let mut sound = InputSound::new(model_rate, true);
            sound.set_rate(rate).unwrap();
            let (mut models, mut detectors) = (Vec::new(), Vec::new());
            let (input, played, start) = (tone(rate, 1), noise(vad::RATE, 1), Instant::now());
            // The first comparison with the playback comes after 120 ms of it.
            let input = &input[..rate as usize / 2];
            for (number, piece) in input.chunks(rate as usize / 50).enumerate() {
                let now = start + number as u32 * Duration::from_millis(20);
                let echo = sound.echo.as_mut().unwrap();
                // An answer begins at 400 ms.
                if let Some(played) = number.checked_sub(20).and_then(|number| played.chunks(320).nth(number)) {
                    echo.push_playback(played, vad::RATE, now).unwrap();
                }
                echo.note_input(Duration::from_millis(20), now);
                let converted = sound.convert(Cow::Borrowed(piece), false).unwrap();
                detectors.extend_from_slice(converted.heard());
                models.extend(converted.for_model);
            }
            assert_eq!(sound.echo.as_ref().unwrap().finding(), EchoFinding::Unknown);
            let last = sound.flush().unwrap();
            detectors.extend_from_slice(last.heard());
            models.extend(last.for_model);
            assert!(models.len().abs_diff(model_rate as usize / 2) <= 3, "{rate}: {}", models.len());
            assert!(detectors.len().abs_diff(vad::RATE as usize / 2) <= 3, "{rate}: {}", detectors.len());
            let level = |heard: &[f32], rate: u32, from: f32| {
                let at = |second: f32| (second * rate as f32) as usize;
                level_db(&heard[at(from)..at(from + 0.06)])
            };
            let [before, during] = [0.3, 0.43].map(|from| level(&models, model_rate, from));
            let detected = level(&detectors, vad::RATE, 0.43);
            assert!(
                (before - during).abs() < 1.0,
                "{rate} to {model_rate}: {during} dB beside an answer, {before} before"
            );
            assert!(during > detected + 3.0, "{rate} to {model_rate}: {during} dB, {detected} dB for the detector");
        }
    }

    #[test]
    fn model_and_detector_hear_less_noise() {
        for (rate, model_rate) in [(24_000, 24_000), (16_000, 16_000)] {
            let mut sound = InputSound::new(model_rate, true);
            sound.set_rate(rate).unwrap();
            let (mut models, mut detectors) = (Vec::new(), Vec::new());
            for (number, piece) in noise(rate, 4).chunks(rate as usize / 50).enumerate() {
                sound.noise_reduction = KINDS[number / 50];
                let converted = sound.convert(Cow::Borrowed(piece), false).unwrap();
                detectors.extend_from_slice(converted.heard());
                models.extend(converted.for_model);
            }
            for (heard, rate) in [(models, model_rate as usize), (detectors, vad::RATE as usize)] {
                let levels = [0, 1, 2, 3].map(|second| {
                    level_db(&heard[(2 * second + 1) * rate / 2..heard.len().min((second + 1) * rate - rate / 20)])
                });
                assert!(levels[1] < levels[0] - 4.0 && levels[2] < levels[1] - 4.0, "{levels:?}");
                // Only the loudest half of the spectrum passed the reducer's rate; after it the sound is whole again.
                assert!((levels[3] - levels[0]).abs() < 0.5, "{levels:?}");
                assert!(is_audible(&heard));
            }
        }
    }

    #[test]
    fn decisions_about_noise_follow_its_steadiness() {
        let mut sound = InputSound::new(16_000, true);
        sound.set_rate(16_000).unwrap();
        let steady = noise(16_000, 8);
        // Each 100 ms of another level, of twelve in turn.
        let level = |at: usize| 10_f32.powf(-0.15 * (at / 1_600 % 12) as f32);
        let moving = steady.iter().enumerate().map(|(at, sample)| sample * level(at));
        let all = [moving.collect(), steady.clone()].concat();
        let mut made = Vec::new();
        for (number, piece) in all.chunks(320).enumerate() {
            sound.noise_reduction = (number < 750).then_some(NoiseReductionKind::FarField);
            sound.convert(Cow::Borrowed(piece), false).unwrap();
            made.extend(sound.noise_decision(20 * number as u64).map(|made| (made.kind, made.reason)));
        }
        let reduced = |reason| (DecisionKind::NoiseReduced, reason);
        let left = |reason| (DecisionKind::NoiseLeft, reason);
        let expected = [
            reduced(DecisionReason::FarField),
            left(DecisionReason::UnsteadyNoise),
            reduced(DecisionReason::SteadyNoise),
            left(DecisionReason::Session),
        ];
        assert_eq!(made, expected);
    }
}
