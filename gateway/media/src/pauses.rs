//! Cuts long sound into pieces at its pauses, for models that hear a bounded window.

/// Frames of a second.
const FRAMES_PER_S: usize = 50;
/// Largest sample of silence, 60 dB below the loudest sound. Such a frame belongs to no piece if it can be left out.
const QUIETEST: f32 = 0.001;
/// Frames of silence that are kept at the ends of a piece, 200 ms.
const KEPT: usize = 10;
/// Frames of silence that end a piece, 2 s.
const BREAK: usize = 100;
/// Frames on each side of a cut whose level counts, 160 ms.
const AROUND: usize = 8;

/// Piece of sound.
#[derive(Debug, Clone, PartialEq)]
pub struct SoundPiece {
    /// Samples before it.
    pub begin: u64,
    /// Mono samples in -1..1, with 200 ms of silence at the ends where it lies between others.
    pub samples: Vec<f32>,
}

/// Cuts sound that streams in. The pieces depend on the sound alone, not on how it arrives. Silence between pieces is left out,
/// and a sound of silence has none.
#[derive(Debug)]
pub struct PauseCutter {
    /// Samples of a frame.
    frame: usize,
    /// Frames of the longest piece.
    longest: usize,
    /// Samples of the piece so far, whole frames alone.
    samples: Vec<f32>,
    /// Sum of squares of each frame of it.
    levels: Vec<f32>,
    /// Frames of silence at its end.
    quiet: usize,
    /// True once it has a frame that is no silence.
    heard: bool,
    /// Samples before it.
    begin: u64,
    /// Samples of an incomplete frame.
    rest: Vec<f32>,
}

impl PauseCutter {
    /// Creates a cutter for sound at `rate` Hz, which is a multiple of 50; pieces have at most `longest_s` seconds.
    pub fn new(rate: u32, longest_s: u32) -> Self {
        let frame = (rate as usize / FRAMES_PER_S).max(1);
        Self {
            frame,
            longest: (longest_s as usize * FRAMES_PER_S).max(4 * AROUND),
            samples: Vec::new(),
            levels: Vec::new(),
            quiet: 0,
            heard: false,
            begin: 0,
            rest: Vec::new(),
        }
    }

    /// Takes samples; returns the pieces that are complete.
    pub fn push(&mut self, samples: &[f32]) -> Vec<SoundPiece> {
        let mut pieces = Vec::new();
        self.rest.extend_from_slice(samples);
        let rest = std::mem::take(&mut self.rest);
        let frames = rest.chunks_exact(self.frame);
        self.rest = frames.remainder().to_vec();
        for frame in frames {
            pieces.extend(self.push_frame(frame));
        }
        pieces
    }

    /// Returns the last piece; `None` if there is none.
    pub fn finish(mut self) -> Option<SoundPiece> {
        let rest = std::mem::take(&mut self.rest);
        if !rest.is_empty() {
            self.heard |= !is_quiet(&rest);
            self.samples.extend_from_slice(&rest);
        }
        self.heard.then_some(SoundPiece { begin: self.begin, samples: self.samples })
    }

    fn push_frame(&mut self, frame: &[f32]) -> Option<SoundPiece> {
        let quiet = is_quiet(frame);
        self.samples.extend_from_slice(frame);
        self.levels.push(frame.iter().map(|sample| sample * sample).sum());
        self.quiet = if quiet { self.quiet + 1 } else { 0 };
        self.heard |= !quiet;
        if !self.heard {
            // Silence before a piece.
            self.drop_front(self.levels.len().saturating_sub(KEPT));
            return None;
        }
        if self.quiet >= BREAK {
            return Some(self.cut(self.levels.len() - BREAK + KEPT));
        }
        (self.levels.len() >= self.longest).then(|| self.cut(self.softest()))
    }

    /// Frame of the softest place of the second half; the latest of several.
    fn softest(&self) -> usize {
        let around = |at: usize| self.levels[at - AROUND..at + AROUND].iter().sum::<f32>();
        let places = self.longest / 2..=self.levels.len() - AROUND;
        let softest = places.min_by(|a, b| around(*a).total_cmp(&around(*b)).then(b.cmp(a)));
        softest.unwrap_or(self.levels.len())
    }

