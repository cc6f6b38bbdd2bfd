//! Which configurations can be served: every refusal names the field, its value and what is allowed.

use super::config::{AudioConfig, Config, TalkerConfig, TextConfig};
use super::talker::ends;
use crate::models::parts::checks::{Check, Section};

impl Config {
    /// Refuses what cannot be served. [`Config::load`] has done so already.
    pub fn validate(&self) -> Check {
        audio_output(self.enable_audio_output)?;
        self.thinker.text.validate(&Section("thinker_config.text_config"))?;
        self.audio(&self.thinker.audio)?;
        let vocabulary = self.thinker.text.vocab_size;
        let at = Section("thinker_config");
        at.id("audio_token_index", self.thinker.audio_token_index, vocabulary)?;
        at.id("audio_start_token_id", self.thinker.audio_start_token_id, vocabulary)?;
        at.id("audio_end_token_id", self.thinker.audio_end_token_id, vocabulary)?;
        at.id("user_token_id", self.thinker.user_token_id, vocabulary)?;
        self.talker(&self.talker)
    }

    fn audio(&self, audio: &AudioConfig) -> Check {
        let at = Section("thinker_config.audio_config");
        at.positive("num_mel_bins", audio.num_mel_bins)?;
        at.positive("encoder_layers", audio.encoder_layers)?;
        at.positive("encoder_ffn_dim", audio.encoder_ffn_dim)?;
        at.positive("encoder_attention_heads", audio.encoder_attention_heads)?;
        at.divisible("d_model", audio.d_model, "encoder_attention_heads", audio.encoder_attention_heads)?;
        // Half of a position is sines and half cosines, whose wavelengths are spread over (half - 1) steps.
        at.check("d_model", audio.d_model, audio.d_model >= 4 && audio.d_model.is_multiple_of(2), "even, at least 4")?;
        at.check("activation_function", &audio.activation_function, audio.activation_function == "gelu", "gelu")?;
        // The mean is of pairs of rows, which must not reach over the end of a block.
        let even = audio.n_window > 0 && audio.n_window.is_multiple_of(2);
        at.check("n_window", audio.n_window, even, "even and positive")?;
        let allowed = format!("at least {}, as n_window", audio.n_window);
        let enough = audio.max_source_positions >= audio.n_window;
        at.check("max_source_positions", audio.max_source_positions, enough, &allowed)?;
        at.same("output_dim", audio.output_dim, "thinker_config.text_config.hidden_size", self.thinker.text.hidden_size)
    }

    fn talker(&self, talker: &TalkerConfig) -> Check {
        let at = Section("talker_config");
        talker.text.validate(&at)?;
        let thinker = &self.thinker.text;
        at.same(
            "embedding_size",
            talker.embedding_size,
            "thinker_config.text_config.hidden_size",
            thinker.hidden_size,
        )?;
        at.id("tts_text_end_token_id", talker.tts_text_end_token_id, thinker.vocab_size)?;
        at.id("tts_text_pad_token_id", talker.tts_text_pad_token_id, thinker.vocab_size)?;
        let vocabulary = talker.text.vocab_size;
        let allowed = "so many that every code has an id that is no mark's";
        let codes = self.codes.min(vocabulary);
        let marks = ends(talker).into_iter().chain([talker.tts_codec_start_token_id]);
        let apart = codes == self.codes && codes > 0 && marks.into_iter().all(|mark| mark as usize >= codes);
        at.check("vocab_size", vocabulary, apart, allowed)?;
        at.id("tts_codec_start_token_id", talker.tts_codec_start_token_id, vocabulary)?;
        at.id("tts_codec_end_token_id", talker.tts_codec_end_token_id, vocabulary)?;
        at.id("tts_codec_pad_token_id", talker.tts_codec_pad_token_id, vocabulary)?;
        at.id("tts_codec_mask_token_id", talker.tts_codec_mask_token_id, vocabulary)
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
        at.attention(self.num_attention_heads, self.num_key_value_heads, self.head_dim)?;
        at.silu(&self.hidden_act)?;
        at.epsilon(self.rms_norm_eps)?;
        at.rope(&self.rope)?;
        let sliding = self.use_sliding_window;
        at.check("use_sliding_window", sliding, !sliding, "false: layers with a window are not supported")
    }
}
