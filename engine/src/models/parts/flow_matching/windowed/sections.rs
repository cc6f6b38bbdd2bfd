//! Sections of the row spec for an evaluation of several windows: the rows of a window come twice, guided and unguided.

use repartee_kernels::row_spec::{BatchSection, SegmentSection, SpecSection};
use repartee_kernels::{NO_ROW, RowSpec, SequenceRows, SpecLayout};

use super::config::WindowDitConfig;
use crate::models::parts::flow_matching::modulation::{LAST_PARTS, part};

/// Window of a stream in an evaluation.
#[derive(Debug, Clone)]
pub struct WindowEvaluation {
    /// Codes of the recording, then those of the window.
    pub codes: Vec<u32>,
    /// Latents of the first codes, `[rows, latents]`.
    pub known: Vec<f32>,
    /// Value of the solve, `[rows, latents]`.
    pub value: Vec<f32>,
    /// Index of the voice and the time in the tables.
    pub condition: usize,
}

/// Sections of the row spec.
#[derive(Debug, Clone)]
pub struct WindowSections {
    /// Rows of the layers, padding included.
    pub(super) rows: usize,
    pub(super) codes: SpecSection,
    /// Lengths of the windows in codes, and of their guided and unguided rows.
    pub(super) code_segments: SegmentSection,
    pub(super) segments: SegmentSection,
    /// Row of each row's code.
    pub(super) code_of: SpecSection,
    pub(super) known: SpecSection,
    pub(super) value: SpecSection,
    pub(super) modulations: SpecSection,
    pub(super) last: SpecSection,
    pub(super) positions: BatchSection,
}

/// Rows of an evaluation of one window.
pub fn rows(config: &WindowDitConfig, codes: usize) -> usize {
    2 * config.ratio * codes
}

impl WindowSections {
    /// Reserves the sections for `rows` rows.
    pub fn new(layout: &mut SpecLayout, config: &WindowDitConfig, rows: usize) -> Self {
        let codes = rows / self::rows(config, 1);
        Self {
            rows,
            codes: layout.list(codes),
            code_segments: layout.segments(codes, codes),
            segments: layout.segments(rows, rows),
            code_of: layout.list(rows),
            known: layout.list(rows * config.latents),
            value: layout.list(rows * config.latents),
            modulations: layout.list(part::COUNT * rows),
            last: layout.list(LAST_PARTS * rows),
            positions: layout.batch(rows, rows, 1),
        }
    }

    /// Fills a row spec with windows.
    pub fn fill(&self, spec: &mut RowSpec, config: &WindowDitConfig, windows: &[WindowEvaluation]) {
        let frames = |window: &WindowEvaluation| config.ratio * window.codes.len();
        spec.set_each(self.codes, windows.iter().flat_map(|window| window.codes.iter().copied()));
        spec.set_segments(self.code_segments, &windows.iter().map(|window| window.codes.len()).collect::<Vec<_>>());
        let lengths: Vec<usize> = windows.iter().flat_map(|window| [frames(window); 2]).collect();
        spec.set_segments(self.segments, &lengths);
        let (mut code_of, mut first) = (Vec::with_capacity(self.rows), 0);
        for window in windows {
            code_of.extend((first..first + frames(window)).map(|row| row as u32));
            code_of.extend(std::iter::repeat_n(NO_ROW, frames(window)));
            first += frames(window);
        }
        code_of.resize(self.rows, NO_ROW);
        spec.set(self.code_of, &code_of);
        let known = |window: &'_ WindowEvaluation| {
            let mut known = window.known.clone();
            known.resize(window.value.len(), 0.0);
            known.repeat(2)
        };
        spec.set_floats_each(self.known, windows.iter().flat_map(known));
        spec.set_floats_each(self.value, windows.iter().flat_map(|window| window.value.repeat(2)));
        for (list, parts) in [(self.modulations, part::COUNT), (self.last, LAST_PARTS)] {
            for part in 0..parts {
                let of = |window: &WindowEvaluation| {
                    std::iter::repeat_n((window.condition * parts + part) as u32, 2 * frames(window))
                };
                spec.set_each(list.part(part, self.rows), windows.iter().flat_map(of));
            }
        }
        let sequences: Vec<_> = lengths.iter().map(|&rows| SequenceRows { table: &[0], position: 0, rows }).collect();
        spec.set_batch(self.positions, &sequences, 0);
    }
}
