//! Streaming client of servers that speak the OpenAI chat-completions API.
//!
//! [`ChatClient::chat`] sends a [`ChatRequest`] and returns a [`ChatStream`] of [`ChatEvent`]s: text, reasoning, calls of
//! functions, the reason of the end, usage. Every size and every wait is bounded, and every failure has a type and a
//! sentence with a remedy ([`ChatError`], [`ChatFailure`]). Dropping the stream cancels the request.
//!
//! | file | contents |
//! |---|---|
//! | `client` | [`ChatClient`] and its settings |
//! | `client_core` | state that all exchanges share, and the head of a request |
//! | `request` | [`ChatRequest`]: messages, functions, sampling |
//! | `tool_call` | [`ToolCall`] |
//! | `event`, `stream` | [`ChatEvent`], and [`ChatStream`], which the caller reads |
//! | `exchange` | one exchange: attempts, time limits, the answer |
//! | `retry` | [`RetryPolicy`], `Retry-After` |
//! | `models` | the list of models, if none is set |
//! | `limits` | [`Limits`] of sizes, [`TimeLimits`] |
//! | `base_url`, `url_parts` | [`BaseUrl`], and the parser of URLs |
//! | `api_key` | [`ApiKey`], from a file or the environment |
//! | `proxies`, `no_proxy` | [`Proxies`] of the environment |
//! | `dialer`, `tunnel`, `tls`, `connection`, `pool` | connections: TCP, proxy, TLS, HTTP/1.1, reuse |
//! | `byte_connection` | [`open_stream`]: a connection for another protocol |
//! | `notice` | [`post`]: one request to a server of another kind |
//! | `response` | judges the head of a response |
//! | `answer_reader` | body to events: event stream or JSON |
//! | `sse` | server-sent events |
//! | `chunk`, `decoder`, `assembler` | JSON of an answer, its events, its calls of functions |
//! | `failure`, `error`, `quote` | [`ChatFailure`], [`ChatError`], quotations of a server's messages |
//!
//! ```no_run
//! use repartee_chat_client::{BaseUrl, ChatClient, ChatClientConfig, ChatEvent, ChatMessage, ChatRequest};
//!
//! # async fn ask() -> Result<(), Box<dyn std::error::Error>> {
//! let client = ChatClient::new(ChatClientConfig::new(BaseUrl::parse("http://localhost:8000/v1")?))?;
//! let question = ChatMessage::User { content: "Why is the sky blue?".to_owned() };
//! let mut answer = client.chat(ChatRequest { messages: vec![question], ..ChatRequest::default() });
//! while let Some(event) = answer.next().await {
//!     if let ChatEvent::Text(text) = event? {
//!         print!("{text}");
//!     }
//! }
//! # Ok(())
//! # }
//! ```

mod answer_reader;
mod api_key;
mod assembler;
mod base_url;
mod byte_connection;
mod chunk;
mod client;
mod client_core;
mod connection;
mod decoder;
mod dialer;
mod error;
mod event;
mod exchange;
mod failure;
mod limits;
mod models;
mod no_proxy;
mod notice;
mod pool;
mod proxies;
mod quote;
mod request;
mod response;
mod retry;
mod sse;
mod stream;
mod tls;
mod tool_call;
mod tunnel;
mod url_parts;

pub use api_key::{ApiKey, ApiKeyError};
pub use base_url::BaseUrl;
pub use byte_connection::{StreamError, open_stream};
pub use client::{ChatClient, ChatClientConfig, ChatClientError};
pub use dialer::{ByteStream, DialError, Dialer, TcpDialer};
pub use error::ChatError;
pub use event::{ChatEvent, ExchangeStats, FinishReason, TokenUsage};
pub use failure::{BoundedPart, ChatFailure, Peer, ProxyFailure, TimeLimit, TlsFailure};
pub use limits::{Limits, TimeLimits};
pub use notice::{NoticeError, post};
pub use proxies::{Proxies, Proxy, ProxyError};
pub use request::{ChatMessage, ChatRequest, FunctionTool, MaxTokensField, RequestError, ToolChoice};
pub use retry::RetryPolicy;
pub use stream::ChatStream;
pub use tls::{TrustError, client_config};
pub use tool_call::ToolCall;
pub use url_parts::UrlError;
