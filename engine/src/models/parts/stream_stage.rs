//! A stage of streams: items of a response arrive in order, one step computes pieces of several streams, and their
//! output passes on. The stage queues, launches and collects; a [`StreamModel`] computes.
//!
//! Between launch and collection a slot may be freed or its response replaced. Its piece is then dropped.
//!
//! A piece whose step takes long is computed by itself, in units of some layers ([`StepLayers`]), so that others wait for no more
//! than one. Between two units its numbers are on the host.

use std::ops::Range;
use std::time::Duration;

use repartee_engine_api::SessionError;
use repartee_kernels::{Ops, ReadBack, RowSpec, SpecLayout, StepKey};

use super::slot_streams::SlotStreams;
use super::step_layers::StepLayers;
use crate::device::Device;
use crate::stage::{BatchEntry, EdgeKind, Outbox, ResponseParams, RowKind, RunnableRows, Stage, StageEnd, StageItem};

/// A model that turns the items of a stream into others, piece by piece.
pub trait StreamModel<O: Ops>: Send {
    /// State of a stream, with the items that are not computed yet.
    type Stream: Default + Send;
    /// Part of a stream in a step.
    type Piece: Send;
    /// The model's sections of the row spec.
    type Sections;

    /// Kinds of item that the stage takes and gives.
    const EDGES: (EdgeKind, EdgeKind);
    /// Kind of the rows.
    const ROWS: RowKind;
    /// Most rows of one stream in one step.
    const MAX_ROWS: usize;
    /// Most items of one stream from one step, not counting those after its last piece.
    const MAX_ITEMS: usize;
    /// True if steps of one row for each slot are launched once before the first response.
    const PREPARED: bool = false;

    /// Begins the stream of a response.
    ///
    /// # Errors
    ///
    /// The model has no such voice.
    fn begin(&mut self, _params: &ResponseParams) -> Result<Self::Stream, SessionError> {
        Ok(Self::Stream::default())
    }
    /// Appends an item to a stream.
    ///
    /// # Errors
    ///
    /// The model cannot compute the item.
    fn append(&self, stream: &mut Self::Stream, item: StageItem) -> Result<(), SessionError>;
    /// Number of rows that can be computed now. After `ended` no item follows.
    fn ready_rows(&self, stream: &Self::Stream, ended: bool) -> usize;
    /// True if no item is left to compute.
    fn is_empty(&self, stream: &Self::Stream) -> bool;
    /// Duration of audio that the items left will become.
    fn buffered_audio(&self, stream: &Self::Stream) -> Duration;

    /// Takes the rows of `entry` out of its stream; `None` if the stream waits. After `ended` no item follows.
    fn take(&self, stream: &mut Self::Stream, entry: BatchEntry, ended: bool) -> Option<Self::Piece>;
    /// Number of rows that the device computes for a piece, and of the numbers that it gives.
    fn size(&self, piece: &Self::Piece) -> (usize, usize);
    /// Reserves the row spec's sections for a step of `rows` rows.
    fn layout(&self, layout: &mut SpecLayout, rows: usize) -> Self::Sections;
    /// Fills a row spec with the pieces of several streams, which may be none.
    fn fill(&self, spec: &mut RowSpec, sections: &Self::Sections, pieces: &[Self::Piece]);
    /// Computes the numbers of all pieces, one after the other.
    fn forward(&mut self, ops: &O, spec: &O::Spec, sections: &Self::Sections) -> O::T;
    /// Layers of a step, between which others may run; `None` if its steps are short.
    fn layers(&self) -> Option<StepLayers> {
        None
    }
    /// Computes some of [`Self::layers`] on `x`, the rows of the layers before. The first layers have none, and the last ones give
    /// the numbers of the pieces.
    fn forward_layers(
        &mut self,
        ops: &O,
        (spec, sections): (&O::Spec, &Self::Sections),
        _layers: Range<usize>,
        _x: Option<O::T>,
    ) -> O::T {
        self.forward(ops, spec, sections)
    }
    /// Returns the items that a piece and its numbers make; `None` if a number is not finite.
    fn items(&self, stream: &mut Self::Stream, piece: Self::Piece, numbers: &[f32]) -> Option<Vec<StageItem>>;
    /// Returns the items after a stream's last piece.
    fn rest(&self, _stream: &mut Self::Stream) -> Vec<StageItem> {
        Vec::new()
    }
}

/// A model with the streams of all slots.
pub struct StreamStage<O: Ops, M: StreamModel<O>> {
    name: &'static str,
    ops: O,
    model: M,
    streams: SlotStreams<SlotStream<M::Stream, M::Piece>>,
    launched: Vec<Launched<O::Ticket, M::Piece>>,
    spec: RowSpec,
    back: ReadBack,
}

