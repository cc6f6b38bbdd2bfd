//! The Whisper log-mel spectrogram as a stream: samples in, closed windows of frames out.
//!
//! A frame is the power spectrum around one multiple of the hop, reflected at the turn's start and end. The reference
//! (`WhisperFeatureExtractor`) clamps a spectrogram to 8 below the maximum of the whole; a stream does not know the
//! whole. So frames leave in windows. A window closes as soon as the transform of its last frame is complete
//! (`n_fft / 2 - hop_length` samples after its end), and is clamped to 8 below the maximum of the turn so far. The
//! output depends on the samples alone, not on how they were split. Other models take natural logarithms of magnitudes,
//! without a clamp ([`MelLevels`]).

use std::f64::consts::TAU;
use std::fmt;
use std::sync::Arc;

use realfft::num_complex::Complex;
use realfft::{RealFftPlanner, RealToComplex};
use serde::Deserialize;

use super::mel_filters::{Filter, filters, htk_filters};
use crate::checkpoint::{BadValue, Checkpoint, CheckpointError};
use crate::model::{FrontEnd, FrontEndStream, InputWindow};

/// File that describes the spectrogram.
const FILE: &str = "preprocessor_config.json";
/// Highest frequency: the reference's `WhisperFeatureExtractor` spans 0 to 8 kHz at any sampling rate.
const HIGHEST_HZ: f64 = 8000.0;
/// Floor of the power, before the logarithm.
const FLOOR: f32 = 1e-10;
/// Orders of magnitude kept below the maximum.
const RANGE: f32 = 8.0;
/// Floor of a magnitude, before the natural logarithm.
const LEAST_MAGNITUDE: f32 = 1e-7;

/// Numbers of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum MelLevels {
    /// Whisper's: decimal logarithms of the power, clamped and scaled.
    #[default]
    Whisper,
    /// Natural logarithms of magnitudes, by torchaudio's filters. The sound has one more frame, that of its very end; so a
    /// last window may have one frame more than others.
    Natural {
        /// Samples that the taper covers, in the middle of a transform.
        window: usize,
        /// Upper end of the filters, in Hz.
        highest_hz: f64,
    },
}

/// Contents of preprocessor_config.json; absent fields as in the reference.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default)]
pub struct LogMelConfig {
    /// Number of mel bins of a frame.
    pub feature_size: usize,
    /// Samples of one transform; even.
    pub n_fft: usize,
    /// Samples from one frame to the next.
    pub hop_length: usize,
    /// Sampling rate, in Hz.
    pub sampling_rate: u32,
    /// Lower bound of the maximum (as a power of ten) that a window is clamped against. It keeps a turn that opens with
    /// near silence from being blown up to full scale. Not in the reference; the default, -10, has no effect.
    #[serde(skip)]
    pub max_floor: f32,
    /// Numbers of a frame; no field of the file.
    #[serde(skip)]
    pub levels: MelLevels,
}

impl Default for LogMelConfig {
    fn default() -> Self {
        let levels = MelLevels::Whisper;
        Self { feature_size: 128, n_fft: 400, hop_length: 160, sampling_rate: 16_000, max_floor: -10.0, levels }
    }
}

impl LogMelConfig {
    /// Reads preprocessor_config.json for a model that takes `bins` mel bins; the defaults hold without the file.
    pub fn load(checkpoint: &Checkpoint, bins: usize) -> Result<Self, CheckpointError> {
        let config: Self = checkpoint.json_file(FILE)?.unwrap_or_default();
        let matching = config.validate().and_then(|()| {
            let allowed = format!("{bins}, the mel bins that the model takes");
            check("feature_size", config.feature_size, config.feature_size == bins, &allowed)
        });
        matching.map_err(|value| CheckpointError::BadValue { file: checkpoint.label(FILE), value })?;
        Ok(config)
    }

    fn validate(&self) -> Result<(), BadValue> {
        let Self { feature_size, n_fft, hop_length, sampling_rate, .. } = *self;
        check("feature_size", feature_size, (1..=1024).contains(&feature_size), "1 to 1024")?;
        check("sampling_rate", sampling_rate as usize, (8_000..=192_000).contains(&sampling_rate), "8000 to 192000")?;
        let length = (4..=65_536).contains(&n_fft) && n_fft.is_multiple_of(2);
        check("n_fft", n_fft, length, "an even number from 4 to 65536")?;
        // A longer frame would leave more than one window open at a turn's end.
        let least = match self.levels {
            MelLevels::Whisper => n_fft / 4 + 1,
            MelLevels::Natural { .. } => n_fft.div_ceil(4),
        };
        let hops = hop_length >= least && hop_length <= n_fft;
        check("hop_length", hop_length, hops, &format!("at least {least} (a quarter of n_fft), at most n_fft"))
    }
}

