//! Text answers of the model to recorded questions.

use repartee_engine::{Engine, EngineConfig, KvCacheFormat, WeightPolicy};
use repartee_engine_api::{Command, Event, Respond, Sampling, SpeechEngine};

use crate::{Question, demo, root};

pub fn all(weights: WeightPolicy, kv_cache: KvCacheFormat, questions: &[Question]) -> Vec<String> {
    let config = EngineConfig { weights, kv_cache, ..EngineConfig::default() };
    let engine = Engine::start(demo(), &config).unwrap();
    questions.iter().map(|question| answer(&engine, &question.file)).collect()
}

fn answer(engine: &Engine, file: &str) -> String {
    let bytes = std::fs::read(root().join("tests/questions").join(file)).unwrap();
    // 16 kHz, mono, 16 bit.
    let data = bytes.windows(4).position(|tag| tag == b"data").unwrap() + 8;
    let sample = |&sample| f32::from(i16::from_le_bytes(sample)) / 32_768.0;
    let sound = bytes[data..].as_chunks().0.iter().map(sample).collect();
    let session = engine.open().unwrap();
    session.submit_blocking(Command::Append(sound)).unwrap();
    session.submit_blocking(Command::Commit { item: 1 }).unwrap();
    let sampling = Some(Sampling { temperature: 0.0, top_k: 0, top_p: 1.0, repetition_penalty: 1.0 });
    session.submit_blocking(Command::Respond(Respond { sampling, audio: false, ..Respond::new(1, 2) })).unwrap();
    let mut said = String::new();
    loop {
        match session.next_event_blocking().unwrap() {
            Event::Text { text, .. } => said += &text,
            Event::SegmentFinished { .. } => return said,
            Event::Failed { error, .. } => panic!("{error}"),
            _ => {}
        }
    }
}
