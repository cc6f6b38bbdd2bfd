//! Checks of the configuration. Every error names the field, its value and the allowed values.

use super::config::{AudioConfig, Config, TalkerConfig, TextConfig};
use crate::models::parts::checks::{CheckResult, ConfigSection};
use crate::models::parts::talker::codec_lm::SUPPRESSED_TAIL;

/// Half the mel frames of a window. The reference hard-codes 13 output rows for 100 mel frames, the result of its
/// convolutions.
const N_WINDOW: usize = 50;
/// Output rows of one full window of `2 * N_WINDOW` mel frames.
const ROWS_PER_WINDOW: usize = 13;

impl Config {
    /// Refuses unsupported configurations.
    pub(super) fn validate(&self) -> CheckResult {
        self.thinker.text.validate(&ConfigSection("thinker_config.text_config"))?;
        self.audio(&self.thinker.audio)?;
        self.thinker_ids()?;
        self.talker(&self.talker)?;
        let (talker, groups) = (&self.talker, self.talker.num_code_groups);
        let at = ConfigSection("talker_config.code_predictor_config");
        let hidden = talker.code_predictor.layers.hidden_size;
        at.equal("hidden_size", hidden, "talker_config.text_config.hidden_size", talker.text.layers.hidden_size)?;
        let entries = self.code2wav.codebook_size;
        talker.code_predictor.check(&at, groups, entries, "as code2wav_config.codebook_size")?;
        self.code2wav.check(&ConfigSection("code2wav_config"), groups, "talker_config.num_code_groups")
    }

    fn audio(&self, audio: &AudioConfig) -> CheckResult {
        let at = ConfigSection("thinker_config.audio_config");
        let tower = &audio.tower;
        tower.check(&at, self.thinker.text.layers.hidden_size)?;
        at.check("n_window", tower.n_window, tower.n_window == N_WINDOW, "50, as in the reference implementation")?;
        let whole = audio.n_window_infer > 0 && audio.n_window_infer.is_multiple_of(2 * N_WINDOW);
        at.check("n_window_infer", audio.n_window_infer, whole, "a positive multiple of 100 (twice n_window)")?;
        let enough = tower.max_source_positions >= ROWS_PER_WINDOW;
        at.check("max_source_positions", tower.max_source_positions, enough, "at least 13")
    }

    fn thinker_ids(&self) -> CheckResult {
        let vocabulary = self.thinker.text.vocab_size;
        let top = ConfigSection("");
        top.id("im_start_token_id", self.im_start_token_id, vocabulary)?;
        top.id("im_end_token_id", self.im_end_token_id, vocabulary)?;
        top.id("system_token_id", self.system_token_id, vocabulary)?;
        top.id("user_token_id", self.user_token_id, vocabulary)?;
        top.id("assistant_token_id", self.assistant_token_id, vocabulary)?;
        top.id("tts_bos_token_id", self.tts_bos_token_id, vocabulary)?;
        top.id("tts_eos_token_id", self.tts_eos_token_id, vocabulary)?;
        top.id("tts_pad_token_id", self.tts_pad_token_id, vocabulary)?;
        let at = ConfigSection("thinker_config");
        at.id("audio_start_token_id", self.thinker.audio_start_token_id, vocabulary)?;
        at.id("audio_token_id", self.thinker.audio_token_id, vocabulary)?;
        match self.thinker.audio_end_token_id {
            Some(id) => at.id("audio_end_token_id", id, vocabulary),
            None => Ok(()),
        }
    }

    fn talker(&self, talker: &TalkerConfig) -> CheckResult {
        let text = ConfigSection("talker_config.text_config");
        talker.text.validate(&text)?;
        let vocabulary = talker.text.vocab_size;
        text.check(
            "vocab_size",
            vocabulary,
            vocabulary > SUPPRESSED_TAIL,
            "above 1024, the last of which are never spoken",
        )?;
        if (0..talker.text.layers.num_hidden_layers).any(|layer| talker.text.is_moe_layer(layer)) {
            let shared = talker.text.shared_expert_intermediate_size;
            let found = shared.map_or_else(|| "none".to_owned(), |size| size.to_string());
            text.check(
                "shared_expert_intermediate_size",
                found,
                shared > Some(0),
                "positive when layers have experts",
            )?;
        }
        let at = ConfigSection("talker_config");
        let thinker = &self.thinker.text;
        at.equal(
            "thinker_hidden_size",
            talker.thinker_hidden_size,
            "thinker_config.text_config.hidden_size",
            thinker.layers.hidden_size,
        )?;
        let layers = thinker.layers.num_hidden_layers;
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
}

impl TextConfig {
    fn validate(&self, at: &ConfigSection) -> CheckResult {
        at.positive("vocab_size", self.vocab_size)?;
        at.positive("max_position_embeddings", self.max_position_embeddings)?;
        at.positive("decoder_sparse_step", self.decoder_sparse_step)?;
        self.layers.check(at)?;
        if (0..self.layers.num_hidden_layers).any(|layer| self.is_moe_layer(layer)) {
            at.positive("moe_intermediate_size", self.moe_intermediate_size)?;
            let chosen = self.num_experts_per_tok;
            let allowed = format!("1 to {}, the number of experts", self.num_experts);
            at.check("num_experts_per_tok", chosen, (1..=self.num_experts).contains(&chosen), &allowed)?;
        }
        Ok(())
    }
}
