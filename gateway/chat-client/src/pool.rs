//! Unused connections, kept for the next request.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::connection::Connection;

/// Maximum number of unused connections.
const MAX_IDLE: usize = 16;

/// Pool of unused connections to one server.
#[derive(Debug)]
pub(crate) struct ConnectionPool {
    max_age: Duration,
    idle: Mutex<Vec<(Connection, Instant)>>,
}

impl ConnectionPool {
    /// Creates an empty pool. A connection that is unused for longer than `max_age` is closed.
    pub fn new(max_age: Duration) -> Self {
        Self { max_age, idle: Mutex::default() }
    }

    /// Takes the connection that was used last. It may have gone stale.
    pub fn take(&self) -> Option<Connection> {
        let mut idle = self.lock();
        idle.retain(|(connection, since)| !connection.sender.is_closed() && since.elapsed() < self.max_age);
        idle.pop().map(|(connection, _)| connection)
    }

    /// Keeps a connection whose last response was read to its end.
    pub fn put(&self, connection: Connection) {
        let mut idle = self.lock();
        if idle.len() < MAX_IDLE && !connection.sender.is_closed() {
            idle.push((connection, Instant::now()));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(Connection, Instant)>> {
        // A panic cannot leave the list half changed.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
