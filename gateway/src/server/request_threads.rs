//! Threads of requests: a runtime of their own, whose threads have a lower priority than those of calls and of the engine.
//!
//! Connections, TLS, heads, keys, refusals and answers over HTTP are their work. A flood of requests takes the
//! processors from other requests, and from calls only what they leave. A websocket goes on on the threads of calls
//! ([`MovingSocket`](super::moving_socket::MovingSocket)).

use std::io;

use tokio::runtime::{Builder, Handle, Runtime};

use crate::long_work::lower_priority;

/// Runtime of requests. Dropping it ends its tasks, without a wait for them.
#[derive(Debug)]
pub(super) struct RequestThreads {
    handle: Handle,
    /// Taken when dropped.
    runtime: Option<Runtime>,
}

impl RequestThreads {
    /// Starts a thread for each processor.
    pub fn start() -> io::Result<Self> {
        let mut builder = Builder::new_multi_thread();
        builder.enable_all().thread_name("requests").on_thread_start(lower_priority);
        let runtime = builder.build()?;
        Ok(Self { handle: runtime.handle().clone(), runtime: Some(runtime) })
    }

    /// Returns the runtime's handle.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }
}

impl Drop for RequestThreads {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // Not waited for: it may be dropped on a thread of another runtime.
            runtime.shutdown_background();
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use crate::long_work::tests::nice;

    #[tokio::test]
    async fn requests_have_a_lower_priority() {
        let threads = RequestThreads::start().unwrap();
        let there = threads.handle().spawn(async { nice() }).await.unwrap();
        assert!(there > nice(), "{there}");
    }
}
