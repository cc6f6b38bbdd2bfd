//! Models of the command line that are on the hub: downloads them before the start.

#[cfg(feature = "hub")]
use std::io::{IsTerminal as _, Stderr, stderr};
#[cfg(feature = "hub")]
use std::path::PathBuf;

#[cfg(feature = "hub")]
use repartee::cli::progress_line::ProgressLine;
use repartee::config::Config;
#[cfg(feature = "hub")]
use repartee::config::ThinkSource;
#[cfg(feature = "hub")]
use repartee::hub::real::{RealSettings, TABLE, fetch_real};
#[cfg(feature = "hub")]
use repartee::hub::{HubName, HubSettings, fetch};

use crate::user_error::UserError;

/// Refuses `--real` and leaves other models as they are: a binary without the feature `hub` downloads nothing.
#[cfg(not(feature = "hub"))]
pub fn fetch_models(_: &mut Config, real: bool) -> anyhow::Result<()> {
    if real {
        return Err(
            UserError(anyhow::anyhow!("--real needs a binary with the feature `hub`, which downloads models")).into()
        );
    }
    Ok(())
}

/// Replaces each model that is no file here but a name of the hub by its downloaded folder; `real` takes the published models where none
/// is named.
#[cfg(feature = "hub")]
pub fn fetch_models(config: &mut Config, real: bool) -> anyhow::Result<()> {
    let think = match &mut config.cascade.think {
        Some(ThinkSource::Folder(folder)) => Some(folder),
        _ => None,
    };
    let (hear, speak) = (config.cascade.hear.as_mut(), config.cascade.speak.as_mut());
    for folder in [config.model.as_mut(), hear, think, speak].into_iter().flatten() {
        if !folder.exists()
            && let Some(name) = folder.to_str().and_then(HubName::parse)
        {
            *folder = download(&name)?;
        }
    }
    if real {
        let mut shown = Download::new("the models of --real".to_owned());
        let (hub, settings) = (HubSettings::from_env(variable), RealSettings::from_env(variable));
        let models = fetch_real(&hub, &settings, TABLE, &mut |file, share| shown.tell(file, share));
        let models = models.map_err(|error| UserError(error.into()))?;
        let cascade = &mut config.cascade;
        cascade.hear.get_or_insert(models.hear);
        cascade.think.get_or_insert(ThinkSource::Folder(models.think));
        cascade.speak.get_or_insert(models.speak);
    }
    Ok(())
}

#[cfg(feature = "hub")]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

#[cfg(feature = "hub")]
fn download(name: &HubName) -> anyhow::Result<PathBuf> {
    let mut shown = Download::new(name.to_string());
    let fetched = fetch(&HubSettings::from_env(variable), name, &mut |file, share| shown.tell(file, share));
    fetched.map_err(|error| UserError(error.into()).into())
}

/// Progress of a download: one line of a terminal, else a line for each file.
#[cfg(feature = "hub")]
struct Download {
    name: String,
    line: Option<ProgressLine<Stderr>>,
    /// File that was told last.
    file: String,
}

#[cfg(feature = "hub")]
impl Download {
    fn new(name: String) -> Self {
        let line = stderr().is_terminal().then(|| ProgressLine::new(stderr()));
        Self { name, line, file: String::new() }
    }

    fn tell(&mut self, file: &str, share: f32) {
        match &mut self.line {
            Some(line) => line.show(&format!("Downloading {}", self.name), share),
            None if file != self.file => {
                eprintln!("repartee: downloading {}: {file}", self.name);
                file.clone_into(&mut self.file);
            }
            None => {}
        }
    }
}
