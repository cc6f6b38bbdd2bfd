//! The decoder of latents as a stage: latents to samples, a few at a time, each once. Utterances of a response are decoded
//! one after the other, each as a stream of its own; [`StageItem::TextPause`] ends one.

use std::collections::VecDeque;
use std::time::Duration;

use repartee_engine_api::SessionError;
use repartee_kernels::{Ops, RowSpec, SpecLayout, StreamRows};

use super::{LatentCodec, LatentCodecState, LatentPiece, LatentSections, MAX_LATENTS};
use crate::device::Device;
use crate::models::parts::memory::SlotBytes;
use crate::models::parts::pipeline::{Placement, StagePart};
use crate::models::parts::stream_stage::{StreamModel, StreamStage};
use crate::models::parts::vocoder::stft::InverseStftStream;
use crate::stage::{BatchEntry, EdgeKind, RowKind, Stage, StageItem};

/// Name of the stage.
const STAGE: &str = "vae";

/// The decoder as a stage.
pub struct LatentCodecPart<O: Ops> {
    /// Layers with loaded weights.
    pub codec: LatentCodec<O>,
    /// Duration of a latent.
    pub latent: Duration,
    /// Most latents of an utterance.
    pub most_latents: usize,
}

impl<O: Device> StagePart<O> for LatentCodecPart<O> {
    fn name(&self) -> &'static str {
        STAGE
    }

    /// Keys and values, and the latents of an utterance.
    fn slot_bytes(&self, _: usize) -> SlotBytes {
        let latents = self.most_latents * self.codec.config().latent_dim * size_of::<f32>();
        SlotBytes { position: 0, fixed: self.codec.stream_bytes(self.most_latents) + latents }
    }

    fn place(self: Box<Self>, at: Placement<'_, O>) -> Box<dyn Stage> {
        let slots = at.slots.total();
        let state = self.codec.state(&at.ops, slots, self.most_latents);
        Box::new(StreamStage::new(STAGE, at.ops, LatentModel { part: *self, state }, slots))
    }
}

/// The decoder with the state of all slots.
struct LatentModel<O: Ops> {
    part: LatentCodecPart<O>,
    state: LatentCodecState<O>,
}

/// An utterance.
#[derive(Default)]
struct LatentUtterance {
    /// Latents so far, `[count, latent_dim]`.
    latents: Vec<f32>,
    /// True once no latent follows.
    ended: bool,
}

/// Stream of a response.
#[derive(Default)]
struct LatentStream {
    /// Utterances with latents that are not decoded yet; more may follow of the last one.
    utterances: VecDeque<LatentUtterance>,
    /// Latents of the first one that were launched.
    given: usize,
    inverse: InverseStftStream,
}

impl<O: Ops> LatentModel<O> {
    fn width(&self) -> usize {
        self.part.codec.config().latent_dim
    }

    /// Latents of the first utterance that can be decoded now, and true if they are its last ones.
    fn ready(&self, stream: &LatentStream, ended: bool) -> (usize, bool) {
        let Some(first) = stream.utterances.front() else { return (0, false) };
        let complete = first.ended || ended;
        let known = first.latents.len() / self.width();
        // A latent's last rows depend on the next latent.
        let left = known.saturating_sub(stream.given + usize::from(!complete));
        (left.min(MAX_LATENTS), complete && left <= MAX_LATENTS)
    }
}

impl<O: Device> StreamModel<O> for LatentModel<O> {
    type Stream = LatentStream;
    type Piece = LatentPiece;
    type Sections = LatentSections;

    const EDGES: (EdgeKind, EdgeKind) = (EdgeKind::Latents, EdgeKind::Samples);
    const ROWS: RowKind = RowKind::Window;
    const MAX_ROWS: usize = MAX_LATENTS;
    const MAX_ITEMS: usize = 1;

    fn append(&self, stream: &mut LatentStream, item: StageItem) -> Result<(), SessionError> {
        match item {
            StageItem::Latents { rows, .. } => {
                if stream.utterances.back().is_none_or(|last| last.ended) {
                    stream.utterances.push_back(LatentUtterance::default());
                }
                if let Some(last) = stream.utterances.back_mut() {
                    last.latents.extend_from_slice(&rows);
                }
            }
            StageItem::TextPause => stream.utterances.iter_mut().for_each(|utterance| utterance.ended = true),
            _ => {}
        }
        Ok(())
    }

    fn ready_rows(&self, stream: &LatentStream, ended: bool) -> usize {
        self.ready(stream, ended).0
    }

    fn is_empty(&self, stream: &LatentStream) -> bool {
        stream.utterances.iter().map(|utterance| utterance.latents.len()).sum::<usize>() == stream.given * self.width()
    }

    fn buffered_audio(&self, stream: &LatentStream) -> Duration {
        let known: usize = stream.utterances.iter().map(|utterance| utterance.latents.len() / self.width()).sum();
        self.part.latent * u32::try_from(known.saturating_sub(stream.given)).unwrap_or(u32::MAX).min(10_000)
    }

    fn take(&self, stream: &mut LatentStream, entry: BatchEntry, ended: bool) -> Option<LatentPiece> {
        let (ready, completes) = self.ready(stream, ended);
        let count = ready.min(entry.rows);
        let first = stream.utterances.front().filter(|_| count > 0)?;
        let latents = StreamRows { slot: entry.slot, position: stream.given, rows: count };
        let (width, last, mut rows) = (self.width(), first.latents.len() / self.width() - 1, Vec::new());
        let latent = |at: usize| &first.latents[at * width..(at + 1) * width];
        for at in stream.given..stream.given + count {
            let neighbours = [latent(at.saturating_sub(1)), latent(at), latent((at + 1).min(last))];
            self.part.codec.lines(neighbours, &mut rows);
        }
        let ends = completes && count == ready;
        stream.given += count;
        if ends {
            stream.utterances.pop_front();
            stream.given = 0;
        }
        Some(LatentPiece { latents, rows, ends })
    }

    fn size(&self, piece: &LatentPiece) -> (usize, usize) {
        (piece.latents.rows, piece.latents.rows * self.part.codec.numbers())
    }

    fn layout(&self, layout: &mut SpecLayout, rows: usize) -> LatentSections {
        self.part.codec.layout(&self.state, layout, rows)
    }

    fn fill(&self, spec: &mut RowSpec, sections: &LatentSections, pieces: &[LatentPiece]) {
        self.part.codec.fill(spec, sections, &self.state, pieces);
    }

    fn forward(&mut self, ops: &O, spec: &O::Spec, sections: &LatentSections) -> O::T {
        self.part.codec.forward(ops, (spec, sections), &mut self.state)
    }

    fn items(&self, stream: &mut LatentStream, piece: LatentPiece, numbers: &[f32]) -> Option<Vec<StageItem>> {
        if numbers.iter().any(|number| !number.is_finite()) {
            return None;
        }
        let samples = self.part.codec.samples(&mut stream.inverse, numbers, piece.ends);
        Some(if samples.is_empty() { Vec::new() } else { vec![StageItem::Samples(samples)] })
    }
}
