//! `repartee check` without a path: opens what a server with these settings would open, but for the weights, and reports
//! every problem.

use std::path::Path;

use repartee_engine::summary::{check_licences, summarise};
use repartee_engine::{TurnModel, check_device};

use crate::config::{CascadeConfig, Config, ThinkSource};

/// Returns every reason for which a server with these settings would not start.
pub fn examine(config: &Config) -> Vec<String> {
    let mut problems = Vec::new();
    let mut note = |problem: Option<String>| problems.extend(problem);
    note(config.check().err().map(|error| error.to_string()));
    let CascadeConfig { hear, think, speak, .. } = &config.cascade;
    let think = think.as_ref().and_then(|think| match think {
        ThinkSource::Folder(folder) => Some(folder),
        ThinkSource::Server(_) => None,
    });
    let models = [
        ("model", config.model.as_ref()),
        ("cascade.hear", hear.as_ref()),
        ("cascade.think", think),
        ("cascade.speak", speak.as_ref()),
    ];
    let folders = models.iter().filter_map(|(_, path)| path.map(|path| path.as_path()));
    note(check_licences(folders, &config.engine.accept_licence).err().map(|error| error.to_string()));
    for (setting, path) in models {
        note(path.and_then(|path| checkpoint(path)).map(|problem| format!("{setting}: {problem}")));
    }
    note(check_device(config.engine.device).err().map(|error| error.to_string()));
    let turn_model = config.turns.model.file().and_then(|path| TurnModel::load(path).err());
    note(turn_model.map(|error| format!("turns.model: {error}")));
    problems
}

/// Problem of a checkpoint that would not be served.
fn checkpoint(path: &Path) -> Option<String> {
    match summarise(path) {
        Ok(summary) => summary.served.err().map(|reason| format!("{} is not served: {reason}", path.display())),
        Err(error) => Some(error.to_string()),
    }
}
