//! A synthetic family that differs from the published ones, built on the real parts: random weights, every stage a few
//! small products.
//!
//! - [`front_end`]: energy and zero crossings of 20 ms frames at 22.05 kHz, in windows of seven frames
//! - [`template`]: the prompt holds the model's own speech, two frames after each token
//! - [`writer`]: generates text; gives each token with its hidden row. Text can stream in
//! - [`speaker`]: reads every prompt row, makes two codec frames of two codes a row
//! - [`refiner`]: refines 8 frames at a time in four evaluations, with two frames of context before and three after
//! - [`vocoder`]: 44.1 kHz at 25 frames a second
//! - [`voices`]: fixed and enrolled voices
//! - [`sizes`]: sizes of the family; `decoder`: the decoder of both language models; [`checkpoint`]: random weights

pub mod checkpoint;
mod decoder;
pub mod front_end;
pub mod refiner;
pub mod sizes;
pub mod speaker;
pub mod template;
pub mod vocoder;
pub mod voices;
pub mod writer;

use repartee_engine::EngineConfig;
use repartee_engine::internals::autoregressive::Autoregressive;
use repartee_engine::internals::slot_rows::SlotRows;
use repartee_engine::internals::weights::Weights;
use repartee_engine::internals::{AudioFrontEnd, Codec, Hearing, Model, SlotBytes, Tokenizer, fit_slots, worker_pool};
use repartee_kernels::cpu::Cpu;

pub use self::sizes::{FRAMES, PIECE_FRAMES, RATE, SAMPLES};
use self::sizes::{HIDDEN, KV_WIDTH, LAYERS, TEXT_IDS, VOCABULARY};
use self::voices::Recorded;

/// Positions of a prompt and its response.
const CONTEXT: usize = 2048;

/// The family's two forms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Takes audio, and generates its text.
    Hearing,
    /// Takes no audio; its text streams in.
    GivenText,
}

/// Tokenizer of a fixture.
pub fn tokenizer() -> Tokenizer {
    let bytes = std::fs::read(crate::folder("dense").join("checkpoint/tokenizer.json")).unwrap();
    Tokenizer::from_bytes(&bytes).unwrap()
}

/// Builds the model under these settings.
pub fn model(form: Form, config: &EngineConfig) -> Model {
    let pool = worker_pool(config.threads());
    let (ops, checkpoint, tokenizer) = (Cpu::default().on(pool.clone()), checkpoint::open(), tokenizer());
    assert_eq!(tokenizer.vocab_size(), TEXT_IDS);
    config.check_stages(&[("writer", &[]), ("speaker", &[]), ("refiner", &[]), ("vocoder", &[])]).unwrap();
    let weights = Weights::new(&ops, &checkpoint).with_policy(config.weights);
    let recorded = Recorded::default();
    let bytes = SlotBytes { position: 8 * LAYERS * 2 * KV_WIDTH, fixed: 4 * VOCABULARY };
    let slots = fit_slots(config, CONTEXT, bytes).unwrap();
    let (total, context) = (slots.total(), slots.context);
    let hidden = SlotRows::new(&ops, total, context, HIDDEN);
    let writer = writer::WriterLm::load(&weights, &tokenizer, context, hidden.clone());
    let speaker = speaker::SpeakerLm::load(&weights, recorded.clone(), context, hidden);
    let ears = front_end::Encoding::load(&ops, &weights);
    let model = Model {
        hearing: (form == Form::Hearing).then(|| {
            Hearing::Rows(AudioFrontEnd { front_end: Box::new(front_end::WaveFrontEnd), encoder: Box::new(ears) })
        }),
        template: Box::new(template::Interleaved { streams: form == Form::GivenText }),
        stages: vec![
            Box::new(Autoregressive::new(ops.clone(), writer, total, context)),
            Box::new(Autoregressive::new(ops.clone(), speaker, total, context + speaker::END_ROWS)),
            Box::new(refiner::Refiner::load(&ops, &weights, total)),
            Box::new(vocoder::Vocoder::load(&ops, &weights, total)),
        ],
        tokenizer,
        codec: Some(Codec { sample_rate: RATE, frame_samples: (RATE, FRAMES) }),
        voices: Box::new(recorded),
        slots,
        max_tokens: 24,
        answer_tokens: 24,
        pool,
    };
    model.check().unwrap();
    model
}
