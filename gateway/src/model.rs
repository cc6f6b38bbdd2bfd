//! Loads the served checkpoint: a folder, or the embedded demo.

use std::path::Path;
use std::sync::Arc;

use repartee_engine::{Engine, EngineConfig, Source, StartError, StartProgress};
use repartee_engine_api::SpeechEngine;

/// File name of a checkpoint's card: JSON with `name`, `ask` (questions), `note`, and `remembers` (whether it was trained on
/// more than one turn). Every field may be missing, and so may the file.
pub const CARD: &str = "repartee.json";

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
pub struct Model {
    /// The engine that runs it.
    pub engine: Arc<dyn SpeechEngine>,
    /// Its card, see [`CARD`].
    pub card: Option<String>,
}

/// Loads the checkpoint in `folder`, or the demo, and warms it up; `progress` is told how far it is. Takes seconds and blocks.
pub fn start(
    folder: Option<&Path>,
    config: &EngineConfig,
    progress: impl Fn(StartProgress) + Send + Sync + 'static,
) -> Result<Model, StartError> {
    let (source, card) = match folder {
        Some(folder) => (Source::Folder(folder.to_owned()), read_card(folder)),
        None => (Source::Embedded { name: "demo", files: DEMO }, Some(DEMO_CARD.to_owned())),
    };
    let engine = Engine::start_with_progress(source, config, progress)?;
    Ok(Model { engine: Arc::new(engine), card })
}

/// The card of a checkpoint; `None` if there is none or it is not JSON.
fn read_card(folder: &Path) -> Option<String> {
    let path = folder.join(CARD);
    let card = std::fs::read_to_string(&path).ok()?;
    match serde_json::from_str::<serde_json::Value>(&card) {
        Ok(_) => Some(card),
        Err(error) => {
            tracing::warn!(%error, path = %path.display(), "the checkpoint's card is not JSON");
            None
        }
    }
}
