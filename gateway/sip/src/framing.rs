//! Messages on a connection: each has the length that its `Content-Length` says (RFC 3261, 18.3), within the bounds of a
//! datagram.

use bytes::Bytes;

use crate::bounds::MAX_BYTES;
use crate::error::FramingError;

/// End of a message's head.
const HEAD_END: &[u8] = b"\r\n\r\n";

/// Something that a connection carries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    /// Bytes of one message.
    Message(Bytes),
    /// Probe of the connection, which one line end answers (RFC 5626, 4.4.1).
    Ping,
}

/// Bytes of a connection, cut into messages. Holds at most one message that is incomplete, and what was pushed behind it.
#[derive(Debug, Default)]
pub struct Framing {
    buffer: Vec<u8>,
    /// Bytes at the start that have no end of a head.
    searched: usize,
}

impl Framing {
    /// Adds bytes that came. Call [`Self::take`] until it returns `None` before adding others.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// True if a message has begun and is not complete.
    pub fn is_within_message(&self) -> bool {
        self.buffer.iter().any(|byte| !matches!(byte, b'\r' | b'\n'))
    }

    /// Takes the next message or probe; `None` if more bytes are needed.
    ///
    /// # Errors
    ///
    /// Nobody can tell where the next message begins: the connection has to end.
    pub fn take(&mut self) -> Result<Option<Frame>, FramingError> {
        loop {
            if self.buffer.starts_with(HEAD_END) {
                self.cut(HEAD_END.len());
                return Ok(Some(Frame::Ping));
            }
            // A line end alone is the answer to a probe.
            match *self.buffer.as_slice() {
                [b'\r', b'\n', next, ..] if next != b'\r' => self.cut(2),
                [b'\r', b'\n', b'\r', next, ..] if next != b'\n' => return Err(FramingError::Start),
                [b'\r', next, ..] if next != b'\n' => return Err(FramingError::Start),
                [b'\r', ..] | [] => return Ok(None),
                _ => break,
            }
        }
        let from = self.searched.saturating_sub(HEAD_END.len() - 1);
        let Some(end) = memchr::memmem::find(&self.buffer[from..], HEAD_END) else {
            self.searched = self.buffer.len();
            return if self.buffer.len() > MAX_BYTES { Err(FramingError::TooLarge) } else { Ok(None) };
        };
        let head = from + end + HEAD_END.len();
        self.searched = head - 1;
        let length = content_length(&self.buffer[..head]).and_then(|length| {
            // Checked here, so that a sum cannot overflow.
            if length > MAX_BYTES || head + length > MAX_BYTES {
                Err(FramingError::TooLarge)
            } else {
                Ok(head + length)
            }
        })?;
        if self.buffer.len() < length {
            return Ok(None);
        }
        let message = Bytes::copy_from_slice(&self.buffer[..length]);
        self.cut(length);
        Ok(Some(Frame::Message(message)))
    }

    fn cut(&mut self, length: usize) {
        self.buffer.drain(..length);
        self.searched = 0;
    }
}

/// Length of a message's body by its head.
fn content_length(head: &[u8]) -> Result<usize, FramingError> {
    let mut found = None;
    for line in head.split(|byte| *byte == b'\n') {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
        let (name, value) = (line[..colon].trim_ascii_end(), line[colon + 1..].trim_ascii());
        if !name.eq_ignore_ascii_case(b"content-length") && !name.eq_ignore_ascii_case(b"l") {
            continue;
        }
        let is_number = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
        let text = std::str::from_utf8(value).ok().filter(|_| is_number).ok_or(FramingError::Length)?;
        let length: usize = text.parse().map_err(|_| FramingError::TooLarge)?;
        if found.is_some_and(|other| other != length) {
            return Err(FramingError::Length);
        }
        found = Some(length);
    }
    found.ok_or(FramingError::Length)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn message(name: &str, body: &str) -> String {
        format!("OPTIONS sip:a SIP/2.0\r\nTo: b\r\n{name}: {}\r\n\r\n{body}", body.len())
    }

    /// Frames of bytes that come in pieces of this length.
    fn frames(bytes: &[u8], piece: usize) -> Result<Vec<Frame>, FramingError> {
        let (mut framing, mut found) = (Framing::default(), Vec::new());
        for piece in bytes.chunks(piece) {
            framing.push(piece);
            while let Some(frame) = framing.take()? {
                found.push(frame);
            }
        }
        assert_eq!(framing.is_within_message(), framing.buffer.iter().any(|byte| byte.is_ascii_graphic()));
        Ok(found)
    }

    proptest! {
        #[test]
        fn any_division_gives_the_same_messages(piece in 1..200_usize) {
            let (first, second) = (message("Content-Length", "body\r\n\r\nof two lines"), message("l ", ""));
            let bytes = format!("{first}\r\n\r\n{second}\r\n{first}");
            let whole = |text: &str| Frame::Message(Bytes::copy_from_slice(text.as_bytes()));
            prop_assert_eq!(
                frames(bytes.as_bytes(), piece).unwrap(),
                vec![whole(&first), Frame::Ping, whole(&second), whole(&first)]
            );
        }
    }

    #[test]
    fn unclear_lengths_end_the_connection() {
        let with = |lines: &str| frames(format!("OPTIONS sip:a SIP/2.0\r\n{lines}\r\n").as_bytes(), 7).unwrap_err();
        for lines in
            ["", "Content-Length: \r\n", "Content-Length: -1\r\n", "l: 1\r\nContent-Length: 2\r\n", "l: +1\r\n"]
        {
            assert_eq!(with(lines), FramingError::Length, "{lines}");
        }
        for lines in ["l: 70000\r\n", "l: 18446744073709551616\r\n", &format!("l: {}\r\n", usize::MAX)] {
            assert_eq!(with(lines), FramingError::TooLarge, "{lines}");
        }
        let endless = "X: y\r\n".repeat(MAX_BYTES / 6 + 1);
        assert_eq!(frames(endless.as_bytes(), 1_000).unwrap_err(), FramingError::TooLarge);
        assert_eq!(frames(b"\rOPTIONS", 7).unwrap_err(), FramingError::Start);
    }
}
