//! Configuration of the Qwen3-Omni family, from config.json and generation_config.json.
//!
//! Names and defaults are those of the reference (`configuration_qwen3_omni_moe.py` of transformers 5.23). Fields of
//! unsupported parts (vision, training, caching hints) are left out. Sizes are numbers of elements unless stated
//! otherwise.

use std::collections::BTreeMap;

use repartee_engine_api::Sampling;
use repartee_kernels::RouterShape;

use crate::checkpoint::{Checkpoint, CheckpointError};
use crate::models::parts::audio_encoder::shape::{Convolutions, EncoderShape};
use crate::models::parts::config::limits::{CODEBOOKS, EXPERTS, INNER, LAYERS, POSITIONS, WIDTH, WINDOW};
use crate::models::parts::config::{
    AudioTowerConfig, Code2WavConfig, CodeInput, CodePredictorConfig, ConfigFile, ConfigSection, LanguageModelConfig,
    LayersDefaults, TALKER, THINKER, layer_window, require_audio_output,
};
use crate::models::parts::decoder::{DecoderShape, FeedForward};
use crate::models::parts::generation::{Defaults, Generation};
use crate::models::parts::talker::codec_lm::SUPPRESSED_TAIL;
use crate::models::parts::talker::utterance::UtteranceIds;

/// Name of this family in config.json.
pub const ARCHITECTURE: &str = "Qwen3OmniMoeForConditionalGeneration";
/// Half the mel frames of a window. The reference hard-codes 13 output rows for 100 mel frames, the result of its
/// convolutions.
const N_WINDOW: usize = 50;
/// Output rows of one full window of `2 * N_WINDOW` mel frames.
const ROWS_PER_WINDOW: usize = 13;
/// Default sampling of the talker.
const TALKER_SAMPLING: Sampling = Sampling { temperature: 0.9, top_k: 50, top_p: 1.0, repetition_penalty: 1.05 };
/// Sampling of the code predictor if the talker samples; the reference hard-codes it.
const CODE_PREDICTOR_SAMPLING: Sampling = Sampling { temperature: 1.0, top_k: 50, top_p: 0.8, repetition_penalty: 1.0 };

/// Contents of config.json.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The thinker: audio and text in, text out.
    pub thinker: ThinkerConfig,
    /// The talker: text in, codec frames out.
    pub talker: TalkerConfig,
    /// code2wav: codec frames in, samples out.
    pub code2wav: Code2WavConfig,
    /// Id of `<|im_start|>`, which opens a message.
    pub im_start_token_id: u32,
    /// Id of `<|im_end|>`, which closes a message.
    pub im_end_token_id: u32,
    /// Id of `system`, after `<|im_start|>`.
    pub system_token_id: u32,
    /// Id of `user`, after `<|im_start|>`.
    pub user_token_id: u32,
    /// Id of `assistant`, after `<|im_start|>`.
    pub assistant_token_id: u32,
}

impl Config {
    /// Reads config.json; every size is within its bounds.
    pub fn load(checkpoint: &Checkpoint) -> Result<Self, CheckpointError> {
        let file = ConfigFile::of_family(checkpoint, &[ARCHITECTURE])?;
        Self::read(&file.top()?)
    }

    fn read(top: &ConfigSection<'_>) -> Result<Self, CheckpointError> {
        require_audio_output(top)?;
        let thinker = ThinkerConfig::read(&top.section("thinker_config")?)?;
        let talker = top.section("talker_config")?;
        let groups = talker.size("num_code_groups", 32, CODEBOOKS)?;
        let set_by = ("talker_config.num_code_groups", groups);
        let code2wav = Code2WavConfig::read(&top.section("code2wav_config")?, CodeInput::Embedding, set_by)?;
        let id = |field, absent| top.id(field, absent, thinker.text.model.vocab_size);
        Ok(Self {
            im_start_token_id: id("im_start_token_id", 151_644)?,
            im_end_token_id: id("im_end_token_id", 151_645)?,
            system_token_id: id("system_token_id", 8948)?,
            user_token_id: id("user_token_id", 872)?,
            assistant_token_id: id("assistant_token_id", 77_091)?,
            talker: TalkerConfig::read((top, &talker), &thinker.text.model, (groups, code2wav.codebook_size))?,
            code2wav,
            thinker,
        })
    }

