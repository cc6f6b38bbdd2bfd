//! A tick loop on a thread of its own, with the sessions that are placed on it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

use repartee_engine_api::{OpenError, SessionHandle, SessionPeer, Tenant, WakeSignal, link};

use crate::config::EngineConfig;
use crate::model::Model;
use crate::scheduler::{Gauges, Scheduler};
use crate::voices::VoiceRegistry;

/// A running tick loop. Dropping it ends its sessions and joins its thread.
#[derive(Debug)]
pub struct TickLoop {
    /// Upper bound of its sessions.
    pub slots: usize,
    /// Voices of its model.
    pub voices: Arc<VoiceRegistry>,
    /// Counters and gauges that its thread writes.
    pub gauges: Arc<Gauges>,
    /// Queue of new sessions; `None` only while dropping.
    arrivals: Option<flume::Sender<SessionPeer>>,
    wake: WakeSignal,
    thread: Option<JoinHandle<()>>,
}

/// Reason for which a loop takes no session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// All its slots are taken.
    Full,
    /// It has ended.
    Stopped,
}

impl Refusal {
    /// Error of an engine with so many slots.
    pub fn error(self, slots: usize) -> OpenError {
        match self {
            Self::Full => OpenError::Full { slots },
            Self::Stopped => OpenError::Stopped,
        }
    }
}

impl TickLoop {
    /// Starts the thread `name`, which the signal wakes.
    ///
    /// # Errors
    ///
    /// The operating system refuses the thread.
    pub fn start(
        name: String,
        model: Model,
        config: &EngineConfig,
        (wake, woken): (WakeSignal, flume::Receiver<()>),
    ) -> std::io::Result<Self> {
        let slots = model.slots.sessions;
        let gauges = Arc::new(Gauges::default());
        let (arrivals, arriving) = flume::bounded(slots);
        let mut scheduler = Scheduler::new(model, config, arriving, Arc::clone(&gauges));
        scheduler.read_forms_on_thread(wake.clone());
        let voices = scheduler.voices();
        let thread = std::thread::Builder::new().name(name).spawn(move || scheduler.run(&woken))?;
        Ok(Self { slots, voices, gauges, arrivals: Some(arrivals), wake, thread: Some(thread) })
    }

    /// Number of open sessions.
    pub fn open_sessions(&self) -> usize {
        self.gauges.open.load(Ordering::Acquire)
    }

    /// True if it serves.
    pub fn is_ready(&self) -> bool {
        self.gauges.ready.load(Ordering::Acquire) && self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// Opens a session of a tenant.
    pub fn open_for(&self, tenant: &Tenant) -> Result<SessionHandle, Refusal> {
        let arrivals = self.arrivals.as_ref().ok_or(Refusal::Stopped)?;
        let taken =
            self.gauges.open.fetch_update(Ordering::AcqRel, Ordering::Acquire, |n| (n < self.slots).then_some(n + 1));
        if taken.is_err() {
            return Err(Refusal::Full);
        }
        let (session, mut peer) = link(self.wake.clone());
        peer.tenant = tenant.clone();
        if arrivals.try_send(peer).is_err() {
            self.gauges.open.fetch_sub(1, Ordering::AcqRel);
            return Err(Refusal::Stopped);
        }
        self.wake.signal();
        Ok(session)
    }
}

impl Drop for TickLoop {
    fn drop(&mut self) {
        drop(self.arrivals.take());
        self.wake.signal();
        if let Some(thread) = self.thread.take() {
            // The loop reported its own panic when it happened.
            let _ = thread.join();
        }
    }
}
