//! Which configurations can be served: every refusal names the field, its value and what is allowed.

use super::config::{AudioConfig, Code2WavConfig, CodePredictorConfig, Config, TalkerConfig, TextConfig};
use crate::models::parts::checks::{Check, Section};
use crate::models::parts::codec_lm::SUPPRESSED_TAIL;

/// The reference hard-codes 13 output rows for each 100 mel frames, which is what its convolutions make of them.
const N_WINDOW: usize = 50;
/// Output rows of one full window of `2 * N_WINDOW` mel frames.
const ROWS_PER_WINDOW: usize = 13;

impl Config {
    /// Refuses what cannot be served. [`Config::load`] has done so already.
    pub fn validate(&self) -> Check {
        audio_output(self.enable_audio_output)?;
        self.thinker.text.validate(&Section("thinker_config.text_config"))?;
        self.audio(&self.thinker.audio)?;
        self.thinker_ids()?;
        self.talker(&self.talker)?;
        self.code_predictor(&self.talker.code_predictor)?;
        self.code2wav(&self.code2wav)
    }

    fn audio(&self, audio: &AudioConfig) -> Check {
        let at = Section("thinker_config.audio_config");
        at.positive("num_mel_bins", audio.num_mel_bins)?;
        at.positive("encoder_layers", audio.encoder_layers)?;
        at.positive("encoder_ffn_dim", audio.encoder_ffn_dim)?;
        at.positive("downsample_hidden_size", audio.downsample_hidden_size)?;
        at.positive("encoder_attention_heads", audio.encoder_attention_heads)?;
        at.divisible("d_model", audio.d_model, "encoder_attention_heads", audio.encoder_attention_heads)?;
        // Half of a position is sines and half cosines, whose wavelengths are spread over (half - 1) steps.
        at.check("d_model", audio.d_model, audio.d_model >= 4 && audio.d_model.is_multiple_of(2), "even, at least 4")?;
        at.check("activation_function", &audio.activation_function, audio.activation_function == "gelu", "gelu")?;
        at.check("n_window", audio.n_window, audio.n_window == N_WINDOW, "50, as in the reference implementation")?;
        let whole = audio.n_window_infer > 0 && audio.n_window_infer.is_multiple_of(2 * N_WINDOW);
        at.check("n_window_infer", audio.n_window_infer, whole, "a positive multiple of 100 (twice n_window)")?;
        let enough = audio.max_source_positions >= ROWS_PER_WINDOW;
        at.check("max_source_positions", audio.max_source_positions, enough, "at least 13")?;
        at.same("output_dim", audio.output_dim, "thinker_config.text_config.hidden_size", self.thinker.text.hidden_size)
    }

    fn thinker_ids(&self) -> Check {
        let vocabulary = self.thinker.text.vocab_size;
        let top = Section("");
        top.id("im_start_token_id", self.im_start_token_id, vocabulary)?;
        top.id("im_end_token_id", self.im_end_token_id, vocabulary)?;
        top.id("system_token_id", self.system_token_id, vocabulary)?;
        top.id("user_token_id", self.user_token_id, vocabulary)?;
        top.id("assistant_token_id", self.assistant_token_id, vocabulary)?;
        top.id("tts_bos_token_id", self.tts_bos_token_id, vocabulary)?;
        top.id("tts_eos_token_id", self.tts_eos_token_id, vocabulary)?;
        top.id("tts_pad_token_id", self.tts_pad_token_id, vocabulary)?;
        let at = Section("thinker_config");
        at.id("audio_start_token_id", self.thinker.audio_start_token_id, vocabulary)?;
        at.id("audio_token_id", self.thinker.audio_token_id, vocabulary)?;
        match self.thinker.audio_end_token_id {
            Some(id) => at.id("audio_end_token_id", id, vocabulary),
            None => Ok(()),
        }
    }

    fn talker(&self, talker: &TalkerConfig) -> Check {
        let text = Section("talker_config.text_config");
        talker.text.validate(&text)?;
        let vocabulary = talker.text.vocab_size;
        text.check(
            "vocab_size",
            vocabulary,
            vocabulary > SUPPRESSED_TAIL,
            "above 1024, the last of which are never spoken",
        )?;
        if (0..talker.text.num_hidden_layers).any(|layer| talker.text.is_moe_layer(layer)) {
            let shared = talker.text.shared_expert_intermediate_size;
            let found = shared.map_or_else(|| "none".to_owned(), |size| size.to_string());
            text.check(
                "shared_expert_intermediate_size",
                found,
                shared > Some(0),
                "positive when layers have experts",
            )?;
        }
        let at = Section("talker_config");
        let thinker = &self.thinker.text;
        at.same(
            "thinker_hidden_size",
            talker.thinker_hidden_size,
            "thinker_config.text_config.hidden_size",
            thinker.hidden_size,
        )?;
        let layers = thinker.num_hidden_layers;
        let allowed = format!("at most {layers}, the thinker's layers");
        at.check("accept_hidden_layer", talker.accept_hidden_layer, talker.accept_hidden_layer <= layers, &allowed)?;
        at.check("num_code_groups", talker.num_code_groups, talker.num_code_groups >= 2, "at least 2")?;
        at.id("codec_bos_id", talker.codec_bos_id, vocabulary)?;
        at.id("codec_eos_token_id", talker.codec_eos_token_id, vocabulary)?;
        at.id("codec_pad_id", talker.codec_pad_id, vocabulary)?;
        at.id("codec_nothink_id", talker.codec_nothink_id, vocabulary)?;
        at.id("codec_think_bos_id", talker.codec_think_bos_id, vocabulary)?;
        at.id("codec_think_eos_id", talker.codec_think_eos_id, vocabulary)?;
        at.check("speaker_id", "{}", !talker.speaker_id.is_empty(), "at least one voice")?;
        talker.speaker_id.iter().try_for_each(|(voice, id)| at.id(&format!("speaker_id.{voice}"), *id, vocabulary))
    }