    /// Reads generation_config.json if it exists. Without `eos_token_id` the end of a message ends the text.
    pub fn generation(&self, checkpoint: &Checkpoint) -> Result<Generation, CheckpointError> {
        let absent = Defaults {
            end_of_message: self.im_end_token_id,
            talker: TALKER_SAMPLING,
            code_predictor: CODE_PREDICTOR_SAMPLING,
        };
        Generation::load(checkpoint, absent, self.thinker.text.model.vocab_size)
    }
}

/// The audio tower and the language model after it.
#[derive(Debug, Clone, PartialEq)]
pub struct ThinkerConfig {
    /// Sizes of the audio tower.
    pub audio: AudioConfig,
    /// Sizes of the language model.
    pub text: TextConfig,
    /// Id of `<|audio_start|>`.
    pub audio_start_token_id: u32,
    /// Id of `<|audio_end|>`; if the file lacks it, the tokenizer has it.
    pub audio_end_token_id: Option<u32>,
    /// Id of `<|audio_pad|>`, which stands for one row of the audio tower's output.
    pub audio_token_id: u32,
}

impl ThinkerConfig {
    fn read(at: &ConfigSection<'_>) -> Result<Self, CheckpointError> {
        let audio = at.section("audio_config")?;
        let text = TextConfig::read(&at.section("text_config")?, &THINKER_TEXT)?;
        let vocabulary = text.model.vocab_size;
        Ok(Self {
            audio: AudioConfig::read(&audio, text.model.layers.hidden_size)?,
            audio_start_token_id: at.id("audio_start_token_id", 151_647, vocabulary)?,
            audio_end_token_id: at.optional_id("audio_end_token_id", vocabulary)?,
            audio_token_id: at.id("audio_token_id", 151_646, vocabulary)?,
            text,
        })
    }
}

/// The audio tower: convolutions over windows of mel frames, then a transformer.
#[derive(Debug, Clone, PartialEq)]
pub struct AudioConfig {
    /// Fields common to all towers.
    pub tower: AudioTowerConfig,
    /// Mel frames that attend to each other.
    pub n_window_infer: usize,
    /// Channels of the convolutions.
    pub downsample_hidden_size: usize,
}

impl AudioConfig {
    fn read(at: &ConfigSection<'_>, hidden_size: usize) -> Result<Self, CheckpointError> {
        at.only("n_window", N_WINDOW)?;
        at.size("max_source_positions", 1500, ROWS_PER_WINDOW..=*POSITIONS.end())?;
        Ok(Self {
            tower: AudioTowerConfig::read(at, N_WINDOW, ("thinker_config.text_config.hidden_size", hidden_size))?,
            n_window_infer: at.multiple("n_window_infer", 800, WINDOW, ("twice n_window", 2 * N_WINDOW))?,
            downsample_hidden_size: at.size("downsample_hidden_size", 480, WIDTH)?,
        })
    }

    /// Shape of the tower, after `Qwen3OmniMoeAudioEncoder`: mel frames pass the convolutions in chunks of twice
    /// `n_window`.
    pub fn encoder(&self) -> EncoderShape {
        let convolutions = Convolutions::Conv2d { channels: self.downsample_hidden_size };
        let projection = [("proj1", self.tower.d_model), ("proj2", self.tower.output_dim)];
        EncoderShape { window: self.n_window_infer, ..self.tower.encoder(convolutions, true, &projection) }
    }
}

/// A decoder-only language model: the thinker's or the talker's.
#[derive(Debug, Clone, PartialEq)]
pub struct TextConfig {
    /// Ids, layers and positions. `intermediate_size` is the inner width of a dense feed-forward block; in the talker
    /// also of its input projections.
    pub model: LanguageModelConfig,
    /// True if the output head is the embedding.
    pub tie_word_embeddings: bool,
    /// Interval of layers with experts; see [`Self::is_moe_layer`].
    pub decoder_sparse_step: usize,
    /// Layers that are dense regardless of the step.
    pub mlp_only_layers: Vec<usize>,
    /// Experts of a layer; 0 makes every layer dense.
    pub num_experts: usize,
    /// Experts that process one row.
    pub num_experts_per_tok: usize,
    /// Inner width of one expert.
    pub moe_intermediate_size: usize,
    /// True if the weights of the chosen experts are scaled to add up to one.
    pub norm_topk_prob: bool,
    /// Inner width of the shared expert, which processes every row; the talker has one, the thinker does not.
    pub shared_expert_intermediate_size: Option<usize>,
}

/// Values of fields that a language model's section lacks; the two configuration classes differ.
struct TextDefaults {
    vocab_size: usize,
    layers: LayersDefaults,
    moe_intermediate_size: usize,
    norm_topk_prob: bool,
}

