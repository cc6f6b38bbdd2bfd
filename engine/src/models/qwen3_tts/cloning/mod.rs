//! Voices out of recordings: the speaker encoder says who speaks, the codec's encoder gives the recording's codes. The talker reads both,
//! and what is said in the recording, before it speaks.

pub mod mel;
pub mod speech_encoder;

use repartee_engine_api::{EnrolError, Recording};
use repartee_kernels::Ops;

use self::speech_encoder::SpeechEncoder;
use super::config::CloningConfig;
use super::voices::{Cloned, VoiceList};
use crate::checkpoint::Checkpoint;
use crate::model::Voices;
use crate::models::LoadError;
use crate::models::parts::speaker_encoder::SpeakerEncoder;
use crate::models::parts::weights::Weights;
use crate::text::Tokenizer;

/// Longest recording, in seconds. Its codes stand before every response in its voice.
const MOST_SECONDS: usize = 20;
/// Most text ids of what is said in a recording.
const MOST_IDS: usize = 512;

/// Both encoders.
pub struct Encoders<O: Ops> {
    /// `speaker_encoder`
    pub speaker: SpeakerEncoder<O>,
    /// `encoder` of the codec
    pub speech: SpeechEncoder<O>,
}

impl<O: Ops> Encoders<O> {
    /// Loads both for frames of `codebooks` codes.
    pub fn load(
        ops: &O,
        (checkpoint, codec): (&Checkpoint, &Checkpoint),
        config: &CloningConfig,
        codebooks: usize,
    ) -> Result<Self, LoadError> {
        // As in the checkpoint, whatever the stages have: they run once a voice.
        Ok(Self {
            speaker: SpeakerEncoder::load(&Weights::new(ops, checkpoint).at("speaker_encoder"), &config.speaker)?,
            speech: SpeechEncoder::load(&Weights::new(ops, codec).at("encoder"), &config.speech, codebooks)?,
        })
    }
}

/// The voices of a checkpoint that clones.
pub struct Cloner<O: Ops> {
    /// The device.
    pub ops: O,
    /// The encoders.
    pub encoders: Encoders<O>,
    /// The checkpoint's.
    pub tokenizer: Tokenizer,
    /// Samples of a frame of codes.
    pub frame: usize,
    /// Shared with the talker.
    pub voices: VoiceList,
}

impl<O: Ops> Cloner<O> {
    /// What the talker reads of a recording.
    fn listen(&self, samples: &[f32], text: Vec<u32>) -> Cloned {
        let speaker = self.encoders.speaker.forward(&self.ops, &mel::spectrogram(samples));
        let frames = if text.is_empty() {
            Vec::new()
        } else {
            let encoded = self.encoders.speech.encode(&self.ops, samples);
            let mut frames = self.encoders.speech.quantize(&self.ops, &encoded);
            frames.truncate(samples.len().div_ceil(self.frame));
            frames
        };
        Cloned { speaker, text, frames }
    }
}

/// Most frames of codes of a recording.
pub fn most_frames(frame: usize) -> usize {
    (MOST_SECONDS * mel::RATE as usize).div_ceil(frame)
}

impl<O: Ops + Send> Voices for Cloner<O>
where
    O::Weight: Send,
{
    fn names(&self) -> Vec<String> {
        self.voices.names()
    }

    fn recording_rate(&self) -> Option<u32> {
        Some(mel::RATE)
    }

    /// Without a text only the sound of the voice is taken over, not how it speaks.
    fn enrol(&mut self, name: &str, Recording { samples, text }: &Recording) -> Result<(), EnrolError> {
        let refuse = |reason: String| Err(EnrolError::Recording { reason });
        let most = MOST_SECONDS * mel::RATE as usize;
        if samples.len() > most {
            return refuse(format!("cut it to {MOST_SECONDS} s"));
        }
        if mel::frames(samples.len()) < self.encoders.speaker.least_frames() {
            return refuse("it is too short: a few seconds are best".to_owned());
        }
        if samples.iter().any(|sample| !sample.is_finite() || sample.abs() > 1.0) {
            return refuse("its samples must be numbers from -1 to 1".to_owned());
        }
        let Ok(ids) = self.tokenizer.encode(text) else {
            return refuse("its text cannot be read".to_owned());
        };
        if ids.len() > MOST_IDS {
            return refuse(format!("its text has {} tokens; {MOST_IDS} are allowed", ids.len()));
        }
        let cloned = self.listen(samples, ids);
        if cloned.speaker.iter().any(|value| !value.is_finite()) {
            return refuse("the speaker encoder makes nothing of it".to_owned());
        }
        self.voices.enrol(name, cloned);
        Ok(())
    }

    fn remove_voice(&mut self, name: &str) -> bool {
        self.voices.remove_voice(name)
    }
}
