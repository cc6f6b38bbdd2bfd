//! Internals of the engine, for the tests and benchmarks of this workspace. Nothing else may use them: they change at
//! any time.
#![doc(hidden)]

pub use crate::audio::log_mel::{LogMel, LogMelConfig};
pub use crate::cascade::hearing::join_hearing;
pub use crate::cascade::voice::join_voice;
pub use crate::checkpoint::{Checkpoint, DType, TensorData, safetensors_header};
pub use crate::deadline::cost::StepRows;
pub use crate::deadline::{Planner, ReadyRows, ScheduledRows, SchedulingOrder, StepLimits, TickBudget, Urgency};
pub use crate::device::Device;
pub use crate::elements::{AudioRows, Element, ElementValue, Message, MessageKind, MessagePart};
pub use crate::held_form::{FormIds, HeldForm};
pub use crate::model::{
    AudioFrontEnd, Codec, Encoder, EncodingProgress, FrontEnd, FrontEndStream, Hearing, InputWindow, Model,
    PromptTemplate, ReasoningTokens, SlotCounts, ToolCallTokens, ToolTemplate, Voices, WindowInput,
};
pub use crate::models::family::FamilyVariant;
pub use crate::models::parts::memory::{SlotBytes, fit_slots};
pub use crate::models::parts::{
    audio_encoder, autoregressive, clause_reader, conformer, decoder, depth, flow_matching, given_text_stage,
    interleaved, jinja_template, language_model, pipeline, slot_rows, step_layers, stream_stage, thinker_stage,
    vocoder, weights,
};
pub use crate::models::{load_model, load_model_sharing, worker_pool};
pub use crate::recogniser::{HearingOptions, Hypothesis, HypothesisOutbox, Recogniser};
pub use crate::scheduler::{Gauges, Scheduler, Tick, Times};
pub use crate::sequence::BlockPool;
pub use crate::stage::{
    BatchEntry, ContextBudget, EdgeKind, Outbox, ResponseParams, RowKind, RunnableRows, Stage, StageEnd, StageItem,
};
pub use crate::text::Tokenizer;

/// Internals of the turn-detection model.
pub mod smart_turn {
    pub use crate::models::smart_turn::features::FeatureExtractor;
}

/// Internals of the project's own turn-detection network.
pub mod turn_net {
    pub use crate::models::turn_net::{FRAMES, TurnNet};
}

/// Internals of the Qwen2.5-Omni family.
pub mod qwen2_5_omni {
    pub use crate::models::parts::flow_matching::config::DitConfig;
    pub use crate::models::parts::flow_matching::dit::{Dit, DitWindow};
    pub use crate::models::parts::flow_matching::noise::Noise;
    pub use crate::models::parts::flow_matching::prepared::Prepared;
    pub use crate::models::parts::flow_matching::solver::{Solve, Solver};
    pub use crate::models::parts::flow_matching::voice::Voice;
    pub use crate::models::parts::flow_matching::window::Window;
    pub use crate::models::parts::rows::HostRows;
    pub use crate::models::parts::speaker_encoder::SpeakerEncoder;
    pub use crate::models::parts::vocoder::bigvgan::BigVgan;
    pub use crate::models::parts::vocoder::config::BigVganConfig;
    pub use crate::models::qwen2_5_omni::config::Config;
    pub use crate::models::qwen2_5_omni::talker::ends;
    pub use crate::models::qwen2_5_omni::token2wav::config::Token2WavConfig;
    pub use crate::models::qwen2_5_omni::token2wav::{GUIDANCE, SAMPLE_RATE, Token2Wav};
    pub use crate::models::qwen2_5_omni::voices::load_speakers;
    pub use crate::models::qwen2_5_omni::{Qwen25Omni, assemble};
}

/// Internals of the Qwen3-Omni family.
pub mod qwen3_omni_moe {
    pub use crate::models::parts::vocoder::code2wav::{Code2Wav, Code2WavState};
    pub use crate::models::parts::vocoder::frame_stage::MAX_FRAMES;
    pub use crate::models::qwen3_omni_moe::config::Config;
    pub use crate::models::qwen3_omni_moe::{Qwen3Omni, assemble};
}

/// Internals of the CosyVoice3 family.
pub mod cosyvoice3 {
    pub use crate::audio::kaldi_mel;
    pub use crate::audio::resample::resample;
    pub use crate::models::cosyvoice3::cloning::{Cloner, Encoders};
    pub use crate::models::cosyvoice3::config::Config;
    pub use crate::models::cosyvoice3::{CosyVoice3, assemble};
    pub use crate::models::parts::campplus::{self, CamPlus};
    pub use crate::models::parts::onnx_layers::NamedTensor;
    pub use crate::models::parts::rows::HostRows;
    pub use crate::models::parts::shared_voices::SharedVoices;
    pub use crate::models::parts::speech_tokenizer::{self, SpeechTokenizer};
}

