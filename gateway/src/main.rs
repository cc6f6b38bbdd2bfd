//! The `repartee` command.

mod bench;
mod model;

use std::future::Future;
use std::io::IsTerminal as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::{Args, Parser, Subcommand};
use repartee::auth::KeySet;
use repartee::cli::ask::ask;
use repartee::cli::check::SummaryLines;
use repartee::cli::examine::examine;
use repartee::cli::lan;
use repartee::cli::loading::LoadingBar;
use repartee::cli::output::print;
use repartee::config::{CascadeConfig, Config, LoadedConfig, RenamedSetting, ThinkSource, load, unknown_variables};
use repartee::headroom::{Load, calibrate, transport_load};
use repartee::heap;
use repartee::metrics::ThinkerMetrics;
use repartee::server::{Reloader, ServerStartError, ShutdownSignals, StartingServer, check_certificate};
use repartee::telemetry::{LogFormat, log};
use repartee::thinker;
use repartee_engine::quantise::quantise;
use repartee_engine::summary::summarise;
use repartee_engine::{CascadeParts, DeviceChoice, EngineConfig, StartProgress, WeightPolicy};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{oneshot, watch};
use tracing_subscriber::EnvFilter;

use self::model::{ModelParts, ModelSource};

/// Exit code of user errors: a bad checkpoint, address, setting or argument.
const USER_ERROR: u8 = 2;
/// Environment variable of the log's filter, and the filter without one.
const LOG_FILTER: &str = "REPARTEE_LOG";
const DEFAULT_FILTER: &str = "warn,repartee=info";
/// Time for tasks of the runtime to end after a command.
const RUNTIME_END: Duration = Duration::from_secs(1);

/// Realtime voice gateway with its speech engine in the same process.
#[derive(Debug, Parser)]
#[command(name = "repartee", version, args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    serve: Serve,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve calls; the default command
    Serve(Serve),
    /// Check a checkpoint without loading it, or without PATH the settings, and print the effective ones
    Check(Check),
    /// Ask the model one question, spoken or written, without a server
    Ask(Ask),
    /// Benchmark the model on this machine
    #[command(subcommand)]
    Bench(Bench),
    /// Quantise a checkpoint to int8 or int4 matrices in the compressed-tensors format; resumes an interrupted run
    Quantize(Quantize),
}

#[derive(Debug, Args)]
struct Check {
    /// Folder of a checkpoint, or a GGUF, safetensors, PyTorch or ONNX file, to describe
    path: Option<PathBuf>,
    #[command(flatten)]
    serve: Serve,
}

#[derive(Debug, Args)]
struct Quantize {
    /// Folder of a checkpoint in its published format
    checkpoint: PathBuf,
    /// Folder to write the quantised checkpoint to
    out: PathBuf,
    /// Quantisation of the matrices, as in `engine.weights`: int8, int4 or mixed
    #[arg(long, value_name = "WEIGHTS", default_value = "mixed", value_parser = weight_policy)]
    weights: WeightPolicy,
}

fn weight_policy(name: &str) -> Result<WeightPolicy, String> {
    serde_json::from_value(name.into()).map_err(|error| error.to_string())
}

#[derive(Debug, Subcommand)]
enum Bench {
    /// Time one turn stage by stage, compare it with the limits of memory and processor, and write
    /// target/report/size.json
    Size(Size),
}

#[derive(Debug, Args)]
struct Size {
    #[command(flatten)]
    options: bench::SizeOptions,
    #[command(flatten)]
    settings: Settings,
}

#[derive(Debug, Clone, Args)]
struct Serve {
    /// Address to listen on [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// Let phones in the local network call: listen on all addresses, with a new API key and a self-signed certificate
    #[arg(long)]
    lan: bool,
    #[command(flatten)]
    settings: Settings,
}

#[derive(Debug, Args)]
struct Ask {
    /// Wav file with the question, any sample rate and number of channels; or a file of text whose name ends in .txt
    question: PathBuf,
    /// Wav file to write the spoken answer to
    answer: PathBuf,
    #[command(flatten)]
    settings: Settings,
}

#[derive(Debug, Clone, Args)]
struct Settings {
    /// Settings file; repartee.example.toml describes every setting
    #[arg(long, value_name = "FILE", env = "REPARTEE_CONFIG")]
    config: Option<PathBuf>,
    /// Folder of a checkpoint in its published format, or a GGUF file; without it, the embedded demo
    #[arg(long, value_name = "DIR")]
    model: Option<PathBuf>,
    /// Folder of a recogniser, which hears for --think; alone it serves transcripts
    #[arg(long, value_name = "DIR", conflicts_with = "model")]
    hear: Option<PathBuf>,
    /// Folder or GGUF file of a language model behind --hear, before --speak, or between them; or URL of a chat-completions
    /// server
    #[arg(long, value_name = "DIR|URL", conflicts_with = "model")]
    think: Option<PathBuf>,
    /// Folder of the model that speaks the text of --think
    #[arg(long, value_name = "DIR", conflicts_with = "model")]
    speak: Option<PathBuf>,
    /// Device that runs the model: cpu, cuda:0 or auto [default: cpu]
    #[arg(long, value_name = "DEVICE")]
    device: Option<DeviceChoice>,
    /// Folder with the configuration and tokenizer of a published checkpoint; its weights are random and made in
    /// memory. This measures the speed of a model size; the answers mean nothing
    #[arg(long, value_name = "DIR", conflicts_with = "model")]
    synthetic_weights: Option<PathBuf>,
    /// Setting to override, such as limits.calls_per_key=4; can be repeated
    #[arg(long, value_name = "SETTING=VALUE", value_parser = assignment)]
    set: Vec<(String, String)>,
}