struct SlotStream<S, P> {
    own: S,
    /// End of the response, once no item follows.
    end: Option<StageEnd>,
    /// Piece between two units.
    unfinished: Option<UnfinishedPiece<P>>,
}

impl<S: Default, P> Default for SlotStream<S, P> {
    fn default() -> Self {
        Self { own: S::default(), end: None, unfinished: None }
    }
}

/// A piece between two units of its step.
struct UnfinishedPiece<P> {
    piece: P,
    /// Number of layers done.
    layers: usize,
    /// Rows after them; none before the first.
    rows: Vec<f32>,
}

/// A step that the device computes.
struct Launched<T, P> {
    ticket: T,
    /// Slot of each piece, and its epoch at launch.
    slots: Vec<(usize, u64)>,
    pieces: Vec<P>,
    /// Layers that are done after it, if others follow. It has one piece then.
    layers: Option<usize>,
}

impl<O: Ops, M: StreamModel<O>> StreamStage<O, M> {
    /// Creates the stage for `slots` streams.
    pub fn new(name: &'static str, ops: O, model: M, slots: usize) -> Self {
        let streams = SlotStreams::new(slots);
        Self { name, ops, model, streams, launched: Vec::new(), spec: RowSpec::default(), back: ReadBack::default() }
    }

    /// Launches a step over `pieces`, padded to `rows`.
    fn compute(&mut self, pieces: &[M::Piece], rows: usize) -> O::Ticket {
        let key = StepKey { stage: self.name, rows, variant: 0 };
        let Self { ops, model, spec, .. } = self;
        let mut layout = SpecLayout::default();
        let sections = model.layout(&mut layout, rows);
        layout.clear_spec(spec);
        model.fill(spec, &sections, pieces);
        ops.launch(key, spec, &mut |ops, spec, outputs| {
            outputs.rows.push(model.forward(ops, spec, &sections));
        })
    }

    /// Layers of the model, if a step over this piece is cut between them.
    fn cut(&self, piece: &M::Piece) -> Option<StepLayers> {
        self.model.layers().filter(|layers| layers.units(self.model.size(piece).0) > 1)
    }

    /// Launches the next layers of a piece.
    fn compute_unit(&mut self, begun: &UnfinishedPiece<M::Piece>, layers: StepLayers) -> (O::Ticket, Range<usize>) {
        let Self { ops, model, spec, .. } = self;
        let rows = model.size(&begun.piece).0;
        let range = begun.layers..layers.count.min(begun.layers + layers.in_unit(rows));
        let padded = ops.bucket(rows);
        let mut layout = SpecLayout::default();
        let sections = model.layout(&mut layout, padded);
        let x = (!begun.rows.is_empty()).then(|| layout.list(padded * layers.width));
        layout.clear_spec(spec);
        model.fill(spec, &sections, std::slice::from_ref(&begun.piece));
        if let Some(x) = x {
            spec.set_floats(x, &begun.rows);
        }
        // Variant 0 is the whole step.
        let key = StepKey { stage: self.name, rows: padded, variant: 1 + range.start };
        let ticket = ops.launch(key, spec, &mut |ops, spec, outputs| {
            let x = x.map(|x| ops.floats(spec, x, layers.width));
            outputs.rows.push(model.forward_layers(ops, (spec, &sections), range.clone(), x));
        });
        (ticket, range)
    }

    /// Ends a slot's stream if it has ended and nothing of it is left, on the device either.
    fn end_if_empty(&mut self, slot: usize, out: &mut Outbox) {
        let piece = (slot, self.streams.epoch(slot));
        let launched = self.launched.iter().any(|launched| launched.slots.contains(&piece));
        let stream = &mut self.streams[slot];
        let over = !launched && stream.unfinished.is_none() && self.model.is_empty(&stream.own);
        let Some(end) = stream.end.filter(|_| over) else { return };
        let rest = self.model.rest(&mut stream.own).into_iter().chain([StageItem::End(end)]);
        out.extend(rest.map(|item| (slot, item)));
        self.streams.reset(slot);
    }
}

