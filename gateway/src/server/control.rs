//! Control thread: a thread with a runtime of its own that accepts connections, answers health checks and metrics, and
//! runs the shutdown. Work on the server's runtime cannot delay it.

use std::future::Future;
use std::io;
use std::thread::JoinHandle as ThreadHandle;

use tokio::runtime::{Builder, Handle};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinHandle};

/// Thread with a runtime of its own. Dropping it ends its tasks and joins the thread.
#[derive(Debug)]
pub(super) struct ControlThread {
    runtime: Handle,
    /// Dropped to end the thread.
    end: Option<watch::Sender<()>>,
    thread: Option<ThreadHandle<()>>,
}

impl ControlThread {
    /// Starts the thread.
    pub fn start() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (end, mut ended) = watch::channel(());
        let run = move || {
            runtime.block_on(async move { while ended.changed().await.is_ok() {} });
            // A blocking task, such as the sending of traces, does not hold up the end.
            runtime.shutdown_background();
        };
        let thread = std::thread::Builder::new().name("control".to_owned()).spawn(run)?;
        Ok(Self { runtime: handle, end: Some(end), thread: Some(thread) })
    }

    /// Runs a task on the thread.
    pub fn spawn<T: Send + 'static>(&self, task: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
        self.runtime.spawn(task)
    }

    /// Enters the thread's runtime, for sockets that its tasks use.
    pub fn enter(&self) -> tokio::runtime::EnterGuard<'_> {
        self.runtime.enter()
    }
}

impl Drop for ControlThread {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            // A panic of a task was reported when it happened.
            let _ = thread.join();
        }
    }
}

/// Aborts a task of another runtime when dropped.
#[derive(Debug)]
pub(super) struct AbortOnDrop(pub AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}
