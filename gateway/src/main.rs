//! The `repartee` command.
//!
//! - `arguments`: the command line, and the settings that it makes
//! - `start_log`: the log of a command, and the warnings before it
//! - `call_command`, `check_command`, `offline`: commands besides serving; `bench`: `repartee bench`
//! - `model`: loads the served model; `user_error`: errors that a user can mend

mod arguments;
mod bench;
mod call_command;
mod check_command;
mod model;
mod offline;
mod published;
mod start_log;
mod user_error;

use std::future::Future;
use std::io::IsTerminal as _;
use std::net::SocketAddr;
use std::pin::pin;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::{CommandFactory as _, Parser as _};
use repartee::cli::lan;
use repartee::cli::loading::LoadingBar;
use repartee::cli::memory::resident_memory;
use repartee::cli::output::{format_bytes, print};
use repartee::config::{LoadedConfig, ThinkSource};
use repartee::headroom::{Load, calibrate, transport_load};
use repartee::heap;
use repartee::metrics::ThinkerMetrics;
use repartee::server::{Reloader, ServerStartError, ShutdownSignals, StartingServer};
use repartee_engine::{EngineConfig, StartProgress, vector_instructions};
use sd_notify::NotifyState;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{oneshot, watch};

use self::arguments::{Bench, Check, Cli, Command, EffectiveSettings, Serve, Size};
use self::model::{ModelParts, ModelSource};
use self::published::fetch_models;
use self::start_log::{begin_log, warnings};
use self::user_error::UserError;

/// Exit code of user errors: a bad checkpoint, address, setting or argument.
const USER_ERROR: u8 = 2;
/// Time for tasks of the runtime to end after a command.
const RUNTIME_END: Duration = Duration::from_secs(1);

fn main() -> ExitCode {
    let cli = Cli::parse();
    let done = match cli.command.unwrap_or(Command::Serve(cli.serve)) {
        Command::Serve(serve) => run(serve_calls(&serve)),
        Command::Check(Check { path: Some(path), .. }) => check_command::describe_checkpoint(&path),
        Command::Check(Check { path: None, serve }) => check_command::check_settings(&serve),
        Command::Ask(ask) => run(offline::ask_once(&ask)),
        Command::Say(say) => run(offline::say_once(&say)),
        Command::Call(call) => run(call_command::call_server(&call)),
        Command::Bench(Bench::Size(size)) => measure_size(&size),
        Command::Quantize(quantize) => offline::write_quantised(&quantize),
        Command::Completions { shell } => print_completions(shell),
        Command::Man => print_manual(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("repartee: {error:#}");
            if error.is::<UserError>() { ExitCode::from(USER_ERROR) } else { ExitCode::FAILURE }
        }
    }
}

fn print_completions(shell: clap_complete::Shell) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "repartee", &mut script);
    print(&String::from_utf8_lossy(&script)).context("cannot write the completions")
}

fn print_manual() -> anyhow::Result<()> {
    let mut page = Vec::new();
    clap_mangen::Man::new(Cli::command()).render(&mut page).context("cannot render the manual page")?;
    print(&String::from_utf8_lossy(&page)).context("cannot write the manual page")
}

fn run(action: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start the async runtime")?;
    let done = runtime.block_on(action);
    // What still runs ends with the process.
    runtime.shutdown_timeout(RUNTIME_END);
    done
}

async fn serve_calls(serve: &Serve) -> anyhow::Result<()> {
    let begun = Instant::now();
    let EffectiveSettings { mut config, old_names, key } = serve.load()?;
    begin_log(config.log.format, &old_names)?;
    fetch_models(&mut config, serve.real)?;
    let https = config.is_https();
    for warning in warnings(&config) {
        tracing::warn!("{warning}");
    }
    if config.is_unencrypted() {
        tracing::warn!(
            "keys and audio cross the network unencrypted: set [tls], or listen on 127.0.0.1 behind a proxy"
        );
    }
    // Installed before the address is announced, because a client of it may end the start. From here on a SIGHUP waits
    // for the reload and does not end the process.
    let signals = ShutdownSignals::start(config.drain).context("cannot start the thread that waits for signals")?;
    let hangup = signal(SignalKind::hangup())?;
    let mut listening = StartingServer::bind(config.clone()).await.map_err(|error| match error {
        ServerStartError::Config(_)
        | ServerStartError::Listen { .. }
        | ServerStartError::Udp { .. }
        | ServerStartError::Tls(_)
        | ServerStartError::Turns(_) => UserError(error.into()).into(),
        other => anyhow::Error::from(other),
    })?;
    signals.watch(listening.shutdown_progress());
    tracing::info!(address = %listening.local_addr(), "listening");
    if let Some(address) = listening.health_addr() {
        tracing::info!(%address, "listening for health checks");
    }
    heap::map_large_blocks();
    let source = serve.settings.source(&config, || listening.thinker_metrics())?;
    let (threads, device) = (config.engine.threads(), config.engine.device);
    let loading = (source, config.engine);
    let headroom = config.limits.headroom;
    let model = tokio::select! {
        model = load_model(loading, headroom, &listening) => model?,
        () = signals.begun() => return Ok(()),
    };
    listening.set_card(model.card);
    let (engine, weights) = (model.engine.clone(), model.weights);
    let progress = listening.progress();
    let server = tokio::select! {
        server = show(progress, listening.with_engine(model.engine)) => server?,
        () = signals.begun() => return Ok(()),
    };
    heap::give_back_freed().context("cannot start the thread that gives memory back")?;
    tokio::spawn(reload(hangup, serve.clone(), server.reloader()));
    let (address, fingerprint) = (server.local_addr(), server.fingerprint().map(str::to_owned));
    let mut ready = server.ready();
    // Announced only when ready, so that a caller can connect at once.
    let announced = async {
        if ready.wait_for(|ready| *ready).await.is_ok() {
            tracing::info!(
                version = env!("CARGO_PKG_VERSION"),
                model = engine.info().name,
                weights = format_bytes(weights),
                threads,
                simd = vector_instructions(),
                %device,
                sessions = engine.occupancy().1,
                memory_mib = resident_memory().unwrap_or_default() >> 20,
                seconds = format_args!("{:.1}", begun.elapsed().as_secs_f64()),
                "ready"
            );
            tell_service_manager(NotifyState::Ready);
            print_addresses(address, https, key.as_deref(), fingerprint.as_deref());
        }
    };
    let begun = signals.begun();
    let stop = async move {
        begun.await;
        tell_service_manager(NotifyState::Stopping);
    };
    let (served, ()) = tokio::join!(server.run(stop), announced);
    served.context("the server failed")
}

