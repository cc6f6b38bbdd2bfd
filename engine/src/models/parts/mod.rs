//! Parts that several families share. None depends on a family: sizes come from its configuration ([`config`]), tensors
//! from the names below a prefix ([`weights`]).

pub mod audio_layer;
pub mod autoregressive;
pub mod chat_template;
pub mod checks;
pub mod code2wav;
pub mod code2wav_stage;
pub mod code_predictor;
pub mod codec_lm;
pub mod config;
pub mod decoder;
pub mod frames;
pub mod front_end;
pub mod generation;
pub mod given_text;
pub mod given_text_stage;
pub mod memory;
pub mod ode;
pub mod raw_config;
pub mod resampled_snake;
pub mod resize_mlp;
pub mod rows;
pub mod slot_rows;
pub mod slot_streams;
pub mod speaker_encoder;
pub mod speech_state;
pub mod talker_stage;
pub mod thinker_stage;
pub mod weights;
