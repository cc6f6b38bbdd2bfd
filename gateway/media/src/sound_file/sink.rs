//! Sink of a decoded file: interleaved blocks in, mono samples at the wanted rate out.

use std::time::Duration;

use super::error::SoundFileError;
use crate::downmix::Downmix;
use crate::resample::{RATES, Resampler};

/// Supported sample rates of files, in Hz.
const FILE_RATES: std::ops::RangeInclusive<u32> = 8_000..=384_000;
/// Mono samples of a piece of work.
pub(super) const PIECE: usize = 1 << 16;
/// Work of a packet beside its samples, as samples: a file may have millions that give none.
const PACKET_WORK: usize = 64;
/// Seconds over the limit that a file may say without being refused: encoders add some silence, which is cut off.
const PADDING_S: f64 = 1.0;
/// Maximum number of channels.
const MAX_CHANNELS: usize = 32;

/// Checks rate and channels, before anything is decoded.
pub(super) fn check_format(rate: u32, channels: usize) -> Result<(), SoundFileError> {
    if !FILE_RATES.contains(&rate) {
        return Err(SoundFileError::Rate(rate));
    }
    if !(1..=MAX_CHANNELS).contains(&channels) {
        return Err(SoundFileError::Channels(channels));
    }
    Ok(())
}

/// Takes the samples so far after each piece of work: it may remove them, and returns false to give up.
pub(super) type TakePiece<'a> = dyn FnMut(&mut Vec<f32>) -> bool + 'a;

/// Collects the samples of one file, with its length bounded.
pub(super) struct SoundSink<'a> {
    /// Wanted rate in Hz; `None` for the file's own.
    wanted: Option<u32>,
    longest: Duration,
    stream: Option<SoundStream>,
    samples: Vec<f32>,
    /// Number of samples at the front that are checked.
    checked: usize,
    /// True once there were samples.
    begun: bool,
    /// Called after each piece of work.
    take: &'a mut TakePiece<'a>,
    /// Mono samples since the last piece.
    unpaused: usize,
}

/// Format of the file, and the converters to the output.
struct SoundStream {
    rate: u32,
    downmix: Downmix,
    mono: Vec<f32>,
    /// Mono samples so far, at the file's rate.
    taken: u64,
    resampling: Option<Resampling>,
}

/// Conversion to the wanted rate.
struct Resampling {
    /// Neighbours that are averaged to bring studio rates into range: speech has no content at frequencies that would alias.
    factor: usize,
    /// Samples of an incomplete group.
    rest: Vec<f32>,
    resampler: Resampler,
}

impl Resampling {
    fn new(from: u32, to: u32) -> Result<Self, SoundFileError> {
        let factor = from.div_ceil(*RATES.end()).max(1);
        Ok(Self { factor: factor as usize, rest: Vec::new(), resampler: Resampler::new(from / factor, to)? })
    }

    fn push(&mut self, mono: &[f32], samples: &mut Vec<f32>) -> Result<(), SoundFileError> {
        if self.factor == 1 {
            samples.extend_from_slice(self.resampler.convert(mono)?);
            return Ok(());
        }
        self.rest.extend_from_slice(mono);
        let groups = self.rest.chunks_exact(self.factor);
        let left = groups.remainder().to_vec();
        let averaged: Vec<f32> = groups.map(|group| group.iter().sum::<f32>() / group.len() as f32).collect();
        samples.extend_from_slice(self.resampler.convert(&averaged)?);
        self.rest = left;
        Ok(())
    }
}

impl<'a> SoundSink<'a> {
    /// Creates a sink that takes at most `longest`, counted in whole seconds, and returns samples at `wanted` Hz, or at the file's own
    /// rate.
    pub fn new(wanted: Option<u32>, longest: Duration, take: &'a mut TakePiece<'a>) -> Self {
        Self { wanted, longest, stream: None, samples: Vec::new(), checked: 0, begun: false, take, unpaused: 0 }
    }

