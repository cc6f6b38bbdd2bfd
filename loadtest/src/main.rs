//! The `repartee-load` command.

use std::process::ExitCode;

use clap::Parser as _;
use repartee_load::command::Command;

// One thread runs all calls. If it falls behind, the measured lateness shows it.
#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match Command::parse().run().await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("repartee-load: {error:#}");
            ExitCode::from(2)
        }
    }
}
