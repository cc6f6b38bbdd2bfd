//! Commands that generate without a server: `repartee ask`, `repartee say`; and `repartee quantize`.

use std::io::{IsTerminal as _, Read as _, Write as _};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context as _;
use repartee::cli::ask::ask;
use repartee::cli::loading::LoadingBar;
use repartee::cli::output::{format_bytes, print};
use repartee::cli::progress_line::ProgressLine;
use repartee::cli::say::say;
use repartee::cli::speech::{SpeechTimes, WavTarget};
use repartee::config::{Config, LoadedConfig};
use repartee::metrics::ThinkerMetrics;
use repartee_engine::EngineConfig;
use repartee_engine::quantise::{QuantiseProgress, QuantiseReport, quantise};

use crate::arguments::{Ask, Quantize, Say, Settings};
use crate::model::{self, LoadedModel};
use crate::published::fetch_models;
use crate::start_log::begin_log;
use crate::user_error::UserError;

/// Maximum length of a text from standard input, in bytes; longer than any that is read aloud.
const MAX_INPUT: u64 = 1 << 20;

/// Asks one question and prints the answer.
pub async fn ask_once(arguments: &Ask) -> anyhow::Result<()> {
    let (question, target) = arguments.question()?;
    let (_, model) = load(&arguments.settings)?;
    // The text leaves standard output to the sound.
    let mut out: Box<dyn std::io::Write + Send> = match target {
        Some(WavTarget::StandardOutput) => Box::new(std::io::stderr()),
        _ => Box::new(std::io::stdout()),
    };
    let answered = ask(&*model.engine, &question, target.as_ref(), &mut out).await;
    let answered = answered.map_err(|error| UserError(error.into()))?;
    match target {
        Some(target) => tell(answered.times, &target),
        None => Ok(()),
    }
}

/// Reads a text aloud.
pub async fn say_once(arguments: &Say) -> anyhow::Result<()> {
    let mut text = arguments.text.clone();
    if text == "-" {
        text.clear();
        std::io::stdin().lock().take(MAX_INPUT).read_to_string(&mut text).context("cannot read standard input")?;
    }
    let (config, model) = load(&arguments.settings)?;
    let spoken = config.engine.spoken_text.options();
    let said = say(&*model.engine, &text, arguments.voice.as_deref(), spoken).await;
    let said = said.map_err(|error| UserError(error.into()))?;
    if said.cut > 0 {
        eprintln!(
            "repartee: the model's limit cut the speech of {} parts of the text: write shorter sentences",
            said.cut
        );
    }
    let (times, target) = (said.speech.times(), arguments.target());
    said.speech.write(&target).map_err(|error| UserError(error.into()))?;
    tell(times, &target)
}

/// Prints the times of speech and its file.
pub fn tell(times: SpeechTimes, target: &WavTarget) -> anyhow::Result<()> {
    match target {
        WavTarget::StandardOutput => {
            eprintln!("{times}");
            Ok(())
        }
        WavTarget::File(_) if times.first_sound.is_none() => {
            println!("The answer has no sound.");
            Ok(())
        }
        WavTarget::File(_) => print(&format!("{times}, saved as {target}\n")).context("cannot write the times"),
    }
}

/// Loads the settings and the model that they name; shows the progress on a terminal.
fn load(settings: &Settings) -> anyhow::Result<(Config, LoadedModel)> {
    let LoadedConfig { mut config, old_names } = settings.load(None)?;
    fetch_models(&mut config, false)?;
    begin_log(config.log.format, &old_names)?;
    let metrics = ThinkerMetrics::new()?;
    let source = settings.source(&config, || metrics)?;
    let terminal = std::io::stderr().is_terminal();
    let bar = Arc::new(Mutex::new(terminal.then(|| LoadingBar::new(std::io::stderr(), terminal))));
    let shown = bar.clone();
    let model = model::start(source, &config.engine, move |progress| {
        if let Some(bar) = &mut *shown.lock().unwrap_or_else(PoisonError::into_inner) {
            bar.show(progress);
        }
    });
    // The engine may keep the callback; the line goes now.
    bar.lock().unwrap_or_else(PoisonError::into_inner).take();
    Ok((config, model?))
}

/// Quantises a checkpoint and says what came of it.
pub fn write_quantised(Quantize { checkpoint, out, weights }: &Quantize) -> anyhow::Result<()> {
    let threads = EngineConfig::default().threads();
    let mut line = std::io::stderr().is_terminal().then(|| ProgressLine::new(std::io::stderr()));
    let mut last = String::new();
    let progress = |QuantiseProgress { share, file }: QuantiseProgress<'_>| match &mut line {
        Some(line) => line.show(file, share),
        None if last != file => {
            // A log of lines gets one for each file.
            last = file.to_owned();
            let _ = writeln!(std::io::stderr(), "{:3.0} % {file}", share * 100.0);
        }
        None => {}
    };
    let done = quantise(checkpoint, out, *weights, threads, progress);
    drop(line);
    let QuantiseReport { read, written } = done.map_err(|error| UserError(error.into()))?;
    let (from, to, out) = (format_bytes(read), format_bytes(written), out.display());
    let saved = 100.0 - 100.0 * written as f64 / read.max(1) as f64;
    print(&format!("{from} became {to}, {saved:.0} % less: {out}\nServe it: repartee --model {out}\n"))
        .context("cannot write the sizes")
}
