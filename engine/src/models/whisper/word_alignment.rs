//! Times of a text's words in units of bounded work: the queries of its tokens, the keys of its sound, the attention of each
//! head. What is computed so far is with the run of a slot; so a run that is withdrawn takes it along.

use std::ops::Range;

use super::alignment::{Alignment, AlignmentHead};
use super::config::WhisperConfig;
use super::steps::{TextRows, WhisperSteps};
use crate::device::Device;
use crate::models::parts::audio_encoder::pieces::ranges;

/// Multiplications of a device in the time of one in a head's attention, which is computed here.
const HOST: usize = 32;

/// Unit of work.
#[derive(Debug, Clone, PartialEq, Eq)]
enum AlignmentPiece {
    /// Queries of some tokens, in all layers that have heads.
    Queries(Range<usize>),
    /// Keys of some rows of the sound, in some of these layers.
    Keys(Range<usize>, Range<usize>),
    /// Attention of some heads.
    Heads(Range<usize>),
}

/// Words on their way to times.
#[derive(Debug)]
pub struct WordAlignment {
    /// Tokens of the text, from the start on, and the position of the first.
    ids: Vec<u32>,
    position: usize,
    /// Tokens whose times are wanted.
    text: Range<usize>,
    /// Rows of the encoded window.
    rows: usize,
    /// Layers that have heads.
    layers: Vec<usize>,
    /// Queries and keys for each of these layers.
    queries: Vec<Vec<f32>>,
    keys: Vec<Vec<f32>>,
    alignment: Alignment,
    pieces: Vec<AlignmentPiece>,
    /// True if all pieces are one unit.
    whole: bool,
    /// Number of pieces done.
    done: usize,
}

impl WordAlignment {
    /// Begins an alignment: `text` of the tokens `ids`, of which the first stands at `position`, to the first `spoken` of the
    /// window's `rows`. A unit has at most about `most` multiplications.
    pub fn new(
        config: &WhisperConfig,
        (position, mut ids, text): (usize, Vec<u32>, Range<usize>),
        (rows, spoken): (usize, usize),
        most: usize,
    ) -> Self {
        let decoder = &config.decoder;
        // A row of text sees all of the sound if there are no more rows than that.
        ids.truncate(rows.min(decoder.positions.saturating_sub(position)));
        let mut layers: Vec<usize> = config.alignment_heads.iter().map(|[layer, _]| *layer).collect();
        layers.sort_unstable();
        layers.dedup();
        let (tokens, width, heads) = (ids.len(), decoder.width, config.alignment_heads.len());
        let token = decoder.layers * width * (6 * width + 2 * decoder.inner + 2 * rows + 2 * decoder.positions);
        let key = rows * 2 * width * width;
        let head = tokens * spoken * (width / decoder.heads.max(1)) * HOST;
        let whole = (tokens * token).saturating_add(layers.len() * key).saturating_add(heads * head) <= most;
        let pieces = if whole {
            vec![
                AlignmentPiece::Queries(0..tokens),
                AlignmentPiece::Keys(0..layers.len(), 0..rows),
                AlignmentPiece::Heads(0..heads),
            ]
        } else {
            let keys = (0..layers.len()).flat_map(|layer| {
                ranges(rows, key, most).map(move |rows| AlignmentPiece::Keys(layer..layer + 1, rows))
            });
            let queries = ranges(tokens, tokens * token, most).map(AlignmentPiece::Queries);
            queries.chain(keys).chain(ranges(heads, heads * head, most).map(AlignmentPiece::Heads)).collect()
        };
        Self {
            position,
            text: text.start.min(tokens)..text.end.min(tokens),
            ids,
            rows,
            queries: vec![Vec::new(); layers.len()],
            keys: vec![Vec::new(); layers.len()],
            layers,
            alignment: Alignment::new(tokens, spoken),
            pieces,
            whole,
            done: 0,
        }
    }

    /// Number of units that are left.
    pub fn units_left(&self) -> usize {
        if self.whole { 1 } else { (self.pieces.len() - self.done).max(1) }
    }

    /// Does the next `units` units over a slot's window, whose encoded rows are `encoded`. Returns the row of the sound at which
    /// each token begins, once all are done.
    pub fn advance<O: Device>(
        &mut self,
        steps: &mut WhisperSteps<O>,
        slot: usize,
        encoded: &[f32],
        units: usize,
    ) -> Option<Vec<usize>> {
        let units = if self.whole && units > 0 { self.pieces.len() } else { units };
        let to = self.pieces.len().min(self.done + units);
        while self.done < to {
            let piece = self.pieces[self.done].clone();
            self.run(steps, slot, encoded, &piece);
            self.done += 1;
        }
        (self.done == self.pieces.len()).then(|| self.alignment.begins(self.text.clone()))
    }

    fn run<O: Device>(&mut self, steps: &mut WhisperSteps<O>, slot: usize, encoded: &[f32], piece: &AlignmentPiece) {
        let WhisperConfig { decoder, alignment_heads, .. } = &steps.model().config;
        let (width, dim) = (decoder.width, decoder.width / decoder.heads);
        match piece {
            AlignmentPiece::Queries(range) => {
                let ids = &self.ids[range.clone()];
                let text = TextRows { slot, ids, position: self.position + range.start, sound: self.rows, wanted: &[] };
                let queries = steps.queries(&text, &self.layers);
                self.queries.iter_mut().zip(queries).for_each(|(all, some)| all.extend(some));
            }
            AlignmentPiece::Keys(layers, rows) => {
                let keys = steps.keys(&encoded[rows.start * width..rows.end * width], &self.layers[layers.clone()]);
                self.keys[layers.clone()].iter_mut().zip(keys).for_each(|(all, some)| all.extend(some));
            }
            AlignmentPiece::Heads(heads) => {
                for &[layer, head] in &alignment_heads[heads.clone()] {
                    let Some(at) = self.layers.iter().position(|other| *other == layer) else { continue };
                    let (queries, keys) = (&self.queries[at], &self.keys[at]);
                    self.alignment.add(AlignmentHead { queries, keys, width, column: head * dim, dim });
                }
            }
        }
    }
}
