//! Signals that end the process, on a thread of their own: the first begins the shutdown. The process exits at a
//! deadline, or at a second signal, whatever the other threads do.

use std::future::Future;
use std::io;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::time::timeout;

use super::readiness::ShutdownProgress;

/// Time for calls, connections and traces to end after the drain.
const AFTER_DRAIN: Duration = Duration::from_secs(3);
/// Exit code of a process that did not end in time.
const LATE: i32 = 1;

/// Thread that waits for SIGTERM and SIGINT.
#[derive(Debug)]
pub struct ShutdownSignals {
    begun: watch::Receiver<bool>,
    progress: Arc<OnceLock<ShutdownProgress>>,
}

/// Signals of this process.
struct EndSignals {
    interrupt: Signal,
    terminate: Signal,
}

impl EndSignals {
    fn new() -> io::Result<Self> {
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    /// Waits for the next one.
    async fn next(&mut self) -> SignalKind {
        tokio::select! {
            _ = self.interrupt.recv() => SignalKind::interrupt(),
            _ = self.terminate.recv() => SignalKind::terminate(),
        }
    }
}

impl ShutdownSignals {
    /// Starts the thread; returns once the signals no longer end the process by themselves. After the first one the
    /// process has `drain` and three seconds.
    pub fn start(drain: Duration) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let mut signals = {
            let _entered = runtime.enter();
            EndSignals::new()?
        };
        let (begin, begun) = watch::channel(false);
        let progress = Arc::<OnceLock<ShutdownProgress>>::default();
        let told = progress.clone();
        let wait = async move {
            signals.next().await;
            tracing::info!("shutting down");
            begin.send_replace(true);
            let deadline = drain + AFTER_DRAIN;
            match timeout(deadline, signals.next()).await {
                Ok(second) => {
                    tracing::warn!("ending at once, at a second signal");
                    // The code of a process that the signal ended, as a shell reports it.
                    std::process::exit(128 + second.as_raw_value());
                }
                Err(_) => {
                    let left = told.get().map_or("the model loads", ShutdownProgress::left);
                    let seconds = deadline.as_secs_f64();
                    tracing::error!(seconds, "the shutdown took too long and is cut off: {left}");
                    std::process::exit(LATE);
                }
            }
        };
        std::thread::Builder::new().name("shutdown".to_owned()).spawn(move || runtime.block_on(wait))?;
        Ok(Self { begun, progress })
    }

    /// Completes at the first signal.
    pub fn begun(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut begun = self.begun.clone();
        async move {
            // An error means that the thread panicked, which was reported; the process goes on without a clean end.
            if begun.wait_for(|begun| *begun).await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Sets what the log tells about a shutdown that takes too long.
    pub fn watch(&self, progress: ShutdownProgress) {
        // It is set once, because a process serves once.
        let _ = self.progress.set(progress);
    }
}
