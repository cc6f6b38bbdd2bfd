//! Checks of the configuration. Every error names the field, its value and the allowed values.

use super::cloning::mel;
use super::config::{CloningConfig, Config, VoiceSource};
use crate::models::parts::checks::{CheckResult, ConfigSection};
use crate::models::parts::talker::codec_lm::SUPPRESSED_TAIL;

impl Config {
    /// Refuses unsupported configurations, by fields of config.json.
    pub(super) fn validate(&self) -> CheckResult {
        let top = ConfigSection("");
        let text = self.talker.text_vocab_size;
        top.id("im_start_token_id", self.im_start_token_id, text)?;
        top.id("im_end_token_id", self.im_end_token_id, text)?;
        top.id("tts_bos_token_id", self.tts_bos_token_id, text)?;
        top.id("tts_eos_token_id", self.tts_eos_token_id, text)?;
        top.id("tts_pad_token_id", self.tts_pad_token_id, text)?;
        self.talker_sizes()?;
        self.talker_ids()?;
        let at = ConfigSection("talker_config.code_predictor_config");
        let (groups, entries) = (self.talker.num_code_groups, self.code2wav.codebook_size);
        self.talker.code_predictor.check(&at, groups, entries, "the codec's decoder_config.codebook_size")?;
        self.cloning.as_ref().map_or(Ok(()), |cloning| self.speaker_encoder(cloning))
    }

    fn talker_sizes(&self) -> CheckResult {
        let (at, talker) = (ConfigSection("talker_config"), &self.talker);
        at.positive("text_hidden_size", talker.text_hidden_size)?;
        at.positive("max_position_embeddings", talker.max_position_embeddings)?;
        talker.layers.check(&at)?;
        if let Some(window) = talker.sliding_window {
            at.positive("sliding_window", window)?;
        }
        at.check("num_code_groups", talker.num_code_groups, talker.num_code_groups >= 2, "at least 2")
    }

    fn talker_ids(&self) -> CheckResult {
        let (at, talker) = (ConfigSection("talker_config"), &self.talker);
        let vocabulary = talker.vocab_size;
        let spoken = vocabulary.saturating_sub(SUPPRESSED_TAIL);
        let most = SUPPRESSED_TAIL + self.code2wav.codebook_size;
        let allowed = format!("above {SUPPRESSED_TAIL}, the last of which are never spoken, and at most {most}");
        at.check("vocab_size", vocabulary, spoken > 0 && vocabulary <= most, &allowed)?;
        at.id("codec_bos_id", talker.codec_bos_id, vocabulary)?;
        at.id("codec_eos_token_id", talker.codec_eos_token_id, vocabulary)?;
        at.id("codec_pad_id", talker.codec_pad_id, vocabulary)?;
        at.id("codec_think_id", talker.codec_think_id, vocabulary)?;
        at.id("codec_nothink_id", talker.codec_nothink_id, vocabulary)?;
        at.id("codec_think_bos_id", talker.codec_think_bos_id, vocabulary)?;
        at.id("codec_think_eos_id", talker.codec_think_eos_id, vocabulary)?;
        for (language, id) in &talker.languages {
            at.id(&format!("codec_language_id.{language}"), *id, vocabulary)?;
        }
        at.check(
            "spk_id",
            "{}",
            self.kind != VoiceSource::CustomVoice || !talker.speakers.is_empty(),
            "at least one voice",
        )?;
        for (name, speaker) in &talker.speakers {
            at.id(&format!("spk_id.{name}"), speaker.id, vocabulary)?;
            if let Some(dialect) = &speaker.dialect {
                let known = talker.languages.contains_key(dialect);
                at.check(&format!("spk_is_dialect.{name}"), dialect, known, "a name of codec_language_id, or false")?;
            }
        }
        Ok(())
    }

