//! config.json of MiMo-Audio and of its tokenizer. Defaults are those of the reference's classes, `MiMoAudioConfig` and
//! `MiMoAudioTokenizerConfig`.

use repartee_engine_api::Sampling;
use repartee_kernels::AttentionShape;
use serde::Deserialize;

use crate::audio::log_mel::{LogMelConfig, MelLevels};
use crate::checkpoint::{Checkpoint, CheckpointError};
use crate::models::parts::audio_encoder::shape::{Convolutions, EncoderShape, Positions};
use crate::models::parts::code_encoder::JOINED;
use crate::models::parts::config::limits::{CODEBOOKS, CODES, FRAME, HEADS, INNER, LAYERS, MEL_BINS, RATE, WIDTH};
use crate::models::parts::config::{
    ConfigFile, ConfigSection, LanguageModelConfig, LayersDefaults, THINKER, switched_window,
};
use crate::models::parts::decoder::DecoderShape;
use crate::models::parts::vocoder::window_codec::config::{StackConfig, WindowCodecConfig};

/// Entries of `architectures` in config.json.
pub const ARCHITECTURES: [&str; 2] = ["MiMoAudioModel", "MiMoAudioForCausalLM"];
/// Folder of the tokenizer of sound.
pub const TOKENIZER: &str = "MiMo-Audio-Tokenizer";
/// Mel frames of a recording that are encoded at once: a minute.
const WINDOW_FRAMES: usize = 6000;

const QWEN2: LayersDefaults = LayersDefaults {
    hidden_size: 4096,
    intermediate_size: 11_008,
    num_hidden_layers: 36,
    heads: (32, 8),
    head_dim: Some(128),
    rope_theta: 640_000.0,
    ..THINKER
};

/// A number, or several with lines between.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "expected a number, or several with `-` between")]
enum Numbers {
    One(usize),
    Many(String),
}

/// Contents of config.json.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Sizes of the language model.
    pub text: LanguageModelConfig,
    /// Shape of its layers.
    pub decoder: DecoderShape,
    /// True if the head's matrix is the token table.
    pub tied: bool,
    /// Frames of a patch.
    pub frames: usize,
    /// Ids of each codebook; the last one of each stands for no code.
    pub codebooks: Vec<usize>,
    /// Steps from the first one to that of each codebook's first code.
    pub delays: Vec<usize>,
    /// Layers that make the codes of a patch, and their inner width.
    pub local: (DecoderShape, usize),
    /// Layers that read the codes of a patch, and their inner width.
    pub input_local: (DecoderShape, usize),
    /// True if a frame of a patch sees those before it alone.
    pub input_causal: bool,
}

impl Config {
    /// Reads config.json; refuses values that are not served.
    pub fn load(checkpoint: &Checkpoint) -> Result<Self, CheckpointError> {
        let file = ConfigFile::of_family(checkpoint, &ARCHITECTURES)?;
        let top = file.top()?;
        let text = LanguageModelConfig::read(&top, 151_680, &QWEN2)?;
        let decoder = DecoderShape { qkv_bias: true, ..text.layers.shape(switched_window(&top)?) };
        let channels = top.size("audio_channels", 8, CODEBOOKS)?;
        let frames = top.size("group_size", 4, 1..=64)?;
        let codebooks = numbers(&top, "speech_vocab_size", channels, "1025-1025-129-129-129-129-129-129")?;
        let sizes = |size: &usize| *size > 1 && CODES.contains(size);
        top.check("speech_vocab_size", shown(&codebooks), codebooks.iter().all(sizes), "sizes above 1")?;
        let empty = numbers(&top, "speech_zeroemb_idx", channels, "1024-1024-128-128-128-128-128-128")?;
        let last = codebooks.iter().map(|size| size - 1);
        top.check("speech_zeroemb_idx", shown(&empty), last.eq(empty.iter().copied()), "the last id of each codebook")?;
        let delays = numbers(&top, "delay_pattern", channels, "0-1-2-3-4-5-6-7")?;
        let mut steps = delays.clone();
        steps.sort_unstable();
        let each = steps.first() == Some(&0) && steps.windows(2).all(|two| two[1] - two[0] <= frames);
        let allowed = format!("from 0 on, with a code in each step, at most {}", CODEBOOKS.end());
        top.check("delay_pattern", shown(&delays), each && steps.iter().all(|step| step <= CODEBOOKS.end()), &allowed)?;
        let heads = top.size("local_attn_heads", 64, HEADS)?;
        let width = top.multiple("local_dim", 1024, WIDTH, ("twice local_attn_heads", 2 * heads))?;
        top.equal("input_local_dim", width, ("local_dim", width))?;
        let layers = |field: &str, absent: usize| -> Result<DecoderShape, CheckpointError> {
            let head_dim = width / heads;
            let attention = AttentionShape { heads, kv_heads: heads, head_dim, window: None, chunk: None };
            let layers = top.size(field, absent, LAYERS)?;
            Ok(DecoderShape { hidden: width, layers, attention, ..decoder })
        };
        Ok(Self {
            local: (layers("local_layers", 16)?, top.size("local_ffn_dim", 4096, INNER)?),
            input_local: (layers("input_local_layers", 6)?, 4 * width),
            input_causal: !top.switch("input_full_attention", false)?,
            tied: top.switch("tie_word_embeddings", false)?,
            text,
            decoder,
            frames,
            codebooks,
            delays,
        })
    }
}

