//! Options of the benchmark.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use repartee_engine::measure::MeasuredTurn;
use repartee_engine::{EngineConfig, Source, Synthetic};

/// Options of `bench size` besides the model and the settings.
#[derive(Debug, Args)]
pub struct SizeOptions {
    /// Maximum layers of each stack of a model with synthetic weights, to save time and memory
    #[arg(long, value_name = "LAYERS")]
    pub layers: Option<usize>,
    /// Expert routing of a model with synthetic weights
    #[arg(long, value_name = "ROUTING", default_value = "both")]
    pub routing: Routing,
    /// Duration of the caller's speech, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0)]
    pub heard: f64,
    /// Maximum text tokens of the answer
    #[arg(long, value_name = "TOKENS", default_value_t = 64)]
    pub tokens: u32,
    /// Maximum audio of the answer, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 15.0)]
    pub sound: f64,
    /// Numbers of concurrent sessions, separated by commas: measures first sound and RTF of each number, on any device,
    /// in place of one turn stage by stage on the processor
    #[arg(long, value_name = "SESSIONS", value_delimiter = ',')]
    pub sessions: Vec<usize>,
    /// JSON file to write the figures to
    #[arg(long, value_name = "FILE", default_value = "target/report/size.json")]
    pub report: PathBuf,
}

/// Expert routing of a mixture of experts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Routing {
    /// All experts about equally often.
    Uniform,
    /// Some experts far more often than others.
    Skewed,
    /// Uniform first, then skewed.
    Both,
}

impl SizeOptions {
    /// Sizes of the measured turn.
    ///
    /// # Errors
    /// A duration is negative or not finite.
    pub fn turn(&self) -> anyhow::Result<MeasuredTurn> {
        let seconds = |name: &str, seconds: f64| {
            Duration::try_from_secs_f64(seconds).with_context(|| format!("--{name} {seconds} is no duration"))
        };
        let (heard, sound) = (seconds("heard", self.heard)?, seconds("sound", self.sound)?);
        Ok(MeasuredTurn { input: heard, text_tokens: self.tokens, sound, seed: 7 })
    }

    /// Models to measure in order. Only synthetic weights take a routing; a published checkpoint has its own.
    pub fn sources(&self, source: &Source) -> Vec<(Source, Option<Routing>)> {
        let Source::Synthetic(synthetic) = source else { return vec![(source.clone(), None)] };
        let routings: &[Routing] = match self.routing {
            Routing::Uniform => &[Routing::Uniform],
            Routing::Skewed => &[Routing::Skewed],
            Routing::Both => &[Routing::Uniform, Routing::Skewed],
        };
        let synthetic = |&routing: &Routing| {
            let skewed = routing == Routing::Skewed;
            let source = Synthetic { layers: self.layers, skewed, ..synthetic.clone() };
            (Source::Synthetic(source), Some(routing))
        };
        routings.iter().map(synthetic).collect()
    }
}

/// The setting `engine.weights` as text.
pub fn weights(engine: &EngineConfig) -> String {
    serde_json::to_value(engine.weights).ok().and_then(|name| name.as_str().map(str::to_owned)).unwrap_or_default()
}
