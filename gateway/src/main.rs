//! The `repartee` command.

mod model;

use std::future::Future;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, Parser, Subcommand};
use repartee::ask::ask;
use repartee::config::{Config, DEFAULT_LISTEN};
use repartee::server::{BindError, Server};
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

/// Exit code for what the person at the terminal can put right: a checkpoint, an address, an argument.
const USAGE: u8 = 2;

/// Realtime voice gateway with its speech engine in the same process.
#[derive(Debug, Parser)]
#[command(name = "repartee", version, args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Action>,
    #[command(flatten)]
    serve: Serve,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Answer calls (what `repartee` alone does)
    Serve(Serve),
    /// Put one spoken question to the model, without a server
    Ask(Ask),
}

#[derive(Debug, Args)]
struct Serve {
    /// Where to listen
    #[arg(long, default_value_t = DEFAULT_LISTEN, env = "REPARTEE_LISTEN")]
    listen: SocketAddr,
    #[command(flatten)]
    model: Model,
}

#[derive(Debug, Args)]
struct Ask {
    /// A wav file with the question, of any rate and number of channels
    question: PathBuf,
    /// Where to write the spoken answer, as a wav file
    answer: PathBuf,
    #[command(flatten)]
    model: Model,
}

#[derive(Debug, Args)]
struct Model {
    /// Folder of a checkpoint in its published format; without it, the embedded demo
    #[arg(long = "model", value_name = "DIR", env = "REPARTEE_MODEL")]
    folder: Option<PathBuf>,
}

/// A failure that ends the command with [`USAGE`].
#[derive(Debug, thiserror::Error)]
#[error("{0:#}")]
struct Correctable(anyhow::Error);

fn main() -> ExitCode {
    let cli = Cli::parse();
    let filter = EnvFilter::try_from_env("REPARTEE_LOG").unwrap_or_else(|_| EnvFilter::new("warn,repartee=info"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    let done = match cli.command.unwrap_or(Action::Serve(cli.serve)) {
        Action::Serve(serve) => run(serve_calls(&serve)),
        Action::Ask(ask) => run(ask_once(&ask)),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("repartee: {error:#}");
            if error.is::<Correctable>() { ExitCode::from(USAGE) } else { ExitCode::FAILURE }
        }
    }
}

fn run(action: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start")?;
    runtime.block_on(action)
}

async fn serve_calls(serve: &Serve) -> anyhow::Result<()> {
    let mut config = Config { listen: serve.listen, ..Config::default() };
    config.check().map_err(|error| Correctable(error.into()))?;
    let model = model::start(serve.model.folder.as_deref()).map_err(|error| Correctable(error.into()))?;
    config.card = model.card;
    let server = Server::bind(config, model.engine).await.map_err(|error| match error {
        BindError::Config(_) | BindError::Listen { .. } => Correctable(error.into()).into(),
        other => anyhow::Error::from(other),
    })?;
    // Handlers first: a signal that comes while the URL is printed must find them.
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    println!("Talk to it at http://{}/", server.local_addr());
    let shutdown = async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        tracing::info!("going down");
    };
    server.run(shutdown).await.context("the server failed")
}

async fn ask_once(arguments: &Ask) -> anyhow::Result<()> {
    let model = model::start(arguments.model.folder.as_deref()).map_err(|error| Correctable(error.into()))?;
    let mut out = std::io::stdout();
    let answered = ask(&*model.engine, &arguments.question, &arguments.answer, &mut out)
        .await
        .map_err(|error| Correctable(error.into()))?;
    let Some((first_sound, rtf)) = answered.first_sound.zip(answered.rtf()) else {
        println!("The answer has no sound.");
        return Ok(());
    };
    println!(
        "First sound after {:.0} ms, {:.2} s of speech in {:.2} s (RTF {rtf:.2}), saved as {}",
        first_sound.as_secs_f64() * 1_000.0,
        answered.sound.as_secs_f64(),
        answered.took.as_secs_f64(),
        arguments.answer.display()
    );
    Ok(())
}