impl<O: Device, M: StreamModel<O>> Stage for StreamStage<O, M> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn input_kind(&self) -> EdgeKind {
        M::EDGES.0
    }

    fn output_kind(&self) -> EdgeKind {
        M::EDGES.1
    }

    fn accept(&mut self, slot: usize, item: StageItem, out: &mut Outbox) {
        match item {
            StageItem::Begin(params) => {
                self.streams.reset(slot);
                match self.model.begin(&params) {
                    Ok(own) => {
                        self.streams[slot].own = own;
                        out.push((slot, StageItem::Begin(params)));
                    }
                    Err(error) => out.push((slot, StageItem::Fail(error))),
                }
            }
            StageItem::Abort => {
                self.streams.reset(slot);
                out.push((slot, item));
            }
            StageItem::End(end) => {
                self.streams[slot].end = Some(end);
                self.end_if_empty(slot, out);
            }
            item => {
                let appended = self.model.append(&mut self.streams[slot].own, item);
                out.extend(appended.err().map(|error| (slot, StageItem::Fail(error))));
            }
        }
    }

    fn runnable_rows(&self, slot: usize) -> RunnableRows {
        let SlotStream { own, end, unfinished } = &self.streams[slot];
        let ready = self.model.ready_rows(own, end.is_some());
        RunnableRows::rows(ready.max(usize::from(unfinished.is_some())), M::ROWS)
    }

    fn buffered_audio(&self, slot: usize) -> Duration {
        self.model.buffered_audio(&self.streams[slot].own)
    }

    fn max_rows(&self) -> usize {
        M::MAX_ROWS
    }

    fn max_items(&self) -> usize {
        M::MAX_ITEMS
    }

    fn launch(&mut self, work: &[BatchEntry], _: &mut Outbox) {
        self.launched.clear();
        let (mut slots, mut pieces) = (Vec::with_capacity(work.len()), Vec::with_capacity(work.len()));
        for &entry in work {
            let slot = (entry.slot, self.streams.epoch(entry.slot));
            let SlotStream { own, end, unfinished } = &mut self.streams[entry.slot];
            let begun = unfinished.take().or_else(|| {
                let piece = self.model.take(own, entry, end.is_some())?;
                Some(UnfinishedPiece { piece, layers: 0, rows: Vec::new() })
            });
            let Some(begun) = begun else { continue };
            match self.cut(&begun.piece) {
                Some(layers) => {
                    let (ticket, range) = self.compute_unit(&begun, layers);
                    let follow = (range.end < layers.count).then_some(range.end);
                    self.launched.push(Launched {
                        ticket,
                        slots: vec![slot],
                        pieces: vec![begun.piece],
                        layers: follow,
                    });
                }
                None => {
                    slots.push(slot);
                    pieces.push(begun.piece);
                }
            }
        }
        if !pieces.is_empty() {
            let rows = self.ops.bucket(pieces.iter().map(|piece| self.model.size(piece).0).sum());
            let ticket = self.compute(&pieces, rows);
            self.launched.push(Launched { ticket, slots, pieces, layers: None });
        }
    }

    fn collect(&mut self, out: &mut Outbox) {
        let mut back = std::mem::take(&mut self.back);
        for Launched { ticket, slots, pieces, layers } in std::mem::take(&mut self.launched) {
            self.ops.collect(ticket, &mut back);
            let pieces = slots.into_iter().zip(pieces);
            if let Some(layers) = layers {
                for ((slot, epoch), piece) in pieces {
                    if self.streams.is_current(slot, epoch) {
                        let rows = std::mem::take(&mut back.numbers);
                        self.streams[slot].unfinished = Some(UnfinishedPiece { piece, layers, rows });
                    }
                }
                continue;
            }
            let mut rest = &back.numbers[..];
            for ((slot, epoch), piece) in pieces {
                let (mine, after) = rest.split_at(self.model.size(&piece).1);
                rest = after;
                if !self.streams.is_current(slot, epoch) {
                    continue;
                }
                match self.model.items(&mut self.streams[slot].own, piece, mine) {
                    Some(items) => {
                        out.extend(items.into_iter().map(|item| (slot, item)));
                        self.end_if_empty(slot, out);
                    }
                    None => out.push((slot, StageItem::Fail(SessionError::NotFinite { stage: self.name }))),
                }
            }
        }
        self.back = back;
    }

    /// Launches each bucket of one row for each slot, with padding only.
    fn prepare(&mut self) {
        if !M::PREPARED || self.ops.eager_steps().is_none() {
            return;
        }
        let most = self.ops.bucket(self.streams.slots());
        let mut rows = 0;
        while rows < most {
            rows = self.ops.bucket(rows + 1);
            let ticket = self.compute(&[], rows);
            self.ops.collect(ticket, &mut self.back);
        }
    }

    fn end_idle_period(&mut self) -> bool {
        self.ops.shrink()
    }

    fn eager_steps(&self) -> Option<u64> {
        self.ops.eager_steps()
    }

    fn free(&mut self, slot: usize) {
        self.streams.reset(slot);
    }
}
