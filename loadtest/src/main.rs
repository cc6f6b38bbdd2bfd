//! The `repartee-load` command.

use std::process::ExitCode;

use clap::Parser as _;
use repartee_load::command::Command;

// One thread makes all calls: what it cannot do in time, its own lateness shows.
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
