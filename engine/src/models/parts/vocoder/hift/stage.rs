//! HiFT as a stage: mel frames to samples, a few frames at a time, each once.

use std::time::Duration;

use realfft::num_complex::Complex;
use repartee_engine_api::SessionError;
use repartee_kernels::random::uniform;
use repartee_kernels::{Ops, RowSpec, SpecLayout, StreamRows};

use super::config::PITCH_LOOK_AHEAD;
use super::pitch::PitchStream;
use super::source::SourceStream;
use super::{Hift, HiftPiece, HiftSections};
use crate::device::Device;
use crate::models::parts::memory::SlotBytes;
use crate::models::parts::pipeline::{Placement, StagePart};
use crate::models::parts::stream_stage::{StreamModel, StreamStage};
use crate::models::parts::vocoder::stft::{InverseStft, InverseStftStream, hann};
use crate::stage::{BatchEntry, EdgeKind, ResponseParams, RowKind, Stage, StageItem};

/// Name of the stage.
const STAGE: &str = "hift";
/// Most frames of one slot in a step.
const MAX_FRAMES: usize = 10;
/// Largest magnitude of a spectral line, as in the reference.
const MOST_MAGNITUDE: f32 = 100.0;
/// First counter of the source's noise, beyond those of codes.
const NOISE: u64 = 1 << 34;

/// The vocoder as a stage.
pub struct HiftPart<O: Ops> {
    /// Layers with loaded weights.
    pub hift: Hift<O>,
    /// Duration of a frame.
    pub frame: Duration,
    /// Most frames of a response.
    pub most_frames: usize,
}

impl<O: Device> StagePart<O> for HiftPart<O> {
    fn name(&self) -> &'static str {
        STAGE
    }

    /// A response's mel frames, and the convolutions' tails.
    fn slot_bytes(&self, _: usize) -> SlotBytes {
        let frames = self.most_frames * self.hift.config().in_channels * size_of::<f32>();
        SlotBytes { position: 0, fixed: frames + self.hift.slot_bytes() }
    }

    fn place(self: Box<Self>, at: Placement<'_, O>) -> Box<dyn Stage> {
        let slots = at.slots.total();
        let state = self.hift.state(&at.ops, slots);
        let (n_fft, hop) = self.hift.config().istft;
        let inverse = InverseStft::new(hann(n_fft), hop, n_fft / 2);
        Box::new(StreamStage::new(STAGE, at.ops, HiftModel { part: *self, state, inverse }, slots))
    }
}

/// The vocoder with the state of all slots.
struct HiftModel<O: Ops> {
    part: HiftPart<O>,
    state: Vec<O::State>,
    inverse: InverseStft,
}

/// Stream of a response.
#[derive(Default)]
struct HiftStream {
    /// Seed and id of the response, for the noise.
    noise: (u64, u64),
    /// Mel frames from `first` on.
    mel: Vec<f32>,
    first: usize,
    /// Frames of the response so far, those with a pitch, and those that were launched.
    frames: usize,
    pitched: usize,
    given: usize,
    pitch: PitchStream,
    source: SourceStream,
    inverse: InverseStftStream,
}

impl HiftStream {
    /// Appends `count` frames from `frame` on, zeros beyond the last one.
    fn window(&self, (frame, count): (usize, usize), width: usize, numbers: &mut Vec<f32>) {
        for at in frame..frame + count {
            match self.mel.get((at - self.first) * width..(at - self.first + 1) * width) {
                Some(frame) => numbers.extend_from_slice(frame),
                None => numbers.resize(numbers.len() + width, 0.0),
            }
        }
    }
}

impl<O: Ops> HiftModel<O> {
    /// Frames that can be decoded now.
    fn ready(&self, stream: &HiftStream, ended: bool) -> usize {
        let ahead = if ended { 0 } else { self.part.hift.config().look_ahead() };
        stream.frames.saturating_sub(stream.given + ahead).min(MAX_FRAMES)
    }

    /// Computes the source up to frame `to`.
    fn excite(&self, stream: &mut HiftStream, to: usize) {
        let hift = &self.part.hift;
        let count = to.saturating_sub(stream.pitched);
        let mut mel = Vec::new();
        stream.window((stream.pitched, count + PITCH_LOOK_AHEAD), hift.config().in_channels, &mut mel);
        for pitch in hift.pitch.next(&mut stream.pitch, &mel, count) {
            let (seed, response) = stream.noise;
            hift.source.push(&mut stream.source, pitch, |sample, sine| uniform(seed, response, sample, NOISE + sine));
        }
        stream.pitched += count;
    }
}

impl<O: Device> StreamModel<O> for HiftModel<O> {
    type Stream = HiftStream;
    type Piece = HiftPiece;
    type Sections = HiftSections;

