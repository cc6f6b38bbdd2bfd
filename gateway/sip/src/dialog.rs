//! Dialog of a call (RFC 3261, 12): names, route and numbers of both sides, and requests within it.

use core::net::SocketAddr;
use std::fmt::Write as _;

use bytes::Bytes;

use crate::message::Message;
use crate::reply::write_end;

/// Dialog of a call.
#[derive(Debug)]
pub(crate) struct Dialog {
    pub call_id: String,
    /// Our tag, 32 hexadecimal digits.
    pub tag: String,
    /// Our side, as `From` and `To` spell it, with our tag.
    local: String,
    /// The other side, with its tag.
    remote: String,
    /// URI of the other side's agent.
    target: String,
    /// Route of our requests.
    routes: Vec<String>,
    /// Address of our requests' next hop.
    pub hop: SocketAddr,
    /// Number of our last request.
    sequence: u32,
    /// Number of the other side's last request.
    pub remote_sequence: u32,
}

impl Dialog {
    /// Begins the dialog of a call that came in. `None` if the request names no agent.
    pub fn of_request(request: &Message, tag: String, hop: SocketAddr) -> Option<Self> {
        Some(Self {
            call_id: request.call_id.clone(),
            local: format!("{};tag={tag}", request.to.text),
            tag,
            remote: request.from.text.clone(),
            target: format!("{:?}", request.contact()?),
            routes: request.routes()?,
            hop,
            sequence: 0,
            remote_sequence: request.sequence.cseq,
        })
    }

    /// Takes over the other side's agent from a request or response that refreshes it.
    pub fn refresh(&mut self, message: &Message) {
        if let Some(contact) = message.contact() {
            self.target = format!("{contact:?}");
        }
    }

    /// Writes a request within the dialog, from our address `local`.
    pub fn request(
        &mut self,
        method: &str,
        branch: &str,
        local: SocketAddr,
        headers: &[(&'static str, String)],
    ) -> Bytes {
        self.sequence += 1;
        // Writing to a string cannot fail.
        let mut text =
            format!("{method} {} SIP/2.0\r\nVia: SIP/2.0/UDP {local};rport;branch={branch}\r\n", self.target);
        for route in &self.routes {
            let _ = write!(text, "Route: {route}\r\n");
        }
        let Self { call_id, local: ours, remote, sequence, .. } = self;
        let _ = write!(text, "Max-Forwards: 70\r\nFrom: {ours}\r\nTo: {remote}\r\nCall-ID: {call_id}\r\n");
        let _ = write!(text, "CSeq: {sequence} {method}\r\n");
        write_end(&mut text, headers, None);
        text.into()
    }
}
