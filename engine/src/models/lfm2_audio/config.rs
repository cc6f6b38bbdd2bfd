//! config.json of LFM2.5-Audio and LFM2-Audio, and of the former's detokenizer. Defaults are those of the reference's classes, liquid-audio 1.3.0.

use repartee_engine_api::Sampling;
use repartee_kernels::AttentionShape;

use crate::audio::recording_mel::RecordingMelConfig;
use crate::checkpoint::{Checkpoint, CheckpointError};
use crate::models::parts::config::limits::{CODEBOOKS, CODES, FRAME, HEADS, INNER, LAYERS, POSITIONS, WIDTH};
use crate::models::parts::config::short_conv::{ShortConvConfig, gated};
use crate::models::parts::config::{ConfigFile, ConfigSection, SpeechCodecConfig, conformer};
use crate::models::parts::conformer::shape::ConformerShape;
use crate::models::parts::decoder::{DecoderShape, LayerNames};
use crate::models::parts::vocoder::layered::LayeredVocoderConfig;

/// Entry of `architectures` in config.json.
pub const ARCHITECTURES: [&str; 1] = ["Lfm2AudioForConditionalGeneration"];
/// Folder of the detokenizer.
pub const DETOKENIZER: &str = "audio_detokenizer";
/// File of the older model's codec.
pub const MIMI: &str = "tokenizer-e351c8d8-checkpoint125.safetensors";
/// Rate of the sound that it speaks, in Hz.
pub const OUTPUT_RATE: u32 = 24_000;
/// Most seconds of a recording that are encoded at once.
pub const WINDOW_SECONDS: usize = 30;
/// Norm of the layers that make the codes of a frame, and the base of their rotary wavelengths; the reference fixes both.
pub const DEPTH_EPS: f32 = 1e-5;
const DEPTH_THETA: f32 = 1e6;

const LFM2_NAMES: LayerNames = LayerNames {
    layers: "layers",
    norms: ["operator_norm", "ffn_norm"],
    qkv: &["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"],
    qk_norms: ["self_attn.q_layernorm", "self_attn.k_layernorm"],
    out: "self_attn.out_proj",
    feed_forward: ["feed_forward.w1", "feed_forward.w3", "feed_forward.w2"],
    last_norm: Some("embedding_norm"),
};

const DEPTH_NAMES: LayerNames = LayerNames {
    qkv: &["operator.qkv_proj"],
    qk_norms: ["operator.bounded_attention.q_layernorm", "operator.bounded_attention.k_layernorm"],
    out: "operator.out_proj",
    last_norm: None,
    ..LFM2_NAMES
};

/// Layers that make the codes of a frame.
#[derive(Debug, Clone, PartialEq)]
pub struct DepthConfig {
    /// Shape of the layers.
    pub decoder: DecoderShape,
    /// Inner width of the feed-forward blocks.
    pub inner: usize,
    /// True if a codebook's head is its table.
    pub tied: bool,
}

impl DepthConfig {
    /// Reads `depthformer`. The published file lacks the fields of heads and of `multiple_of`, which the reference fixes.
    fn read(at: &ConfigSection<'_>) -> Result<Self, CheckpointError> {
        let width = at.even("dim", 1024, WIDTH)?;
        let kv_heads = at.size("num_key_value_heads", 8, HEADS)?;
        let heads = at.multiple("num_attention_heads", 32, HEADS, ("num_key_value_heads", kv_heads))?;
        at.check("dim", width, width.is_multiple_of(2 * heads), "an even number for each of the heads")?;
        let attention = AttentionShape { heads, kv_heads, head_dim: width / heads, window: None, chunk: None };
        Ok(Self {
            inner: gated(4 * width, 1.0, at.size("multiple_of", 256, INNER)?),
            tied: at.switch("tie", true)?,
            decoder: DecoderShape {
                eps: DEPTH_EPS,
                theta: Some(DEPTH_THETA),
                qk_norm: true,
                rotates_neighbours: true,
                names: DEPTH_NAMES,
                ..DecoderShape::plain(width, at.size("layers", 6, LAYERS)?, attention)
            },
        })
    }
}

