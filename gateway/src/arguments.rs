//! Arguments of the command line, and the settings that they make.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;
use repartee::auth::KeySet;
use repartee::cli::ask::Question;
use repartee::cli::call::connection::CallTarget;
use repartee::cli::call::error::CallError;
use repartee::cli::lan;
use repartee::cli::memory::MemoryShortage;
use repartee::cli::speech::WavTarget;
use repartee::config::{CascadeConfig, Config, LoadedConfig, RenamedSetting, ThinkSource, load};
use repartee::metrics::ThinkerMetrics;
use repartee::thinker;
use repartee_engine::{CascadeParts, DeviceChoice, RemoteModel, WeightPolicy};

use crate::bench;
use crate::model::ModelSource;
use crate::user_error::UserError;

const EXAMPLES: &str = "\
Examples:
  repartee                                       serve the demo model on http://127.0.0.1:8080
  repartee --model DIR --set engine.weights=int8 serve a checkpoint, quantised as it loads
  repartee --model ORG/NAME                      download a checkpoint of the Hugging Face hub, and serve it
  repartee serve --real                          download models that answer anything, and serve them
  repartee --lan                                 serve phones in the same network
  repartee ask --text 'Count to three.'          print an answer
  repartee say 'Hello.' hello.wav                read a text aloud
  repartee call localhost:8080 --text 'Hello.'   ask a running server
  repartee check DIR                             describe a checkpoint";
const ASK_EXAMPLES: &str = "\
Examples:
  repartee ask question.wav answer.wav
  repartee ask --text 'Count to three.' answer.wav
  echo 'Count to three.' | repartee ask -
  repartee ask question.wav - | aplay";
/// Settings of `--real`, for a laptop: the voice's convolutions are the most work of an answer, few callers fit, and answers are short.
const REAL_SETTINGS: [(&str, &str); 3] =
    [("engine.weights", "int8"), ("engine.sessions", "4"), ("engine.session_tokens", "4096")];
const CALL_EXAMPLES: &str = "\
Examples:
  repartee call localhost:8080 question.wav answer.wav
  repartee call https://voice.example --text 'Count to three.'
  arecord -t raw -f S16_LE -r 24000 | repartee call localhost:8080 --pipe | aplay -t raw -f S16_LE -r 24000";
const SAY_EXAMPLES: &str = "\
Examples:
  repartee say 'Good morning.' morning.wav
  repartee say - - --voice NAME --speak DIR < text.txt | aplay";

/// Realtime voice gateway with its speech engine in the same process.
#[derive(Debug, Parser)]
#[command(name = "repartee", version, args_conflicts_with_subcommands = true, after_help = EXAMPLES)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Option<Command>,
    #[command(flatten)]
    pub serve: Serve,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve calls; the default command
    Serve(Serve),
    /// Check a checkpoint without loading it, or without PATH the settings, and print the effective ones
    Check(Check),
    /// Ask the model one question, spoken or written, without a server
    Ask(Ask),
    /// Read a text aloud into a wav file, without a server
    Say(Say),
    /// Talk with a running server: one question, or a conversation over pipes
    Call(Call),
    /// Benchmark the model on this machine
    #[command(subcommand)]
    Bench(Bench),
    /// Quantise a checkpoint to int8 or int4 matrices in the compressed-tensors format; resumes an interrupted run
    Quantize(Quantize),
    /// Print the completions for a shell, such as `repartee completions bash > ~/.local/share/bash-completion/completions/repartee`
    Completions {
        /// Shell
        shell: Shell,
    },
    /// Print the manual page, such as `repartee man > /usr/local/share/man/man1/repartee.1`
    Man,
}

#[derive(Debug, Args)]
pub struct Check {
    /// Folder of a checkpoint, or a GGUF, safetensors, PyTorch or ONNX file, to describe
    pub path: Option<PathBuf>,
    #[command(flatten)]
    pub serve: Serve,
}

#[derive(Debug, Args)]
pub struct Quantize {
    /// Folder of a checkpoint in its published format
    pub checkpoint: PathBuf,
    /// Folder to write the quantised checkpoint to
    pub out: PathBuf,
    /// Quantisation of the matrices, as in `engine.weights`: int8, int4 or mixed
    #[arg(long, value_name = "WEIGHTS", default_value = "mixed", value_parser = weight_policy)]
    pub weights: WeightPolicy,
}

fn weight_policy(name: &str) -> Result<WeightPolicy, String> {
    serde_json::from_value(name.into()).map_err(|error| error.to_string())
}

#[derive(Debug, Subcommand)]
pub enum Bench {
    /// Time one turn stage by stage, compare it with the limits of memory and processor, and write
    /// target/report/size.json
    Size(Size),
}

#[derive(Debug, Args)]
pub struct Size {
    #[command(flatten)]
    pub options: bench::SizeOptions,
    #[command(flatten)]
    pub settings: Settings,
}

