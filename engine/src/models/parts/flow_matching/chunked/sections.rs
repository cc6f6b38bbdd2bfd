//! Sections of the row spec for an evaluation of several chunks.
//!
//! The rows of a chunk come twice, guided and unguided. Before the layers they have rows before them that the
//! convolutions reach, and before those as many empty ones as a convolution centred on its row is shifted by.

use repartee_kernels::row_spec::{BatchSection, SegmentSection, SpecSection};
use repartee_kernels::{NO_ROW, RowSpec, SequenceRows, SpecLayout};

use super::config::{CODE_TAPS, ChunkDitConfig, POSITION_TAPS};
use super::voice::FlowVoice;
use crate::models::parts::flow_matching::modulation::{LAST_PARTS, part};

/// Empty rows before those of a sequence.
const EMPTY: usize = POSITION_TAPS / 2;

/// Chunk of a stream in an evaluation.
#[derive(Debug, Clone)]
pub struct ChunkEvaluation<'a> {
    /// Speaker and recording, which precede the response.
    pub voice: &'a FlowVoice,
    /// Codes of the recording and the response, as far as they are known.
    pub codes: &'a [u32],
    /// First frame of the chunk.
    pub first: usize,
    /// Frames of the chunk.
    pub frames: usize,
    /// The spectrogram so far, `[frames, mel]`: frames before the chunk, as many as there are up to
    /// [`ChunkDitConfig::reach`], and those of the chunk.
    pub mel: &'a [f32],
    /// Index of the time.
    pub time: usize,
    /// Cache blocks that the guided and the unguided rows see, the chunk's own last.
    pub blocks: &'a [Vec<u32>; 2],
}

/// Sections of the row spec.
#[derive(Debug, Clone)]
pub struct ChunkSections {
    /// Rows of the layers, padding included.
    pub(super) rows: usize,
    pub(super) codes: SpecSection,
    /// Code rows that a code's row of the first convolution reads, and rows of that which one of the second reads.
    pub(super) ahead: SpecSection,
    pub(super) before: SpecSection,
    /// Row of each code among the embedded ones.
    pub(super) own_codes: SpecSection,
    /// Inputs of the rows with those before them: spectrogram, recording, code and speaker.
    pub(super) mel: SpecSection,
    pub(super) recording: SpecSection,
    pub(super) code_of: SpecSection,
    pub(super) voices: SpecSection,
    /// The rows themselves without the empty ones, and the results of the first convolution in their places.
    pub(super) filled: SpecSection,
    pub(super) shifted: SpecSection,
    pub(super) segments: SegmentSection,
    /// Rows of the chunks among these, and their results of the second convolution.
    pub(super) own: SpecSection,
    pub(super) convolved: SpecSection,
    pub(super) modulations: SpecSection,
    pub(super) last: SpecSection,
    /// Frames of the rows, for their rotation, and their places in the cache.
    pub(super) positions: BatchSection,
    pub(super) cache: BatchSection,
}

/// Rows of an evaluation of one chunk, padded to a whole one.
pub fn rows(config: &ChunkDitConfig) -> usize {
    2 * config.chunk()
}

impl ChunkSections {
    /// Reserves the sections for `rows` rows; a sequence sees at most `blocks` cache blocks.
    pub fn new(layout: &mut SpecLayout, config: &ChunkDitConfig, rows: usize, blocks: usize) -> Self {
        let chunks = rows.div_ceil(self::rows(config));
        let input = chunks * 2 * (EMPTY + config.reach() + config.chunk());
        // Codes of a chunk with those of the frames before it.
        let codes = chunks * (config.chunk_codes + config.reach().div_ceil(config.token_mel_ratio) + 1);
        let embedded = codes + chunks * (CODE_TAPS - 1 + config.pre_lookahead_len);
        Self {
            rows,
            codes: layout.list(embedded),
            ahead: layout.list((codes + chunks * (CODE_TAPS - 1)) * (config.pre_lookahead_len + 1)),
            before: layout.list(codes * CODE_TAPS),
            own_codes: layout.list(codes),
            mel: layout.list(input * config.mel),
            recording: layout.list(input * config.mel),
            code_of: layout.list(input),
            voices: layout.list(input * config.mel),
            filled: layout.list(input),
            shifted: layout.list(input),
            segments: layout.segments(input, 2 * chunks),
            own: layout.list(rows),
            convolved: layout.list(rows),
            modulations: layout.list(part::COUNT * rows),
            last: layout.list(LAST_PARTS * rows),
            positions: layout.batch(rows, 2 * chunks, 1),
            cache: layout.batch(rows, 2 * chunks, blocks),
        }
    }

