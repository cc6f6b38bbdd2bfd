//! A datagram, read as a SIP message within limits.

use bytes::Bytes;
use ezk_sip_types::header::HeaderParse as _;
use ezk_sip_types::header::typed::{CSeq, Contact, MaxForwards, Via};
use ezk_sip_types::msg::{Line, MessageLine, PullParser};
use ezk_sip_types::parse::Parse as _;
use ezk_sip_types::uri::SipUri;
use ezk_sip_types::{Headers, Method, Name};

use crate::bounds::{MAX_BYTES, MAX_HOPS, MAX_LINES, is_short};
use crate::error::MessageError;

/// First line of a message.
#[derive(Debug, Clone)]
pub enum FirstLine {
    /// Request, by its method.
    Request(Method),
    /// Response: its status.
    Response(u16),
}

/// Name, address and tag of one side, as `From` and `To` spell it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Party {
    /// The header's value.
    pub text: String,
    pub tag: Option<String>,
}

/// Joins the lines of a header that goes on in the next line; others, which is most, are not copied.
fn unfolded(line: Bytes) -> Bytes {
    if memchr::memchr2(b'\r', b'\n', &line).is_none() {
        return line;
    }
    line.iter().map(|byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { *byte }).collect()
}

/// Request or response, with the fields that calls use.
#[derive(Debug, Clone)]
pub struct Message {
    pub(crate) first: FirstLine,
    pub(crate) from: Party,
    pub(crate) to: Party,
    pub(crate) call_id: String,
    pub(crate) sequence: CSeq,
    /// The topmost `Via`, read; the others as they are.
    pub(crate) via: Via,
    pub(crate) other_vias: Vec<String>,
    pub(crate) headers: Headers,
    pub(crate) body: Bytes,
}

impl Message {
    /// Reads a datagram.
    ///
    /// # Errors
    ///
    /// See [`MessageError`]. Such a datagram gets no response.
    pub fn read(datagram: &Bytes) -> Result<Self, MessageError> {
        if datagram.len() > MAX_BYTES {
            return Err(MessageError::TooLarge);
        }
        let mut lines = PullParser::new(datagram, 0);
        let first = lines.next().ok_or(MessageError::FirstLine)?.map_err(|_| MessageError::Incomplete)?;
        let first = std::str::from_utf8(first).map_err(|_| MessageError::FirstLine)?;
        let (rest, first) = MessageLine::parse(datagram)(first).map_err(|_| MessageError::FirstLine)?;
        if !rest.trim().is_empty() {
            return Err(MessageError::FirstLine);
        }
        let first = match first {
            MessageLine::Request(line) => FirstLine::Request(line.method),
            MessageLine::Response(line) => FirstLine::Response(line.code.into_u16()),
        };
        let mut headers = Headers::new();
        for (index, line) in lines.by_ref().enumerate() {
            let number = index + 2;
            if number > MAX_LINES {
                return Err(MessageError::TooManyLines);
            }
            let line = line.map_err(|_| MessageError::Incomplete)?;
            // A line is a part of the datagram, as `slice_ref` demands.
            let line = unfolded(datagram.slice_ref(line));
            let text = std::str::from_utf8(&line).map_err(|_| MessageError::Header(number))?;
            let (_, Line { name, value }) = Line::parse(&line, text).map_err(|_| MessageError::Header(number))?;
            headers.insert(name, value);
        }
        let body = datagram.slice(lines.head_end().min(datagram.len())..);
        let body = match raw(&headers, &Name::CONTENT_LENGTH).next().map(str::parse::<usize>) {
            Some(Ok(length)) if length <= body.len() => body.slice(..length),
            Some(Ok(_)) => return Err(MessageError::Incomplete),
            Some(Err(_)) => return Err(MessageError::Field("Content-Length")),
            None => body,
        };
        let sequence = headers.get_named::<CSeq>().map_err(|_| MessageError::Field("CSeq"))?;
        if let FirstLine::Request(method) = &first
            && *method != sequence.method
        {
            return Err(MessageError::Field("CSeq"));
        }
        let (via, other_vias) = vias(&headers).ok_or(MessageError::Field("Via"))?;
        let call_id = raw(&headers, &Name::CALL_ID).next().filter(|id| !id.is_empty() && is_short(id));
        Ok(Self {
            from: party(&headers, &Name::FROM).ok_or(MessageError::Field("From"))?,
            to: party(&headers, &Name::TO).ok_or(MessageError::Field("To"))?,
            call_id: call_id.ok_or(MessageError::Field("Call-ID"))?.to_owned(),
            first,
            sequence,
            via,
            other_vias,
            headers,
            body,
        })
    }

