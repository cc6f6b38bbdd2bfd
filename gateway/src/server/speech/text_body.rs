//! Text that streams in as the body of a request.

use std::time::Duration;

use axum::body::{Body, BodyDataStream};
use axum::http::StatusCode;
use futures_util::StreamExt as _;
use repartee_protocol::{ErrorBody, ErrorKind};
use tokio::time::{Instant, timeout_at};

use super::super::api_error::ApiError;
use crate::read_text::MAX_TEXT;

/// Idle timeout of a text, because it holds a session.
const PATIENCE: Duration = Duration::from_secs(30);

/// Decoder of a text that streams in.
#[derive(Debug)]
pub(super) struct TextBody {
    body: BodyDataStream,
    /// Number of bytes so far.
    bytes: usize,
    /// Bytes of an incomplete UTF-8 character.
    begun: Vec<u8>,
    /// Time of the last received bytes.
    since: Instant,
    /// Deadline of the whole text; `None` for none.
    ends: Option<Instant>,
}

impl TextBody {
    /// Creates a decoder; the whole text may take `longest`.
    pub fn new(body: Body, longest: Option<Duration>) -> Self {
        let since = Instant::now();
        let ends = longest.map(|longest| since + longest);
        Self { body: body.into_data_stream(), bytes: 0, begun: Vec::new(), since, ends }
    }

    /// Returns more text, which may be empty; `None` once it is complete. Cancel safe.
    pub async fn next(&mut self) -> Result<Option<String>, ApiError> {
        let refuse = |status, kind, message: &str| {
            Err(ApiError::new(status, ErrorBody::invalid(kind, message).with_param("input")))
        };
        let silent = self.since + PATIENCE;
        let due = self.ends.map_or(silent, |ends| ends.min(silent));
        let Ok(next) = timeout_at(due, self.body.next()).await else {
            if due == silent {
                let message = format!("no text has arrived for {} s", PATIENCE.as_secs());
                return refuse(StatusCode::REQUEST_TIMEOUT, ErrorKind::SessionIdle, &message);
            }
            let message = "the text has taken as long as a call may last";
            return refuse(StatusCode::REQUEST_TIMEOUT, ErrorKind::SessionExpired, message);
        };
        let bytes = match next {
            Some(Ok(bytes)) => bytes,
            Some(Err(error)) => {
                let message = format!("the text could not be read: {error}");
                return refuse(StatusCode::BAD_REQUEST, ErrorKind::InvalidValue, &message);
            }
            None if self.begun.is_empty() => return Ok(None),
            None => {
                return refuse(StatusCode::BAD_REQUEST, ErrorKind::InvalidValue, "the text ends within a character");
            }
        };
        self.since = Instant::now();
        self.bytes += bytes.len();
        if self.bytes > MAX_TEXT {
            let message = "a text that streams in has at most 64 KiB";
            return refuse(StatusCode::PAYLOAD_TOO_LARGE, ErrorKind::TooLarge, message);
        }
        self.begun.extend_from_slice(&bytes);
        let whole = match std::str::from_utf8(&self.begun) {
            Ok(_) => self.begun.len(),
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            Err(_) => return refuse(StatusCode::BAD_REQUEST, ErrorKind::InvalidValue, "the text is not UTF-8"),
        };
        let rest = self.begun.split_off(whole);
        // The bytes were checked above.
        let text = String::from_utf8(std::mem::replace(&mut self.begun, rest)).unwrap_or_default();
        Ok(Some(text))
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use axum::response::IntoResponse as _;
    use bytes::Bytes;
    use futures_util::stream;

    use super::*;

    /// Creates a text that arrives in these pieces and then stalls.
    fn text(pieces: &'static [&[u8]]) -> TextBody {
        let pieces = stream::iter(pieces.iter().map(|piece| Ok::<_, Infallible>(Bytes::from_static(piece))));
        TextBody::new(Body::from_stream(pieces.chain(stream::pending())), Some(2 * PATIENCE))
    }

    /// Returns status and code of the error.
    fn refusal(result: Result<Option<String>, ApiError>) -> (u16, String) {
        let error = result.expect_err("an error");
        let code = error.code().to_owned();
        (error.into_response().status().as_u16(), code)
    }

    #[tokio::test]
    async fn characters_may_come_in_halves() {
        let mut body = text(&[b"sch\xc3", b"\xb6n"]);
        assert_eq!(body.next().await.unwrap().unwrap(), "sch");
        assert_eq!(body.next().await.unwrap().unwrap(), "ön");
        let mut body = TextBody::new(Body::from("sch\u{f6}n"), None);
        assert_eq!(body.next().await.unwrap().as_deref(), Some("schön"));
        assert_eq!(body.next().await.unwrap(), None);
        let mut body = TextBody::new(Body::from(&b"sch\xc3"[..]), None);
        assert_eq!(body.next().await.unwrap().as_deref(), Some("sch"));
        assert_eq!(refusal(body.next().await), (400, "invalid_value".to_owned()));
    }

    #[tokio::test(start_paused = true)]
    async fn stalled_and_endless_texts_are_given_up() {
        let mut body = text(&[b"one"]);
        body.next().await.unwrap();
        assert_eq!(refusal(body.next().await), (408, "session_idle".to_owned()));
        let words = stream::unfold((), async |()| {
            tokio::time::sleep(PATIENCE / 2).await;
            Some((Ok::<_, Infallible>(Bytes::from_static(b"and ")), ()))
        });
        let mut body = TextBody::new(Body::from_stream(words), Some(2 * PATIENCE));
        for _ in 0..3 {
            assert_eq!(body.next().await.unwrap().unwrap(), "and ");
        }
        // The fourth arrives at the same moment as the deadline.
        let ends = [body.next().await, body.next().await].into_iter().find(Result::is_err);
        assert_eq!(refusal(ends.expect("an end")), (408, "session_expired".to_owned()));
    }
}