    /// Fills a row spec with chunks; `scratch` is the cache block of the padding.
    pub fn fill(&self, spec: &mut RowSpec, config: &ChunkDitConfig, chunks: &[ChunkEvaluation<'_>], scratch: u32) {
        let mut lists = Lists::default();
        for chunk in chunks {
            lists.chunk(config, chunk);
        }
        spec.set(self.codes, &lists.codes);
        spec.set(self.ahead, &lists.ahead);
        spec.set(self.before, &lists.before);
        spec.set(self.own_codes, &lists.own_codes);
        spec.set_floats(self.mel, &lists.mel);
        spec.set_floats(self.recording, &lists.recording);
        spec.set(self.code_of, &lists.code_of);
        spec.set_floats(self.voices, &lists.voices);
        spec.set(self.filled, &lists.filled);
        spec.set(self.shifted, &lists.shifted);
        spec.set_segments(self.segments, &lists.segments);
        spec.set(self.own, &lists.own);
        spec.set(self.convolved, &lists.convolved);
        for (list, parts) in [(self.modulations, part::COUNT), (self.last, LAST_PARTS)] {
            for part in 0..parts {
                let of = |chunk: &ChunkEvaluation<'_>| {
                    std::iter::repeat_n((chunk.time * parts + part) as u32, 2 * chunk.frames)
                };
                spec.set_each(list.part(part, self.rows), chunks.iter().flat_map(of));
            }
        }
        let framed = chunks
            .iter()
            .flat_map(|chunk| [SequenceRows { table: &[0], position: chunk.first, rows: chunk.frames }; 2]);
        spec.set_batch(self.positions, &framed.collect::<Vec<_>>(), 0);
        let cached = chunks.iter().flat_map(|chunk| {
            chunk.blocks.iter().map(|table| {
                let position = table.len().saturating_sub(1) * config.chunk();
                SequenceRows { table, position, rows: chunk.frames }
            })
        });
        spec.set_batch(self.cache, &cached.collect::<Vec<_>>(), scratch);
    }
}

/// Lists of an evaluation, chunk after chunk.
#[derive(Default)]
struct Lists {
    codes: Vec<u32>,
    ahead: Vec<u32>,
    before: Vec<u32>,
    own_codes: Vec<u32>,
    mel: Vec<f32>,
    recording: Vec<f32>,
    code_of: Vec<u32>,
    voices: Vec<f32>,
    filled: Vec<u32>,
    shifted: Vec<u32>,
    segments: Vec<usize>,
    own: Vec<u32>,
    convolved: Vec<u32>,
    /// Rows of the first convolution over codes.
    looked_ahead: usize,
}

impl Lists {
    fn chunk(&mut self, config: &ChunkDitConfig, chunk: &ChunkEvaluation<'_>) {
        let context = chunk.mel.len() / config.mel.max(1) - chunk.frames;
        let from = chunk.first - context;
        let code_rows = self.code_rows(config, chunk, from);
        for guided in [true, false] {
            let base = self.filled.len();
            let row = |row: usize| (base + row) as u32;
            self.filled.extend([NO_ROW; EMPTY]);
            self.shifted.extend([NO_ROW; EMPTY]);
            self.code_of.extend([NO_ROW; EMPTY]);
            for list in [&mut self.mel, &mut self.recording, &mut self.voices] {
                list.resize(list.len() + EMPTY * config.mel, 0.0);
            }
            self.mel.extend_from_slice(chunk.mel);
            for at in 0..context + chunk.frames {
                let frame = from + at;
                self.filled.push(row(EMPTY + at));
                // A centred convolution half its taps earlier is the causal one.
                self.shifted.push(row(at));
                match chunk.voice.frame(frame, config.mel).filter(|_| guided) {
                    Some(frame) => self.recording.extend_from_slice(frame),
                    None => self.recording.resize(self.recording.len() + config.mel, 0.0),
                }
                let code = code_rows + frame / config.token_mel_ratio - from / config.token_mel_ratio;
                self.code_of.push(if guided { code as u32 } else { NO_ROW });
                match guided {
                    true => self.voices.extend_from_slice(&chunk.voice.speaker),
                    false => self.voices.resize(self.voices.len() + config.mel, 0.0),
                }
                if at >= context {
                    self.own.push(row(EMPTY + at));
                    self.convolved.push(row(at));
                }
            }
            self.segments.push(EMPTY + context + chunk.frames);
        }
    }

    /// Lists of the convolutions over the codes of the frames from `from` on; returns the first of their rows.
    fn code_rows(&mut self, config: &ChunkDitConfig, chunk: &ChunkEvaluation<'_>, from: usize) -> usize {
        let (first, end) =
            (from / config.token_mel_ratio, (chunk.first + chunk.frames).div_ceil(config.token_mel_ratio));
        let (codes, looked, rows) = (self.codes.len(), self.looked_ahead, self.own_codes.len());
        // The second convolution reads rows before the first code.
        let earliest = first.saturating_sub(CODE_TAPS - 1);
        let known = chunk.codes.len().min(end + config.pre_lookahead_len);
        self.codes.extend_from_slice(&chunk.codes[earliest.min(known)..known]);
        for code in earliest..end {
            let tap = |tap: usize| {
                let at = code + tap;
                if at < known { (codes + at - earliest) as u32 } else { NO_ROW }
            };
            self.ahead.extend((0..=config.pre_lookahead_len).map(tap));
        }
        self.looked_ahead += end - earliest;
        for code in first..end {
            let tap = |tap: usize| match (code + tap).checked_sub(CODE_TAPS - 1) {
                Some(at) => (looked + at - earliest) as u32,
                None => NO_ROW,
            };
            self.before.extend((0..CODE_TAPS).map(tap));
            self.own_codes.push(if code < known { (codes + code - earliest) as u32 } else { NO_ROW });
        }
        rows
    }
}
