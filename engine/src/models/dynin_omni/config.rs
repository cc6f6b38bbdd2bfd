//! Configuration: config.json of Dynin-Omni, with the names of LLaDA's class (`configuration_llada.py`), and that of its
//! codec. generation_config.json may change refinement; absent values are those of vllm-omni 0.24.0.

use repartee_kernels::AttentionShape;

use crate::checkpoint::{CONFIG, Checkpoint, CheckpointError};
use crate::config::EngineConfig;
use crate::models::parts::config::limits::{CODES, HEADS, INNER, LAYERS, POSITIONS, VOCABULARY, WIDTH, WINDOW};
use crate::models::parts::config::{ConfigFile, ConfigSection};
use crate::models::parts::decoder::{DecoderShape, LayerNames};
use crate::models::parts::denoising::canvas::RefinementPlan;
use crate::models::parts::denoising::stage::{BLOCK_STEPS, STAGE};
use crate::models::parts::vocoder::vits::config::VitsConfig;

/// Folder of the codec, under its published name.
pub const CODEC: &str = "emova_speech_tokenizer_hf";
/// Published config.json of U-VITS in it.
pub const UVITS: &str = "uvits.json";
/// Tensor of the ids' rows.
pub const TABLE: &str = "model.transformer.wte.weight";
/// Voice that is the default one, if the codec has it.
const VOICE: &str = "gender-female_emotion-neutral_speed-normal_pitch-normal";
/// Most positions of an utterance's prompt.
pub const MOST_PROMPT: usize = 160;

/// Names of a layer in the published files.
const NAMES: LayerNames = LayerNames {
    layers: "blocks",
    norms: ["attn_norm", "ff_norm"],
    qkv: &["q_proj", "k_proj", "v_proj"],
    out: "attn_out",
    feed_forward: ["ff_proj", "up_proj", "ff_out"],
    last_norm: Some("ln_f"),
    ..LayerNames::USUAL
};

/// Contents of the files.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Shape of the layers.
    pub decoder: DecoderShape,
    /// Inner width of their feed-forward block.
    pub inner: usize,
    /// Rows of the table of ids and of the head.
    pub rows: usize,
    /// Ids of text.
    pub text_rows: usize,
    /// Id of the first unit.
    pub first_unit: usize,
    /// Id of a place that is not settled.
    pub mask: u32,
    /// Id behind a text, which may end its speech too.
    pub eos: u32,
    /// Sizes of refinement.
    pub plan: RefinementPlan,
    /// Most positions of a prompt and its canvas.
    pub positions: usize,
    /// Sizes of the codec's decoder, U-VITS.
    pub codec: VitsConfig,
    /// Names of its styles, in the order of their rows.
    pub styles: Vec<String>,
}

impl Config {
    /// Reads the files of a folder.
    pub fn load(checkpoint: &Checkpoint, settings: &EngineConfig) -> Result<Self, CheckpointError> {
        let (file, generation) =
            (ConfigFile::config(checkpoint)?, ConfigFile::optional(checkpoint, "generation_config.json")?);
        let (top, codec) = (file.top()?, checkpoint.part(CODEC)?);
        for name in [CONFIG, UVITS] {
            if !codec.has_file(name) {
                return Err(CheckpointError::FileMissing { file: codec.label(name) });
            }
        }
        let text_rows = top.size("llm_vocab_size", 126_464, VOCABULARY)?;
        let first_unit = text_rows + top.size("codebook_size", 8192, CODES)?;
        let new = top.size("new_vocab_size", first_unit + 4096, VOCABULARY)?;
        let units = new.saturating_sub(first_unit);
        let allowed = "above llm_vocab_size and codebook_size together by 1 to 65536";
        top.check("new_vocab_size", new, CODES.contains(&units), allowed)?;
        let stored = checkpoint.shape(TABLE).and_then(|shape| shape.first().copied());
        let rows = stored.filter(|rows| VOCABULARY.contains(rows) && *rows > new).unwrap_or(new);
        let plan = plan(&generation.top()?, settings)?;
        let positions = MOST_PROMPT + plan.canvas;
        let allowed = format!("at least {positions}, those of a prompt and its canvas");
        let fits = |most: usize| POSITIONS.contains(&most) && most >= positions;
        top.value("max_sequence_length", 4096, fits, &allowed)?;
        let (styles, width) = styles(&ConfigFile::config(&codec)?.top()?)?;
        let uvits = ConfigFile::optional(&codec, UVITS)?;
        let (decoder, inner) = layers(&top)?;
        Ok(Self {
            decoder,
            inner,
            rows,
            text_rows,
            first_unit,
            mask: top.id("mask_token_id", 126_336, text_rows)?,
            eos: top.id("eos_token_id", 126_081, text_rows)?,
            plan,
            positions,
            codec: VitsConfig::read(&uvits.top()?, units, width)?,
            styles,
        })
    }

