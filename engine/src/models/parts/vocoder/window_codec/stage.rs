//! The codec as a stage: codes to samples, in windows that are decoded whole.
//!
//! A window begins at each `new` codes of a response. It has these, and up to `left` codes before them. Samples of its last
//! `right` codes come of the next window, which knows what follows them; those of a response's last codes of one more window,
//! with whatever codes are left. So the windows, and the samples, do not depend on when codes arrive.

use std::time::Duration;

use realfft::num_complex::Complex;
use repartee_engine_api::SessionError;
use repartee_kernels::{Ops, RowSpec, SpecLayout};

use super::config::WindowSizes;
use super::{CodeWindow, WindowCodec, WindowCodecSections};
use crate::config::{ConfigError, EngineConfig};
use crate::device::Device;
use crate::models::parts::config::limits::WINDOW;
use crate::models::parts::memory::SlotBytes;
use crate::models::parts::pipeline::{Placement, StagePart};
use crate::models::parts::stream_stage::{StreamModel, StreamStage};
use crate::models::parts::vocoder::stft::{InverseStft, InverseStftStream, hann};
use crate::stage::{BatchEntry, EdgeKind, RowKind, Stage, StageItem};

/// Name of the stage.
const STAGE: &str = "codec";
/// Settings of the stage: the fields of [`WindowSizes`].
const SETTINGS: [&str; 3] = ["left_codes", "right_codes", "new_codes"];
/// Largest magnitude of a spectral line, as in the reference.
const MOST_MAGNITUDE: f32 = 100.0;

impl WindowSizes {
    /// Reads the stage's settings, with `absent` for those that are not set.
    ///
    /// # Errors
    ///
    /// A window would give no samples, or is longer than [`WINDOW`].
    pub fn read(settings: &EngineConfig, absent: Self) -> Result<Self, ConfigError> {
        let [left, right, new] = SETTINGS;
        let value = |name, absent| settings.stage_option(STAGE, name).unwrap_or(absent);
        let sizes =
            Self { left: value(left, absent.left), right: value(right, absent.right), new: value(new, absent.new) };
        let wrong = |name: &str, value: usize, allowed: String| {
            Err(ConfigError::new(format!("stages.{STAGE}.{name}"), value, allowed))
        };
        if sizes.new == 0 || sizes.new > *WINDOW.end() {
            return wrong(new, sizes.new, format!("1 to {}", WINDOW.end()));
        }
        if sizes.left > WINDOW.end() - sizes.new {
            return wrong(left, sizes.left, format!("at most {}, with new_codes", WINDOW.end()));
        }
        if sizes.right > sizes.left {
            return wrong(right, sizes.right, format!("at most {left}, which is {}", sizes.left));
        }
        Ok(sizes)
    }
}

/// The codec as a stage.
pub struct WindowCodecPart<O: Ops> {
    codec: WindowCodec<O>,
    sizes: WindowSizes,
    /// Duration of a code.
    code: Duration,
    /// Most codes of a response.
    most_codes: usize,
    inverse: InverseStft,
}

impl<O: Ops> WindowCodecPart<O> {
    /// Wraps a codec, whose codes have this duration, for responses of at most `most_codes` codes.
    pub fn new(codec: WindowCodec<O>, sizes: WindowSizes, (code, most_codes): (Duration, usize)) -> Self {
        let (n_fft, hop) = codec.config().istft;
        // Each window's samples are cut out of its transforms by themselves.
        let inverse = InverseStft::new(hann(n_fft), hop, 0);
        Self { codec, sizes, code, most_codes, inverse }
    }
}

impl<O: Device> StagePart<O> for WindowCodecPart<O> {
    fn name(&self) -> &'static str {
        STAGE
    }

    fn settings(&self) -> &'static [&'static str] {
        &SETTINGS
    }

    /// Codes of a response.
    fn slot_bytes(&self, _: usize) -> SlotBytes {
        let codes = self.most_codes * self.codec.config().entries.len();
        SlotBytes { position: 0, fixed: codes * size_of::<u32>() }
    }

    fn place(self: Box<Self>, at: Placement<'_, O>) -> Box<dyn Stage> {
        Box::new(StreamStage::new(STAGE, at.ops, *self, at.slots.total()))
    }
}

/// Codes of a response.
#[derive(Debug, Default)]
pub struct CodeStream {
    /// Codes from `first` on: those that a later window has.
    codes: Vec<Vec<u32>>,
    first: usize,
    /// Codes that a window has had, and codes whose samples were launched.
    seen: usize,
    given: usize,
}

impl CodeStream {
    fn total(&self) -> usize {
        self.first + self.codes.len()
    }

    /// Next window: codes that windows have had after it, and its range; up to where samples are wanted.
    fn next(&self, sizes: WindowSizes, ended: bool) -> Option<(usize, (usize, usize), usize)> {
        let mut seen = self.seen;
        while self.total() - seen >= sizes.new {
            let (from, to) = (seen.saturating_sub(sizes.left), seen + sizes.new);
            seen = to;
            // The first windows may have no code but those whose samples come of the next one.
            if to - from > sizes.right {
                return Some((seen, (from, to), to - sizes.right));
            }
        }
        let total = self.total();
        (ended && self.given < total).then(|| (total, (seen.saturating_sub(sizes.left), total), total))
    }
}

impl<O: Device> StreamModel<O> for WindowCodecPart<O> {
    type Stream = CodeStream;
    type Piece = CodeWindow;
    type Sections = WindowCodecSections;

    const EDGES: (EdgeKind, EdgeKind) = (EdgeKind::Codes, EdgeKind::Samples);
    const ROWS: RowKind = RowKind::Window;
    const MAX_ROWS: usize = 1;
    const MAX_ITEMS: usize = 1;