fn check(field: &str, value: usize, holds: bool, allowed: &str) -> Result<(), BadValue> {
    let bad = || BadValue { field: field.to_owned(), value: value.to_string(), allowed: allowed.to_owned() };
    if holds { Ok(()) } else { Err(bad()) }
}

/// Tables that all streams share.
pub struct LogMel {
    config: LogMelConfig,
    window_frames: usize,
    /// Periodic Hann window.
    taper: Vec<f32>,
    filters: Vec<Filter>,
    transform: Arc<dyn RealToComplex<f32>>,
}

impl fmt::Debug for LogMel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogMel").field("config", &self.config).field("window_frames", &self.window_frames).finish()
    }
}

impl LogMel {
    /// Builds the tables for windows of `window_frames` frames (`n_window_infer` of the audio tower), at least 1.
    pub fn new(config: &LogMelConfig, window_frames: usize) -> Result<Arc<Self>, BadValue> {
        config.validate()?;
        check("n_window_infer", window_frames, window_frames > 0, "at least 1")?;
        let n_fft = config.n_fft;
        let (bins, frequencies, rate) = (config.feature_size, n_fft / 2 + 1, config.sampling_rate);
        let (covered, filters) = match config.levels {
            MelLevels::Whisper => (n_fft, filters(bins, HIGHEST_HZ, frequencies, rate)),
            MelLevels::Natural { window, highest_hz } => {
                check("window_size", window, (2..=n_fft).contains(&window), "at least 2, at most n_fft")?;
                (window, htk_filters(bins, highest_hz, frequencies, rate))
            }
        };
        let mut taper = vec![0.0; n_fft];
        for (n, taper) in taper.iter_mut().skip((n_fft - covered) / 2).take(covered).enumerate() {
            *taper = (0.5 - 0.5 * (TAU * n as f64 / covered as f64).cos()) as f32;
        }
        let transform = RealFftPlanner::new().plan_fft_forward(n_fft);
        Ok(Arc::new(Self { config: config.clone(), window_frames, taper, filters, transform }))
    }

    /// Configuration of the tables.
    pub fn config(&self) -> &LogMelConfig {
        &self.config
    }

    /// Number of frames of a full window.
    pub fn window_frames(&self) -> usize {
        self.window_frames
    }

    /// Opens the stream of a new turn.
    pub fn stream(self: &Arc<Self>) -> LogMelStream {
        LogMelStream {
            kept: Vec::new(),
            kept_from: 0,
            next_frame: 0,
            open: Vec::with_capacity(self.window_frames * self.config.feature_size),
            maximum: self.config.max_floor,
            frame: self.transform.make_input_vec(),
            spectrum: self.transform.make_output_vec(),
            power: vec![0.0; self.config.n_fft / 2 + 1],
            scratch: self.transform.make_scratch_vec(),
            tables: self.clone(),
        }
    }
}

impl FrontEnd for Arc<LogMel> {
    fn rate(&self) -> u32 {
        self.config.sampling_rate
    }

    fn stream(&self) -> Box<dyn FrontEndStream> {
        Box::new(LogMel::stream(self))
    }
}

impl FrontEndStream for LogMelStream {
    fn push(&mut self, samples: &[f32], closed: &mut Vec<InputWindow>) {
        Self::push(self, samples, closed);
    }

    fn finish(self: Box<Self>) -> Option<InputWindow> {
        Self::finish(*self)
    }

    fn samples(&self) -> usize {
        Self::samples(self)
    }

    fn fork(&self) -> Box<dyn FrontEndStream> {
        Box::new(self.clone())
    }
}

/// Spectrogram of one turn. Holds the samples that unfinished frames need (less than `n_fft`, plus the slice being
/// pushed) and the frames of the open window.
#[derive(Debug, Clone)]
pub struct LogMelStream {
    tables: Arc<LogMel>,
    /// Samples from index `kept_from` of the turn on.
    kept: Vec<f32>,
    kept_from: usize,
    /// Number of finished frames.
    next_frame: usize,
    /// Levels of the open window's frames, not clamped yet.
    open: Vec<f32>,
    /// Highest level of the turn so far.
    maximum: f32,
    // Scratch space of one transform.
    frame: Vec<f32>,
    spectrum: Vec<Complex<f32>>,
    power: Vec<f32>,
    scratch: Vec<Complex<f32>>,
}

