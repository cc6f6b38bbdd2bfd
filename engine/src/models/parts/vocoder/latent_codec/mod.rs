//! Latents to samples: each becomes a few rows, by lines between it and its neighbours; layers over a window of rows; and an
//! inverse Fourier transform of each row's spectrum. A latent waits for the next one; all else is causal.
//!
//! - [`config`]: its sizes
//! - [`stage`]: the stage of utterances

pub mod config;
pub mod stage;

use realfft::num_complex::Complex;
use repartee_kernels::row_spec::{BatchSection, SpecSection};
use repartee_kernels::{Ops, RowSpec, SequenceRows, SpecLayout, StreamRows};

use self::config::LatentCodecConfig;
use super::rings::SlotRings;
use super::stft::{InverseStft, InverseStftStream, hann};
use crate::models::load_error::LoadError;
use crate::models::parts::decoder::{Decoder, FeedForward};
use crate::models::parts::weights::Weights;

/// Largest magnitude of a spectral line, as in the published code.
const MOST_MAGNITUDE: f32 = 100.0;
/// Positions in a block of a slot's ring.
const BLOCK: usize = 16;
/// Most latents of one slot in a step.
pub const MAX_LATENTS: usize = 8;

/// The decoder's weights.
pub struct LatentCodec<O: Ops> {
    config: LatentCodecConfig,
    /// Projection of latents.
    input: (O::Weight, O::Weight),
    layers: Decoder<O>,
    /// To the logarithms of a spectrum's magnitudes, then its angles.
    spectrum: (O::Weight, O::Weight),
    inverse: InverseStft,
}

/// State of each slot's stream.
pub struct LatentCodecState<O: Ops> {
    cache: Vec<O::State>,
    rings: SlotRings,
}

/// Latents of a stream in a step.
pub struct LatentPiece {
    /// Slot and place of the latents in their utterance.
    pub latents: StreamRows,
    /// Numbers of the rows that they become.
    pub rows: Vec<f32>,
    /// True if they are the last ones of their utterance.
    pub ends: bool,
}

/// Sections of the row spec.
pub struct LatentSections {
    rows: SpecSection,
    batch: BatchSection,
}

impl<O: Ops> LatentCodec<O> {
    /// Loads the decoder.
    pub fn load(w: &Weights<'_, O>, config: LatentCodecConfig) -> Result<Self, LoadError> {
        let (width, n_fft) = (config.layers.hidden_size, config.n_fft());
        let (input, spectrum, inner) = (w.at("fc1"), w.at("head.out"), config.layers.intermediate_size);
        Ok(Self {
            input: (input.linear("weight", width, config.latent_dim)?, input.vector("bias", width)?),
            layers: Decoder::load(&w.at("decoder"), config.decoder(), |_| FeedForward::Dense(inner))?,
            spectrum: (spectrum.linear("weight", n_fft + 2, width)?, spectrum.vector("bias", n_fft + 2)?),
            inverse: InverseStft::new(hann(n_fft), config.hop, (n_fft - config.hop) / 2),
            config,
        })
    }

    /// Sizes of the decoder.
    pub fn config(&self) -> &LatentCodecConfig {
        &self.config
    }

    /// Numbers of the rows of a latent, given its neighbours: `x` has it and those before and after it. At an end of the
    /// utterance it is its own neighbour. The lines are those of torch's linear interpolation.
    pub fn lines(&self, x: [&[f32]; 3], rows: &mut Vec<f32>) {
        let [before, own, after] = x;
        let factor = self.config.rows as f32;
        for row in 0..self.config.rows {
            let place = (row as f32 + 0.5) / factor - 0.5;
            let (other, share) = if place < 0.0 { (before, -place) } else { (after, place) };
            rows.extend(own.iter().zip(other).map(|(own, other)| own * (1.0 - share) + other * share));
        }
    }

    /// Blocks of a slot's ring. The oldest row that a step's first one sees must outlive the step's last one; without a
    /// window that is the first of at most `most` latents.
    fn ring(&self, most: usize) -> usize {
        let window = self.config.window.unwrap_or(most * self.config.rows);
        (window + MAX_LATENTS * self.config.rows).div_ceil(BLOCK) + 1
    }

    /// Bytes of one stream's keys and values, for utterances of at most `most` latents.
    pub fn stream_bytes(&self, most: usize) -> usize {
        self.ring(most) * BLOCK * self.layers.position_bytes()
    }

    /// Creates the state of `slots` streams.
    pub fn state(&self, ops: &O, slots: usize, most: usize) -> LatentCodecState<O> {
        let rings = SlotRings::new(slots, self.ring(most));
        LatentCodecState { cache: self.layers.cache(ops, rings.blocks(), BLOCK), rings }
    }

    /// Numbers that the device computes for a latent.
    pub fn numbers(&self) -> usize {
        self.config.rows * 2 * self.inverse.bins()
    }

    /// Reserves the row spec's sections for a step of `latents` latents.
    pub fn layout(&self, state: &LatentCodecState<O>, layout: &mut SpecLayout, latents: usize) -> LatentSections {
        let rows = latents * self.config.rows;
        LatentSections {
            rows: layout.list(rows * self.config.latent_dim),
            batch: layout.batch(rows, latents, state.rings.length()),
        }
    }

    /// Fills a row spec with pieces of several streams.
    pub fn fill(
        &self,
        spec: &mut RowSpec,
        sections: &LatentSections,
        state: &LatentCodecState<O>,
        pieces: &[LatentPiece],
    ) {
        spec.set_floats_each(sections.rows, pieces.iter().flat_map(|piece| piece.rows.iter().copied()));
        let sequence = |piece: &LatentPiece| SequenceRows {
            table: state.rings.of(piece.latents.slot),
            position: piece.latents.position * self.config.rows,
            rows: piece.latents.rows * self.config.rows,
        };
        spec.set_batch(sections.batch, &pieces.iter().map(sequence).collect::<Vec<_>>(), state.rings.scratch());
    }

    /// Computes the numbers of a step's latents: the spectrum of each row.
    pub fn forward(
        &self,
        ops: &O,
        (spec, sections): (&O::Spec, &LatentSections),
        state: &mut LatentCodecState<O>,
    ) -> O::T {
        let x = ops.floats(spec, sections.rows, self.config.latent_dim);
        let x = ops.linear(&x, &self.input.0, Some(&self.input.1));
        let (x, _) = self.layers.forward(ops, x, &mut state.cache, &ops.batch_at(spec, sections.batch), None);
        ops.linear(&self.layers.norm(ops, &x), &self.spectrum.0, Some(&self.spectrum.1))
    }

    /// Samples that a piece completes; `ends` completes its utterance.
    pub fn samples(&self, stream: &mut InverseStftStream, numbers: &[f32], ends: bool) -> Vec<f32> {
        let (bins, mut samples) = (self.inverse.bins(), Vec::new());
        for row in numbers.chunks_exact(2 * bins) {
            let (logarithms, angles) = row.split_at(bins);
            let line =
                |(logarithm, angle): (&f32, &f32)| Complex::from_polar(logarithm.exp().min(MOST_MAGNITUDE), *angle);
            self.inverse.push(stream, &logarithms.iter().zip(angles).map(line).collect::<Vec<_>>(), &mut samples);
        }
        if ends {
            self.inverse.finish(stream, &mut samples);
        }
        samples
    }
}
