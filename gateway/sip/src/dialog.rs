//! Dialog of a call (RFC 3261, 12): names, route and numbers of both sides, and requests within it.

use std::fmt::Write as _;

use bytes::Bytes;

use crate::hop::Hop;
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
    /// Our requests' next hop.
    pub hop: Hop,
    /// Address of the other side's agent, if it may take `hop`'s place: where that is a connection, which may end.
    pub fallback: Option<Hop>,
    /// Number of our last request.
    sequence: u32,
    /// Number of the other side's last request.
    pub remote_sequence: u32,
}

impl Dialog {
    /// Begins the dialog of a call that came in. `None` if the request names no agent.
    pub fn of_request(request: &Message, tag: String, (hop, fallback): (Hop, Option<Hop>)) -> Option<Self> {
        Some(Self {
            call_id: request.call_id.clone(),
            local: format!("{};tag={tag}", request.to.text),
            tag,
            remote: request.from.text.clone(),
            target: format!("{:?}", request.contact()?),
            routes: request.routes()?,
            hop,
            fallback,
            sequence: 0,
            remote_sequence: request.sequence.cseq,
        })
    }

    /// Begins the dialog of a call out that `answer` answers.
    pub fn of_answer(answer: &Message, (hop, fallback): (Hop, Option<Hop>)) -> Self {
        let to = &answer.to.text;
        let target = answer.contact().map(|contact| format!("{contact:?}"));
        Self {
            call_id: answer.call_id.clone(),
            tag: answer.from.tag.clone().unwrap_or_default(),
            local: answer.from.text.clone(),
            remote: to.clone(),
            target: target.unwrap_or_else(|| {
                to.split_once('<').map_or(&**to, |(_, uri)| uri).split('>').next().unwrap_or_default().to_owned()
            }),
            routes: reversed(answer.routes().unwrap_or_default()),
            hop,
            fallback,
            sequence: answer.sequence.cseq,
            remote_sequence: 0,
        }
    }

    /// True for a message of this dialog's other side.
    pub fn is_with(&self, message: &Message) -> bool {
        self.remote == message.to.text
    }

    /// Writes the confirmation of the answer to a call out, from our address `local`.
    pub fn acknowledge(&mut self, branch: &str, local: Hop) -> Bytes {
        // It has the number of the request.
        self.sequence = self.sequence.saturating_sub(1);
        self.request("ACK", branch, local, &[])
    }

    /// Takes over the other side's agent from a request or response that refreshes it.
    pub fn refresh(&mut self, message: &Message) {
        if let Some(contact) = message.contact() {
            self.target = format!("{contact:?}");
        }
    }

    /// Writes a request within the dialog, from our address `local`.
    pub fn request(&mut self, method: &str, branch: &str, local: Hop, headers: &[(&'static str, String)]) -> Bytes {
        self.sequence += 1;
        // Writing to a string cannot fail.
        let mut text = format!("{method} {} SIP/2.0\r\n{}", self.target, local.via(branch));
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

/// Routes of an answer, in the order of our requests: the last one first (RFC 3261, 12.1.2).
fn reversed(lines: Vec<String>) -> Vec<String> {
    let mut routes = Vec::new();
    for line in lines {
        let (mut route, mut is_within) = (String::new(), false);
        for letter in line.chars() {
            match letter {
                '<' => is_within = true,
                '>' => is_within = false,
                _ => {}
            }
            if letter == ',' && !is_within {
                routes.push(std::mem::take(&mut route));
            } else {
                route.push(letter);
            }
        }
        routes.push(route);
    }
    routes.reverse();
    routes.iter().map(|route| route.trim().to_owned()).collect()
}
