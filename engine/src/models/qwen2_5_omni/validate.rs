//! Checks of the configuration. Every error names the field, its value and the allowed values.

use super::config::{AudioTowerConfig, Config, TalkerConfig, TextConfig};
use super::talker::ends;
use crate::models::parts::checks::{CheckResult, ConfigSection};

impl Config {
    /// Refuses unsupported configurations.
    pub(super) fn validate(&self) -> CheckResult {
        self.thinker.text.validate(&ConfigSection("thinker_config.text_config"))?;
        self.audio(&self.thinker.audio)?;
        let vocabulary = self.thinker.text.vocab_size;
        let at = ConfigSection("thinker_config");
        at.id("audio_token_index", self.thinker.audio_token_index, vocabulary)?;
        at.id("audio_start_token_id", self.thinker.audio_start_token_id, vocabulary)?;
        at.id("audio_end_token_id", self.thinker.audio_end_token_id, vocabulary)?;
        at.id("user_token_id", self.thinker.user_token_id, vocabulary)?;
        self.talker(&self.talker)
    }

    fn audio(&self, audio: &AudioTowerConfig) -> CheckResult {
        let at = ConfigSection("thinker_config.audio_config");
        audio.check(&at, self.thinker.text.layers.hidden_size)?;
        // The mean is over pairs of rows, which must not cross the end of a block.
        let even = audio.n_window > 0 && audio.n_window.is_multiple_of(2);
        at.check("n_window", audio.n_window, even, "even and positive")?;
        let allowed = format!("at least {}, as n_window", audio.n_window);
        let enough = audio.max_source_positions >= audio.n_window;
        at.check("max_source_positions", audio.max_source_positions, enough, &allowed)
    }

    fn talker(&self, talker: &TalkerConfig) -> CheckResult {
        let at = ConfigSection("talker_config");
        talker.text.validate(&at)?;
        let thinker = &self.thinker.text;
        at.equal(
            "embedding_size",
            talker.embedding_size,
            "thinker_config.text_config.hidden_size",
            thinker.layers.hidden_size,
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

impl TextConfig {
    fn validate(&self, at: &ConfigSection) -> CheckResult {
        at.positive("vocab_size", self.vocab_size)?;
        at.positive("max_position_embeddings", self.max_position_embeddings)?;
        self.layers.check(at)?;
        let sliding = self.use_sliding_window;
        at.check("use_sliding_window", sliding, !sliding, "false: layers with a window are not supported")
    }
}