    const EDGES: (EdgeKind, EdgeKind) = (EdgeKind::Latents, EdgeKind::Samples);
    const ROWS: RowKind = RowKind::Window;
    const MAX_ROWS: usize = 1;
    const MAX_ITEMS: usize = 1;

    fn begin(&mut self, params: &ResponseParams) -> Result<HiftStream, SessionError> {
        Ok(HiftStream { noise: (params.seed, params.response), ..HiftStream::default() })
    }

    fn append(&self, stream: &mut HiftStream, item: StageItem) -> Result<(), SessionError> {
        if let StageItem::Latents { rows, count } = item {
            stream.mel.extend_from_slice(&rows);
            stream.frames += count;
        }
        Ok(())
    }

    fn ready_rows(&self, stream: &HiftStream, ended: bool) -> usize {
        usize::from(self.ready(stream, ended) > 0)
    }

    fn is_empty(&self, stream: &HiftStream) -> bool {
        stream.given == stream.frames
    }

    fn buffered_audio(&self, stream: &HiftStream) -> Duration {
        self.part.frame * u32::try_from(stream.frames - stream.given).unwrap_or(u32::MAX).min(10_000)
    }

    fn take(&self, stream: &mut HiftStream, entry: BatchEntry, ended: bool) -> Option<HiftPiece> {
        let (hift, rows) = (&self.part.hift, self.ready(stream, ended));
        if rows == 0 {
            return None;
        }
        let (config, to) = (hift.config(), stream.given + rows);
        self.excite(stream, (to + 1).min(stream.frames));
        if to == stream.frames {
            hift.source.finish(&mut stream.source);
        }
        let mut mel = Vec::new();
        for frame in stream.given..to {
            stream.window((frame, config.conv_pre_look_right + 1), config.in_channels, &mut mel);
        }
        let frames = StreamRows { slot: entry.slot, position: stream.given, rows };
        let level = |level: usize| {
            let (rows, mut numbers) = (config.rows(level, frames), Vec::new());
            for row in rows.position..rows.position + rows.rows {
                hift.source.window(&stream.source, level, row, &mut numbers);
            }
            numbers
        };
        let source = (0..config.upsample_rates.len()).map(level).collect();
        stream.given = to;
        hift.source.drop_before(&mut stream.source, to);
        // Frames before this one have their pitch.
        let kept = to.min(stream.pitched).max(stream.first);
        stream.mel.drain(..(kept - stream.first) * config.in_channels);
        stream.first = kept;
        Some(HiftPiece { frames, mel, source })
    }

    fn size(&self, piece: &HiftPiece) -> (usize, usize) {
        (piece.frames.rows, self.part.hift.numbers(piece.frames))
    }

    fn layout(&self, layout: &mut SpecLayout, rows: usize) -> HiftSections {
        self.part.hift.layout(layout, rows)
    }

    fn fill(&self, spec: &mut RowSpec, sections: &HiftSections, pieces: &[HiftPiece]) {
        self.part.hift.fill(spec, sections, pieces);
    }

    fn forward(&mut self, ops: &O, spec: &O::Spec, sections: &HiftSections) -> O::T {
        self.part.hift.forward(ops, (spec, sections), &mut self.state)
    }

    fn items(&self, stream: &mut HiftStream, _: HiftPiece, numbers: &[f32]) -> Option<Vec<StageItem>> {
        if numbers.iter().any(|number| !number.is_finite()) {
            return None;
        }
        let (bins, mut samples) = (self.inverse.bins(), Vec::new());
        for row in numbers.chunks_exact(2 * bins) {
            let (logarithms, angles) = row.split_at(bins);
            let line = |(logarithm, angle): (&f32, &f32)| {
                Complex::from_polar(logarithm.exp().min(MOST_MAGNITUDE), angle.sin())
            };
            let spectrum: Vec<_> = logarithms.iter().zip(angles).map(line).collect();
            self.inverse.push(&mut stream.inverse, &spectrum, &mut samples);
        }
        Some(self.limited(samples))
    }

    fn rest(&self, stream: &mut HiftStream) -> Vec<StageItem> {
        let mut samples = Vec::new();
        self.inverse.finish(&mut stream.inverse, &mut samples);
        self.limited(samples)
    }
}

impl<O: Ops> HiftModel<O> {
    fn limited(&self, mut samples: Vec<f32>) -> Vec<StageItem> {
        let most = self.part.hift.config().audio_limit;
        samples.iter_mut().for_each(|sample| *sample = sample.clamp(-most, most));
        if samples.is_empty() { Vec::new() } else { vec![StageItem::Samples(samples)] }
    }
}
