//! Responses to a request.

use std::fmt::Write as _;
use std::time::Duration;

use bytes::Bytes;
use ezk_sip_types::print::AppendCtx as _;
use ezk_sip_types::uri::params::Param;
use ezk_sip_types::{Name, StatusCode};

use crate::hop::Hop;
use crate::message::Message;

/// Methods that the user agent understands.
pub(crate) const ALLOW: &str = "INVITE, ACK, CANCEL, BYE, OPTIONS, INFO, UPDATE, NOTIFY";

/// Final response that refuses a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Status, 300 to 699.
    pub status: u16,
    /// Time after which the caller may try again.
    pub retry_after: Option<Duration>,
    /// Reason for a person, as a `Warning`.
    pub reason: String,
}

impl Refusal {
    /// Refuses with this status and reason.
    pub fn new(status: u16, reason: impl Into<String>) -> Self {
        Self { status, retry_after: None, reason: reason.into() }
    }

    /// Asks the caller to try again after this time.
    #[must_use]
    pub fn retry_after(mut self, time: Option<Duration>) -> Self {
        self.retry_after = time;
        self
    }

    /// Headers of the response.
    pub(crate) fn headers(&self) -> Vec<(&'static str, String)> {
        let mut headers = Vec::new();
        if !self.reason.is_empty() {
            let reason: String =
                self.reason.chars().map(|c| if c == '"' || c == '\\' || c.is_control() { ' ' } else { c }).collect();
            headers.push(("Warning", format!("399 repartee \"{reason}\"")));
        }
        if let Some(time) = self.retry_after {
            headers.push(("Retry-After", time.as_secs().max(1).to_string()));
        }
        headers
    }
}

/// Parts of a response besides what the request gives.
#[derive(Debug, Default)]
pub(crate) struct Reply<'a> {
    /// Our tag; for a request that has none in `To`.
    pub tag: Option<&'a str>,
    pub headers: Vec<(&'static str, String)>,
    /// Session description, the body.
    pub description: Option<&'a str>,
}

/// Address of responses to a request that came from `from` (RFC 3261, 18.2.2; RFC 3581).
pub(crate) fn reply_address(request: &Message, from: Hop) -> Hop {
    if from.transport.is_reliable() {
        return from;
    }
    let asks_for_port = request.via.params.get("rport").is_some();
    let port = if asks_for_port { from.address.port() } else { request.via.sent_by.port.unwrap_or(5060) };
    Hop::udp((from.address.ip(), port))
}

/// Writes a response to a request that came from `from`.
pub(crate) fn reply(request: &Message, from: Hop, status: u16, reply: &Reply<'_>) -> Bytes {
    let from = from.address;
    let mut via = request.via.clone();
    via.params.push_or_edit("received", from.ip().to_string());
    if via.params.get("rport").is_some() {
        via.params.take("rport");
        via.params.push(Param::value("rport", from.port().to_string()));
    }
    let reason = StatusCode::from(status).text().unwrap_or("Refused");
    // Writing to a string cannot fail.
    let mut text = format!("SIP/2.0 {status} {reason}\r\nVia: {}\r\n", via.default_print_ctx());
    for via in &request.other_vias {
        let _ = write!(text, "Via: {via}\r\n");
    }
    for route in request.raw(&Name::RECORD_ROUTE) {
        let _ = write!(text, "Record-Route: {route}\r\n");
    }
    let _ = write!(text, "From: {}\r\nTo: {}", request.from.text, request.to.text);
    if request.to.tag.is_none()
        && let Some(tag) = reply.tag
    {
        let _ = write!(text, ";tag={tag}");
    }
    let sequence = &request.sequence;
    let _ = write!(text, "\r\nCall-ID: {}\r\nCSeq: {} {}\r\n", request.call_id, sequence.cseq, sequence.method);
    write_end(&mut text, &reply.headers, reply.description);
    text.into()
}

/// Writes the headers of a message's own, and its body.
pub(crate) fn write_end(text: &mut String, headers: &[(&'static str, String)], description: Option<&str>) {
    for (name, value) in headers {
        let _ = write!(text, "{name}: {value}\r\n");
    }
    if description.is_some() {
        text.push_str("Content-Type: application/sdp\r\n");
    }
    let body = description.unwrap_or_default();
    let _ = write!(text, "Server: repartee\r\nContent-Length: {}\r\n\r\n{body}", body.len());
}
