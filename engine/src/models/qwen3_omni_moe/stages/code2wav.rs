//! Code2wav as a stage: codec frames to samples.
//!
//! State is carried from frame to frame. For comparison a stage can decode with left context instead: each chunk again with a
//! few frames before it, whose samples are discarded.

use std::collections::VecDeque;

use repartee_engine_api::SessionError;
use repartee_kernels::{Ops, StreamChunk};

use crate::models::qwen3_omni_moe::code2wav::{Code2Wav, Code2WavState, MAX_FRAMES};
use crate::stage::{End, Item, Outbox, RowKind, Stage, Work};

/// Code2wav with the streams of all slots.
pub struct Code2WavStage<O: Ops> {
    ops: O,
    code2wav: Code2Wav<O>,
    state: Code2WavState<O>,
    slots: Vec<Slot>,
    codebooks: usize,
    codebook_size: usize,
    samples_per_frame: usize,
    /// Frames decoded again before each chunk, in place of carried state.
    left_context: Option<usize>,
}

#[derive(Default)]
struct Slot {
    /// The last frames decoded, at most the left context.
    before: VecDeque<Vec<u32>>,
    frames: VecDeque<Vec<u32>>,
    /// Whether the stream had a frame.
    started: bool,
    end: Option<End>,
}

impl<O: Ops> Code2WavStage<O> {
    /// A stage for `slots` streams.
    pub fn new(
        ops: O,
        code2wav: Code2Wav<O>,
        slots: usize,
        (codebooks, codebook_size): (usize, usize),
        samples_per_frame: usize,
        left_context: Option<usize>,
    ) -> Self {
        Self {
            state: code2wav.state_for(&ops, slots, MAX_FRAMES + left_context.unwrap_or(0)),
            left_context,
            slots: (0..slots).map(|_| Slot::default()).collect(),
            ops,
            code2wav,
            codebooks,
            codebook_size,
            samples_per_frame,
        }
    }
}

impl<O: Ops + Send> Stage<O::T> for Code2WavStage<O>
where
    O::T: Send,
    O::Weight: Send,
    O::State: Send,
{
    fn name(&self) -> &'static str {
        "code2wav"
    }

    fn accept(&mut self, slot: usize, item: Item<O::T>, out: &mut Outbox<O::T>) {
        let state = &mut self.slots[slot];
        match item {
            Item::Begin(_) | Item::Abort => {
                *state = Slot::default();
                out.push((slot, item));
            }
            // A code out of range would read another codebook's entry.
            Item::Frame(frame) => {
                if frame.len() == self.codebooks && frame.iter().all(|&code| (code as usize) < self.codebook_size) {
                    state.frames.push_back(frame);
                } else {
                    let message = format!("codes {frame:?} are outside of the codebooks");
                    out.push((slot, Item::Fail(SessionError::Internal { stage: "talker", message })));
                }
            }
            Item::End(end) if state.frames.is_empty() => out.push((slot, Item::End(end))),
            Item::End(end) => state.end = Some(end),
            _ => {}
        }
    }

    fn ready(&self, slot: usize) -> usize {
        self.slots[slot].frames.len()
    }

    fn kind(&self, _: usize) -> RowKind {
        RowKind::Decode
    }

    fn max_rows(&self) -> usize {
        MAX_FRAMES
    }

    fn step(&mut self, work: &[Work], out: &mut Outbox<O::T>) {
        let mut codes: Vec<Vec<u32>> = vec![Vec::new(); self.codebooks];
        let mut chunks = Vec::with_capacity(work.len());
        for &Work { slot, rows } in work {
            let state = &mut self.slots[slot];
            let before = state.before.len();
            state.before.extend(state.frames.drain(..rows));
            for frame in &state.before {
                for (codes, &code) in codes.iter_mut().zip(frame) {
                    codes.push(code);
                }
            }
            let first = !std::mem::replace(&mut state.started, true) || self.left_context.is_some();
            chunks.push(StreamChunk { slot, rows: before + rows, first });
            let kept = self.left_context.unwrap_or(0);
            state.before.drain(..state.before.len().saturating_sub(kept));
        }
        let (samples, made) = self.code2wav.forward(&self.ops, &codes, &mut self.state, &chunks);
        let samples = self.ops.read(&samples);
        let mut rest = &samples[..];
        for (chunk, made) in chunks.iter().zip(made) {
            let (mine, after) = rest.split_at(made.rows);
            rest = after;
            // Frames of the left context come first; their samples were sent already.
            let wanted = work.iter().find(|work| work.slot == chunk.slot).map_or(chunk.rows, |work| work.rows);
            let mine = &mine[mine.len().saturating_sub(wanted * self.samples_per_frame)..];
            if mine.iter().any(|sample| !sample.is_finite()) {
                out.push((chunk.slot, Item::Fail(SessionError::NotFinite { stage: "code2wav" })));
                continue;
            }
            // Only the first frame of a stream is short.
            let short = (wanted * self.samples_per_frame).saturating_sub(mine.len());
            let (first, others) =
                mine.split_at((self.samples_per_frame - short.min(self.samples_per_frame)).min(mine.len()));
            out.push((chunk.slot, Item::Samples(first.to_vec())));
            out.extend(others.chunks(self.samples_per_frame).map(|frame| (chunk.slot, Item::Samples(frame.to_vec()))));
            let state = &mut self.slots[chunk.slot];
            if state.frames.is_empty()
                && let Some(end) = state.end.take()
            {
                out.push((chunk.slot, Item::End(end)));
            }
        }
    }

    fn free(&mut self, slot: usize) {
        self.slots[slot] = Slot::default();
    }

    fn held(&self, _: usize) -> usize {
        0
    }
}