    /// Takes a block of interleaved samples.
    ///
    /// # Errors
    ///
    /// The file is too long, its format is not supported or changes, a sample is not finite, or the caller gives up.
    pub fn push(
        &mut self,
        container: &'static str,
        block: &[f32],
        rate: u32,
        channels: usize,
    ) -> Result<(), SoundFileError> {
        if self.stream.is_none() {
            check_format(rate, channels)?;
            let resampling = self.wanted.map(|wanted| Resampling::new(rate, wanted)).transpose()?;
            self.stream =
                Some(SoundStream { rate, downmix: Downmix::new(channels), mono: Vec::new(), taken: 0, resampling });
        }
        let Some(stream) = self.stream.as_mut() else { return Ok(()) };
        if stream.rate != rate || stream.downmix.channels() != channels {
            let problem = "its sample rate or its number of channels changes".to_owned();
            return Err(SoundFileError::Damaged { container, problem });
        }
        if !block.iter().all(|sample| sample.is_finite()) {
            return Err(SoundFileError::NotFinite);
        }
        stream.mono.clear();
        stream.downmix.mix(block, &mut stream.mono);
        stream.taken += stream.mono.len() as u64;
        let (taken, new) = (stream.taken, stream.mono.len());
        self.check_samples(taken, rate)?;
        let Some(stream) = self.stream.as_mut() else { return Ok(()) };
        match &mut stream.resampling {
            Some(resampling) => resampling.push(&stream.mono, &mut self.samples)?,
            None => self.samples.extend_from_slice(&stream.mono),
        }
        self.worked(new)
    }

    /// Counts a packet of the file, whatever it gives.
    pub fn passed_packet(&mut self) -> Result<(), SoundFileError> {
        self.worked(PACKET_WORK)
    }

    /// Refuses a file that says that it has so many seconds of sound, if they are too many.
    pub fn check_seconds(&self, seconds: f64) -> Result<(), SoundFileError> {
        if seconds > self.longest.as_secs_f64() + 1.0 + PADDING_S {
            return Err(SoundFileError::TooLong { limit: self.longest.as_secs() });
        }
        Ok(())
    }

    /// Refuses a file of this many samples at `rate` Hz if they are too many.
    pub fn check_samples(&self, samples: u64, rate: u32) -> Result<(), SoundFileError> {
        if samples / u64::from(rate.max(1)) > self.longest.as_secs() {
            return Err(SoundFileError::TooLong { limit: self.longest.as_secs() });
        }
        Ok(())
    }

    /// Counts work of so many samples; after a piece of it gives the samples so far to their taker.
    fn worked(&mut self, samples: usize) -> Result<(), SoundFileError> {
        self.unpaused += samples;
        if self.unpaused >= PIECE {
            self.unpaused = 0;
            self.give()?;
        }
        Ok(())
    }

    /// Gives the samples so far to their taker.
    fn give(&mut self) -> Result<(), SoundFileError> {
        self.check()?;
        if !(self.take)(&mut self.samples) {
            return Err(SoundFileError::Abandoned);
        }
        self.checked = self.samples.len();
        Ok(())
    }

    /// Checks and clips the samples that are new.
    fn check(&mut self) -> Result<(), SoundFileError> {
        let new = self.samples.get_mut(self.checked..).unwrap_or_default();
        self.begun |= !new.is_empty();
        // Of numbers near the largest a filter makes infinite ones.
        if !new.iter().all(|sample| sample.is_finite()) {
            return Err(SoundFileError::NotFinite);
        }
        // A filter rings beyond full scale, and so do lossy codecs.
        new.iter_mut().for_each(|sample| *sample = sample.clamp(-1.0, 1.0));
        self.checked = self.samples.len();
        Ok(())
    }

    /// Returns the samples that nobody took, in -1..1, and their rate.
    ///
    /// # Errors
    ///
    /// There are no samples, or one is not finite.
    pub fn finish(mut self) -> Result<(Vec<f32>, u32), SoundFileError> {
        let Some(stream) = self.stream.as_mut() else { return Err(SoundFileError::Empty) };
        if let Some(resampling) = &mut stream.resampling {
            self.samples.extend(resampling.resampler.flush()?);
        }
        let rate = self.wanted.unwrap_or(stream.rate);
        self.check()?;
        if !self.begun {
            return Err(SoundFileError::Empty);
        }
        Ok((self.samples, rate))
    }
}