/// Contents of config.json.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Sizes of the language model.
    pub lfm: ShortConvConfig,
    /// Encoder of the caller's audio, with its adapter.
    pub encoder: ConformerShape,
    /// Spectrogram of the caller's audio.
    pub mel: RecordingMelConfig,
    /// Layers that make the codes of a frame.
    pub depth: DepthConfig,
    /// Codebooks of a frame.
    pub codebooks: usize,
    /// Entries of a codebook with the one that ends the speech, the last.
    pub entries: usize,
    /// Text tokens, and the frames after them, in turn.
    pub turns: (usize, usize),
}

impl Config {
    /// Reads config.json; refuses values that are not served.
    pub fn load(checkpoint: &Checkpoint) -> Result<Self, CheckpointError> {
        let file = ConfigFile::of_family(checkpoint, &ARCHITECTURES)?;
        let top = file.top()?;
        let lfm = ShortConvConfig::read(&top.section("lfm")?, LFM2_NAMES)?;
        let mel = conformer::mel(&top.section("preprocessor")?, WINDOW_SECONDS)?;
        let hidden = lfm.decoder.hidden;
        let mut adapter = top.sizes("adapter_hidden_dims", &[hidden], WIDTH)?;
        adapter.push(hidden);
        let turn = |field: &str, absent: usize| top.size(field, absent, 1..=1024);
        Ok(Self {
            encoder: conformer::encoder(&top.section("encoder")?, mel.bins, adapter)?,
            depth: DepthConfig::read(&top.section("depthformer")?)?,
            codebooks: top.size("codebooks", 8, CODEBOOKS)?,
            entries: top.size("audio_vocab_size", 2049, 2..=*CODES.end())?,
            turns: (turn("interleaved_n_text", 6)?, turn("interleaved_n_audio", 12)?),
            mel,
            lfm,
        })
    }
}

/// Reads config.json of the detokenizer's folder.
pub fn detokenizer(checkpoint: &Checkpoint) -> Result<LayeredVocoderConfig, CheckpointError> {
    let file = ConfigFile::config(checkpoint)?;
    let top = file.top()?;
    let mut layers = ShortConvConfig::read(&top, LFM2_NAMES)?;
    layers.decoder.attention.window = Some(top.size("sliding_window", 30, POSITIONS)?);
    let allowed = "2 more than a multiple of 8: the logarithms and angles of a spectrum";
    let spectrum = |out: usize| FRAME.contains(&out) && out > 8 && (out - 2).is_multiple_of(8);
    Ok(LayeredVocoderConfig {
        layers,
        n_fft: top.value("output_size", 1282, spectrum, allowed)? - 2,
        entries: top.size("codebook_size", 2048, CODES)?,
    })
}

/// Reads the sizes of the older model's codec. The published config.json lacks the section: the reference fixes the sizes,
/// which are the section's defaults.
pub fn mimi(checkpoint: &Checkpoint, config: &Config) -> Result<SpeechCodecConfig, CheckpointError> {
    let file = ConfigFile::config(checkpoint)?;
    let codes = (config.codebooks, config.entries - 1);
    SpeechCodecConfig::read(&file.top()?.optional_section("mimi")?, OUTPUT_RATE, ("audio_vocab_size, less one", codes))
}

/// Sampling of text and of codes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GenerationConfig {
    /// Sampling of text: the likeliest, unless the file has a temperature.
    pub text: Sampling,
    /// Sampling of codes: that of the reference's demo, unless the file says otherwise. 0 is the likeliest.
    pub codes: Sampling,
}

impl GenerationConfig {
    /// Reads generation_config.json; the defaults hold without the file.
    pub fn load(checkpoint: &Checkpoint) -> Result<Self, CheckpointError> {
        let file = ConfigFile::optional(checkpoint, "generation_config.json")?;
        let top = file.top()?;
        let sampling = |kind: &str, temperature: f32, top_k: u32| -> Result<Sampling, CheckpointError> {
            let heat = |heat: f32| (0.0..=100.0).contains(&heat);
            let temperature = top.value(&format!("{kind}_temperature"), temperature, heat, "0 to 100")?;
            let top_k = top.value(&format!("{kind}_top_k"), top_k, |_| true, "any number")?;
            Ok(Sampling { temperature, top_k, top_p: 1.0, repetition_penalty: 1.0 })
        };
        Ok(Self { text: sampling("text", 0.0, 0)?, codes: sampling("audio", 1.0, 4)? })
    }
}
