//! Voices cloned from recordings: the speaker encoder makes a speaker embedding, the codec's encoder the recording's
//! codes. The talker reads both, and the recording's transcript, before it speaks.

pub mod mel;

use repartee_engine_api::{EnrolError, Recording};
use repartee_kernels::Ops;

use super::config::CloningConfig;
use super::voices::VoiceList;
use crate::checkpoint::Checkpoint;
use crate::model::Voices;
use crate::models::load_error::LoadError;
use crate::models::parts::speaker_encoder::SpeakerEncoder;
use crate::models::parts::speech_codec::encoder::SpeechEncoder;
use crate::models::parts::talker::voice::Cloned;
use crate::models::parts::weights::Weights;
use crate::text::Tokenizer;

/// Longest recording, in seconds. Its codes precede every response in its voice.
const MOST_SECONDS: usize = 20;
/// Most text ids of a recording's transcript.
const MOST_IDS: usize = 512;

/// Speaker encoder and the codec's encoder.
pub struct Encoders<O: Ops> {
    /// Weights of `speaker_encoder`.
    pub speaker: SpeakerEncoder<O>,
    /// Weights of `encoder` of the codec.
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
        // Formats of the checkpoint, whatever the stages use: the encoders run once a voice.
        Ok(Self {
            speaker: SpeakerEncoder::load(&Weights::new(ops, checkpoint).at("speaker_encoder"), &config.speaker)?,
            speech: SpeechEncoder::load(&Weights::new(ops, codec).at("encoder"), &config.speech, codebooks)?,
        })
    }
}

/// Voices of a checkpoint that clones.
pub struct Cloner<O: Ops> {
    /// Device of the encoders.
    pub ops: O,
    /// Speaker encoder and the codec's encoder.
    pub encoders: Encoders<O>,
    /// Tokenizer of the checkpoint.
    pub tokenizer: Tokenizer,
    /// Samples of a frame of codes.
    pub frame: usize,
    /// Voices by name, shared with the talker.
    pub voices: VoiceList,
}

impl<O: Ops> Cloner<O> {
    /// Computes the talker's input for a recording.
    fn listen(&self, samples: &[f32], text: Vec<u32>) -> Cloned {
        let speaker = self.encoders.speaker.forward(&self.ops, &mel::MEL.spectrogram(samples));
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

/// Most codec frames of a recording; `frame` is the length of one in samples.
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

    /// Without a text only the sound of the voice is cloned, not its manner of speaking.
    fn enrol(&mut self, name: &str, Recording { samples, text }: &Recording) -> Result<(), EnrolError> {
        let refuse = |reason: String| Err(EnrolError::Recording { reason });
        let most = MOST_SECONDS * mel::RATE as usize;
        if samples.len() > most {
            return refuse(format!("cut it to {MOST_SECONDS} s"));
        }
        if mel::MEL.frames(samples.len()) < self.encoders.speaker.least_frames() {
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
