//! Models of the command line that are names of the hub: downloads them before the start.

#[cfg(feature = "hub")]
use std::io::{IsTerminal as _, stderr};
#[cfg(feature = "hub")]
use std::path::PathBuf;

#[cfg(feature = "hub")]
use repartee::cli::progress_line::ProgressLine;
use repartee::config::Config;
#[cfg(feature = "hub")]
use repartee::config::ThinkSource;
#[cfg(feature = "hub")]
use repartee::hub::{HubName, HubSettings, fetch};

#[cfg(feature = "hub")]
use crate::user_error::UserError;

/// Leaves the models as they are: a binary without the feature `hub` downloads nothing.
#[cfg(not(feature = "hub"))]
#[allow(clippy::unnecessary_wraps, reason = "the signature of the other build")]
pub fn fetch_models(_: &mut Config) -> anyhow::Result<()> {
    Ok(())
}

/// Replaces each model that is no file here but a name of the hub by its downloaded folder.
#[cfg(feature = "hub")]
pub fn fetch_models(config: &mut Config) -> anyhow::Result<()> {
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
    Ok(())
}

#[cfg(feature = "hub")]
fn download(name: &HubName) -> anyhow::Result<PathBuf> {
    let settings = HubSettings::from_env(|name| std::env::var(name).ok());
    let mut line = stderr().is_terminal().then(|| ProgressLine::new(stderr()));
    let mut last = String::new();
    let mut tell = |file: &str, share: f32| match &mut line {
        Some(line) => line.show(&format!("Downloading {name}"), share),
        None if file != last => {
            eprintln!("repartee: downloading {name}: {file}");
            file.clone_into(&mut last);
        }
        None => {}
    };
    fetch(&settings, name, &mut tell).map_err(|error| UserError(error.into()).into())
}