fn assignment(text: &str) -> Result<(String, String), String> {
    let (path, value) = text.split_once('=').ok_or("write SETTING=VALUE")?;
    Ok((path.trim().to_owned(), value.trim().to_owned()))
}

impl Settings {
    /// Loads the effective settings and the uses of old names; `listen` is from the command line.
    fn load(&self, listen: Option<&str>) -> anyhow::Result<LoadedConfig> {
        let mut set = self.set.clone();
        set.extend(listen.map(|listen| ("listen".to_owned(), listen.to_owned())));
        let loaded = load(self.config.as_deref(), |name| std::env::var(name).ok(), &set);
        let mut loaded = loaded.map_err(|error| UserError(error.into()))?;
        // Set directly, because a path need not be text and a setting is text.
        loaded.config.model = self.model.clone().or(loaded.config.model);
        let cascade = &mut loaded.config.cascade;
        cascade.hear = self.hear.clone().or(cascade.hear.take());
        if let Some(think) = &self.think {
            let think = ThinkSource::try_from(think.clone());
            cascade.think =
                Some(think.map_err(|error| UserError(anyhow::anyhow!("--think is no usable URL: {error}")))?);
        }
        cascade.speak = self.speak.clone().or(cascade.speak.take());
        loaded.config.engine.device = self.device.unwrap_or(loaded.config.engine.device);
        loaded.config.check_models().map_err(|error| UserError(error.into()))?;
        Ok(loaded)
    }

    /// Source of the model: a cascade, a folder, synthetic weights or the demo. A server is opened within a Tokio runtime.
    fn source(&self, config: &Config, metrics: impl FnOnce() -> ThinkerMetrics) -> anyhow::Result<ModelSource> {
        if self.synthetic_weights.is_none() {
            let CascadeConfig { hear, think, speak, .. } = &config.cascade;
            let (folder, remote) = match think {
                Some(ThinkSource::Folder(folder)) => (Some(folder.as_path()), None),
                Some(ThinkSource::Server(_)) => {
                    (None, thinker::open(&config.cascade, metrics()).map_err(|error| UserError(error.into()))?)
                }
                None => (None, None),
            };
            let parts = CascadeParts { hear: hear.as_deref(), think: folder, speak: speak.as_deref() };
            if let Some(cascade) = ModelSource::cascade(parts, remote) {
                return Ok(cascade);
            }
        }
        Ok(ModelSource::new(config.model.as_deref(), self.synthetic_weights.as_deref()))
    }
}

/// Effective settings of a server.
struct EffectiveSettings {
    config: Config,
    /// Uses of old setting names.
    old_names: Vec<RenamedSetting>,
    /// API key that `--lan` generated.
    key: Option<String>,
}

impl Serve {
    /// Loads the effective settings, with the changes of `--lan`, and checks them.
    fn load(&self) -> anyhow::Result<EffectiveSettings> {
        let effective = self.load_unchecked()?;
        effective.config.check().map_err(|error| UserError(error.into()))?;
        Ok(effective)
    }

    fn load_unchecked(&self) -> anyhow::Result<EffectiveSettings> {
        let LoadedConfig { mut config, old_names } = self.settings.load(self.listen.as_deref())?;
        let mut generated = None;
        if self.lan {
            if config.listen.ip().is_loopback() {
                config.listen.set_ip(Ipv4Addr::UNSPECIFIED.into());
            }
            config.tls.development = config.tls.certificate.is_none();
            config.tls.keep = config.tls.keep.or_else(|| lan::state_folder(|name| std::env::var_os(name)));
            if config.api_keys.is_empty() {
                let key = lan::new_key().context("the operating system provides no random numbers")?;
                config.api_keys = KeySet::parse(&key)?;
                generated = Some(key);
            }
        }
        Ok(EffectiveSettings { config, old_names, key: generated })
    }
}

/// User error: ends the command with [`USER_ERROR`].
#[derive(Debug, thiserror::Error)]
#[error("{0:#}")]
struct UserError(anyhow::Error);