/// Defaults of `Qwen3OmniMoeTextConfig`.
const THINKER_TEXT: TextDefaults = TextDefaults {
    vocab_size: 3584,
    layers: LayersDefaults { hidden_size: 2048, ..THINKER },
    moe_intermediate_size: 768,
    norm_topk_prob: true,
};

/// Defaults of `Qwen3OmniMoeTalkerTextConfig`.
const TALKER_TEXT: TextDefaults =
    TextDefaults { vocab_size: 3072, layers: TALKER, moe_intermediate_size: 384, norm_topk_prob: false };

impl TextConfig {
    fn read(at: &ConfigSection<'_>, absent: &TextDefaults) -> Result<Self, CheckpointError> {
        at.only("attention_bias", false)?;
        let index = |layer: &usize| layer < LAYERS.end();
        let count = at.first_of(&["num_experts", "num_local_experts"]);
        let num_experts = at.size(count, 128, EXPERTS)?;
        let text = Self {
            model: LanguageModelConfig::read(at, absent.vocab_size, &absent.layers)?,
            tie_word_embeddings: at.switch("tie_word_embeddings", false)?,
            decoder_sparse_step: at.size("decoder_sparse_step", 1, LAYERS)?,
            mlp_only_layers: at.list("mlp_only_layers", &[], |layers| layers.iter().all(index), "numbers of layers")?,
            num_experts,
            num_experts_per_tok: at.size("num_experts_per_tok", 8, EXPERTS)?,
            moe_intermediate_size: at.size("moe_intermediate_size", absent.moe_intermediate_size, INNER)?,
            norm_topk_prob: at.switch("norm_topk_prob", absent.norm_topk_prob)?,
            shared_expert_intermediate_size: at.optional_size("shared_expert_intermediate_size", INNER)?,
        };
        let (chosen, allowed) = (text.num_experts_per_tok, format!("1 to {num_experts}, the number of experts"));
        let holds = !text.has_experts() || (1..=num_experts).contains(&chosen);
        at.check("num_experts_per_tok", chosen, holds, &allowed)?;
        Ok(text)
    }

    /// Shape of the layers. Without vision the rotary positions all have one index, so the interleaved sections of M-RoPE
    /// have no effect.
    pub fn decoder(&self) -> DecoderShape {
        DecoderShape { qk_norm: true, ..self.model.layers.shape(None) }
    }

    /// Experts of a layer; `shared` is the inner width of the shared one.
    pub fn experts(&self, shared: Option<usize>) -> FeedForward {
        FeedForward::Experts {
            count: self.num_experts,
            inner: self.moe_intermediate_size,
            router: RouterShape { top_k: self.num_experts_per_tok, normalise: self.norm_topk_prob },
            shared,
        }
    }

    /// True if any layer has experts.
    fn has_experts(&self) -> bool {
        (0..self.model.layers.num_hidden_layers).any(|layer| self.is_moe_layer(layer))
    }

    /// True if layer `index`, counted from 0, has experts instead of a dense feed-forward block.
    pub fn is_moe_layer(&self, index: usize) -> bool {
        !self.mlp_only_layers.contains(&index)
            && self.num_experts > 0
            && (index + 1).is_multiple_of(self.decoder_sparse_step)
    }
}

/// The talker: a language model over codec tokens, and its code predictor.
#[derive(Debug, Clone, PartialEq)]
pub struct TalkerConfig {
    /// The language model over the first codebook.
    pub text: TextConfig,
    /// Code predictor for the other codebooks of a frame.
    pub code_predictor: CodePredictorConfig,
    /// Width of the thinker's rows that the talker takes.
    pub thinker_hidden_size: usize,
    /// Index of the thinker's hidden state that the talker takes: 0 is the embedding, n the output of the n-th layer.
    pub accept_hidden_layer: usize,
    /// Special ids of its utterances.
    pub ids: UtteranceIds,
    /// Codec token of each voice, by lower-case name.
    pub speaker_id: BTreeMap<String, u32>,
}