    /// Refuses unsupported configurations, by fields of the codec's config.json.
    pub(super) fn validate_codec(&self) -> CheckResult {
        ConfigSection("").check(
            "output_sample_rate",
            self.output_sample_rate,
            self.output_sample_rate > 0,
            "at least 1",
        )?;
        let groups = self.talker.num_code_groups;
        self.code2wav.check(
            &ConfigSection("decoder_config"),
            groups,
            "talker_config.num_code_groups of config.json",
        )?;
        self.cloning.as_ref().map_or(Ok(()), |cloning| self.speech_encoder(cloning))
    }

    fn speaker_encoder(&self, CloningConfig { speaker, speaker_sample_rate, .. }: &CloningConfig) -> CheckResult {
        let at = ConfigSection("speaker_encoder_config");
        at.check("mel_dim", speaker.mel_dim, speaker.mel_dim == mel::BINS, "128, as in the reference implementation")?;
        at.check("sample_rate", speaker_sample_rate, *speaker_sample_rate == mel::RATE, "24000")?;
        at.equal("enc_dim", speaker.enc_dim, "talker_config.hidden_size", self.talker.layers.hidden_size)?;
        speaker.check(&at)
    }

    fn speech_encoder(&self, cloning: &CloningConfig) -> CheckResult {
        let (at, speech) = (ConfigSection("encoder_config"), &cloning.speech);
        let top = ConfigSection("");
        let groups = self.talker.num_code_groups;
        let valid = cloning.encoder_valid_num_quantizers;
        top.equal("encoder_valid_num_quantizers", valid, "talker_config.num_code_groups of config.json", groups)?;
        top.positive("encode_downsample_rate", cloning.encode_downsample_rate)?;
        at.check("audio_channels", speech.audio_channels, speech.audio_channels == 1, "1")?;
        at.check("sampling_rate", speech.sampling_rate, speech.sampling_rate == mel::RATE, "24000")?;
        at.positive("hidden_size", speech.hidden_size)?;
        at.positive("num_filters", speech.num_filters)?;
        at.factors("upsampling_ratios", &speech.upsampling_ratios)?;
        at.positive("kernel_size", speech.kernel_size)?;
        at.positive("last_kernel_size", speech.last_kernel_size)?;
        at.positive("residual_kernel_size", speech.residual_kernel_size)?;
        let few = |value: usize| (1..=4).contains(&value);
        at.check("num_residual_layers", speech.num_residual_layers, few(speech.num_residual_layers), "1 to 4")?;
        at.check("dilation_growth_rate", speech.dilation_growth_rate, few(speech.dilation_growth_rate), "1 to 4")?;
        at.divisible("num_filters", speech.num_filters, "compress", speech.compress)?;
        at.check("use_causal_conv", speech.use_causal_conv, speech.use_causal_conv, "true")?;
        at.check("pad_mode", &speech.pad_mode, speech.pad_mode == "constant", "constant")?;
        at.check("use_conv_shortcut", speech.use_conv_shortcut, !speech.use_conv_shortcut, "false")?;
        at.equal("codebook_size", speech.codebook_size, "decoder_config.codebook_size", self.code2wav.codebook_size)?;
        let width = speech.vector_quantization_hidden_dimension;
        at.equal("codebook_dim", speech.codebook_dim, "vector_quantization_hidden_dimension", width)?;
        let allowed = format!("at least {groups}, the talker's code groups");
        at.check("num_quantizers", speech.num_quantizers, speech.num_quantizers >= groups, &allowed)?;
        at.check("num_semantic_quantizers", speech.num_semantic_quantizers, speech.num_semantic_quantizers == 1, "1")?;
        at.positive("num_hidden_layers", speech.num_hidden_layers)?;
        at.positive("intermediate_size", speech.intermediate_size)?;
        at.attention(speech.num_attention_heads, speech.num_key_value_heads, speech.head_dim)?;
        at.check("hidden_act", &speech.hidden_act, speech.hidden_act == "gelu", "gelu")?;
        at.check("norm_eps", speech.norm_eps, speech.norm_eps > 0.0 && speech.norm_eps < 1.0, "between 0 and 1")?;
        at.check("rope_theta", speech.rope_theta, speech.rope_theta.is_finite() && speech.rope_theta > 1.0, "above 1")?;
        at.no_attention_bias(speech.attention_bias)
    }
}