/// Internals of the Covo-Audio family.
pub mod covo_audio {
    pub use crate::models::covo_audio::config::Config;
    pub use crate::models::covo_audio::template::Template;
    pub use crate::models::covo_audio::{CovoAudio, assemble};
    pub use crate::models::parts::padded_hearing::{PaddedFrontEnd, PaddedHearing};
}

/// Internals of the Dynin-Omni family.
pub mod dynin_omni {
    pub use crate::models::dynin_omni::config::{CODEC, Config};
    pub use crate::models::dynin_omni::{DyninOmni, assemble};
    pub use crate::models::parts::denoising::canvas::{Canvas, Refined, RefinementPlan};
    pub use crate::models::parts::denoising::denoiser::{Denoiser, Pass};
    pub use crate::models::parts::vocoder::vits::block::{BlockSound, UnitBlock, frames};
}

/// Internals of the Fun-Audio-Chat family.
pub mod fun_audio_chat {
    pub use crate::models::fun_audio_chat::config::Config;
    pub use crate::models::fun_audio_chat::hearing::GroupHearing;
    pub use crate::models::fun_audio_chat::template::Template;
    pub use crate::models::fun_audio_chat::{FunAudioChat, assemble};
    pub use crate::models::parts::group_speech::head::SpeechHead;
    pub use crate::models::parts::group_speech::stage::TextIds;
}

/// Internals of the LFM2.5-Audio family.
pub mod lfm2_audio {
    pub use crate::audio::recording_mel::RecordingMel;
    pub use crate::models::lfm2_audio::config::Config;
    pub use crate::models::lfm2_audio::script::{Said, TurnScript};
    pub use crate::models::lfm2_audio::template::Template;
    pub use crate::models::lfm2_audio::{Detokenizer, Lfm2Audio, assemble};
}

/// Internals of the MiMo-Audio family.
pub mod mimo_audio {
    pub use crate::models::mimo_audio::config::Config;
    pub use crate::models::mimo_audio::template::Template;
    pub use crate::models::mimo_audio::{MiMoAudio, assemble};
    pub use crate::models::parts::patch_hearing::{PatchHearing, patches};
}

/// Internals of the Ming family.
pub mod ming {
    pub use crate::models::ming::config::{Config, FolderForm};
    pub use crate::models::ming::prompt::PromptIds;
    pub use crate::models::ming::{Ming, assemble};
    pub use crate::models::parts::flow_matching::patches::head::PatchStart;
    pub use crate::models::parts::patch_speech::stage::UtterancePrompt;
}

/// Internals of the Kokoro family.
pub mod kokoro {
    pub use crate::models::kokoro::assemble;
    pub use crate::models::kokoro::clause::{Clause, ClauseWork, Pitched, Timed};
    pub use crate::models::kokoro::model::Kokoro;
    pub use crate::models::kokoro::predictor::Curve;
    pub use crate::models::kokoro::utterances::utterances;
    pub use crate::models::kokoro::voices::VoiceStyles;
    pub use crate::models::parts::phonemes::{Accent, Lexicon, phonemes};
}

/// Internals of the Qwen3-TTS family.
pub mod qwen3_tts {
    pub use crate::models::parts::rows::HostRows;
    pub use crate::models::parts::talker::model::{CodecPart, TalkerRow, TextPart};
    pub use crate::models::parts::talker::utterance::{Utterance, UtteranceTokens};
    pub use crate::models::parts::talker::voice::{Cloned, Speaker, Voice};
    pub use crate::models::parts::vocoder::code2wav::{Code2Wav, Code2WavState};
    pub use crate::models::parts::vocoder::frame_stage::MAX_FRAMES;
    pub use crate::models::qwen3_tts::cloning::{Encoders, mel};
    pub use crate::models::qwen3_tts::config::{Config, GenerationConfig};
    pub use crate::models::qwen3_tts::talker::LEAST_FRAMES;
    pub use crate::models::qwen3_tts::voices::VoiceList;
    pub use crate::models::qwen3_tts::{Qwen3Tts, assemble};
}

/// Internals of Whisper.
pub mod whisper {
    pub use crate::models::whisper::config::WhisperConfig;
    pub use crate::models::whisper::features::WindowFeatures;
    pub use crate::models::whisper::model::{Whisper, load};
    pub use crate::models::whisper::recogniser::WhisperRecogniser;
    pub use crate::models::whisper::rules::{DecodingRules, choose, compression_ratio, log_probability, most_likely};
    pub use crate::models::whisper::run::{Decoding, Progress, RunPrompt, TEMPERATURES};
    pub use crate::models::whisper::steps::{TextRows, WhisperSteps};
    pub use crate::models::whisper::word_alignment::WordAlignment;
}

/// Internals of the text decoders.
pub mod text_decoder {
    pub use crate::models::text_decoder::config::Config;
    pub use crate::models::text_decoder::{TextDecoder, assemble, named};
}
