//! A vocoder with layers between codes and spectra: the mean of a frame's embeddings, six rows of it, layers over a window of
//! rows, and an inverse Fourier transform of each row's spectrum. All of it is causal.

use realfft::num_complex::Complex;
use repartee_kernels::row_spec::{BatchSection, SpecSection};
use repartee_kernels::{Ops, RowSpec, SequenceRows, SpecLayout, StreamRows};

use super::frame_stage::FrameVocoder;
use super::rings::SlotRings;
use super::stft::{InverseStft, InverseStftStream, hann};
use crate::device::Device;
use crate::models::load_error::LoadError;
use crate::models::parts::config::short_conv::ShortConvConfig;
use crate::models::parts::decoder::{ConvSections, Decoder, FeedForward};
use crate::models::parts::weights::Weights;

/// Rows of a frame.
const ROWS: usize = 6;
/// Windows of a transform that a sample lies in.
const OVERLAP: usize = 4;
/// Positions in a block of the attention window's ring.
const BLOCK: usize = 16;

/// Sizes of the vocoder.
#[derive(Debug, Clone, PartialEq)]
pub struct LayeredVocoderConfig {
    /// Its layers; each row sees a window of them.
    pub layers: ShortConvConfig,
    /// Samples of a transform.
    pub n_fft: usize,
    /// Entries of a codebook.
    pub entries: usize,
}

/// The vocoder's weights.
pub struct LayeredVocoder<O: Ops> {
    config: LayeredVocoderConfig,
    codebooks: usize,
    /// Embeddings of all codes, codebook after codebook.
    table: O::Weight,
    layers: Decoder<O>,
    /// To the logarithms of a spectrum's magnitudes, then its angles.
    spectrum: (O::Weight, O::Weight),
    inverse: InverseStft,
}

/// State of each slot's stream.
pub struct LayeredVocoderState<O: Ops> {
    cache: Vec<O::State>,
    rings: SlotRings,
}

/// Sections of the row spec.
pub struct LayeredVocoderSections {
    codes: Vec<SpecSection>,
    /// Frame of each row.
    frames: SpecSection,
    batch: BatchSection,
    conv: Option<ConvSections>,
}

impl<O: Ops> LayeredVocoder<O> {
    /// Loads the folder's weights for frames of `codebooks` codes.
    pub fn load(w: &Weights<'_, O>, config: LayeredVocoderConfig, codebooks: usize) -> Result<Self, LoadError> {
        let (width, inner) = (config.layers.decoder.hidden, config.layers.inner);
        let (n_fft, lin) = (config.n_fft, w.at("lin"));
        let hop = n_fft / OVERLAP;
        Ok(Self {
            table: w.table("emb.emb.weight", codebooks * config.entries, width)?,
            layers: Decoder::load(&w.at("lfm"), config.layers.decoder, |_| FeedForward::Dense(inner))?,
            spectrum: (lin.linear("weight", n_fft + 2, width)?, lin.vector("bias", n_fft + 2)?),
            inverse: InverseStft::new(hann(n_fft), hop, (n_fft - hop) / 2),
            codebooks,
            config,
        })
    }

    /// Blocks of a slot's ring. The oldest row that a step's first one sees must outlive the step's last one.
    fn ring(&self, frames: usize) -> usize {
        let window = self.config.layers.decoder.attention.window.unwrap_or_default();
        (window + frames * ROWS).div_ceil(BLOCK) + 1
    }
}

impl<O: Device> FrameVocoder<O> for LayeredVocoder<O> {
    type State = LayeredVocoderState<O>;
    type Stream = InverseStftStream;
    type Sections = LayeredVocoderSections;