    fn append(&self, stream: &mut CodeStream, item: StageItem) -> Result<(), SessionError> {
        let StageItem::Codes(frame) = item else { return Ok(()) };
        let entries = &self.codec.config().entries;
        let known = frame.iter().zip(entries).all(|(&code, &entries)| (code as usize) < entries);
        if frame.len() != entries.len() || !known {
            let message = format!("codes {frame:?} are outside of the codebooks");
            return Err(SessionError::Internal { stage: STAGE, message });
        }
        stream.codes.push(frame);
        Ok(())
    }

    fn ready_rows(&self, stream: &CodeStream, ended: bool) -> usize {
        usize::from(stream.next(self.sizes, ended).is_some())
    }

    fn is_empty(&self, stream: &CodeStream) -> bool {
        stream.given == stream.total()
    }

    fn buffered_audio(&self, stream: &CodeStream) -> Duration {
        self.code * u32::try_from(stream.total() - stream.given).unwrap_or(u32::MAX).min(100_000)
    }

    fn take(&self, stream: &mut CodeStream, _: BatchEntry, ended: bool) -> Option<CodeWindow> {
        let (seen, (from, to), until) = stream.next(self.sizes, ended)?;
        let codes = stream.codes[from - stream.first..to - stream.first].to_vec();
        let window = CodeWindow { codes, wanted: (stream.given - from, until - from) };
        (stream.seen, stream.given) = (seen, until);
        let kept = seen.saturating_sub(self.sizes.left).max(stream.first);
        stream.codes.drain(..kept - stream.first);
        stream.first = kept;
        Some(window)
    }

    fn size(&self, window: &CodeWindow) -> (usize, usize) {
        let (from, to) = window.spectra();
        (window.codes.len(), (to - from) * self.codec.config().spectrum())
    }

    fn layout(&self, layout: &mut SpecLayout, rows: usize) -> WindowCodecSections {
        self.codec.layout(layout, rows)
    }

    fn fill(&self, spec: &mut RowSpec, sections: &WindowCodecSections, windows: &[CodeWindow]) {
        self.codec.fill(spec, sections, windows);
    }

    fn forward(&mut self, ops: &O, spec: &O::Spec, sections: &WindowCodecSections) -> O::T {
        self.codec.forward(ops, spec, sections)
    }

    fn items(&self, _: &mut CodeStream, window: CodeWindow, numbers: &[f32]) -> Option<Vec<StageItem>> {
        if numbers.iter().any(|number| !number.is_finite()) {
            return None;
        }
        let (bins, mut stream, mut samples) = (self.inverse.bins(), InverseStftStream::default(), Vec::new());
        for row in numbers.chunks_exact(2 * bins) {
            let (logarithms, angles) = row.split_at(bins);
            let line =
                |(logarithm, angle): (&f32, &f32)| Complex::from_polar(logarithm.exp().min(MOST_MAGNITUDE), *angle);
            self.inverse.push(&mut stream, &logarithms.iter().zip(angles).map(line).collect::<Vec<_>>(), &mut samples);
        }
        self.inverse.finish(&mut stream, &mut samples);
        // The window's samples begin half an overlap after its first transform.
        let (n_fft, hop) = self.codec.config().istft;
        let (code, before) = (self.codec.config().samples_per_code(), window.spectra().0 * hop);
        let at = |code_at: usize| code_at * code + (n_fft - hop) / 2 - before;
        let (from, to) = window.wanted;
        Some(vec![StageItem::Samples(samples[at(from)..at(to)].to_vec())])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: WindowSizes = WindowSizes { left: 12, right: 4, new: 5 };

    /// Windows of a response of `total` codes, which arrive `piece` at a time: range, and samples up to where.
    fn windows(total: usize, piece: usize) -> Vec<((usize, usize), usize)> {
        let (mut stream, mut found) = (CodeStream::default(), Vec::new());
        let take = |stream: &mut CodeStream, ended: bool, found: &mut Vec<_>| {
            while let Some((seen, range, until)) = stream.next(SIZES, ended) {
                (stream.seen, stream.given) = (seen, until);
                found.push((range, until));
            }
        };
        for at in (0..total).step_by(piece) {
            stream.codes.extend((at..total.min(at + piece)).map(|code| vec![code as u32]));
            take(&mut stream, false, &mut found);
        }
        take(&mut stream, true, &mut found);
        assert_eq!(stream.given, total);
        found
    }

    #[test]
    fn windows_do_not_depend_on_arrival() {
        for total in 0..40 {
            let whole = windows(total, 100);
            for piece in [1, 2, 5, 7] {
                assert_eq!(windows(total, piece), whole, "{total} codes, {piece} at a time");
            }
        }
        assert_eq!(windows(3, 1), [((0, 3), 3)], "fewer than a window has");
        assert_eq!(windows(5, 1), [((0, 5), 1), ((0, 5), 5)], "the last codes come of one more window");
        let whole = [((0, 5), 1), ((0, 10), 6), ((0, 15), 11), ((3, 20), 16), ((8, 22), 22)];
        assert_eq!(windows(22, 4), whole);
    }

    #[test]
    fn settings_without_samples_are_refused() {
        let read = |name: &str, value: usize| {
            let mut config = EngineConfig::default();
            config.stages.entry(STAGE.to_owned()).or_default().options.insert(name.to_owned(), value);
            WindowSizes::read(&config, SIZES)
        };
        assert_eq!(read("new_codes", 7).unwrap(), WindowSizes { new: 7, ..SIZES });
        for (name, value) in [("new_codes", 0), ("right_codes", 13), ("left_codes", 3), ("left_codes", 1 << 20)] {
            let error = read(name, value).unwrap_err().to_string();
            assert!(error.contains("stages.codec."), "{name} {value}: {error}");
        }
    }
}