impl TalkerConfig {
    /// Reads `talker_config` for the thinker's language model. `codes` are a frame's code groups and the entries of a
    /// codebook of the codec.
    fn read(
        (top, at): (&ConfigSection<'_>, &ConfigSection<'_>),
        thinker: &LanguageModelConfig,
        (groups, codebook_size): (usize, usize),
    ) -> Result<Self, CheckpointError> {
        let section = at.section("text_config")?;
        let text = TextConfig::read(&section, &TALKER_TEXT)?;
        let (vocabulary, hidden) = (text.model.vocab_size, text.model.layers.hidden_size);
        let allowed = "above 1024, the last of which are never spoken";
        section.check("vocab_size", vocabulary, vocabulary > SUPPRESSED_TAIL, allowed)?;
        if text.has_experts() {
            let shared = text.shared_expert_intermediate_size;
            let allowed = "positive when layers have experts";
            section.check("shared_expert_intermediate_size", "none", shared.is_some(), allowed)?;
        }
        let predictor = at.section("code_predictor_config")?;
        predictor.equal("hidden_size", 1024, ("talker_config.text_config.hidden_size", hidden))?;
        let speaker_id = at.ids("speaker_id", vocabulary)?;
        at.check("speaker_id", "{}", !speaker_id.is_empty(), "at least one voice")?;
        let wanted = ("thinker_config.text_config.hidden_size", thinker.layers.hidden_size);
        let window = layer_window(&predictor)?;
        Ok(Self {
            text,
            code_predictor: CodePredictorConfig::read(&predictor, (None, groups, codebook_size), window)?,
            thinker_hidden_size: at.equal("thinker_hidden_size", 2048, wanted)?,
            accept_hidden_layer: at.size("accept_hidden_layer", 18, 0..=thinker.layers.num_hidden_layers)?,
            ids: UtteranceIds::read((top, at), (thinker.vocab_size, vocabulary), false)?,
            speaker_id,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// An early published file: absent fields come from the reference, rotary parameters from their old place.
    #[test]
    fn absent_fields_take_the_references_defaults() {
        let json = json!({
            "thinker_config": {
                "audio_config": {"d_model": 60, "output_dim": 96},
                "text_config": {
                    "hidden_size": 96, "num_attention_heads": 4, "vocab_size": 160_000, "rope_theta": 500_000,
                    "rope_scaling": {"type": "default", "mrope_section": [24, 20, 20]},
                },
            },
            "talker_config": {
                "num_code_groups": 16, "thinker_hidden_size": 96,
                "text_config": {
                    "num_local_experts": 8, "vocab_size": 4300, "shared_expert_intermediate_size": 8,
                    "rope_parameters": {"rope_theta": 3.0}, "rope_scaling": null,
                },
                "code_predictor_config": {"sliding_window": 9, "num_code_groups": 16},
                "speaker_id": {"ann": 4298},
            },
            "code2wav_config": {"rope_theta": 20_000},
        });
        let config = Config::read(&ConfigFile::new("config.json", json).top().unwrap()).unwrap();
        let thinker = &config.thinker.text;
        let layers = &thinker.model.layers;
        assert_eq!((layers.head_dim, thinker.num_experts, layers.rope_theta), (24, 128, 500_000.0));
        assert!(thinker.norm_topk_prob);
        let talker = &config.talker.text;
        let layers = &talker.model.layers;
        assert_eq!((talker.num_experts, talker.norm_topk_prob, layers.rope_theta), (8, false, 3.0));
        assert_eq!((layers.head_dim, talker.moe_intermediate_size), (64, 384));
        assert_eq!(config.talker.code_predictor.layers.rope_theta, 10_000.0);
        assert_eq!(config.talker.code_predictor.sliding_window, None, "no layer of it has a window");
        assert_eq!((config.code2wav.layers.head_dim, config.code2wav.layers.rope_theta), (64, 20_000.0));
        assert_eq!(config.code2wav.samples_per_frame(), 1920);
        assert_eq!((config.thinker.audio.tower.d_model, config.thinker.audio.n_window_infer), (60, 800));
        assert_eq!((config.im_end_token_id, config.talker.ids.codec_eos), (151_645, 4198));
    }

    #[test]
    fn expert_layers_follow_step_and_exceptions() {
        let layers = |step: usize, dense: &[usize], experts: usize| -> Vec<usize> {
            // The reference's default width of a head is odd, which rotary does not take.
            let json = json!({
                "decoder_sparse_step": step, "mlp_only_layers": dense, "num_experts": experts, "head_dim": 64,
            });
            let file = ConfigFile::new("config.json", json);
            let text = TextConfig::read(&file.top().unwrap(), &THINKER_TEXT).unwrap();
            (0..6).filter(|layer| text.is_moe_layer(*layer)).collect()
        };
        assert_eq!(layers(1, &[], 8), [0, 1, 2, 3, 4, 5]);
        assert_eq!(layers(2, &[3], 8), [1, 5]);
        assert_eq!(layers(1, &[], 0), [0_usize; 0]);
    }
}
