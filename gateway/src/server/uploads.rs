//! Uploads in memory: bounded in bytes, all together and for each client. A client is charged only for bytes that it
//! has sent, so slow clients keep nobody out.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::body::Body;
use axum::http::StatusCode;
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt as _;
use repartee_protocol::{ErrorBody, ErrorKind};
use thiserror::Error;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::api_error::ApiError;
use crate::admission::limited_address;

/// Maximum number of uploads that are decoded at once.
const DECODERS: usize = 8;

/// Counts the bytes that uploads hold.
#[derive(Debug)]
pub(super) struct UploadBudget {
    limit: usize,
    share: usize,
    held: Mutex<HashMap<Option<IpAddr>, usize>>,
    decoders: Arc<Semaphore>,
}

/// The limit of upload bytes is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("too many uploads at once: try again in a moment")]
pub(super) struct UploadBudgetFull;

/// Bytes of one upload; released when dropped.
#[derive(Debug)]
pub(super) struct Upload {
    uploads: Arc<UploadBudget>,
    /// Client's address as limits [count](limited_address) it.
    address: Option<IpAddr>,
    bytes: usize,
}

/// Error of reading an upload.
#[derive(Debug)]
pub(super) enum UploadError {
    /// The server or the client's share is full.
    NoRoom(UploadBudgetFull),
    /// The upload itself is refused.
    Refused(ApiError),
}

impl UploadBudget {
    /// Creates limits of `limit` bytes in total and `share` bytes for one address.
    pub fn new(limit: usize, share: usize) -> Arc<Self> {
        Arc::new(Self { limit, share, held: Mutex::default(), decoders: Arc::new(Semaphore::new(DECODERS)) })
    }

    /// Starts an upload of this client with no bytes.
    pub fn begin(self: &Arc<Self>, address: IpAddr) -> Upload {
        Upload { uploads: self.clone(), address: limited_address(address), bytes: 0 }
    }

    /// Waits for a permit to decode a complete upload. Holders only decode, so the wait never depends on another
    /// client's network.
    pub async fn decoder(&self) -> Option<OwnedSemaphorePermit> {
        // The semaphore is never closed.
        self.decoders.clone().acquire_owned().await.ok()
    }

    fn held(&self) -> MutexGuard<'_, HashMap<Option<IpAddr>, usize>> {
        // A panic cannot leave the counts half changed.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Upload {
    /// Reads a body of at most `limit` bytes and charges its bytes.
    pub async fn read(&mut self, body: Body, limit: usize) -> Result<Bytes, UploadError> {
        let refuse = |status, kind, message: String| {
            Err(UploadError::Refused(ApiError::new(status, ErrorBody::invalid(kind, message))))
        };
        let (mut stream, mut whole) = (body.into_data_stream(), BytesMut::new());
        while let Some(piece) = stream.next().await {
            let piece = match piece {
                Ok(piece) => piece,
                Err(error) => {
                    let message = format!("the request could not be read: {error}");
                    return refuse(StatusCode::BAD_REQUEST, ErrorKind::InvalidValue, message);
                }
            };
            if whole.len() + piece.len() > limit {
                let message = format!("a request holds at most {limit} bytes");
                return refuse(StatusCode::PAYLOAD_TOO_LARGE, ErrorKind::TooLarge, message);
            }
            self.add(piece.len()).map_err(UploadError::NoRoom)?;
            whole.extend_from_slice(&piece);
        }
        Ok(whole.freeze())
    }

    /// Charges `bytes` more.
    fn add(&mut self, bytes: usize) -> Result<(), UploadBudgetFull> {
        let mut held = self.uploads.held();
        let total: usize = held.values().sum();
        let own = held.get(&self.address).copied().unwrap_or_default();
        // Clients on this machine share the whole limit.
        let share = if self.address.is_some() { self.uploads.share } else { self.uploads.limit };
        if total + bytes > self.uploads.limit || own + bytes > share {
            return Err(UploadBudgetFull);
        }
        held.insert(self.address, own + bytes);
        self.bytes += bytes;
        Ok(())
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        let mut held = self.uploads.held();
        if let Some(own) = held.get_mut(&self.address) {
            *own -= self.bytes;
            if *own == 0 {
                held.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uploads_are_bounded_by_bytes_and_share() {
        let uploads = UploadBudget::new(100, 40);
        let begin = |address: &str| uploads.begin(address.parse().unwrap());
        let (mut phone, mut again) = (begin("203.0.113.7"), begin("203.0.113.7"));
        phone.add(30).unwrap();
        again.add(10).unwrap();
        assert_eq!(again.add(1), Err(UploadBudgetFull), "the address has its share");
        let mut own = begin("127.0.0.1");
        own.add(60).unwrap();
        assert_eq!(begin("203.0.113.8").add(1), Err(UploadBudgetFull), "all room is taken");
        drop(phone);
        begin("203.0.113.8").add(30).unwrap();
        drop((again, own));
        assert!(uploads.held().is_empty());
    }

    #[tokio::test]
    async fn a_body_holds_what_has_come() {
        let uploads = UploadBudget::new(100, 40);
        let mut upload = uploads.begin([203, 0, 113, 7].into());
        assert_eq!(upload.read(Body::from("twelve bytes"), 12).await.unwrap(), "twelve bytes");
        assert_eq!(uploads.held().values().sum::<usize>(), 12);
        assert!(matches!(upload.read(Body::from("twelve bytes"), 11).await, Err(UploadError::Refused(_))));
        assert!(matches!(upload.read(Body::from("x".repeat(99)), 100).await, Err(UploadError::NoRoom(_))));
    }
}