impl LogMelStream {
    /// Takes samples (-1..1) and appends the windows that they close to `closed`.
    pub fn push(&mut self, samples: &[f32], closed: &mut Vec<InputWindow>) {
        self.kept.extend_from_slice(samples);
        while self.samples() >= self.samples_for(self.next_frame) {
            self.finish_frame(None);
            if self.open_frames() == self.tables.window_frames {
                closed.push(self.close());
            }
        }
        self.evict();
    }

    /// Ends the turn. Returns the open window, whose last frames see the turn reflected at its end; `None` if it has no
    /// frame. A turn of n samples gives n / hop_length frames in all, or one more ([`MelLevels::Natural`]).
    pub fn finish(mut self) -> Option<InputWindow> {
        let more = usize::from(self.tables.config.levels != MelLevels::Whisper && self.samples() > 0);
        let frames = self.samples() / self.tables.config.hop_length + more;
        // Reflection needs one sample more than it mirrors; a shorter turn is padded with silence.
        let shortest = self.tables.config.n_fft / 2 + 1;
        if self.samples() < shortest {
            self.kept.resize(shortest, 0.0);
        }
        let end = self.samples();
        while self.next_frame < frames {
            self.finish_frame(Some(end));
        }
        (!self.open.is_empty()).then(|| self.close())
    }

    /// Number of samples of the turn so far.
    pub fn samples(&self) -> usize {
        self.kept_from + self.kept.len()
    }

    /// Number of complete frames of the open window, not clamped yet.
    pub fn open_frames(&self) -> usize {
        self.open.len() / self.tables.config.feature_size
    }

    /// Number of samples needed to complete frame `index` without knowing the turn's end.
    fn samples_for(&self, index: usize) -> usize {
        let LogMelConfig { n_fft, hop_length, .. } = self.tables.config;
        let centre = index * hop_length;
        // The first frames begin before the turn, in mirrored samples.
        (centre + n_fft / 2).max((n_fft / 2).saturating_sub(centre) + 1)
    }

    /// Computes the next frame; with `end`, samples from there on are mirrored.
    fn finish_frame(&mut self, end: Option<usize>) {
        let tables = &self.tables;
        let LogMelConfig { n_fft, hop_length, .. } = tables.config;
        let start = self.next_frame * hop_length;
        for (n, (out, taper)) in self.frame.iter_mut().zip(&tables.taper).enumerate() {
            let mut at = (start + n).abs_diff(n_fft / 2);
            if let Some(end) = end
                && at >= end
            {
                at = 2 * (end - 1) - at;
            }
            *out = self.kept[at - self.kept_from] * taper;
        }
        let done = tables.transform.process_with_scratch(&mut self.frame, &mut self.spectrum, &mut self.scratch);
        done.expect("every buffer was made by the transform, which fails on wrong lengths only");
        let is_natural = tables.config.levels != MelLevels::Whisper;
        for (power, bin) in self.power.iter_mut().zip(&self.spectrum) {
            *power = if is_natural { bin.norm() } else { bin.norm_sqr() };
        }
        for filter in &tables.filters {
            let passed = filter.apply(&self.power);
            let level = if is_natural { passed.max(LEAST_MAGNITUDE).ln() } else { passed.max(FLOOR).log10() };
            self.maximum = self.maximum.max(level);
            self.open.push(level);
        }
        self.next_frame += 1;
    }

    /// Closes the open window: clamps and scales Whisper's levels, and returns it. The next window is empty.
    fn close(&mut self) -> InputWindow {
        let lowest = self.maximum - RANGE;
        let mut data: Vec<f32> = self.open.drain(..).collect();
        if self.tables.config.levels == MelLevels::Whisper {
            data.iter_mut().for_each(|level| *level = (level.max(lowest) + 4.0) / 4.0);
        }
        InputWindow { frames: data.len() / self.tables.config.feature_size, data }
    }

    /// Drops samples that no later frame needs.
    fn evict(&mut self) {
        let LogMelConfig { n_fft, hop_length, .. } = self.tables.config;
        let needed = (self.next_frame * hop_length).saturating_sub(n_fft / 2);
        let unneeded = needed.saturating_sub(self.kept_from).min(self.kept.len());
        self.kept.drain(..unneeded);
        self.kept_from += unneeded;
    }
}