/// Reads one number for each of `count` codebooks.
fn numbers(at: &ConfigSection<'_>, field: &str, count: usize, absent: &str) -> Result<Vec<usize>, CheckpointError> {
    let found = at.get(field)?.unwrap_or_else(|| Numbers::Many(absent.to_owned()));
    let text = match found {
        Numbers::One(number) => return Ok(vec![number; count]),
        Numbers::Many(text) => text,
    };
    let numbers: Result<Vec<usize>, _> = text.split('-').map(str::parse).collect();
    match numbers {
        Ok(numbers) if numbers.len() == count => Ok(numbers),
        Ok(numbers) if numbers.len() == 1 => Ok(numbers.repeat(count)),
        _ => Err(at.refusal(field, text, &format!("a number for each of the {count} audio_channels"))),
    }
}

fn shown(numbers: &[usize]) -> String {
    numbers.iter().map(usize::to_string).collect::<Vec<_>>().join("-")
}

/// Contents of the tokenizer's config.json, for frames of some codebooks.
#[derive(Debug, Clone)]
pub struct TokenizerConfig {
    /// Spectrogram of a recording, and frames of a window.
    pub mel: (LogMelConfig, usize),
    /// Encoder of a recording.
    pub encoder: EncoderShape,
    /// Decoder of codes.
    pub codec: WindowCodecConfig,
}

