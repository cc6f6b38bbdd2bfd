//! Voices cloned from recordings, after `CosyVoiceFrontEnd.frontend_zero_shot`: the speech tokenizer makes codes of a
//! recording, CAM++ a vector of its speaker. The language model continues the codes and their transcript, the flow the
//! codes and their mel frames.

use std::path::Path;
use std::sync::Arc;

use repartee_engine_api::{EnrolError, Recording};
use repartee_kernels::Ops;

use super::config::{Config, SPEAKER_FILE, SPEECH_FILE};
use crate::audio::kaldi_mel;
use crate::audio::log_mel::{LogMel, LogMelConfig};
use crate::audio::resample::resample;
use crate::checkpoint::{Checkpoint, CheckpointError};
use crate::model::Voices;
use crate::models::load_error::LoadError;
use crate::models::parts::campplus::{self, CamPlus};
use crate::models::parts::flow_matching::chunked::config::ChunkDitConfig;
use crate::models::parts::flow_matching::chunked::voice::{FlowVoice, SpeakerProjection};
use crate::models::parts::magnitude_mel::MagnitudeMel;
use crate::models::parts::onnx_layers::NamedTensor;
use crate::models::parts::rows::HostRows;
use crate::models::parts::shared_voices::SharedVoices;
use crate::models::parts::speech_order::SpokenPrompt;
use crate::models::parts::speech_tokenizer::{self, SpeechTokenizer};
use crate::models::parts::weights::Weights;
use crate::text::Tokenizer;

/// Shortest and longest recording, in seconds; the reference refuses longer ones.
const LEAST_SECONDS: usize = 1;
const MOST_SECONDS: usize = 30;
/// Most codes of a recording.
pub const MOST_CODES: usize = MOST_SECONDS * 25;
/// Most text ids of a recording's transcript.
pub const MOST_IDS: usize = 512;

/// Encoders of recordings.
pub struct Encoders<O: Ops> {
    ops: O,
    speech: SpeechTokenizer<O>,
    /// Spectrogram of the tokenizer.
    log_mel: Arc<LogMel>,
    speaker: CamPlus<O>,
    projection: SpeakerProjection<O>,
    /// Spectrogram of the flow.
    prompt_mel: MagnitudeMel,
    flow: ChunkDitConfig,
}

/// A recording as the model reads it.
#[derive(Debug, Clone, PartialEq)]
pub struct EncodedRecording {
    /// Codes of the speech.
    pub codes: Vec<u32>,
    /// Mel frames, as many as the codes have.
    pub mel: Vec<f32>,
    /// Vector of the speaker.
    pub speaker: Vec<f32>,
}

/// Opens an ONNX file as a checkpoint with the names of a model's tensors.
fn open(
    checkpoint: &Checkpoint,
    file: &str,
    tensors: fn(&[u8]) -> Option<Vec<NamedTensor>>,
) -> Result<Checkpoint, CheckpointError> {
    let label = checkpoint.label(file);
    let tensors = tensors(&checkpoint.bytes(file)?).ok_or_else(|| other(&label, file))?;
    Ok(Checkpoint::converted(Path::new(&label), tensors))
}

fn other(label: &str, model: &str) -> CheckpointError {
    CheckpointError::OtherLayers { file: label.to_owned(), model: format!("the published {model}") }
}

impl<O: Ops> Encoders<O> {
    /// Loads the encoders, in the formats of their files; `flow` has the weights of the flow.
    pub fn load(
        ops: O,
        (checkpoint, flow): (&Checkpoint, &Checkpoint),
        config: &Config,
        prompt_mel: MagnitudeMel,
    ) -> Result<Self, LoadError> {
        let speech = SpeechTokenizer::load(&ops, &open(checkpoint, SPEECH_FILE, speech_tokenizer::tensors)?)?;
        let fits = speech.codes().is_some_and(|codes| codes <= config.speech_token_size);
        if !fits {
            return Err(other(&checkpoint.label(SPEECH_FILE), "tokenizer of this model's codes").into());
        }
        let speaker = CamPlus::load(&ops, &open(checkpoint, SPEAKER_FILE, campplus::tensors)?)?;
        if speaker.width() != config.sound.flow.spk_embed_dim {
            return Err(other(&checkpoint.label(SPEAKER_FILE), "encoder of this model's speakers").into());
        }
        let sizes = LogMelConfig { feature_size: speech.bins(), ..LogMelConfig::default() };
        let most = MOST_SECONDS * sizes.sampling_rate as usize / sizes.hop_length;
        // One frame more than a recording has, so that all of its frames are one window.
        let log_mel = LogMel::new(&sizes, most + 1)
            .map_err(|value| CheckpointError::BadValue { file: checkpoint.label(SPEECH_FILE), value })?;
        let projection = SpeakerProjection::load(&Weights::new(&ops, flow), &config.sound.flow)?;
        Ok(Self { ops, speech, log_mel, speaker, projection, prompt_mel, flow: config.sound.flow.clone() })
    }

