//! The client of one server.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use thiserror::Error;
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use crate::api_key::ApiKey;
use crate::base_url::BaseUrl;
use crate::client_core::ClientCore;
use crate::connection::Connector;
use crate::dialer::{Dialer, TcpDialer};
use crate::exchange::run;
use crate::limits::{Limits, TimeLimits};
use crate::pool::ConnectionPool;
use crate::proxies::{Proxies, Proxy};
use crate::quote::Quoter;
use crate::request::{ChatRequest, MaxTokensField};
use crate::retry::RetryPolicy;
use crate::stream::ChatStream;
use crate::tls::{TrustError, tls_connector};

/// Maximum events of the queue.
const MAX_QUEUE: usize = 4_096;
/// Maximum attempts of a request.
const MAX_ATTEMPTS: u32 = 10;

/// Error of the settings of a client.
#[derive(Debug, Error)]
pub enum ChatClientError {
    /// The certificates to trust cannot be used.
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// A key, and user name and password in the URL.
    #[error("{0} has user name and password in its URL, and a key is given: leave out one of them")]
    TwoCredentials(String),
    /// A time limit is zero or longer than a day.
    #[error("the time limit {0} has to be above zero and at most a day")]
    TimeLimit(&'static str),
    /// No attempts or too many.
    #[error("a request has 1 to {MAX_ATTEMPTS} attempts, not {0}")]
    Attempts(u32),
    /// No queue or too long a one.
    #[error("the queue holds 1 to {MAX_QUEUE} events, not {0}")]
    Queue(usize),
    /// No Tokio runtime.
    #[error("a client is created within a Tokio runtime")]
    NoRuntime,
}

/// Settings of a client.
#[derive(Debug, Clone)]
pub struct ChatClientConfig {
    /// URL of the server.
    pub url: BaseUrl,
    /// Key, sent as a bearer token.
    pub key: Option<ApiKey>,
    /// Model; if `None`, the server is asked for the only one that it has.
    pub model: Option<String>,
    /// Proxies; [`Proxies::from_env`] reads those of the environment.
    pub proxies: Proxies,
    /// File of certificates in PEM to trust beside the system's.
    pub trusted_certificates: Option<PathBuf>,
    /// Name of the field for the maximum of tokens.
    pub max_tokens_field: MaxTokensField,
    /// Time limits of an exchange, each above zero and at most a day.
    pub times: TimeLimits,
    /// Maximum sizes of requests and answers.
    pub limits: Limits,
    /// Attempts after failures before the first token.
    pub retry: RetryPolicy,
    /// Events that may wait for the caller, 1 to 4,096.
    pub queue: usize,
}

impl ChatClientConfig {
    /// Creates the settings for a server: no key, no proxy, defaults for the rest.
    pub fn new(url: BaseUrl) -> Self {
        Self {
            url,
            key: None,
            model: None,
            proxies: Proxies::none(),
            trusted_certificates: None,
            max_tokens_field: MaxTokensField::default(),
            times: TimeLimits::default(),
            limits: Limits::default(),
            retry: RetryPolicy::default(),
            queue: 64,
        }
    }

    fn check(&self) -> Result<(), ChatClientError> {
        if self.key.is_some() && self.url.authorization().is_some() {
            return Err(ChatClientError::TwoCredentials(self.url.to_string()));
        }
        if let Some(name) = self.times.invalid() {
            return Err(ChatClientError::TimeLimit(name));
        }
        for (name, wait) in [("backoff", self.retry.backoff), ("max_retry_after", self.retry.max_retry_after)] {
            if wait > TimeLimits::MAX {
                return Err(ChatClientError::TimeLimit(name));
            }
        }
        if !(1..=MAX_ATTEMPTS).contains(&self.retry.attempts) {
            return Err(ChatClientError::Attempts(self.retry.attempts));
        }
        if !(1..=MAX_QUEUE).contains(&self.queue) {
            return Err(ChatClientError::Queue(self.queue));
        }
        Ok(())
    }
}

/// Client of one server. Clones share its connections.
#[derive(Clone)]
pub struct ChatClient {
    core: Arc<ClientCore>,
    runtime: Handle,
    queue: usize,
}

impl ChatClient {
    /// Creates a client within a Tokio runtime, on which its requests run. Reads the system's certificates if the URL or its
    /// proxy needs them. Opens no connection.
    ///
    /// # Errors
    /// A setting is out of its range, or certificates cannot be read.
    pub fn new(config: ChatClientConfig) -> Result<Self, ChatClientError> {
        Self::with_dialer(config, Arc::new(TcpDialer))
    }

    /// Creates a client whose connections come from `dialer`.
    ///
    /// # Errors
    /// As [`ChatClient::new`].
    pub fn with_dialer(config: ChatClientConfig, dialer: Arc<dyn Dialer>) -> Result<Self, ChatClientError> {
        config.check()?;
        let runtime = Handle::try_current().map_err(|_| ChatClientError::NoRuntime)?;
        let proxy = config.proxies.for_url(&config.url).cloned();
        let needs_tls = config.url.is_secure() || proxy.as_ref().is_some_and(Proxy::is_secure);
        let tls = needs_tls.then(|| tls_connector(config.trusted_certificates.as_deref())).transpose()?;
        let key = config.key.as_ref();
        let core = ClientCore {
            authorization: key.and_then(ApiKey::header).or_else(|| config.url.authorization()),
            quoter: Quoter::new(key.map(|key| key.secret().to_owned()).into_iter().collect()),
            connector: Connector { url: config.url, proxy, tls, dialer },
            pool: ConnectionPool::new(config.times.idle_connection),
            model: config.model.filter(|model| !model.is_empty()),
            listed_model: std::sync::Mutex::default(),
            max_tokens_field: config.max_tokens_field,
            times: config.times,
            limits: config.limits,
            retry: config.retry,
        };
        Ok(Self { core: Arc::new(core), runtime, queue: config.queue })
    }

    /// URL of the server.
    pub fn url(&self) -> &BaseUrl {
        &self.core.connector.url
    }

    /// Begins an exchange. The request is on its way before the first event is read; all failures come as the last event.
    pub fn chat(&self, request: ChatRequest) -> ChatStream {
        let (sender, events) = mpsc::channel(self.queue);
        let task = self.runtime.spawn(run(self.core.clone(), request, sender)).abort_handle();
        ChatStream::new(self.url().clone(), events, task)
    }
}

impl fmt::Debug for ChatClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChatClient").field("url", self.url()).finish_non_exhaustive()
    }
}
