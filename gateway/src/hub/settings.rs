//! Settings of the hub, as its own tools have them.

use std::path::PathBuf;

use hf_hub::Cache;

/// Settings of the hub; [`HubSettings::from_env`] reads those of its own tools.
#[derive(Debug, Clone, Default)]
pub struct HubSettings {
    /// URL of the hub; `None` for the public one.
    pub endpoint: Option<String>,
    /// Folder of the cache; `None` for the default one.
    pub cache: Option<PathBuf>,
    /// Token of an account; `None` for the stored one, if there is one.
    pub token: Option<String>,
    /// True to take what the cache has, and to ask no hub.
    pub offline: bool,
}

impl HubSettings {
    /// Reads `HF_ENDPOINT`, `HF_TOKEN` and `HF_HUB_OFFLINE`. `HF_HOME` moves the default cache.
    pub fn from_env(var: impl Fn(&str) -> Option<String>) -> Self {
        let var = |name| var(name).filter(|value| !value.is_empty());
        let offline =
            var("HF_HUB_OFFLINE").is_some_and(|value| !matches!(&*value.to_lowercase(), "0" | "false" | "no"));
        Self { endpoint: var("HF_ENDPOINT"), cache: None, token: var("HF_TOKEN"), offline }
    }

    /// Cache of the hub's tools.
    pub(super) fn cache(&self) -> Cache {
        self.cache.clone().map_or_else(Cache::from_env, Cache::new)
    }
}
