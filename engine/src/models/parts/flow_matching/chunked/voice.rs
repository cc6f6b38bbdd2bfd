//! Voices of a flow: a vector, and a recording that precedes the speech.

use super::config::ChunkDitConfig;

/// A voice of the checkpoint, with the recording that it continues.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct FlowVoice {
    /// Name of the voice in requests.
    pub name: String,
    /// Vector of the speaker, `spk_embed_dim` numbers.
    pub embedding: Vec<f32>,
    /// Codes of the recording.
    pub codes: Vec<u32>,
    /// Mel frames of the recording, as many as the codes have.
    pub mel: Vec<f32>,
}

impl FlowVoice {
    /// Keeps the last whole chunks of the recording, so that no chunk holds both recording and speech.
    #[must_use]
    pub fn in_chunks(mut self, config: &ChunkDitConfig) -> Self {
        let dropped = self.codes.len() % config.chunk_codes;
        self.codes.drain(..dropped);
        self.mel.drain(..(dropped * config.token_mel_ratio * config.mel).min(self.mel.len()));
        self
    }

    /// Chunks of the recording.
    pub fn chunks(&self, config: &ChunkDitConfig) -> usize {
        self.codes.len() / config.chunk_codes
    }

    /// Frame of the recording; `None` after it.
    pub fn frame(&self, at: usize, width: usize) -> Option<&[f32]> {
        self.mel.get(at * width..(at + 1) * width)
    }
}
