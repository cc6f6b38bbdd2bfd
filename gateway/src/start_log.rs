//! The log of a command, and the warnings before it.

use std::io::IsTerminal as _;

use repartee::config::{Config, RenamedSetting, unknown_variables};
use repartee::server::check_certificate;
use repartee::telemetry::{LogFormat, log};
use tracing_subscriber::EnvFilter;

/// Environment variable of the log's filter, and the filter without one.
const LOG_FILTER: &str = "REPARTEE_LOG";
const DEFAULT_FILTER: &str = "warn,repartee=info";

/// Warnings about the settings and the environment.
pub fn warnings(config: &Config) -> Vec<String> {
    let mut warnings = config.file_warnings();
    warnings.extend(check_certificate(&config.tls).ok().flatten());
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    warnings.extend(unknown_variables(names));
    if let Ok(filter) = std::env::var(LOG_FILTER)
        && let Err(error) = EnvFilter::try_new(&filter)
    {
        warnings
            .push(format!("environment: {LOG_FILTER}: `{filter}` is no filter ({error}): {DEFAULT_FILTER} applies"));
    }
    warnings
}

/// Starts the log, with a warning for each use of an old setting name.
pub fn begin_log(format: LogFormat, old_names: &[RenamedSetting]) -> anyhow::Result<()> {
    let filter = EnvFilter::try_from_env(LOG_FILTER).unwrap_or_else(|_| EnvFilter::new(DEFAULT_FILTER));
    let init = log::init(format, filter, std::io::stderr, std::io::stderr().is_terminal());
    init.map_err(|error| anyhow::anyhow!("cannot start the log: {error}"))?;
    for old_name in old_names {
        tracing::warn!("{old_name}");
    }
    Ok(())
}
