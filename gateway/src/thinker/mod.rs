//! A chat-completions server as the language model of a cascade.
//!
//! - this file: opens it by the settings
//! - `request`: the engine's conversation as a request to the server
//! - `events`: events of the server as the engine takes them
//! - `failure`: kinds of failures, and what callers are told

mod events;
mod failure;
mod request;

use std::sync::Arc;
use std::task::Waker;

use repartee_chat_client::{
    ApiKey, ApiKeyError, ChatClient, ChatClientConfig, ChatClientError, MaxTokensField, Proxies, ProxyError,
    RetryPolicy, TimeLimits,
};
use repartee_engine::RemoteModel;
use repartee_engine_api::{RemoteAnswer, RemoteRequest, RemoteThinker, WakeSignal};
use thiserror::Error;

use self::events::{ChatAnswer, EngineWaker};
use self::request::chat_request;
use crate::config::{CascadeConfig, ThinkSource, TokenLimitField};
use crate::metrics::ThinkerMetrics;

/// Error of a server that cannot be used as the settings say.
#[derive(Debug, Error)]
pub enum ThinkerError {
    /// The key cannot be used.
    #[error("{setting}: {error}")]
    Key {
        /// Path of the setting.
        setting: &'static str,
        /// Reason of the refusal; never contains the key.
        error: ApiKeyError,
    },
    /// A proxy of the environment cannot be used.
    #[error(transparent)]
    Proxy(#[from] ProxyError),
    /// The client cannot be created.
    #[error("cascade: {0}")]
    Client(#[from] ChatClientError),
}

/// Opens the server that the settings name, within a Tokio runtime; `None` if they name none. Connects to nothing yet.
///
/// # Errors
///
/// Key, proxy or certificates cannot be used.
pub fn open(config: &CascadeConfig, metrics: ThinkerMetrics) -> Result<Option<RemoteModel>, ThinkerError> {
    let Some(ThinkSource::Server(url)) = &config.think else { return Ok(None) };
    let key_error = |setting| move |error| ThinkerError::Key { setting, error };
    let key = match (&config.key, &config.key_file) {
        (Some(key), _) => Some(ApiKey::parse(key.expose(), "the settings").map_err(key_error("cascade.key"))?),
        (None, Some(file)) => Some(ApiKey::from_file(file).map_err(key_error("cascade.key_file"))?),
        (None, None) => None,
    };
    let client = ChatClient::new(ChatClientConfig {
        key,
        model: config.model.clone(),
        proxies: Proxies::from_env()?,
        trusted_certificates: config.certificates.clone(),
        max_tokens_field: match config.token_limit {
            TokenLimitField::MaxTokens => MaxTokensField::MaxTokens,
            TokenLimitField::MaxCompletionTokens => MaxTokensField::MaxCompletionTokens,
        },
        times: TimeLimits {
            connect: config.connect,
            first_token: config.first_token,
            between_tokens: config.between_tokens,
            whole: config.whole,
            ..TimeLimits::default()
        },
        retry: RetryPolicy { attempts: config.attempts, ..RetryPolicy::default() },
        ..ChatClientConfig::new(url.clone())
    })?;
    let name = config.model.clone().unwrap_or_else(|| url.host().to_owned());
    let fallback = Some(config.fallback.trim().to_owned()).filter(|sentence| !sentence.is_empty());
    Ok(Some(RemoteModel { name, thinker: Arc::new(ChatThinker { client, metrics }), fallback }))
}

/// The server as the engine sees it. Each session and each out-of-band response has at most one request.
#[derive(Debug)]
struct ChatThinker {
    client: ChatClient,
    metrics: ThinkerMetrics,
}

impl RemoteThinker for ChatThinker {
    fn ask(&self, request: RemoteRequest, wake: WakeSignal) -> Box<dyn RemoteAnswer> {
        let waker = Waker::from(Arc::new(EngineWaker(wake)));
        Box::new(ChatAnswer::new(self.client.chat(chat_request(request)), waker, self.metrics.clone()))
    }
}
