//! `repartee call`: talks with a running server.

use std::io::{Write, stderr, stdin, stdout};

use repartee::cli::call::error::CallError;
use repartee::cli::call::{call_once, duplex};
use repartee::cli::speech::WavTarget;

use crate::arguments::Call;
use crate::offline::tell;
use crate::user_error::UserError;

/// Asks a server one question, or talks with it over pipes.
pub async fn call_server(arguments: &Call) -> anyhow::Result<()> {
    let target = arguments.target().map_err(told)?;
    if arguments.pipe {
        return duplex::talk(&target, stdin(), stdout(), &mut stderr()).await.map_err(told);
    }
    let (question, answer) = arguments.question()?;
    // The text leaves standard output to the sound.
    let mut out: Box<dyn Write + Send> = match answer {
        Some(WavTarget::StandardOutput) => Box::new(stderr()),
        _ => Box::new(stdout()),
    };
    let report = call_once(&target, &question, answer.as_ref(), &mut out).await.map_err(told)?;
    answer.map_or(Ok(()), |answer| tell(report.times, &answer))
}

fn told(error: CallError) -> anyhow::Error {
    if error.is_users() { UserError(error.into()).into() } else { error.into() }
}
