//! Loads the served model: a folder, the embedded demo, or a cascade.

use std::path::Path;
use std::sync::Arc;

use repartee::cli::memory::{self, MemoryShortage};
use repartee_engine::{
    CascadeParts, DeviceChoice, Engine, EngineConfig, RemoteModel, Source, StartProgress, Synthetic,
};
use repartee_engine_api::SpeechEngine;

use crate::user_error::UserError;

/// File name of a checkpoint's card: JSON with `name`, `ask` (questions), `note` and `remembers` (true if it was
/// trained on more than one turn). Every field is optional, and so is the file.
pub const CARD_FILE: &str = "repartee.json";

macro_rules! demo_files {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_bytes!(concat!("../../models/demo/", $name)))),*]
    };
}

/// Files of the embedded demo checkpoint.
static DEMO: &[(&str, &[u8])] = demo_files![
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "preprocessor_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
];
/// Most bytes of a card.
const MOST_CARD: u64 = 1 << 20;
static DEMO_CARD: &str = include_str!("../../models/demo/repartee.json");

/// Loaded and warmed-up model.
pub struct LoadedModel {
    /// Engine that runs the model.
    pub engine: Arc<dyn SpeechEngine>,
    /// Contents of the model's card, see [`CARD_FILE`].
    pub card: Option<String>,
    /// Estimated bytes of the weights in memory.
    pub weights: u64,
}

/// Source of the model and its card.
pub struct ModelSource {
    /// Sources of the model's parts.
    pub parts: ModelParts,
    /// True to load weights that need more memory than is free.
    pub force: bool,
    card: Option<String>,
}

/// Sources of a model's parts.
pub enum ModelParts {
    /// One model, which does all by itself.
    Whole(Source),
    /// The parts of a cascade, and a language model behind a server if its language model is no checkpoint.
    Cascade(CascadeParts<Source>, Option<RemoteModel>),
}

impl ModelSource {
    /// Selects a checkpoint: synthetic weights with the configuration in `dimensions`, else the checkpoint in `folder`,
    /// else the demo.
    pub fn new(folder: Option<&Path>, dimensions: Option<&Path>) -> Self {
        if let Some(dimensions) = dimensions {
            let synthetic = Synthetic { folder: dimensions.to_owned(), seed: 0, layers: None, skewed: false };
            let parts = ModelParts::Whole(Source::Synthetic(synthetic));
            return Self { parts, force: false, card: read_card(dimensions) };
        }
        let (source, card) = match folder {
            Some(folder) => (Source::Folder(folder.to_owned()), read_card(folder)),
            None => (Source::Embedded { name: "demo", files: DEMO }, Some(DEMO_CARD.to_owned())),
        };
        Self { parts: ModelParts::Whole(source), force: false, card }
    }

    /// Selects a cascade by the folders of its parts, and a language model behind a server in place of a folder; `None`
    /// without a part.
    pub fn cascade(parts: CascadeParts<&Path>, remote: Option<RemoteModel>) -> Option<Self> {
        let card = match (&remote, parts.main()) {
            (Some(_), _) => None,
            (None, Some(folder)) => read_card(folder),
            (None, None) => return None,
        };
        let parts = ModelParts::Cascade(parts.map(|folder| Source::Folder(folder.to_owned())), remote);
        Some(Self { parts, force: false, card })
    }

    /// Sources of the weights that this process loads.
    pub fn sources(&self) -> Vec<&Source> {
        match &self.parts {
            ModelParts::Whole(source) => vec![source],
            ModelParts::Cascade(parts, _) => parts.iter().collect(),
        }
    }

    /// Lack of this machine's memory for the weights, if they are not loaded nevertheless. A GPU has memory of its own.
    pub fn shortage(&self, config: &EngineConfig) -> Option<MemoryShortage> {
        let on_gpu = match config.device {
            DeviceChoice::Cpu => false,
            DeviceChoice::Cuda(_) => true,
            DeviceChoice::Auto => cfg!(feature = "cuda"),
        };
        if self.force || on_gpu {
            return None;
        }
        memory::shortage(&self.sources(), config.weights, memory::free_memory()?)
    }

    /// Refuses weights that need more memory than is free.
    pub fn check_memory(&self, config: &EngineConfig) -> Result<(), UserError> {
        self.shortage(config).map_or(Ok(()), |shortage| Err(UserError(anyhow::anyhow!("{shortage}"))))
    }
}

/// Loads a model and warms it up; reports to `progress`. Blocks for seconds.
///
/// # Errors
///
/// The model cannot be loaded, as a [`UserError`].
pub fn start(
    source: ModelSource,
    config: &EngineConfig,
    progress: impl Fn(StartProgress) + Send + Sync + 'static,
) -> anyhow::Result<LoadedModel> {
    source.check_memory(config)?;
    let weights = memory::needed_memory(&source.sources(), config.weights);
    let ModelSource { parts, card, .. } = source;
    let engine = match parts {
        ModelParts::Whole(source) => Engine::start_with_progress(source, config, progress),
        ModelParts::Cascade(parts, None) => Engine::start_cascade(parts, config, progress),
        ModelParts::Cascade(parts, Some(think)) => Engine::start_remote_cascade(think, parts, config, progress),
    };
    Ok(LoadedModel { engine: Arc::new(engine.map_err(|error| UserError(error.into()))?), card, weights })
}

/// Reads the card of a checkpoint; `None` if the file is missing, not a file, larger than [`MOST_CARD`] or not JSON.
fn read_card(folder: &Path) -> Option<String> {
    let path = folder.join(CARD_FILE);
    // A pipe or a device has no end.
    let found = std::fs::metadata(&path).ok()?;
    if !found.is_file() || found.len() > MOST_CARD {
        tracing::warn!(path = %path.display(), bytes = found.len(), "the checkpoint's card is no file of at most 1 MiB");
        return None;
    }
    let card = std::fs::read_to_string(&path).ok()?;
    match serde_json::from_str::<serde_json::Value>(&card) {
        Ok(_) => Some(card),
        Err(error) => {
            tracing::warn!(%error, path = %path.display(), "the checkpoint's card is not JSON");
            None
        }
    }
}
