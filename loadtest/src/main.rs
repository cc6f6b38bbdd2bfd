//! The `repartee-load` command.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use repartee_load::{Load, report, run};

/// Synthetic callers over WebRTC and websocket.
#[derive(Debug, Parser)]
#[command(name = "repartee-load", version)]
struct Arguments {
    #[command(flatten)]
    load: Load,
    /// Where the report goes.
    #[arg(long, default_value = "target/report/loadtest.json")]
    report: PathBuf,
}

#[tokio::main]
async fn main() -> ExitCode {
    let Arguments { load, report } = Arguments::parse();
    let published = async {
        let log = run(&load).await?;
        report::publish(&load.title(), &log, &report)?;
        anyhow::Ok(load.is_answered_by(&log))
    };
    match published.await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("repartee-load: {error:#}");
            ExitCode::from(2)
        }
    }
}
