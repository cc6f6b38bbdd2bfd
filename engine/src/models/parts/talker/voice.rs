//! Voices of a talker.

use std::sync::Arc;

/// Speaker and language of a response.
#[derive(Debug, Clone, Default)]
pub struct Voice {
    /// Speaker of the voice.
    pub speaker: Speaker,
    /// Codec id of the language; `None` leaves it to the model.
    pub language: Option<u32>,
}

impl Voice {
    /// Recording that precedes the speech; `None` without codes.
    pub fn recording(&self) -> Option<&Arc<Cloned>> {
        match &self.speaker {
            Speaker::Cloned(cloned) if !cloned.frames.is_empty() => Some(cloned),
            _ => None,
        }
    }
}

/// Speaker of a voice.
#[derive(Debug, Clone, Default)]
pub enum Speaker {
    /// Speaker that the instructions describe.
    #[default]
    Any,
    /// A speaker of the checkpoint, by its codec id.
    Listed(u32),
    /// A speaker cloned from a recording.
    Cloned(Arc<Cloned>),
}

/// A voice cloned from a recording.
#[derive(Debug, Clone, PartialEq)]
pub struct Cloned {
    /// Speaker embedding from the speaker encoder.
    pub speaker: Vec<f32>,
    /// Transcript of the recording as text ids; empty if unknown.
    pub text: Vec<u32>,
    /// Codes of the recording, frame by frame; empty without a transcript.
    pub frames: Vec<Vec<u32>>,
}

impl Cloned {
    /// Row of a frame or, without one, of the speaker embedding. A frame's row consists of its codes alone.
    pub fn row(&self, frame: Option<usize>, width: usize) -> impl Iterator<Item = f32> {
        let numbers = if frame.is_none() { &self.speaker[..] } else { &[] };
        (0..width).map(|at| numbers.get(at).copied().unwrap_or_default())
    }

    /// Code of a frame.
    pub fn code(&self, frame: Option<usize>, codebook: usize) -> Option<u32> {
        self.frames.get(frame?)?.get(codebook).copied()
    }
}