impl TokenizerConfig {
    /// Reads the file; `codebooks` has the ids of each codebook that the model uses, the one for no code included.
    pub fn load(checkpoint: &Checkpoint, codebooks: &[usize]) -> Result<Self, CheckpointError> {
        let file = ConfigFile::config(checkpoint)?;
        let top = file.top()?;
        for (field, value) in [("activation_function", "gelu"), ("ln_type", "LayerNorm"), ("vocoder_padding", "same")] {
            top.only(field, value)?;
        }
        for (field, value) in [("rope_type", "default"), ("position_embedding_type", "rope")] {
            top.only(field, value)?;
        }
        for (field, value) in [("kernel_size", 3), ("stride_size", 2)] {
            top.only(field, value)?;
            top.only(&format!("decoder_{field}"), value)?;
        }
        top.value("fmin", 0.0, |lowest: f64| lowest == 0.0, "0")?;
        top.value("avg_pooler", 1, |rows| rows == JOINED, "2")?;
        let hop = top.size("hop_length", 240, FRAME)?;
        let n_fft = top.equal("nfft", 1024, ("4 * hop_length", 4 * hop))?;
        let rate = top.size("sampling_rate", 24_000, RATE)?;
        let bins = top.size("n_mels", 80, MEL_BINS)?;
        let highest_hz = top.get("fmax")?.unwrap_or((rate / 2) as f64);
        top.check("fmax", highest_hz, highest_hz > 0.0 && highest_hz <= rate as f64, "above 0, at most sampling_rate")?;
        let levels = MelLevels::Natural { window: top.size("window_size", 1024, 2..=n_fft)?, highest_hz };
        let theta = top.rope_theta(10_000.0)? as f32;
        let entries = Self::entries(&top, codebooks)?;
        let encoder = StackConfig::read(&top, "encoder", false)?;
        Ok(Self {
            mel: (
                LogMelConfig {
                    feature_size: bins,
                    n_fft,
                    hop_length: hop,
                    sampling_rate: rate as u32,
                    levels,
                    ..LogMelConfig::default()
                },
                WINDOW_FRAMES,
            ),
            encoder: EncoderShape {
                bins,
                // The last window has the frame of the sound's very end, too.
                window: WINDOW_FRAMES + 1,
                chunk: WINDOW_FRAMES + 1,
                convolutions: Convolutions::Conv1d,
                positions: Positions::Rotary(theta),
                layers: encoder.layers,
                layer: encoder.layer,
                reach: encoder.reach,
                skip: top.optional_size("encoder_skip_layer_id", 1..=encoder.layers)?,
                pairs: false,
                norm: "layer_norm",
                projection: Vec::new(),
            },
            codec: WindowCodecConfig {
                entries,
                decoder: StackConfig::read(&top, "decoder", true)?,
                vocoder: StackConfig::read_vocoder(&top)?,
                bins,
                theta,
                istft: (n_fft, hop),
            },
        })
    }

    /// Entries of the codebooks that the model uses. A list that is too short repeats its last entry.
    fn entries(top: &ConfigSection<'_>, codebooks: &[usize]) -> Result<Vec<usize>, CheckpointError> {
        let most = *CODEBOOKS.end();
        let allowed = format!("a list of sizes, at most {most}");
        let holds =
            |sizes: &[usize]| !sizes.is_empty() && sizes.len() <= most && sizes.iter().all(|size| CODES.contains(size));
        let sizes = top.list("codebook_size", &[1024], holds, &allowed)?;
        let used = codebooks.len();
        let count = top.size("num_quantizers", 12, CODEBOOKS)?;
        top.check("num_quantizers", count, count >= used, &format!("at least {used}, the model's audio_channels"))?;
        let last = sizes.last().copied().unwrap_or_default();
        let entries: Vec<usize> = (0..used).map(|at| sizes.get(at).copied().unwrap_or(last)).collect();
        let agree = entries.iter().zip(codebooks).all(|(entries, ids)| entries + 1 == *ids);
        let allowed = format!("one less each than the model's speech_vocab_size, {}", shown(codebooks));
        top.check("codebook_size", format!("{sizes:?}"), agree, &allowed)?;
        Ok(entries)
    }
}

/// Sampling of text and of codes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GenerationConfig {
    /// Sampling of text.
    pub text: Sampling,
    /// Sampling of codes.
    pub codes: Sampling,
}

impl GenerationConfig {
    /// Reads generation_config.json; without the file, or its fields, those of the reference's spoken dialogue hold.
    pub fn load(checkpoint: &Checkpoint) -> Result<Self, CheckpointError> {
        let file = ConfigFile::optional(checkpoint, "generation_config.json")?;
        let top = file.top()?;
        let sampling = |kind: &str, temperature: f32| -> Result<Sampling, CheckpointError> {
            let heat = |heat: f32| (0.0..=100.0).contains(&heat);
            let share = |share: f32| share > 0.0 && share <= 1.0;
            Ok(Sampling {
                temperature: top.value(&format!("{kind}_temperature"), temperature, heat, "0 to 100")?,
                top_k: 0,
                top_p: top.value(&format!("{kind}_top_p"), 0.95, share, "above 0, at most 1")?,
                repetition_penalty: 1.0,
            })
        };
        Ok(Self { text: sampling("text", 0.6)?, codes: sampling("audio", 0.9)? })
    }
}