    /// Names of the voices, the default one first.
    pub fn voices(&self) -> Vec<String> {
        let (default, others): (Vec<_>, Vec<_>) = self.styles.iter().cloned().partition(|name| name == VOICE);
        default.into_iter().chain(others).collect()
    }
}

/// Reads the shape of the layers, and the inner width of their feed-forward block.
fn layers(at: &ConfigSection<'_>) -> Result<(DecoderShape, usize), CheckpointError> {
    for (field, value) in [("block_type", "llama"), ("activation_type", "silu"), ("layer_norm_type", "rms")] {
        at.only(field, value)?;
    }
    for field in ["weight_tying", "include_bias", "include_qkv_bias", "alibi", "scale_logits", "input_emb_norm"] {
        at.only(field, false)?;
    }
    at.only("rope", true)?;
    let heads = at.size("n_heads", 32, HEADS)?;
    let kv_heads = at.equal("n_kv_heads", heads, ("n_heads", heads))?;
    // Rotation pairs the halves of a head.
    let hidden = at.multiple("d_model", 4096, WIDTH, ("twice n_heads", 2 * heads))?;
    let attention = AttentionShape { heads, kv_heads, head_dim: hidden / heads, window: None, chunk: None };
    let layers = at.size("n_layers", 32, LAYERS)?;
    let shape = DecoderShape {
        eps: at.epsilon("rms_norm_eps", 1e-5)? as f32,
        theta: Some(at.rope_theta(500_000.0)? as f32),
        names: NAMES,
        ..DecoderShape::plain(hidden, layers, attention)
    };
    Ok((shape, at.size("mlp_hidden_size", 12_288, INNER)?))
}

/// Reads the sizes of refinement.
fn plan(at: &ConfigSection<'_>, settings: &EngineConfig) -> Result<RefinementPlan, CheckpointError> {
    let canvas = at.size("max_new_tokens", 512, WINDOW)?;
    let block = at.size("block_length", 128, WINDOW)?.min(canvas);
    let steps = at.size("steps", 512, WINDOW)? / canvas.div_ceil(block);
    let scale = at.value("cfg_scale", 2.5, |scale: f32| (0.0..=100.0).contains(&scale), "0 to 100")?;
    let warm = |temperature: f32| temperature > 1e-5 && temperature <= 100.0;
    Ok(RefinementPlan {
        canvas,
        block,
        steps: settings.stage_option(STAGE, BLOCK_STEPS).unwrap_or(steps).clamp(1, block),
        guidance: scale,
        temperature: at.value("temperature", 1.0, warm, "above 0 and at most 100")?,
    })
}

/// Reads the names of styles in the order of their rows, and the width of a style.
fn styles(at: &ConfigSection<'_>) -> Result<(Vec<String>, usize), CheckpointError> {
    let count = at.size("u2s_num_styles", 126, CODES)?;
    let mut names = vec![String::new(); count];
    for (name, at) in at.ids("u2s_style2idx", count)? {
        names[at as usize] = name;
    }
    let complete = names.iter().all(|name| !name.is_empty());
    at.check("u2s_style2idx", names.len(), complete, "a name for each of u2s_num_styles styles")?;
    Ok((names, at.size("u2s_dim_styles", 256, WIDTH)?))
}