#[derive(Debug, Clone, Args)]
pub struct Serve {
    /// Address to listen on [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<String>,
    /// Let phones in the local network call: listen on all addresses, with a new API key and a self-signed certificate
    #[arg(long)]
    pub lan: bool,
    /// Serve published models to talk to, which are downloaded the first time (1.6 GB): a recogniser, a language model and a voice;
    /// --hear, --think and --speak replace one of them
    #[arg(long, conflicts_with_all = ["model", "synthetic_weights"])]
    pub real: bool,
    #[command(flatten)]
    pub settings: Settings,
}

#[derive(Debug, Args)]
#[command(after_help = ASK_EXAMPLES)]
#[command(
    override_usage = "repartee ask [OPTIONS] <QUESTION> [ANSWER]\n       repartee ask [OPTIONS] --text <TEXT> [ANSWER]"
)]
pub struct Ask {
    /// Sound file with the question, or a file of text whose name ends in .txt; `-` reads sound or text from standard input
    #[arg(required_unless_present = "text")]
    question: Option<PathBuf>,
    /// Wav file to write the spoken answer to, `-` for standard output; without it, the answer is text alone
    answer: Option<PathBuf>,
    /// Question, in place of a file
    #[arg(long, value_name = "TEXT")]
    text: Option<String>,
    #[command(flatten)]
    pub settings: Settings,
}

impl Ask {
    /// Returns the question, and the file of the answer.
    pub fn question(&self) -> Result<(Question, Option<WavTarget>), UserError> {
        one_question(self.text.as_deref(), self.question.as_deref(), self.answer.as_deref())
    }
}

/// Returns the question, and the file of the answer.
fn one_question(
    text: Option<&str>,
    question: Option<&Path>,
    answer: Option<&Path>,
) -> Result<(Question, Option<WavTarget>), UserError> {
    match (text, question, answer) {
        // Without a file for the question the first name is the answer's.
        (Some(text), answer, None) => Ok((Question::Text(text.to_owned()), answer.map(wav_target))),
        (None, Some(question), answer) => {
            let question = match question.as_os_str() == "-" {
                true => Question::StandardInput,
                false => Question::File(question.to_owned()),
            };
            Ok((question, answer.map(wav_target)))
        }
        _ => Err(UserError(anyhow::anyhow!("two questions: leave out --text, or the file of the question"))),
    }
}

#[derive(Debug, Args)]
#[command(after_help = CALL_EXAMPLES)]
#[command(
    override_usage = "repartee call [OPTIONS] <SERVER> <QUESTION> [ANSWER]\n       repartee call [OPTIONS] <SERVER> --text <TEXT> [ANSWER]\n       repartee call [OPTIONS] <SERVER> --pipe"
)]
pub struct Call {
    /// Address of the server: HOST:PORT, or a URL
    server: String,
    /// Sound file with the question, or a file of text whose name ends in .txt; `-` reads sound or text from standard input
    #[arg(required_unless_present_any = ["text", "pipe"])]
    question: Option<PathBuf>,
    /// Wav file to write the spoken answer to, `-` for standard output; without it, the answer is text alone
    answer: Option<PathBuf>,
    /// Question, in place of a file
    #[arg(long, value_name = "TEXT")]
    text: Option<String>,
    /// Talk in real time: raw sound (16 bits, 24 kHz, mono) of a microphone from standard input, that of the answers to standard
    /// output
    #[arg(long, conflicts_with_all = ["question", "answer", "text"])]
    pub pipe: bool,
    /// Key of the server
    #[arg(long, value_name = "KEY", env = "REPARTEE_KEY", hide_env_values = true)]
    key: Option<String>,
    /// File of certificates in PEM to trust beside the system's, such as that of a server with a certificate of its own
    #[arg(long, value_name = "FILE")]
    trust: Option<PathBuf>,
}

impl Call {
    /// Returns the question, and the file of the answer.
    pub fn question(&self) -> Result<(Question, Option<WavTarget>), UserError> {
        one_question(self.text.as_deref(), self.question.as_deref(), self.answer.as_deref())
    }

    /// Returns the server.
    pub fn target(&self) -> Result<CallTarget, CallError> {
        CallTarget::new(&self.server, self.key.as_deref(), self.trust.clone())
    }
}

#[derive(Debug, Args)]
#[command(after_help = SAY_EXAMPLES)]
pub struct Say {
    /// Text to read aloud; `-` reads it from standard input
    pub text: String,
    /// Wav file to write, `-` for standard output
    #[arg(value_name = "OUT")]
    out: PathBuf,
    /// Voice of the model [default: the model's]
    #[arg(long, value_name = "NAME")]
    pub voice: Option<String>,
    #[command(flatten)]
    pub settings: Settings,
}

impl Say {
    /// Returns the file of the speech.
    pub fn target(&self) -> WavTarget {
        wav_target(&self.out)
    }
}

fn wav_target(path: &Path) -> WavTarget {
    if path.as_os_str() == "-" { WavTarget::StandardOutput } else { WavTarget::File(path.to_owned()) }
}

