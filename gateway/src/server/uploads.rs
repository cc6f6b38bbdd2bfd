//! Bodies of requests in memory, within the [budget of bytes](crate::byte_budget).

use axum::body::Body;
use axum::body::HttpBody as _;
use axum::http::StatusCode;
use bytes::Bytes;
use futures_util::StreamExt as _;
use repartee_protocol::{ErrorBody, ErrorKind};

use super::api_error::ApiError;
use super::app::AppState;
use super::caller::Caller;
use crate::byte_budget::{ByteBudgetError, ByteCharge};
use crate::long_work::WorkPermit;

/// Memory that is taken for the first bytes of a body.
const FIRST: usize = 4 << 10;
/// Largest body that is parsed at once, in bytes; a larger one is parsed apart from calls.
const MAX_AT_ONCE: usize = 16 << 10;

/// Body of a request, with the charge of its bytes: hold it as long as anything of that size is held.
#[derive(Debug)]
pub(super) struct HeldBody {
    /// Body as it was sent.
    pub bytes: Bytes,
    /// Memory that is counted for the body and for all that comes of it.
    pub charge: ByteCharge,
}

/// Error of reading a body.
#[derive(Debug)]
enum BodyError {
    NoRoom(ByteBudgetError),
    Refused(ApiError),
}

impl AppState {
    /// Reads a body of at most `limit` bytes.
    pub(super) async fn read_body(&self, caller: &Caller, body: Body, limit: usize) -> Result<HeldBody, ApiError> {
        read(body, self.begin_bytes(caller), limit).await.map_err(|error| match error {
            BodyError::NoRoom(error) => self.no_room(error),
            BodyError::Refused(error) => error,
        })
    }

    /// Begins to count the bytes of a request or a connection of this caller.
    pub(super) fn begin_bytes(&self, caller: &Caller) -> ByteCharge {
        self.bytes.begin(caller.client, caller.ephemeral, self.keys().len())
    }

    /// Counts a refusal by the budget of bytes.
    pub(super) fn count_no_room(&self) {
        self.metrics.requests.refused.with_label_values(&["bytes"]).inc();
    }

    /// Counts a refusal by the budget of bytes and returns its error.
    pub(super) fn no_room(&self, error: ByteBudgetError) -> ApiError {
        self.count_no_room();
        let status = match error {
            ByteBudgetError::Full(_) => StatusCode::SERVICE_UNAVAILABLE,
            ByteBudgetError::Share(..) => StatusCode::TOO_MANY_REQUESTS,
        };
        ApiError::new(status, error.body()).retry_after(error.retry_after())
    }

    /// Parses a body by `parse`: a small one at once, a large one apart from calls, after the caller's earlier ones.
    pub(super) async fn parse_body<T: Send + 'static>(
        &self,
        caller: &Caller,
        body: Bytes,
        parse: impl FnOnce(Bytes) -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        if body.len() <= MAX_AT_ONCE {
            return Ok(parse(body));
        }
        self.long_work(caller, move |_| parse(body)).await
    }

    /// Computes `work` apart from calls, after the caller's earlier work.
    pub(super) async fn long_work<T: Send + 'static>(
        &self,
        caller: &Caller,
        work: impl FnOnce(&mut WorkPermit) -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        let done = self.long_work.run(caller.client, work).await;
        done.map_err(|error| ApiError::internal(&error.to_string()))
    }
}

/// Reads a body of at most `limit` bytes. The charge covers the memory that is taken, before it is taken.
async fn read(body: Body, mut charge: ByteCharge, limit: usize) -> Result<HeldBody, BodyError> {
    let refuse = |status, kind, message: String| {
        Err(BodyError::Refused(ApiError::new(status, ErrorBody::invalid(kind, message))))
    };
    let too_large = || {
        let message = format!("a request holds at most {limit} bytes");
        refuse(StatusCode::PAYLOAD_TOO_LARGE, ErrorKind::TooLarge, message)
    };
    let announced = body.size_hint();
    if announced.lower() > limit as u64 {
        return too_large();
    }
    let most = announced.upper().and_then(|upper| usize::try_from(upper).ok()).map_or(limit, |upper| upper.min(limit));
    let (mut stream, mut whole) = (body.into_data_stream(), Vec::new());
    while let Some(piece) = stream.next().await {
        let piece = match piece {
            Ok(piece) => piece,
            Err(error) => {
                let message = format!("the request could not be read: {error}");
                return refuse(StatusCode::BAD_REQUEST, ErrorKind::InvalidValue, message);
            }
        };
        let length = whole.len() + piece.len();
        if length > limit {
            return too_large();
        }
        if length > whole.capacity() {
            // Doubles, but not beyond what the body can need.
            let capacity = (2 * whole.capacity()).max(FIRST).min(most).max(length);
            charge.set(capacity).map_err(BodyError::NoRoom)?;
            whole.reserve_exact(capacity - whole.len());
        }
        whole.extend_from_slice(&piece);
    }
    Ok(HeldBody { bytes: whole.into(), charge })
}

#[cfg(test)]
mod tests {
    use futures_util::stream;

    use super::*;
    use crate::admission::ClientIdentity;
    use crate::byte_budget::ByteBudget;

    fn phone() -> ClientIdentity {
        ClientIdentity { address: [203, 0, 113, 7].into(), key: None }
    }

    #[tokio::test]
    async fn a_body_is_charged_for_its_memory() {
        let budget = ByteBudget::new(160 << 10);
        let begin = || budget.begin(phone(), None, 0);
        let held = read(Body::from("twelve bytes"), begin(), 12).await.unwrap();
        assert_eq!((&*held.bytes, budget.total()), (&b"twelve bytes"[..], 12));
        drop(held);
        assert_eq!(budget.total(), 0);
        assert!(matches!(read(Body::from("twelve bytes"), begin(), 11).await, Err(BodyError::Refused(_))));
        let large = || Body::from("x".repeat(24 << 10));
        let _first = read(large(), begin(), 64 << 10).await.unwrap();
        let second = read(large(), begin(), 64 << 10).await;
        assert!(matches!(second, Err(BodyError::NoRoom(ByteBudgetError::Share(..)))));
        assert_eq!(budget.total(), 24 << 10);
    }

    #[tokio::test]
    async fn a_body_of_tiny_chunks_is_one_buffer() {
        let budget = ByteBudget::new(160 << 10);
        let chunks = stream::iter((0..10_000).map(|_| Ok::<_, std::convert::Infallible>(Bytes::from_static(b"a"))));
        let held = read(Body::from_stream(chunks), budget.begin(phone(), None, 0), 64 << 10).await.unwrap();
        assert_eq!(held.bytes.len(), 10_000);
        assert_eq!(budget.total(), 16 << 10, "the buffer doubles");
    }
}
