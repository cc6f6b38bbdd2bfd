//! Models against their references: tensors, ids, refusals, streams.
#![allow(clippy::unwrap_used, reason = "a test ends where something is missing")]

mod audio_encoder;
mod conformer;
mod cosyvoice3;
mod covo_audio;
mod depth;
mod dynin_omni;
mod flow_units;
mod fun_audio_chat;
mod gguf;
mod kokoro;
mod lfm2_audio;
mod log_mel;
mod mimo_audio;
mod ming;
mod odd_folders;
mod odd_input;
mod qwen2_5_omni;
mod qwen2_5_token2wav;
mod qwen3_tts;
mod sampling;
mod smart_turn;
mod text_decoder;
mod toy;
mod turn_net;
mod unserved;
mod whisper;