#[derive(Debug, Clone, Args)]
pub struct Settings {
    /// Settings file; repartee.example.toml describes every setting
    #[arg(long, value_name = "FILE", env = "REPARTEE_CONFIG")]
    pub config: Option<PathBuf>,
    /// Folder of a checkpoint in its published format, or a GGUF file; or a name of the Hugging Face hub, which is
    /// downloaded: ORG/NAME or ORG/NAME@REV. Without it, the embedded demo
    #[arg(long, value_name = "DIR|ORG/NAME")]
    pub model: Option<PathBuf>,
    /// Folder of a recogniser, which hears for --think; alone it serves transcripts
    #[arg(long, value_name = "DIR", conflicts_with = "model")]
    pub hear: Option<PathBuf>,
    /// Folder or GGUF file of a language model behind --hear, before --speak, or between them; or URL of a chat-completions
    /// server
    #[arg(long, value_name = "DIR|URL", conflicts_with = "model")]
    pub think: Option<PathBuf>,
    /// Folder of the model that speaks the text of --think
    #[arg(long, value_name = "DIR", conflicts_with = "model")]
    pub speak: Option<PathBuf>,
    /// Device that runs the model: cpu, cuda:0 or auto [default: cpu]
    #[arg(long, value_name = "DEVICE")]
    pub device: Option<DeviceChoice>,
    /// Licence of weights that not everybody may use, which is accepted, such as covo-audio; can be repeated
    #[arg(long, value_name = "NAME")]
    pub accept_licence: Vec<String>,
    /// Folder with the configuration and tokenizer of a published checkpoint; its weights are random and made in
    /// memory. This measures the speed of a model size; the answers mean nothing
    #[arg(long, value_name = "DIR", conflicts_with = "model")]
    pub synthetic_weights: Option<PathBuf>,
    /// Load a model although its weights need more memory than is free
    #[arg(long)]
    pub force: bool,
    /// Setting to override, such as limits.calls_per_key=4; can be repeated
    #[arg(long, value_name = "SETTING=VALUE", value_parser = assignment)]
    pub set: Vec<(String, String)>,
}

fn assignment(text: &str) -> Result<(String, String), String> {
    let (path, value) = text.split_once('=').ok_or("write SETTING=VALUE")?;
    Ok((path.trim().to_owned(), value.trim().to_owned()))
}

impl Settings {
    /// Loads the effective settings and the uses of old names; `listen` is from the command line.
    pub fn load(&self, listen: Option<&str>) -> anyhow::Result<LoadedConfig> {
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
        loaded.config.engine.accept_licence.extend(self.accept_licence.iter().cloned());
        loaded.config.engine.device = self.device.unwrap_or(loaded.config.engine.device);
        loaded.config.check_models().map_err(|error| UserError(error.into()))?;
        Ok(loaded)
    }

    /// Source of the model: a cascade, a folder, synthetic weights or the demo. A server is opened within a Tokio runtime.
    pub fn source(&self, config: &Config, metrics: impl FnOnce() -> ThinkerMetrics) -> anyhow::Result<ModelSource> {
        let remote = match &config.cascade.think {
            Some(ThinkSource::Server(_)) if self.synthetic_weights.is_none() => {
                thinker::open(&config.cascade, metrics()).map_err(|error| UserError(error.into()))?
            }
            _ => None,
        };
        Ok(self.source_with(config, remote))
    }

    /// Lack of memory for the weights, if these settings do not load them nevertheless.
    pub fn memory_problem(&self, config: &Config) -> Option<MemoryShortage> {
        self.source_with(config, None).shortage(&config.engine)
    }

    /// Source of the model; `remote` is the language model behind a server, if there is one.
    fn source_with(&self, config: &Config, remote: Option<RemoteModel>) -> ModelSource {
        let CascadeConfig { hear, think, speak, .. } = &config.cascade;
        let think = match think {
            Some(ThinkSource::Folder(folder)) => Some(folder.as_path()),
            Some(ThinkSource::Server(_)) | None => None,
        };
        let parts = CascadeParts { hear: hear.as_deref(), think, speak: speak.as_deref() };
        let cascade = if self.synthetic_weights.is_none() { ModelSource::cascade(parts, remote) } else { None };
        let mut source =
            cascade.unwrap_or_else(|| ModelSource::new(config.model.as_deref(), self.synthetic_weights.as_deref()));
        source.force = self.force;
        source
    }
}

/// Effective settings of a server.
pub struct EffectiveSettings {
    pub config: Config,
    /// Uses of old setting names.
    pub old_names: Vec<RenamedSetting>,
    /// API key that `--lan` generated.
    pub key: Option<String>,
}

impl Serve {
    /// Loads the effective settings, with the changes of `--lan`, and checks them.
    pub fn load(&self) -> anyhow::Result<EffectiveSettings> {
        let effective = self.load_unchecked()?;
        effective.config.check().map_err(|error| UserError(error.into()))?;
        Ok(effective)
    }

    pub fn load_unchecked(&self) -> anyhow::Result<EffectiveSettings> {
        let mut settings = self.settings.clone();
        if self.real {
            // Before those of the caller, which replace them.
            let real = REAL_SETTINGS.map(|(setting, value)| (setting.to_owned(), value.to_owned()));
            settings.set.splice(0..0, real);
        }
        let LoadedConfig { mut config, old_names } = settings.load(self.listen.as_deref())?;
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