    fn code_predictor(&self, predictor: &CodePredictorConfig) -> Check {
        let at = Section("talker_config.code_predictor_config");
        at.positive("vocab_size", predictor.vocab_size)?;
        at.positive("intermediate_size", predictor.intermediate_size)?;
        at.positive("num_hidden_layers", predictor.num_hidden_layers)?;
        at.attention(predictor.num_attention_heads, predictor.num_key_value_heads, predictor.head_dim)?;
        at.no_attention_bias(predictor.attention_bias)?;
        at.silu(&predictor.hidden_act)?;
        at.epsilon(predictor.rms_norm_eps)?;
        at.rope(&predictor.rope)?;
        at.same(
            "hidden_size",
            predictor.hidden_size,
            "talker_config.text_config.hidden_size",
            self.talker.text.hidden_size,
        )?;
        let groups = self.talker.num_code_groups;
        at.same("num_code_groups", predictor.num_code_groups, "talker_config.num_code_groups", groups)?;
        if let Some(window) = predictor.sliding_window {
            // A frame is the talker's row and all codes but the last: windows that hold it change nothing.
            at.check(
                "sliding_window",
                window,
                window >= groups,
                &format!("none, or at least the {groups} code groups"),
            )?;
        }
        let size = self.code2wav.codebook_size;
        let allowed = format!("at most {size}, as code2wav_config.codebook_size");
        at.check("vocab_size", predictor.vocab_size, predictor.vocab_size <= size, &allowed)
    }

    fn code2wav(&self, codec: &Code2WavConfig) -> Check {
        let at = Section("code2wav_config");
        at.positive("codebook_size", codec.codebook_size)?;
        at.positive("hidden_size", codec.hidden_size)?;
        at.positive("intermediate_size", codec.intermediate_size)?;
        at.positive("num_hidden_layers", codec.num_hidden_layers)?;
        at.positive("sliding_window", codec.sliding_window)?;
        at.attention(codec.num_attention_heads, codec.num_key_value_heads, codec.head_dim)?;
        at.no_attention_bias(codec.attention_bias)?;
        at.silu(&codec.hidden_act)?;
        at.epsilon(codec.rms_norm_eps)?;
        at.rope(&codec.rope)?;
        let groups = self.talker.num_code_groups;
        at.same("num_quantizers", codec.num_quantizers, "talker_config.num_code_groups", groups)?;
        at.factors("upsampling_ratios", &codec.upsampling_ratios)?;
        at.factors("upsample_rates", &codec.upsample_rates)?;
        at.check("upsample_rates", "[]", !codec.upsample_rates.is_empty(), "at least one factor")?;
        // Every decoder block halves the channels.
        let blocks = codec.upsample_rates.len();
        let allowed = format!("a positive multiple of 2 to the power of {blocks}, the number of upsample_rates");
        let unit = u32::try_from(blocks).ok().and_then(|blocks| 1_usize.checked_shl(blocks));
        let halves = unit.is_some_and(|unit| codec.decoder_dim > 0 && codec.decoder_dim.is_multiple_of(unit));
        at.check("decoder_dim", codec.decoder_dim, halves, &allowed)
    }
}

/// Text-only checkpoints have no talker.
pub(super) fn audio_output(enabled: bool) -> Check {
    Section("").check("enable_audio_output", enabled, enabled, "true: text-only checkpoints cannot be served")
}

impl TextConfig {
    fn validate(&self, at: &Section) -> Check {
        at.positive("vocab_size", self.vocab_size)?;
        at.positive("hidden_size", self.hidden_size)?;
        at.positive("intermediate_size", self.intermediate_size)?;
        at.positive("num_hidden_layers", self.num_hidden_layers)?;
        at.positive("max_position_embeddings", self.max_position_embeddings)?;
        at.positive("decoder_sparse_step", self.decoder_sparse_step)?;
        at.attention(self.num_attention_heads, self.num_key_value_heads, self.head_dim)?;
        at.no_attention_bias(self.attention_bias)?;
        at.silu(&self.hidden_act)?;
        at.epsilon(self.rms_norm_eps)?;
        at.rope(&self.rope)?;
        if (0..self.num_hidden_layers).any(|layer| self.is_moe_layer(layer)) {
            at.positive("moe_intermediate_size", self.moe_intermediate_size)?;
            let chosen = self.num_experts_per_tok;
            let allowed = format!("1 to {}, the number of experts", self.num_experts);
            at.check("num_experts_per_tok", chosen, (1..=self.num_experts).contains(&chosen), &allowed)?;
        }
        Ok(())
    }
}
