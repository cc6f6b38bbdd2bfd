//! A vocoder of spectra: a frame's embeddings, a matrix to magnitudes and angles, and the inverse transform on the
//! host.

use realfft::num_complex::Complex;
use repartee_kernels::row_spec::SpecSection;
use repartee_kernels::{Ops, RowSpec, SpecLayout, StreamRows};

use super::frame_stage::FrameVocoder;
use super::stft::{InverseStft, InverseStftStream};
use crate::device::Device;
use crate::models::load_error::LoadError;
use crate::models::parts::weights::Weights;

/// A vocoder whose frames are a few spectra each.
pub struct SpectralVocoder<O: Ops> {
    /// Embeddings of all codes, codebook after codebook.
    table: O::Weight,
    /// Number of codes in a frame, and of entries in each codebook.
    codebooks: (usize, usize),
    /// Matrix to the spectra of a frame: for each bin the logarithm of its magnitude, and its angle.
    spectra: O::Weight,
    /// Spectra of a frame.
    spectra_per_frame: usize,
    /// Inverse transform of the spectra.
    inverse: InverseStft,
}

impl<O: Ops> SpectralVocoder<O> {
    /// Loads `table`, `[codes * entries, width]`, and `spectra`, `[spectra_per_frame * 2 * bins, width]`, for frames of
    /// `codebooks`: a number of codes, and of entries of each.
    pub fn load(
        w: &Weights<'_, O>,
        codebooks: (usize, usize),
        width: usize,
        (spectra_per_frame, inverse): (usize, InverseStft),
    ) -> Result<Self, LoadError> {
        Ok(Self {
            table: w.table("table", codebooks.0 * codebooks.1, width)?,
            codebooks,
            spectra: w.linear("spectra", spectra_per_frame * 2 * inverse.bins(), width)?,
            spectra_per_frame,
            inverse,
        })
    }
}

impl<O: Device> FrameVocoder<O> for SpectralVocoder<O> {
    type State = ();
    type Stream = InverseStftStream;
    type Sections = Vec<SpecSection>;

    fn name(&self) -> &'static str {
        "vocoder"
    }

    fn codebooks(&self) -> (usize, usize) {
        self.codebooks
    }

    fn samples_per_frame(&self) -> usize {
        self.spectra_per_frame * self.inverse.hop()
    }

    fn numbers_per_frame(&self) -> usize {
        self.spectra_per_frame * 2 * self.inverse.bins()
    }

    fn stream_bytes(&self, _: usize) -> usize {
        0
    }

    fn state(&self, _: &O, _: usize, _: usize) {}

    fn layout(&self, (): &(), layout: &mut SpecLayout, rows: usize) -> Vec<SpecSection> {
        (0..self.codebooks.0).map(|_| layout.list(rows)).collect()
    }

    fn fill(&self, spec: &mut RowSpec, sections: &Vec<SpecSection>, (): &(), codes: &[Vec<u32>], _: &[StreamRows]) {
        for (codebook, (section, codes)) in sections.iter().zip(codes).enumerate() {
            let base = (codebook * self.codebooks.1) as u32;
            spec.set_each(*section, codes.iter().map(|code| base + code));
        }
    }

    fn forward(&self, ops: &O, (spec, sections): (&O::Spec, &Vec<SpecSection>), (): &mut ()) -> O::T {
        let embedded = sections.iter().map(|section| ops.embed_at(&self.table, &ops.index(spec, *section)));
        let sum = embedded.reduce(|sum, codes| ops.add(sum, &codes)).expect("a frame has codes");
        ops.linear(&sum, &self.spectra, None)
    }

    fn samples(&self, stream: &mut InverseStftStream, _: StreamRows, numbers: &[f32]) -> Vec<f32> {
        let mut samples = Vec::new();
        for spectrum in numbers.chunks(2 * self.inverse.bins()) {
            let bins =
                spectrum.as_chunks().0.iter().map(|&[logarithm, angle]| Complex::from_polar(logarithm.exp(), angle));
            self.inverse.push(stream, &bins.collect::<Vec<_>>(), &mut samples);
        }
        samples
    }

    fn rest(&self, stream: &mut InverseStftStream) -> Vec<f32> {
        let mut samples = Vec::new();
        self.inverse.finish(stream, &mut samples);
        samples
    }
}
