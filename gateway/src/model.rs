//! Loads the served checkpoint: a folder, or the embedded demo.

use std::path::Path;
use std::sync::Arc;

use repartee_engine::{Engine, EngineConfig, Source, StartError, StartProgress, Synthetic};
use repartee_engine_api::SpeechEngine;

/// File name of a checkpoint's card: JSON with `name`, `ask` (questions), `note`, and `remembers` (whether it was trained on
/// more than one turn). Every field may be missing, and so may the file.
pub const CARD_FILE: &str = "repartee.json";

macro_rules! demo_files {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_bytes!(concat!("../../models/demo/", $name)))),*]
    };
}

/// The demo checkpoint.
static DEMO: &[(&str, &[u8])] = demo_files![
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "preprocessor_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
];
static DEMO_CARD: &str = include_str!("../../models/demo/repartee.json");

/// A model that is loaded and warm.
pub struct LoadedModel {
    /// The engine that runs it.
    pub engine: Arc<dyn SpeechEngine>,
    /// Its card, see [`CARD`].
    pub card: Option<String>,
}

/// Where the model comes from.
pub struct CheckpointSource {
    /// Its files.
    pub source: Source,
    card: Option<String>,
}

impl CheckpointSource {
    /// The checkpoint in `folder`; with `dimensions` a configuration with random weights; else the demo.
    pub fn new(folder: Option<&Path>, dimensions: Option<&Path>) -> Self {
        if let Some(dimensions) = dimensions {
            let synthetic = Synthetic { folder: dimensions.to_owned(), seed: 0, layers: None, skewed: false };
            return Self { source: Source::Synthetic(synthetic), card: read_card(dimensions) };
        }
        match folder {
            Some(folder) => Self { source: Source::Folder(folder.to_owned()), card: read_card(folder) },
            None => Self { source: Source::Embedded { name: "demo", files: DEMO }, card: Some(DEMO_CARD.to_owned()) },
        }
    }
}

/// Loads a checkpoint and warms it up; `progress` is told how far it is. Takes seconds and blocks.
pub fn start(
    CheckpointSource { source, card }: CheckpointSource,
    config: &EngineConfig,
    progress: impl Fn(StartProgress) + Send + Sync + 'static,
) -> Result<LoadedModel, StartError> {
    let engine = Engine::start_with_progress(source, config, progress)?;
    Ok(LoadedModel { engine: Arc::new(engine), card })
}

/// The card of a checkpoint; `None` if there is none or it is not JSON.
fn read_card(folder: &Path) -> Option<String> {
    let path = folder.join(CARD_FILE);
    let card = std::fs::read_to_string(&path).ok()?;
    match serde_json::from_str::<serde_json::Value>(&card) {
        Ok(_) => Some(card),
        Err(error) => {
            tracing::warn!(%error, path = %path.display(), "the checkpoint's card is not JSON");
            None
        }
    }
}
