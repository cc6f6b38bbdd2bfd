//! Recordings of voices in the cache: solved once, but for their last chunks, and read by the streams of all slots.

use std::sync::{Arc, OnceLock};

use super::config::ChunkDitConfig;
use super::voice::FlowVoice;

/// Recording of a voice, with its place in the cache.
pub struct SolvedRecording {
    /// Codes and frames of it, and its speaker.
    pub voice: Arc<FlowVoice>,
    /// First block of its chunks.
    pub first_block: usize,
    /// Last frames of the solved chunks at each time, once all are solved.
    before: OnceLock<Vec<Vec<f32>>>,
}

impl SolvedRecording {
    /// Chunks that no response changes: all but the last.
    pub fn shared(&self, config: &ChunkDitConfig) -> usize {
        shared(&self.voice, config)
    }

    /// Last frames of the solved chunks at each time; `None` before all are solved.
    pub fn before(&self) -> Option<&Vec<Vec<f32>>> {
        self.before.get()
    }

    /// Marks the chunks as solved.
    pub fn solved(&self, before: Vec<Vec<f32>>) {
        // Only the stream that solves them sets it.
        let _ = self.before.set(before);
    }
}

fn shared(voice: &FlowVoice, config: &ChunkDitConfig) -> usize {
    voice.chunks(config).saturating_sub(1)
}

/// Places of recordings in the cache. Those of the checkpoint's voices stay; those of other voices take turns.
pub struct RecordingPlaces {
    own: Vec<Arc<SolvedRecording>>,
    /// First block of each place, and the recording there; the least recently used place first.
    others: Vec<(usize, Option<Arc<SolvedRecording>>)>,
}

impl RecordingPlaces {
    /// Reserves blocks from `first_block` on, `chunk_blocks` for each chunk: for the checkpoint's `voices`, and `places` for other
    /// voices with recordings of at most `chunks` chunks. Returns the number of the first block behind them, too.
    pub fn new<'a>(
        voices: impl Iterator<Item = &'a Arc<FlowVoice>>,
        config: &ChunkDitConfig,
        (mut first_block, chunk_blocks): (usize, usize),
        (places, chunks): (usize, usize),
    ) -> (Self, usize) {
        let own = voices.map(|voice| {
            let recording = SolvedRecording { voice: Arc::clone(voice), first_block, before: OnceLock::new() };
            first_block += recording.shared(config) * chunk_blocks;
            Arc::new(recording)
        });
        let own = own.collect();
        let others = (0..places).map(|_| {
            let place = (first_block, None);
            first_block += chunks.saturating_sub(1) * chunk_blocks;
            place
        });
        let others = others.collect();
        (Self { own, others }, first_block)
    }

    /// Recordings of the checkpoint's voices.
    pub fn own(&self) -> &[Arc<SolvedRecording>] {
        &self.own
    }

    /// Returns the recording of a voice. One that is not solved is the caller's alone, to be solved. `None` if streams read
    /// those of every place.
    pub fn of(&mut self, voice: Arc<FlowVoice>, config: &ChunkDitConfig) -> Option<Arc<SolvedRecording>> {
        if let Some(own) = self.own.iter().find(|own| Arc::ptr_eq(&own.voice, &voice)) {
            return Some(Arc::clone(own));
        }
        if shared(&voice, config) == 0 {
            let before = OnceLock::from(Vec::new());
            return Some(Arc::new(SolvedRecording { voice, first_block: 0, before }));
        }
        let is_solved =
            |known: &Arc<SolvedRecording>| Arc::ptr_eq(&known.voice, &voice) && known.before.get().is_some();
        let known = self.others.iter().position(|(_, known)| known.as_ref().is_some_and(is_solved));
        let unread = |known: &Option<Arc<SolvedRecording>>| known.as_ref().is_none_or(|it| Arc::strong_count(it) == 1);
        let at = known.or_else(|| self.others.iter().position(|(_, known)| unread(known)))?;
        let (first_block, found) = self.others.remove(at);
        let recording = match found.filter(|_| known.is_some()) {
            Some(found) => found,
            None => Arc::new(SolvedRecording { voice, first_block, before: OnceLock::new() }),
        };
        self.others.push((first_block, Some(Arc::clone(&recording))));
        Some(recording)
    }
}