    /// Values of a header, as they are.
    pub(crate) fn raw<'a>(&'a self, name: &'a Name) -> impl Iterator<Item = &'a str> {
        raw(&self.headers, name)
    }

    /// Address of the other side's agent (`Contact`).
    pub(crate) fn contact(&self) -> Option<SipUri> {
        self.headers.get_named::<Contact>().ok().map(|contact| contact.uri.uri)
    }

    /// `Record-Route`, in the order of the message; `None` if there are too many.
    pub(crate) fn routes(&self) -> Option<Vec<String>> {
        let routes: Vec<String> = self.raw(&Name::RECORD_ROUTE).take(MAX_HOPS + 1).map(str::to_owned).collect();
        (routes.len() <= MAX_HOPS && routes.iter().all(|route| is_short(route))).then_some(routes)
    }

    /// Remaining hops; `None` if the header is missing.
    pub(crate) fn max_forwards(&self) -> Option<u8> {
        self.headers.get_named::<MaxForwards>().ok().map(|hops| hops.0)
    }

    /// Branch of the topmost `Via`, which names the transaction.
    pub(crate) fn branch(&self) -> &str {
        self.via.params.get_val("branch").map_or("", |branch| branch.as_str())
    }

    /// True if the body is a session description.
    pub(crate) fn has_description(&self) -> bool {
        let is_sdp =
            |kind: &str| kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/sdp"));
        !self.body.is_empty() && self.raw(&Name::CONTENT_TYPE).next().is_some_and(is_sdp)
    }

    /// All headers, as they are: name and value.
    pub fn headers(&self) -> impl Iterator<Item = (&str, &str)> {
        self.headers.iter().map(|(name, value)| (name.as_print_str(), value.as_str()))
    }
}

fn raw<'a>(headers: &'a Headers, name: &Name) -> impl Iterator<Item = &'a str> {
    headers.get_raw(name).map(|value| value.as_str().trim())
}

/// Reads the topmost `Via`, with the rest of its line; `None` if there is none or too many.
fn vias(headers: &Headers) -> Option<(Via, Vec<String>)> {
    let mut values = headers.get_raw(&Name::VIA);
    let top = values.next()?;
    let (rest, via) = Via::parse(top.as_ref(), top).ok()?;
    let rest = rest.trim_start_matches([' ', ',', '\t']);
    let mut others: Vec<String> = Vec::new();
    if !rest.is_empty() {
        others.push(rest.to_owned());
    }
    others.extend(values.take(MAX_HOPS + 1).map(|via| via.as_str().to_owned()));
    (others.len() <= MAX_HOPS && others.iter().all(|via| is_short(via))).then_some((via, others))
}

/// Reads `From` or `To`. The address is kept as it is, so that `tel:` and names in any script come back unchanged.
fn party(headers: &Headers, name: &Name) -> Option<Party> {
    let text = raw(headers, name).next().filter(|text| !text.is_empty() && is_short(text))?;
    // Behind the address only parameters follow.
    let parameters = text.rfind('>').map_or(text, |end| &text[end + 1..]);
    let tag = parameters.split(';').skip(1).find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        name.trim().eq_ignore_ascii_case("tag").then(|| value.trim().to_owned())
    });
    Some(Party { text: text.to_owned(), tag })
}
