//! Failures of an exchange, each with a sentence that says what to do.

use std::fmt;
use std::time::Duration;

use thiserror::Error;

use crate::request::RequestError;

/// Reason why a request got no answer, or a broken one.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum ChatFailure {
    /// The request cannot be sent.
    #[error("the request cannot be sent: {0}")]
    Request(#[from] RequestError),
    /// The host has no address.
    #[error("the host of {peer} is not known ({reason}): check the name, and this machine's DNS")]
    UnknownHost {
        /// Server or proxy.
        peer: Peer,
        /// Error of the resolver.
        reason: String,
    },
    /// Nothing listens on the port.
    #[error("{peer} refused the connection: start it there, or correct host and port")]
    Refused {
        /// Server or proxy.
        peer: Peer,
    },
    /// No connection for another reason.
    #[error("{peer} cannot be reached ({reason}): check network and firewall")]
    Unreachable {
        /// Server or proxy.
        peer: Peer,
        /// Error of the operating system.
        reason: String,
    },
    /// No encrypted connection.
    #[error("{peer} gives no trusted encrypted connection: {failure}")]
    Tls {
        /// Server or proxy.
        peer: Peer,
        /// Reason.
        failure: TlsFailure,
    },
    /// The proxy passes nothing on.
    #[error("{peer} passes nothing on: {failure}")]
    Proxy {
        /// The proxy.
        peer: Peer,
        /// Reason.
        failure: ProxyFailure,
    },
    /// A time limit has passed.
    #[error("{limit} took longer than {after:?}: {}", .limit.remedy())]
    Late {
        /// The limit.
        limit: TimeLimit,
        /// Its length.
        after: Duration,
    },
    /// The connection closed before the head of a response.
    #[error("the server closed the connection without a response ({reason}): look into its log")]
    Closed {
        /// Error of the connection.
        reason: String,
    },
    /// The response is no HTTP/1.1.
    #[error("the server does not speak HTTP/1.1 here ({reason}): check scheme and port, https or http")]
    NotHttp {
        /// Error of the parser.
        reason: String,
    },
    /// The response sends to another URL. Redirects are not followed, because the key would go with them.
    #[error("the server sends to {} (status {status}): use that URL", .location.as_deref().unwrap_or("another URL"))]
    Redirected {
        /// Status of the response.
        status: u16,
        /// The other URL, without credentials and query.
        location: Option<String>,
    },
    /// Status 401 or 403.
    #[error(
        "the server refused access with status {status}{}: {}",
        said(.message),
        key_remedy(.key_sent)
    )]
    Unauthorized {
        /// Status of the response.
        status: u16,
        /// True if the request had a key or credentials.
        key_sent: bool,
        /// Message of the server.
        message: String,
    },
    /// Status 404 for the model.
    #[error("the server has no model {model:?}{}: set one that it lists under /models", said(.message))]
    UnknownModel {
        /// Name of the model.
        model: String,
        /// Message of the server.
        message: String,
    },
    /// Status 404 for the path.
    #[error("the server has no {path} (status 404{}): {}", said(.message), path_remedy(.path))]
    UnknownPath {
        /// Path of the request.
        path: String,
        /// Message of the server.
        message: String,
    },
    /// Status 429: too many requests or tokens in a time.
    #[error(
        "the server refuses more requests for now (status 429{}){}: wait, or raise the limit there",
        said(.message),
        after(.retry_after)
    )]
    RateLimited {
        /// Wait that the server asks for.
        retry_after: Option<Duration>,
        /// Message of the server.
        message: String,
    },
    /// Status 408 or 5xx.
    #[error("the server failed with status {status}{}{}: look into its log", said(.message), after(.retry_after))]
    ServerError {
        /// Status of the response.
        status: u16,
        /// Wait that the server asks for.
        retry_after: Option<Duration>,
        /// Message of the server.
        message: String,
    },
    /// Another status: the server does not accept the request.
    #[error("the server rejects the request with status {status}{}: change the request", said(.message))]
    Rejected {
        /// Status of the response.
        status: u16,
        /// Message of the server.
        message: String,
    },
    /// A web page in place of an answer.
    #[error("the server answers with a web page in HTML: check host and path of the URL, often /v1")]
    Html,
    /// A body of an unknown kind.
    #[error("the server answers with {content_type:?} in place of an event stream or JSON: check the path of the URL")]
    ContentType {
        /// Value of the header `Content-Type`.
        content_type: String,
    },
    /// A compressed body, which was not asked for.
    #[error("the server compresses its answer ({encoding:?}) unasked: switch compression off for event streams")]
    Compressed {
        /// Value of the header `Content-Encoding`.
        encoding: String,
    },
    /// A response without content.
    #[error("the server's answer is empty: look into its log")]
    Empty,
    /// JSON that breaks off.
    #[error("the server's JSON breaks off ({reason}): look into its log")]
    IncompleteJson {
        /// Error of the parser.
        reason: String,
    },
    /// Data that are no JSON.
    #[error("the server's data are no JSON ({reason}): check that it serves chat completions")]
    InvalidJson {
        /// Error of the parser.
        reason: String,
    },
    /// JSON that is no part of an answer.
    #[error("the server's JSON is no chat completion ({reason}): check that it serves chat completions")]
    InvalidShape {
        /// Error of the parser.
        reason: String,
    },
    /// The stream broke off before the answer's end.
    #[error("the answer broke off ({reason}): look into the server's log")]
    Torn {
        /// Error of the connection.
        reason: String,
    },
    /// An error in the stream in place of the next token.
    #[error("the server failed within the stream: {message}{}", in_parentheses(.code))]
    InStream {
        /// Message of the server.
        message: String,
        /// Its code or type.
        code: Option<String>,
    },
    /// Something is longer than its limit.
    #[error("{part} is over {limit} {}: the server sends too much, or raise the limit", .part.unit())]
    TooLarge {
        /// The part that is too large.
        part: BoundedPart,
        /// Its limit.
        limit: usize,
    },
    /// No model is set, and the server lists none.
    #[error("no model is set, and the server lists none: set one")]
    NoModel,
    /// No model is set, and the server lists several.
    #[error("no model is set, and the server has several: set one of {}", .models.join(", "))]
    SeveralModels {
        /// Some of their names.
        models: Vec<String>,
    },
    /// The runtime stopped before the answer's end.
    #[error("the runtime stopped before the end of the answer")]
    Stopped,
}

