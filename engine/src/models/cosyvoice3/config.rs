//! Configuration of CosyVoice3: `cosyvoice3.yaml`, and config.json of the language model. Names and defaults are those of
//! the published files.

use crate::checkpoint::{Checkpoint, CheckpointError};
use crate::models::parts::config::limits::{CODES, FRAME};
use crate::models::parts::config::{
    ConfigFile, ConfigSection, LanguageModelConfig, LayersDefaults, THINKER, tagged_yaml,
};
use crate::models::parts::flow_sound::FlowSoundConfig;
use crate::models::parts::magnitude_mel::MagnitudeMel;
use crate::models::parts::repeat_aware::RepeatAware;
use crate::models::parts::speech_order::SpeechIds;

/// File that describes the parts, and by which the family is known.
pub const FILE: &str = "cosyvoice3.yaml";
/// Folder of the language model's configuration and tokenizer.
pub const BASE: &str = "CosyVoice-BlankEN";
/// Published files of the encoders of recordings.
pub const SPEECH_FILE: &str = "speech_tokenizer_v3.onnx";
pub const SPEAKER_FILE: &str = "campplus.onnx";
/// Ids after those of codes.
const SPECIAL: usize = 200;

const QWEN2: LayersDefaults =
    LayersDefaults { hidden_size: 896, intermediate_size: 4864, num_hidden_layers: 24, heads: (14, 2), ..THINKER };

/// Contents of the files.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Layers and text table of the language model.
    pub text: LanguageModelConfig,
    /// Number of codes.
    pub speech_token_size: usize,
    /// Text tokens, and the codes after them, of text that streams in.
    pub mix_ratio: (usize, usize),
    /// Most codes for each token of a text; a parameter of the reference's generation, which no published file changes.
    pub max_token_text_ratio: usize,
    /// Sampling of codes.
    pub sampling: RepeatAware,
    /// The flow and the vocoder.
    pub sound: FlowSoundConfig,
    /// Spectrogram of recordings for the flow; `None` if the folder lacks their encoders.
    pub prompt_mel: Option<MagnitudeMel>,
}

/// Reads the section `feat_extractor`.
fn prompt_mel(
    top: &ConfigSection<'_>,
    FlowSoundConfig { flow, hift }: &FlowSoundConfig,
) -> Result<MagnitudeMel, CheckpointError> {
    let (at, rate) = (top.optional_section("feat_extractor")?, hift.sampling_rate);
    at.only("fmin", 0)?;
    at.only("center", false)?;
    at.equal("sampling_rate", rate as usize, ("sample_rate", rate as usize))?;
    let frame = at.even("n_fft", 1920, FRAME)?;
    at.equal("win_size", frame, ("feat_extractor.n_fft", frame))?;
    let hop = at.equal("hop_size", 480, ("samples of a mel frame", hift.samples_per_frame()))?;
    at.check("n_fft", frame, frame >= hop, "at least hop_size")?;
    let half = f64::from(rate) / 2.0;
    let highest_hz = at.value("fmax", half, |hertz| hertz > 0.0 && hertz <= half, "at most half of sample_rate")?;
    let bins = at.equal("num_mels", 80, ("flow.output_size", flow.mel))?;
    Ok(MagnitudeMel { rate, bins, highest_hz, frame, hop })
}

impl Config {
    /// Reads both files.
    pub fn load(checkpoint: &Checkpoint, base: &Checkpoint) -> Result<Self, CheckpointError> {
        let file = tagged_yaml::read(checkpoint, FILE)?;
        let top = file.top()?;
        let json = ConfigFile::config(base)?;
        let text = LanguageModelConfig::read(&json.top()?, 151_936, &QWEN2)?;
        let llm = top.section("llm")?;
        let width = ("hidden_size of the language model", text.layers.hidden_size);
        llm.equal("llm_input_size", 896, width)?;
        llm.equal("llm_output_size", 896, width)?;
        let speech_token_size = llm.size("speech_token_size", 6561, CODES)?;
        let ratio = |list: &[usize]| list.len() == 2 && list.iter().all(|count| (1..=1024).contains(count));
        let mix_ratio = llm.list("mix_ratio", &[5, 15], ratio, "two numbers up to 1024")?;
        let max_token_text_ratio = llm.size("max_token_text_ratio", 20, 1..=1024)?;
        let draws = llm.optional_section("sampling")?;
        let share =
            |field: &str, absent| draws.value(field, absent, |p: f32| p > 0.0 && p <= 1.0, "above 0 and at most 1");
        let sampling = RepeatAware {
            top_p: share("top_p", 0.8)?,
            top_k: draws.size("top_k", 25, CODES)?,
            window: draws.size("win_size", 10, 1..=1024)?,
            share: share("tau_r", 0.1)?,
        };
        top.section("flow")?.equal("vocab_size", 6561, ("llm.speech_token_size", speech_token_size))?;
        let sound = FlowSoundConfig::read(&top)?;
        let clones = [SPEECH_FILE, SPEAKER_FILE].iter().all(|file| checkpoint.has_file(file));
        let prompt_mel = clones.then(|| prompt_mel(&top, &sound)).transpose()?;
        Ok(Self {
            text,
            speech_token_size,
            mix_ratio: (mix_ratio[0], mix_ratio[1]),
            max_token_text_ratio,
            sampling,
            sound,
            prompt_mel,
        })
    }

    /// Ids of the language model, codes first.
    pub fn ids(&self) -> SpeechIds {
        let first = self.speech_token_size as u32;
        SpeechIds { codes: first, start: first, end: first + 1, task: first + 2, fill: first + 3 }
    }

    /// Number of these ids.
    pub fn speech_ids(&self) -> usize {
        self.speech_token_size + SPECIAL
    }
}
