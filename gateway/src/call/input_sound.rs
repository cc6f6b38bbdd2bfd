//! Sound of a caller on its way to the model and to the turn detector: without the echo of our playback, at the rates of both.

use std::borrow::Cow;

use repartee_media::call_echo::CallEcho;
use repartee_media::resample::{ResampleError, Resampler};
use repartee_media::vad;

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
}

/// Resamplers from one input rate.
#[derive(Debug)]
struct Resamplers {
    model: Resampler,
    /// `None` if the model's input rate is the detector's.
    detector: Option<Resampler>,
    /// From the detector's rate to the model's, if these differ and the echo is being cancelled.
    cancelled: Option<Resampler>,
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
        self.for_model.splice(0..0, before.for_model);
        if let (Some(after), Some(before)) = (&mut self.for_detector, before.for_detector) {
            after.splice(0..0, before);
        }
    }
}

impl InputSound {
    /// Creates the converter of a new call.
    pub fn new(model_rate: u32, cancels_echo: bool) -> Self {
        let echo = cancels_echo.then(CallEcho::new);
        Self { model_rate, rate: model_rate, resamplers: None, echo, cancels: false }
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
        (self.resamplers, self.rate) = (Some(Resamplers { model, detector, cancelled: None }), rate);
        Ok(())
    }

    /// Converts a piece of the input. `is_recorded`: true if it was recorded before and has no echo.
    pub fn convert(&mut self, piece: Cow<'_, [f32]>, is_recorded: bool) -> Result<ConvertedSound, ResampleError> {
        let cancels = self.echo.as_mut().is_some_and(CallEcho::begin_piece) && !is_recorded;
        let before = if cancels == self.cancels { None } else { Some(self.switch()?) };
        let Some(resamplers) = &mut self.resamplers else { return Ok(ConvertedSound::default()) };
        let mut pass = |samples: &mut Vec<f32>| match &mut self.echo {
            Some(echo) if cancels => echo.cancel(samples),
            Some(echo) if is_recorded => echo.skip(samples.len()),
            Some(echo) => echo.hear(samples),
            None => {}
        };
        let mut sound = match &mut resamplers.detector {
            Some(detector) => {
                let mut heard = detector.push(&piece)?;
                pass(&mut heard);
                let for_model = match &mut resamplers.cancelled {
                    Some(resampler) => resampler.push(&heard)?,
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
                ConvertedSound { for_model, for_detector: None }
            }
        };
        if let Some(before) = before {
            sound.follow(before);
        }
        Ok(sound)
    }

    /// Begins or ends cancelling; returns the sound that the other path still holds.
    fn switch(&mut self) -> Result<ConvertedSound, ResampleError> {
        self.cancels = !self.cancels;
        let Some((resamplers, echo)) = self.resamplers.as_mut().zip(self.echo.as_mut()) else {
            return Ok(ConvertedSound::default());
        };
        let Some(detector) = &mut resamplers.detector else {
            let mut for_model = Vec::new();
            if !self.cancels {
                echo.flush(&mut for_model);
            }
            return Ok(ConvertedSound { for_model, for_detector: None });
        };
        let mut heard = detector.flush()?;
        let for_model = if self.cancels {
            echo.hear(&heard);
            resamplers.cancelled = Some(Resampler::new(vad::RATE, self.model_rate)?);
            resamplers.model.flush()?
        } else {
            echo.cancel(&mut heard);
            echo.flush(&mut heard);
            end(resamplers.cancelled.take(), &heard)?
        };
        Ok(ConvertedSound { for_model, for_detector: Some(heard) })
    }

    /// Returns the sound that is inside the converter.
    pub fn flush(&mut self) -> Result<ConvertedSound, ResampleError> {
        let Some(resamplers) = &mut self.resamplers else { return Ok(ConvertedSound::default()) };
        let mut pass = |samples: &mut Vec<f32>| match &mut self.echo {
            Some(echo) if self.cancels => {
                echo.cancel(samples);
                echo.flush(samples);
            }
            Some(echo) => echo.hear(samples),
            None => {}
        };
        let mut for_model = resamplers.model.flush()?;
        let Some(detector) = &mut resamplers.detector else {
            pass(&mut for_model);
            return Ok(ConvertedSound { for_model, for_detector: None });
        };
        let mut heard = detector.flush()?;
        pass(&mut heard);
        if resamplers.cancelled.is_some() {
            for_model = end(resamplers.cancelled.replace(Resampler::new(vad::RATE, self.model_rate)?), &heard)?;
        }
        Ok(ConvertedSound { for_model, for_detector: Some(heard) })
    }
}

/// Converts the end of a signal.
fn end(resampler: Option<Resampler>, samples: &[f32]) -> Result<Vec<f32>, ResampleError> {
    let Some(mut resampler) = resampler else { return Ok(Vec::new()) };
    let mut end = resampler.push(samples)?;
    end.extend(resampler.flush()?);
    Ok(end)
}
