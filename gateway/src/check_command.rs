//! `repartee check`: a checkpoint's summary, or the settings and every reason for which a server would not start.

use std::path::Path;

use anyhow::Context as _;
use repartee::cli::check::SummaryLines;
use repartee::cli::examine::examine;
use repartee::cli::output::print;
use repartee::config::RenamedSetting;
use repartee::server::check_certificate;
use repartee_engine::summary::summarise;

use crate::arguments::{EffectiveSettings, Serve};
use crate::start_log::warnings;
use crate::user_error::UserError;

/// Prints the summary of a checkpoint.
pub fn describe_checkpoint(path: &Path) -> anyhow::Result<()> {
    let summary = summarise(path).map_err(|error| UserError(error.into()))?;
    print(&SummaryLines(&summary).to_string()).context("cannot write the summary")
}

/// Prints the effective settings and the warnings, then every reason for which a server would not start.
pub fn check_settings(serve: &Serve) -> anyhow::Result<()> {
    let EffectiveSettings { config, old_names, .. } = serve.load_unchecked()?;
    let mut text = config.to_string();
    for warning in old_names.iter().map(RenamedSetting::to_string).chain(warnings(&config)) {
        text += &format!("# {warning}\n");
    }
    print(&text).context("cannot write the settings")?;
    let mut problems = examine(&config);
    // A part that cannot be opened is a problem of its own.
    problems.extend(serve.settings.memory_problem(&config).map(|shortage| shortage.to_string()));
    problems.extend(check_certificate(&config.tls).err().map(|error| error.to_string()));
    if problems.is_empty() { Ok(()) } else { Err(UserError(anyhow::anyhow!(problems.join("\nrepartee: "))).into()) }
}
