//! Interruption network: from the begin of a voice over our playback, how likely the caller interrupts.
//!
//! It judges by sound and not by words. Each frame of 16 ms is a row of mel levels; three rows at a time go through a layer into a
//! recurrent one, whose state begins anew with each voice. So a judgement costs one step, whenever it is asked for. `models/interruptions`
//! has the weights and the recipe that trained them.

mod features;
mod weights;

use std::collections::VecDeque;

pub(crate) use self::features::HOP;
use self::features::{BANDS, BandAnalyzer, Levels};
use self::weights::{KERNEL, KINDS, STATE, WEIGHTS, WIDTH};

/// Powers of ten below the loudest band that are kept.
const RANGE: f32 = 4.0;
/// Frames before a voice that the network hears with it, 64 ms: a voice begins softly.
const BEFORE: usize = 4;
/// Frames that are kept while nothing is judged, 0.5 s: a voice is known as one some frames after its begin.
const KEPT: usize = 32;

/// Network beside one stream of input.
#[derive(Debug, Default)]
pub(crate) struct InterruptionNet {
    analyzer: BandAnalyzer,
    /// Latest frames, while no voice is judged.
    recent: VecDeque<Levels>,
    /// The voice that is judged.
    voice: Option<VoiceState>,
}

/// State of the network since the begin of a voice.
#[derive(Debug)]
struct VoiceState {
    /// Rows of the latest frames, relative to the loudest band so far.
    rows: [f32; KERNEL * BANDS],
    loudest: f32,
    state: [f32; STATE],
    /// Probability of an interruption.
    interruption: f32,
}

impl InterruptionNet {
    /// Adds a frame of [`HOP`] samples. Returns the probability of an interruption, a sentence or a command, if a voice is judged; the rest
    /// are backchannels, coughs and the like.
    pub fn push(&mut self, frame: &[f32]) -> Option<f32> {
        let levels = self.analyzer.push(frame);
        let Some(voice) = &mut self.voice else {
            if self.recent.len() == KEPT {
                self.recent.pop_front();
            }
            self.recent.push_back(levels);
            return None;
        };
        voice.push(&levels);
        Some(voice.interruption)
    }

    /// Judges a voice that began `frames` frames ago, the latest included.
    pub fn begin(&mut self, frames: usize) {
        let mut voice = VoiceState::new();
        let first = self.recent.len().saturating_sub(frames + BEFORE);
        for levels in self.recent.drain(..).skip(first) {
            voice.push(&levels);
        }
        self.voice = Some(voice);
    }

    /// Ends the judgement of the voice.
    pub fn end(&mut self) {
        self.voice = None;
    }

    /// Ends the judgement, and drops the latest frames: the next one does not follow them.
    pub fn reset(&mut self) {
        self.voice = None;
        self.recent.clear();
    }
}

impl VoiceState {
    fn new() -> Self {
        let (rows, state) = ([-1.0; KERNEL * BANDS], [0.0; STATE]);
        Self { rows, loudest: f32::NEG_INFINITY, state, interruption: 0.0 }
    }

    /// Takes a step with the levels of the next frame.
    fn push(&mut self, levels: &Levels) {
        let Some(weights) = &*WEIGHTS else { return };
        self.loudest = levels.iter().copied().fold(self.loudest, f32::max);
        self.rows.copy_within(BANDS.., 0);
        for (to, level) in self.rows[(KERNEL - 1) * BANDS..].iter_mut().zip(levels) {
            *to = (level - self.loudest).max(-RANGE) * (2.0 / RANGE) + 1.0;
        }
        let mut x = [0.0; WIDTH];
        weights.frames.apply(&self.rows, &mut x);
        x.iter_mut().for_each(|x| *x = x.max(0.0));
        let (mut input, mut state) = ([0.0; 3 * STATE], [0.0; 3 * STATE]);
        weights.from_input.apply(&x, &mut input);
        weights.from_state.apply(&self.state, &mut state);
        for (at, kept) in self.state.iter_mut().enumerate() {
            let gate = |gate: usize| sigmoid(input[gate * STATE + at] + state[gate * STATE + at]);
            let candidate = (input[2 * STATE + at] + gate(0) * state[2 * STATE + at]).tanh();
            *kept = candidate + gate(1) * (*kept - candidate);
        }
        let mut logits = [0.0; KINDS];
        weights.out.apply(&self.state, &mut logits);
        let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let shares = logits.map(|logit| (logit - most).exp());
        self.interruption = shares[0] / shares.iter().sum::<f32>();
    }
}

fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