/// Tells the service manager that started the process, such as systemd, if it asks to be told (`NOTIFY_SOCKET`).
fn tell_service_manager(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        tracing::warn!(%error, "the service manager cannot be told the server's state");
    }
}

/// Reads the settings again on each SIGHUP and applies their keys and certificate.
async fn reload(mut hangup: Signal, serve: Serve, reloader: Reloader) {
    while hangup.recv().await.is_some() {
        // With `--lan`, keys and certificate belong to this start and are not reloaded.
        let done =
            if serve.lan { Ok(()) } else { serve.load().and_then(|effective| Ok(reloader.reload(&effective.config)?)) };
        match done {
            Ok(()) => tracing::info!("keys and certificate reloaded"),
            Err(error) => tracing::error!("reload failed, nothing was changed: {error:#}"),
        }
    }
}

/// Prints the URLs, a generated key, and the fingerprint of a self-signed certificate.
fn print_addresses(listen: SocketAddr, https: bool, key: Option<&str>, fingerprint: Option<&str>) {
    let scheme = if https { "https" } else { "http" };
    let mut reached = lan::reachable_addresses(listen);
    if reached.is_empty() {
        reached.push(listen);
    }
    for address in &reached {
        println!("Talk to it at {scheme}://{address}/");
    }
    if let Some(key) = key {
        println!("API key, valid until the server stops: {key}");
        if let Some(code) =
            reached.first().and_then(|address| lan::qr_code(&format!("{scheme}://{address}/#key={key}")))
        {
            println!("\n{code}\nScan this with a phone in the same network.");
        }
    }
    if let Some(fingerprint) = fingerprint {
        println!(
            "The certificate is self-signed, so the browser warns. Accept it if its fingerprint in the browser is the same:"
        );
        println!("SHA-256 fingerprint is {fingerprint}");
    }
}

/// Loads the model on its own thread and shows the progress; with `headroom` measures the load of a call. Dropping the future
/// does not stop the thread.
async fn load_model(
    (source, engine): (ModelSource, EngineConfig),
    headroom: bool,
    listening: &StartingServer,
) -> anyhow::Result<model::LoadedModel> {
    let on_progress = listening.on_progress();
    let (loaded, model) = oneshot::channel();
    std::thread::Builder::new()
        .name("loader".to_owned())
        .spawn(move || {
            // A language model behind a server is not asked before a caller is.
            let asks = !matches!(source.parts, ModelParts::Cascade(_, Some(_)));
            let model = model::start(source, &engine, on_progress);
            let load = model.as_ref().ok().filter(|_| headroom).map(|model| {
                let computed = asks.then(|| calibrate(model.engine.as_ref())).flatten();
                computed.unwrap_or_else(transport_load)
            });
            // The receiver is gone if the start was cancelled.
            let _ = loaded.send(model.map(|model| (model, load)));
        })
        .context("cannot start the loader thread")?;
    let (model, load) = show(listening.progress(), model).await.context("the model could not be loaded")??;
    if let Some(load) = load {
        let calls = (1.0 / load.ticks.max(load.processors).max(f64::EPSILON)) as u64;
        let Load { ticks, processors } = load;
        tracing::info!(calls, ticks, processors, "calls that the machine may carry, by a short measurement");
        listening.set_call_load(load);
    }
    Ok(model)
}

/// Waits for `start` and shows its progress.
async fn show<T>(mut progress: watch::Receiver<StartProgress>, start: impl Future<Output = T>) -> T {
    let mut start = pin!(start);
    let mut bar = LoadingBar::new(std::io::stderr(), std::io::stderr().is_terminal());
    loop {
        tokio::select! {
            done = &mut start => return done,
            Ok(()) = progress.changed() => {
                let progress = *progress.borrow_and_update();
                bar.show(progress);
            }
        }
    }
}

fn measure_size(size: &Size) -> anyhow::Result<()> {
    let LoadedConfig { mut config, old_names } = size.settings.load(None)?;
    fetch_models(&mut config, false)?;
    begin_log(config.log.format, &old_names)?;
    let one_model = || UserError(anyhow::anyhow!("bench size measures one model: name it with --model"));
    if matches!(config.cascade.think, Some(ThinkSource::Server(_))) && size.settings.synthetic_weights.is_none() {
        return Err(one_model().into());
    }
    let metrics = ThinkerMetrics::new()?;
    let source = size.settings.source(&config, || metrics)?;
    // Fewer layers take less than the estimate, which is of the whole model.
    if size.options.layers.is_none() {
        source.check_memory(&config.engine)?;
    }
    let ModelParts::Whole(source) = source.parts else {
        return Err(one_model().into());
    };
    bench::size(&size.options, &source, &config.engine).map_err(|error| UserError(error).into())
}