fn main() -> ExitCode {
    let cli = Cli::parse();
    let done = match cli.command.unwrap_or(Command::Serve(cli.serve)) {
        Command::Serve(serve) => run(serve_calls(&serve)),
        Command::Check(Check { path: Some(path), .. }) => describe_checkpoint(&path),
        Command::Check(Check { path: None, serve }) => check_settings(&serve),
        Command::Ask(ask) => run(ask_once(&ask)),
        Command::Bench(Bench::Size(size)) => measure_size(&size),
        Command::Quantize(quantize) => write_quantised(&quantize),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("repartee: {error:#}");
            if error.is::<UserError>() { ExitCode::from(USER_ERROR) } else { ExitCode::FAILURE }
        }
    }
}

/// Prints the summary of a checkpoint.
fn describe_checkpoint(path: &Path) -> anyhow::Result<()> {
    let summary = summarise(path).map_err(|error| UserError(error.into()))?;
    print(&SummaryLines(&summary).to_string()).context("cannot write the summary")
}

/// Prints the effective settings and the warnings, then every reason for which a server would not start.
fn check_settings(serve: &Serve) -> anyhow::Result<()> {
    let EffectiveSettings { config, old_names, .. } = serve.load_unchecked()?;
    let mut text = config.to_string();
    for warning in old_names.iter().map(RenamedSetting::to_string).chain(warnings(&config)) {
        text += &format!("# {warning}\n");
    }
    print(&text).context("cannot write the settings")?;
    let mut problems = examine(&config);
    problems.extend(check_certificate(&config.tls).err().map(|error| error.to_string()));
    if problems.is_empty() { Ok(()) } else { Err(UserError(anyhow::anyhow!(problems.join("\nrepartee: "))).into()) }
}

/// Warnings about the settings and the environment.
fn warnings(config: &Config) -> Vec<String> {
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
fn begin_log(format: LogFormat, old_names: &[RenamedSetting]) -> anyhow::Result<()> {
    let filter = EnvFilter::try_from_env(LOG_FILTER).unwrap_or_else(|_| EnvFilter::new(DEFAULT_FILTER));
    let init = log::init(format, filter, std::io::stderr, std::io::stderr().is_terminal());
    init.map_err(|error| anyhow::anyhow!("cannot start the log: {error}"))?;
    for old_name in old_names {
        tracing::warn!("{old_name}");
    }
    Ok(())
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
    let EffectiveSettings { config, old_names, key } = serve.load()?;
    begin_log(config.log.format, &old_names)?;
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
    let loading = (serve.settings.source(&config, || listening.thinker_metrics())?, config.engine);
    let headroom = config.limits.headroom;
    let model = tokio::select! {
        model = load_model(loading, headroom, &listening) => model?,
        () = signals.begun() => return Ok(()),
    };
    listening.set_card(model.card);
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
            print_addresses(address, https, key.as_deref(), fingerprint.as_deref());
        }
    };
    let (served, ()) = tokio::join!(server.run(signals.begun()), announced);
    served.context("the server failed")
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
            let model = start_model(source, &engine, on_progress);
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

fn start_model(
    source: ModelSource,
    engine: &EngineConfig,
    progress: impl Fn(StartProgress) + Send + Sync + 'static,
) -> anyhow::Result<model::LoadedModel> {
    model::start(source, engine, progress).map_err(|error| UserError(error.into()).into())
}

async fn ask_once(arguments: &Ask) -> anyhow::Result<()> {
    let LoadedConfig { config, old_names } = arguments.settings.load(None)?;
    begin_log(config.log.format, &old_names)?;
    let metrics = ThinkerMetrics::new()?;
    let model = start_model(arguments.settings.source(&config, || metrics)?, &config.engine, |_| {})?;
    let mut out = std::io::stdout();
    let answered = ask(&*model.engine, &arguments.question, &arguments.answer, &mut out)
        .await
        .map_err(|error| UserError(error.into()))?;
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

fn measure_size(size: &Size) -> anyhow::Result<()> {
    let LoadedConfig { config, old_names } = size.settings.load(None)?;
    begin_log(config.log.format, &old_names)?;
    let one_model = || UserError(anyhow::anyhow!("bench size measures one model: name it with --model"));
    if matches!(config.cascade.think, Some(ThinkSource::Server(_))) && size.settings.synthetic_weights.is_none() {
        return Err(one_model().into());
    }
    let metrics = ThinkerMetrics::new()?;
    let ModelParts::Whole(source) = size.settings.source(&config, || metrics)?.parts else {
        return Err(one_model().into());
    };
    bench::size(&size.options, &source, &config.engine).map_err(|error| UserError(error).into())
}

fn write_quantised(Quantize { checkpoint, out, weights }: &Quantize) -> anyhow::Result<()> {
    let threads = EngineConfig::default().threads();
    let mut shown = None;
    let progress = |progress: repartee_engine::quantise::QuantiseProgress<'_>| {
        // Prints one line for each percent and each file.
        let now = ((progress.share * 100.0) as u32, progress.file.to_owned());
        if shown.as_ref() != Some(&now) {
            println!("{:3} % {}", now.0, now.1);
            shown = Some(now);
        }
    };
    quantise(checkpoint, out, *weights, threads, progress).map_err(|error| UserError(error.into()).into())
}