    /// Cuts a piece of so many frames; the rest begins the next one.
    fn cut(&mut self, frames: usize) -> SoundPiece {
        let rest = self.samples.split_off(frames * self.frame);
        let piece = SoundPiece { begin: self.begin, samples: std::mem::replace(&mut self.samples, rest) };
        self.levels.drain(..frames);
        self.begin += piece.samples.len() as u64;
        let loud = self.samples.chunks_exact(self.frame).position(|frame| !is_quiet(frame));
        self.heard = loud.is_some();
        self.drop_front(loud.unwrap_or(self.levels.len()).saturating_sub(KEPT));
        self.quiet = self.quiet.min(self.levels.len());
        piece
    }

    fn drop_front(&mut self, frames: usize) {
        let dropped = self.samples.drain(..frames * self.frame).count();
        self.levels.drain(..frames);
        self.begin += dropped as u64;
    }
}

fn is_quiet(samples: &[f32]) -> bool {
    samples.iter().all(|sample| sample.abs() <= QUIETEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: u32 = 16_000;

    /// Speech-like sound: noise in this loudness by the second.
    fn sound(loudness: &[(f32, f32)]) -> Vec<f32> {
        let mut seed = 1_u32;
        let mut noise = || {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (seed >> 8) as f32 / (1 << 23) as f32 - 1.0
        };
        let parts = loudness.iter().map(|(seconds, level)| ((seconds * RATE as f32) as usize, *level));
        parts.flat_map(|(count, level)| (0..count).map(|_| level * noise()).collect::<Vec<_>>()).collect()
    }

    fn pieces(sound: &[f32], cuts: &[usize]) -> Vec<SoundPiece> {
        let mut cutter = PauseCutter::new(RATE, 28);
        let (mut rest, mut found) = (sound, Vec::new());
        for cut in cuts.iter().cycle() {
            let (piece, after) = rest.split_at((*cut).min(rest.len()));
            found.extend(cutter.push(piece));
            rest = after;
            if rest.is_empty() {
                break;
            }
        }
        found.extend(cutter.finish());
        found
    }

    fn spans(pieces: &[SoundPiece]) -> Vec<(f64, f64)> {
        let seconds = |samples: u64| samples as f64 / f64::from(RATE);
        pieces.iter().map(|piece| (seconds(piece.begin), seconds(piece.begin + piece.samples.len() as u64))).collect()
    }

    #[test]
    fn long_sound_is_cut_at_pauses() {
        let sound = sound(&[(20.0, 0.3), (0.6, 0.01), (12.0, 0.3), (0.4, 0.01), (9.0, 0.3)]);
        let found = pieces(&sound, &[usize::MAX]);
        let [(0.0, first), (second, last)] = spans(&found)[..] else { panic!("{:?}", spans(&found)) };
        assert!((20.1..20.5).contains(&first) && first == second && (last - 42.0).abs() < 0.01, "{:?}", spans(&found));
        let whole: Vec<f32> = found.into_iter().flat_map(|piece| piece.samples).collect();
        assert!(whole == sound, "all of the sound is in a piece");
    }

    #[test]
    fn any_split_gives_the_same_pieces() {
        let sound = sound(&[(3.0, 0.0), (31.0, 0.2), (0.3, 0.004), (4.0, 0.2), (2.5, 0.0), (1.007, 0.3)]);
        let whole = pieces(&sound, &[usize::MAX]);
        for cuts in [&[320][..], &[1, 7_777], &[100_000, 3]] {
            assert!(pieces(&sound, cuts) == whole, "{cuts:?}");
        }
    }

    #[test]
    fn silence_is_left_out() {
        let sound = sound(&[(60.0, 0.0005), (2.0, 0.3), (10.0, 0.0), (1.0, 0.3), (60.0, 0.0)]);
        assert_eq!(spans(&pieces(&sound, &[4_000])), [(59.8, 62.2), (71.8, 73.2)]);
        assert!(pieces(&[0.0; 100_001], &[1_000]).is_empty());
        let mut cutter = PauseCutter::new(RATE, 28);
        for _ in 0..600 {
            assert!(cutter.push(&[0.0; 1_600]).is_empty());
            assert!(cutter.samples.len() <= RATE as usize, "silence is not kept");
        }
    }

    #[test]
    fn sound_without_pauses_is_bounded() {
        let found = pieces(&sound(&[(100.0, 0.3)]), &[12_345]);
        assert!(found.iter().all(|piece| piece.samples.len() <= 28 * RATE as usize), "{:?}", spans(&found));
        assert!(found.len() <= 8);
    }
}
