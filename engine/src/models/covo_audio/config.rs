//! config.json of Covo-Audio-Chat, and that of its sound, `token2wav/config.json`. Absent fields are the published ones.

use repartee_engine_api::Sampling;

use crate::checkpoint::{Checkpoint, CheckpointError};
use crate::model::Codec;
use crate::models::parts::audio_encoder::layer::AudioLayerShape;
use crate::models::parts::audio_encoder::shape::{Convolutions, EncoderShape, Positions};
use crate::models::parts::config::limits::{HEADS, INNER, LAYERS, MEL_BINS, RATE, WIDTH, WINDOW};
use crate::models::parts::config::{ConfigFile, ConfigSection, LanguageModelConfig, LayersDefaults, THINKER};
use crate::models::parts::decoder::DecoderShape;
use crate::models::parts::flow_matching::windowed::config::WindowDitConfig;
use crate::models::parts::language_model::LanguageModelShape;
use crate::models::parts::vocoder::config::BigVganConfig;

/// Names of this family in config.json: those of the public ports and of the reference's class.
pub const ARCHITECTURES: [&str; 2] = ["CovoAudioForConditionalGeneration", "CovoAudioForCausalLM"];
/// Folder of the sound.
pub const SOUND: &str = "token2wav";
/// Inner width of the adapter, which no field holds.
pub const ADAPTER: usize = 2048;

const QWEN2: LayersDefaults = LayersDefaults { hidden_size: 3584, ..THINKER };

/// Contents of both files.
#[derive(Debug, Clone)]
pub struct Config {
    /// Shape of the encoder of the caller's audio.
    pub encoder: EncoderShape,
    /// Halvings of the adapter's rows.
    pub halvings: usize,
    /// Sizes of the language model.
    pub text: LanguageModelConfig,
    /// True if its head is the token table.
    pub tied: bool,
    /// Id of code 0.
    pub first_code: u32,
    /// The flow: codes to latents.
    pub flow: WindowDitConfig,
    /// The vocoder: latents to samples.
    pub vocoder: BigVganConfig,
    /// Rate of the sound, and samples of a code.
    pub codec: Codec,
}

impl Config {
    /// Reads both files; refuses values that are not served.
    pub fn load(checkpoint: &Checkpoint, sound: &Checkpoint) -> Result<Self, CheckpointError> {
        let (file, of_sound) = (ConfigFile::of_family(checkpoint, &ARCHITECTURES)?, ConfigFile::config(sound)?);
        let (top, sound) = (file.top()?, of_sound.top()?);
        let at = top.section("llm_config")?;
        at.only("use_sliding_window", false)?;
        let text = LanguageModelConfig::read(&at, 168_055, &QWEN2)?;
        let model = sound.section("model")?;
        let latent = model.section("token2latent")?;
        let flow = WindowDitConfig::read(&latent, &sound.optional_section("inference")?)?;
        let vocoder = BigVganConfig::read_causal(&model.section("wavegan")?, flow.latents)?;
        let rate = sound.optional_section("data")?.optional_section("audio")?.size("sample_rate", 24_000, RATE)?;
        let most = text.vocab_size.saturating_sub(flow.codes.0);
        let allowed = format!("at most {most}: as many ids follow as there are codes, {}", flow.codes.0);
        let first_code = top.value("audio_token_index", 151_671, |id: u32| id as usize <= most, &allowed)?;
        let halves = |factor: usize| factor.is_power_of_two() && (2..=64).contains(&factor);
        let factor = top.value("adapter_downsample", 8, halves, "a power of two from 2 to 64")?;
        Ok(Self {
            encoder: encoder(&top.section("encoder_config")?)?,
            halvings: factor.ilog2() as usize,
            tied: at.switch("tie_word_embeddings", false)?,
            codec: Codec {
                sample_rate: rate as u32,
                frame_samples: ((flow.ratio * vocoder.samples_per_frame()) as u32, 1),
            },
            text,
            first_code,
            flow,
            vocoder,
        })
    }

    /// Shape of the language model. Queries, keys and values have a bias.
    pub fn language_model(&self) -> LanguageModelShape {
        LanguageModelShape {
            vocabulary: self.text.vocab_size,
            tied: self.tied,
            decoder: DecoderShape { qkv_bias: true, ..self.text.layers.shape(None) },
            handed: None,
        }
    }
}

/// Reads the encoder, Whisper's.
fn encoder(at: &ConfigSection<'_>) -> Result<EncoderShape, CheckpointError> {
    at.only("activation_function", "gelu")?;
    at.only("scale_embedding", false)?;
    let heads = at.size("encoder_attention_heads", 20, HEADS)?;
    let width = at.multiple("d_model", 1280, WIDTH, ("encoder_attention_heads", heads))?;
    let window = 2 * at.size("max_source_positions", 1500, WINDOW)?;
    Ok(EncoderShape {
        bins: at.size("num_mel_bins", 128, MEL_BINS)?,
        window,
        chunk: window,
        convolutions: Convolutions::Conv1d,
        positions: Positions::Table("embed_positions.weight"),
        layers: at.size("encoder_layers", 32, LAYERS)?,
        layer: AudioLayerShape { width, heads, inner: at.size("encoder_ffn_dim", 5120, INNER)?, key_bias: false },
        reach: (None, None),
        skip: None,
        pairs: false,
        norm: "layer_norm",
        projection: Vec::new(),
    })
}

/// Reads the sampling from generation_config.json; without the file, or its fields, that of the reference's example holds, from the
/// second turn on.
pub fn sampling(checkpoint: &Checkpoint) -> Result<Sampling, CheckpointError> {
    let file = ConfigFile::optional(checkpoint, "generation_config.json")?;
    let at = file.top()?;
    let number = |field: &str, absent: f32, (low, high): (f32, f32)| {
        at.value(field, absent, |number: f32| number >= low && number <= high, &format!("{low} to {high}"))
    };
    Ok(Sampling {
        temperature: number("temperature", 0.5, (0.0, 100.0))?,
        top_k: at.value("top_k", 50, |_: u32| true, "any number")?,
        top_p: number("top_p", 0.9, (f32::MIN_POSITIVE, 1.0))?,
        repetition_penalty: number("repetition_penalty", 1.05, (0.01, 100.0))?,
    })
}
