//! Telephone calls over SIP: the signalling's socket, and each call from its invitation to its end.
//!
//! - `service`: [`SipService`], what calls and requests ask of the signalling
//! - `sockets`: the sockets of the signalling
//! - `signalling`: the task that owns them and the user agent
//! - `streams`: connections over TCP and TLS; `stream_task`: one of them; `stream_tls`: their encryption
//! - `phone_call`: one call: decision, admission, session, end
//! - [`call_out`]: a call that the server makes
//! - `ringing`: calls that wait for a decision, and those that run, by their ids
//! - `webhook`: the operator's program learns of a call
//! - [`control`]: its requests: accept, reject, refer
//!
//! The protocol is in `repartee_sip`, the sound in `transport::sip`.

pub(super) mod call_out;
pub(super) mod control;
mod phone_call;
mod ringing;
mod service;
mod signalling;
mod sockets;
mod stream_task;
mod stream_tls;
mod streams;
mod webhook;

pub(super) use service::SipService;
pub(super) use signalling::spawn;
pub(super) use sockets::{SipSockets, bind};
pub(super) use stream_tls::SipTlsError;