    /// Sampling rate of recordings, in Hz.
    pub fn rate(&self) -> u32 {
        self.prompt_mel.rate
    }

    /// Encodes a recording of one second or more.
    pub fn encode(&self, samples: &[f32]) -> EncodedRecording {
        let heard = resample(samples, self.rate(), kaldi_mel::RATE);
        let mut stream = self.log_mel.stream();
        stream.push(&heard, &mut Vec::new());
        let frames = stream.finish().map(|window| window.data).unwrap_or_default();
        let rows = self.speech.encode(&self.ops, &HostRows { width: self.speech.bins(), data: frames });
        let mut codes = self.speech.quantize(&self.ops, &rows);
        let mut mel = self.prompt_mel.spectrogram(samples).data;
        // The last code may be of less sound than its frames, and the last frames of no whole code.
        let width = self.flow.token_mel_ratio * self.flow.mel;
        codes.truncate(mel.len() / width);
        mel.truncate(codes.len() * width);
        let bins = self.speaker.bins();
        let levels = without_mean(kaldi_mel::spectrogram(&heard, bins), bins);
        EncodedRecording { codes, mel, speaker: self.speaker.forward(&self.ops, &levels) }
    }
}

/// Subtracts each bin's mean over all frames.
fn without_mean(mut levels: Vec<f32>, bins: usize) -> HostRows {
    let count = (levels.len() / bins.max(1)).max(1) as f64;
    for bin in 0..bins {
        let of_bin = || (bin..levels.len()).step_by(bins);
        let mean = (of_bin().map(|at| f64::from(levels[at])).sum::<f64>() / count) as f32;
        for at in (bin..levels.len()).step_by(bins) {
            levels[at] -= mean;
        }
    }
    HostRows { width: bins, data: levels }
}

/// Voices of a checkpoint that clones.
pub struct Cloner<O: Ops> {
    /// Encoders of recordings.
    pub encoders: Encoders<O>,
    /// Tokenizer of transcripts.
    pub tokenizer: Tokenizer,
    /// Ids before a transcript: the instructions of a voice without any, and their mark.
    pub instructions: Vec<u32>,
    /// Most chunks of a recording that the flow continues.
    pub most_chunks: usize,
    /// Voices of the language model.
    pub prompts: SharedVoices<SpokenPrompt>,
    /// Voices of the flow.
    pub heard: SharedVoices<FlowVoice>,
}

impl<O: Ops + Send> Voices for Cloner<O>
where
    O::Weight: Send,
{
    fn names(&self) -> Vec<String> {
        self.heard.names()
    }

    fn recording_rate(&self) -> Option<u32> {
        Some(self.encoders.rate())
    }

    /// Without a text the flow alone continues the recording, as in the reference's cross-lingual mode.
    fn enrol(&mut self, name: &str, Recording { samples, text }: &Recording) -> Result<(), EnrolError> {
        let refuse = |reason: String| Err(EnrolError::Recording { reason });
        let second = self.encoders.rate() as usize;
        if samples.len() > MOST_SECONDS * second {
            return refuse(format!("cut it to {MOST_SECONDS} s"));
        }
        if samples.len() < LEAST_SECONDS * second {
            return refuse("it is too short: three to five seconds are best".to_owned());
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
        let Encoders { ops, projection, flow, .. } = &self.encoders;
        let EncodedRecording { codes, mel, speaker } = self.encoders.encode(samples);
        let speaker = projection.row(ops, &speaker);
        if speaker.iter().chain(&mel).any(|number| !number.is_finite()) {
            return refuse("the encoders make nothing of it".to_owned());
        }
        let prompt = match ids.is_empty() {
            true => SpokenPrompt::default(),
            false => SpokenPrompt { text: [&self.instructions[..], &ids].concat(), codes: codes.clone() },
        };
        self.prompts.enrol(name, prompt);
        self.heard.enrol(name, FlowVoice { speaker, codes, mel }.in_chunks(flow, self.most_chunks));
        Ok(())
    }

    fn remove_voice(&mut self, name: &str) -> bool {
        self.prompts.remove_voice(name);
        self.heard.remove_voice(name)
    }
}