    fn name(&self) -> &'static str {
        "detokenizer"
    }

    fn codebooks(&self) -> (usize, usize) {
        (self.codebooks, self.config.entries)
    }

    fn samples_per_frame(&self) -> usize {
        ROWS * self.inverse.hop()
    }

    fn numbers_per_frame(&self) -> usize {
        ROWS * 2 * self.inverse.bins()
    }

    fn stream_bytes(&self, frames: usize) -> usize {
        self.ring(frames) * BLOCK * self.layers.position_bytes()
    }

    fn state(&self, ops: &O, slots: usize, frames: usize) -> LayeredVocoderState<O> {
        let rings = SlotRings::new(slots, self.ring(frames));
        LayeredVocoderState { cache: self.layers.cache(ops, rings.blocks(), BLOCK), rings }
    }

    fn layout(&self, state: &LayeredVocoderState<O>, layout: &mut SpecLayout, frames: usize) -> LayeredVocoderSections {
        let rows = frames * ROWS;
        LayeredVocoderSections {
            codes: (0..self.codebooks).map(|_| layout.list(frames)).collect(),
            frames: layout.list(rows),
            batch: layout.batch(rows, frames, state.rings.length()),
            conv: self.layers.conv_taps().map(|taps| ConvSections::new(layout, rows, taps)),
        }
    }

    fn fill(
        &self,
        spec: &mut RowSpec,
        sections: &LayeredVocoderSections,
        state: &LayeredVocoderState<O>,
        codes: &[Vec<u32>],
        chunks: &[StreamRows],
    ) {
        for (codebook, (section, codes)) in sections.codes.iter().zip(codes).enumerate() {
            let base = (codebook * self.config.entries) as u32;
            spec.set_each(*section, codes.iter().map(|code| base + code));
        }
        let frames: usize = chunks.iter().map(|chunk| chunk.rows).sum();
        spec.set_each(sections.frames, (0..frames).flat_map(|frame| [frame as u32; ROWS]));
        let sequence = |chunk: &StreamRows| SequenceRows {
            table: state.rings.of(chunk.slot),
            position: chunk.position * ROWS,
            rows: chunk.rows * ROWS,
        };
        let sequences: Vec<_> = chunks.iter().map(sequence).collect();
        spec.set_batch(sections.batch, &sequences, state.rings.scratch());
        if let Some(conv) = &sections.conv {
            conv.fill(spec, &sequences, BLOCK);
        }
    }

    fn forward(
        &self,
        ops: &O,
        (spec, sections): (&O::Spec, &LayeredVocoderSections),
        state: &mut LayeredVocoderState<O>,
    ) -> O::T {
        let embedded = sections.codes.iter().map(|codes| ops.embed_at(&self.table, &ops.index(spec, *codes)));
        let sum = embedded.reduce(|sum, codes| ops.add(sum, &codes)).expect("a frame has codes");
        let mean = ops.scale_all(sum, 1.0 / self.codebooks as f32);
        let x = ops.gather_at(&mean, &ops.index(spec, sections.frames));
        let conv = sections.conv.as_ref().map(|conv| conv.rows(ops, spec));
        let batch = ops.batch_at(spec, sections.batch);
        let (x, _) = self.layers.forward_with(ops, x, &mut state.cache, (&batch, conv.as_ref()), None);
        ops.linear(&self.layers.norm(ops, &x), &self.spectrum.0, Some(&self.spectrum.1))
    }

    fn samples(&self, stream: &mut InverseStftStream, _: StreamRows, numbers: &[f32]) -> Vec<f32> {
        let (bins, mut samples) = (self.inverse.bins(), Vec::new());
        for row in numbers.chunks_exact(2 * bins) {
            let (logarithms, angles) = row.split_at(bins);
            let bin = |(logarithm, angle): (&f32, &f32)| Complex::from_polar(logarithm.exp(), *angle);
            self.inverse.push(stream, &logarithms.iter().zip(angles).map(bin).collect::<Vec<_>>(), &mut samples);
        }
        samples
    }

    fn rest(&self, stream: &mut InverseStftStream) -> Vec<f32> {
        let mut samples = Vec::new();
        self.inverse.finish(stream, &mut samples);
        samples
    }
}
