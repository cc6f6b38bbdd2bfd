//! The toy family under test.

use repartee_engine::internals::{Checkpoint, Model, worker_pool};
use repartee_engine::{EngineConfig, Source, Synthetic};
use repartee_engine_api::{Command, EngineUsage, Role};
use repartee_kernels::cpu::Cpu;

use super::{Splitter, Subject};
use crate::folder;
use crate::toy_family::{FRAMES, load};

/// The family under the generic suite, on a processor.
pub struct Toy;

impl Subject for Toy {
    fn model(&self, config: &EngineConfig) -> Model {
        let pool = worker_pool(config.threads());
        let weights = Synthetic { folder: folder("dense").join("checkpoint"), seed: 5, layers: None, skewed: false };
        let checkpoint = Checkpoint::open(Source::Synthetic(weights)).unwrap();
        let model = load(&Cpu::default().on(pool.clone()), &checkpoint, config).unwrap();
        model.check().unwrap();
        Model { pool, ..model }
    }

    fn stages(&self) -> &'static [&'static str] {
        &["language_model", "vocoder"]
    }

    fn audio(&self, _: usize) -> Option<Vec<f32>> {
        None
    }

    fn input(&self, turn: usize, item: u64, _: Splitter<'_>) -> Vec<Command> {
        vec![Command::text(item, Role::User, ["read this like a friend", "now a little louder", "and slowly"][turn])]
    }

    /// Only tokens with all of their frames, because frames stay in the prompt.
    fn spoken_tokens(&self, usage: EngineUsage) -> u32 {
        usage.output_text_tokens.min(usage.output_audio_frames / FRAMES as u32)
    }
}
