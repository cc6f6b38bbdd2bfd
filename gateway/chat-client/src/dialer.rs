//! Byte streams to servers: over TCP, or what a test puts in their place.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::sleep;

/// Time until the next address of a host is tried beside the one before (RFC 8305).
const STAGGER: Duration = Duration::from_millis(250);
/// Maximum addresses of a host that are tried.
const MAX_ADDRESSES: usize = 8;

/// Stream of bytes in both directions.
pub trait ByteStream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> ByteStream for T {}

/// Error of a dialer.
#[derive(Debug, Error)]
pub enum DialError {
    /// The host has no address.
    #[error("unknown host: {0}")]
    UnknownHost(io::Error),
    /// No address of the host can be reached; the error of the last one.
    #[error("cannot connect: {0}")]
    Connect(io::Error),
}

/// Opens streams. Dropping the future closes what it has opened.
#[async_trait]
pub trait Dialer: Send + Sync {
    /// Opens a stream to a host, which is a name or an address.
    ///
    /// # Errors
    /// The host is unknown or cannot be reached.
    async fn dial(&self, host: &str, port: u16) -> Result<Box<dyn ByteStream>, DialError>;
}

/// Dialer over TCP. It tries the addresses of a host one after another, each 250 ms after the one before or as soon as
/// that one has failed, and takes the first connection.
#[derive(Debug, Clone, Copy, Default)]
pub struct TcpDialer;

#[async_trait]
impl Dialer for TcpDialer {
    async fn dial(&self, host: &str, port: u16) -> Result<Box<dyn ByteStream>, DialError> {
        let found = lookup_host((host, port)).await.map_err(DialError::UnknownHost)?;
        let addresses = interleave(found.take(4 * MAX_ADDRESSES).collect());
        let stream = first_of(addresses, TcpStream::connect).await?;
        // Without it a small request waits for the acknowledgement of the one before.
        stream.set_nodelay(true).map_err(DialError::Connect)?;
        Ok(Box::new(stream))
    }
}

/// Orders addresses so that both families alternate, the resolver's first choice first.
fn interleave(addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let first_is_v6 = addresses.first().is_some_and(SocketAddr::is_ipv6);
    let (mut preferred, mut others) = (Vec::new(), Vec::new());
    for address in addresses {
        if address.is_ipv6() == first_is_v6 { preferred.push(address) } else { others.push(address) }
    }
    let mut others = others.into_iter();
    let mut ordered = Vec::new();
    for address in preferred {
        ordered.push(address);
        ordered.extend(others.next());
    }
    ordered.extend(others);
    ordered.truncate(MAX_ADDRESSES);
    ordered
}

/// Returns the first connection to one of the addresses.
async fn first_of<T, F>(addresses: Vec<SocketAddr>, connect: impl Fn(SocketAddr) -> F) -> Result<T, DialError>
where
    F: Future<Output = io::Result<T>>,
{
    let mut waiting = addresses.into_iter();
    let mut running = FuturesUnordered::new();
    let mut error = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    let Some(address) = waiting.next() else { return Err(DialError::UnknownHost(error)) };
    running.push(connect(address));
    loop {
        let stagger = sleep(STAGGER);
        tokio::select! {
            Some(result) = running.next() => match result {
                Ok(stream) => return Ok(stream),
                Err(failed) => error = failed,
            },
            () = stagger, if waiting.len() > 0 => {}
        }
        match waiting.next() {
            Some(address) => running.push(connect(address)),
            None if running.is_empty() => return Err(DialError::Connect(error)),
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::future::pending;

    use tokio::time::{Instant, timeout};

    use super::*;

    fn addresses(list: &[&str]) -> Vec<SocketAddr> {
        list.iter().map(|address| address.parse().unwrap()).collect()
    }

    #[test]
    fn address_families_alternate() {
        let found = addresses(&["[::1]:1", "[::2]:1", "1.1.1.1:1", "[::3]:1", "2.2.2.2:1"]);
        let expected = addresses(&["[::1]:1", "1.1.1.1:1", "[::2]:1", "2.2.2.2:1", "[::3]:1"]);
        assert_eq!(interleave(found), expected);
        assert_eq!(interleave(vec!["1.1.1.1:1".parse().unwrap(); 20]).len(), MAX_ADDRESSES);
    }

    #[tokio::test(start_paused = true)]
    async fn silent_address_delays_the_next_briefly() {
        let start = Instant::now();
        let tried = RefCell::new(Vec::new());
        let connected = first_of(addresses(&["[::1]:1", "1.1.1.1:1", "2.2.2.2:1"]), |address| {
            tried.borrow_mut().push(start.elapsed());
            async move { if address.port() == 1 && address.is_ipv6() { pending().await } else { Ok(address) } }
        });
        let connected = timeout(Duration::from_secs(10), connected).await.unwrap();
        assert_eq!(connected.unwrap(), "1.1.1.1:1".parse().unwrap());
        assert_eq!(*tried.borrow(), [Duration::ZERO, STAGGER]);
    }

    #[tokio::test(start_paused = true)]
    async fn failed_address_starts_the_next_at_once() {
        let start = Instant::now();
        let connected = first_of(addresses(&["1.1.1.1:1", "1.1.1.1:2", "1.1.1.1:3"]), |address| async move {
            if address.port() == 3 { Ok(address) } else { Err(io::ErrorKind::ConnectionRefused.into()) }
        });
        assert_eq!(connected.await.unwrap().port(), 3);
        assert_eq!(start.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn last_error_is_returned() {
        let refused = |_| async { Err::<(), _>(io::Error::from(io::ErrorKind::ConnectionRefused)) };
        let error = first_of(addresses(&["1.1.1.1:1", "1.1.1.1:2"]), refused).await.unwrap_err();
        assert!(matches!(error, DialError::Connect(error) if error.kind() == io::ErrorKind::ConnectionRefused));
        let error = first_of(Vec::new(), refused).await.unwrap_err();
        assert!(matches!(error, DialError::UnknownHost(_)));
    }
}
