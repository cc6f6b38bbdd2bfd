//! The HTTP server: routes, admission, health and shutdown.
//!
//! - `app`: shared state of all requests, and admission
//! - `listening`, `start_error`: the server before its model is loaded
//! - `serving`: the server with its model
//! - `routes`, `readiness`: routes during and after the start, and health
//! - `listen`, `request_threads`: connections, and the threads of their requests
//! - `paced_reads`, `moving_socket`, `tls`, `development_certificate`, `certificate_validity`: their sockets, plain and encrypted
//! - `processor_share`: the share of the processors that one websocket can take from others; `allowance`: processor time that grows
//! - `timed_body`: timeout of a request's body
//! - `connections`, `descriptors`: limits of the number of connections, and of the process's descriptors
//! - `control`: the thread that accepts, answers health checks and metrics, and shuts down
//! - `watchdog`: delays of the runtime and the engine
//! - `uploads`: bodies of requests in memory
//! - `auth_middleware`: key, origin and CORS of every request, by `client_addr` and `origin`
//! - `caller`: the client of a request
//! - `extract`: extractors whose refusals are errors of the API, compressed bodies
//! - `keyless`: access to a server without keys
//! - `cluster`: with the feature of that name, calls and requests on other nodes
//! - `realtime`: `GET /v1/realtime`, the websocket
//! - `calls`, `call_registry`: `POST /v1/realtime/calls`, WebRTC
//! - `telephony`, `stream_signature`: `GET /v1/telephony/media-stream`, telephone calls
//! - `sip`: with the feature `phone`, telephone calls over SIP
//! - `chat`: `POST /v1/chat/completions`, one question in one upload
//! - `speech`: `POST /v1/audio/speech`, speech synthesis of a given text
//! - `transcription`: `POST /v1/audio/transcriptions` and `/translations`, what is said in a sound file
//! - `voices`: `/v1/audio/voices`, voices enrolled from recordings
//! - `form`: bodies of the type `multipart/form-data`
//! - `warnings`: the header with differences between a request and its response
//! - [`fuzzing`]: readers of requests, for the fuzz targets
//! - `generation`, `engine_session`: responses of the engine for one HTTP request; `one_call`: those with one call at most
//! - `client_secrets`: ephemeral keys
//! - `models`: the served model
//! - `offer`: the body of `POST /v1/realtime/calls`
//! - `ice_servers`: short-lived TURN credentials
//! - `page`: the demo page
//! - `shutdown`: signals that end the process, and its deadline
//! - `reload`: replacing keys and certificate while the server runs
//! - `request_log`: ids of requests, the access log, a sample of the refusals
//! - `api_error`: errors as HTTP responses

mod allowance;
mod api_error;
mod app;
mod auth_middleware;
mod call_registry;
mod caller;
mod calls;
mod certificate_validity;
mod chat;
mod client_addr;
mod client_secrets;
#[cfg(feature = "cluster")]
mod cluster;
mod connections;
mod control;
mod descriptors;
mod development_certificate;
mod engine_session;
mod extract;
mod form;
pub mod fuzzing;
mod generation;
mod ice_servers;
mod keyless;
mod listen;
mod listening;
mod models;
mod moving_socket;
mod not_served;
mod offer;
mod one_call;
mod origin;
mod paced_reads;
mod page;
mod processor_share;
mod readiness;
mod realtime;
mod reload;
mod request_log;
mod request_threads;
mod routes;
mod serving;
mod shutdown;
#[cfg(feature = "phone")]
mod sip;
mod speech;
mod start_error;
mod stream_signature;
mod telephony;
mod timed_body;
mod tls;
mod transcription;
mod uploads;
mod usage;
mod voices;
mod warnings;
mod watchdog;

pub(crate) use app::AppState;
pub use development_certificate::{DevelopmentCertificateError, PemCertificate, development_certificate};
pub use listening::StartingServer;
pub use readiness::ShutdownProgress;
pub use reload::{ReloadError, Reloader};
pub use serving::Server;
pub use shutdown::ShutdownSignals;
pub use start_error::ServerStartError;
pub use tls::{TlsError, check_certificate};
pub use watchdog::{Lateness, LatenessHandle};