fn said(message: &str) -> String {
    if message.is_empty() { String::new() } else { format!(", {message:?}") }
}

fn key_remedy(key_sent: &bool) -> &'static str {
    if *key_sent { "check the key and its rights" } else { "give a key" }
}

fn path_remedy(path: &str) -> &'static str {
    if path.ends_with("/models") {
        "set the model, or check the path of the URL, often /v1"
    } else {
        "check the path of the URL, often /v1"
    }
}

fn in_parentheses(code: &Option<String>) -> String {
    code.as_ref().map(|code| format!(" ({code})")).unwrap_or_default()
}

fn after(wait: &Option<Duration>) -> String {
    wait.map(|wait| format!(", for {} s", wait.as_secs_f32().ceil())).unwrap_or_default()
}

/// Other end of a connection, as messages name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Peer {
    /// The server itself.
    Server,
    /// A proxy, with host and port.
    Proxy(String),
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server => f.write_str("the server"),
            Self::Proxy(name) => write!(f, "the proxy {name}"),
        }
    }
}

/// Reason why TLS failed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TlsFailure {
    /// The certificate comes from an authority that is not trusted.
    #[error("its certificate is of an unknown issuer; add the issuer to the trusted certificates")]
    UnknownIssuer,
    /// The certificate has expired.
    #[error("its certificate has expired; renew it, or correct this machine's clock")]
    Expired,
    /// The certificate is not valid yet.
    #[error("its certificate is not valid yet; correct this machine's clock")]
    NotYetValid,
    /// The certificate is for other names.
    #[error("its certificate is for other names than the URL's host; use a name of the certificate")]
    WrongHost,
    /// The other end speaks no TLS.
    #[error("it does not speak TLS on this port; use http:// or another port")]
    NotTls,
    /// The other end has TLS of other versions.
    #[error("it does not speak TLS 1.3; bring it up to date")]
    Version,
    /// The connection closed during the handshake.
    #[error("it closed the connection during the handshake; check scheme and port")]
    Closed,
    /// Another error of the TLS library, in its words.
    #[error("{0}")]
    Other(String),
}

/// Reason why a proxy passes nothing on.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ProxyFailure {
    /// The proxy asks for other credentials.
    #[error("it refused the credentials (status 407); put user name and password into the proxy's URL")]
    Unauthorized,
    /// The proxy refused to connect to the server.
    #[error("it refused to connect to the server with status {0}; allow the host there, or name it in NO_PROXY")]
    Rejected(u16),
    /// The proxy's response is no HTTP.
    #[error("its response is no HTTP; check the proxy's port")]
    NotHttp,
}

/// Time limit of an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeLimit {
    /// Opening a connection, with DNS, proxy and TLS.
    Connect,
    /// From the request to the first token.
    FirstToken,
    /// From one token to the next.
    BetweenTokens,
    /// The whole exchange, with all attempts.
    Whole,
}

impl TimeLimit {
    fn remedy(self) -> &'static str {
        match self {
            Self::Connect => "check network and firewall, or raise the limit",
            Self::FirstToken => "the server is overloaded or loads the model; raise the limit, or use a faster model",
            Self::BetweenTokens => "the server hangs or is overloaded; look into its log, or raise the limit",
            Self::Whole => "limit the length of the answer, or raise the limit",
        }
    }
}

impl fmt::Display for TimeLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connect => "connecting",
            Self::FirstToken => "the first token",
            Self::BetweenTokens => "the next token",
            Self::Whole => "the whole answer",
        })
    }
}

/// Part of a response that has a maximum size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BoundedPart {
    /// Status line and headers.
    Head,
    /// A line of the event stream.
    Line,
    /// The data of an event.
    Event,
    /// A body of JSON in place of an event stream.
    Json,
    /// All bytes of the response.
    Body,
    /// Text and reasoning of the answer.
    Text,
    /// The number of calls of functions.
    ToolCalls,
    /// The arguments, the name or the identifier of a call.
    ToolCall,
}

impl BoundedPart {
    fn unit(self) -> &'static str {
        if self == Self::ToolCalls { "calls" } else { "bytes" }
    }
}

impl fmt::Display for BoundedPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Head => "the head of the response",
            Self::Line => "a line of the stream",
            Self::Event => "an event of the stream",
            Self::Json => "the JSON of the answer",
            Self::Body => "the response",
            Self::Text => "the text of the answer",
            Self::ToolCalls => "the number of function calls",
            Self::ToolCall => "a function call",
        })
    }
}
