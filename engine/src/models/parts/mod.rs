//! Parts that several families share. None depends on a family: sizes come from its configuration ([`config`]), tensors
//! from the names below a prefix ([`weights`]).

pub mod albert;
pub mod audio_encoder;
pub mod autoregressive;
pub mod chat_template;
pub mod clause_reader;
pub mod config;
pub mod conformer;
pub mod decoder;
pub mod depth;
pub mod flow_matching;
pub mod generation;
pub mod given_text;
pub mod given_text_stage;
pub mod interleaved;
pub mod jinja_template;
pub mod language_model;
pub mod lstm;
pub mod memory;
pub mod phonemes;
pub mod pipeline;
pub mod read_queue;
pub mod rotary;
pub mod rows;
pub mod slot_rows;
pub mod slot_streams;
pub mod speaker_encoder;
pub mod special_tokens;
pub mod speech_encoder;
pub mod stream_stage;
pub mod talker;
pub mod thinker_stage;
pub mod vocoder;
pub mod weights;
