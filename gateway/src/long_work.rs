//! Long computations, apart from the threads that calls wait for: decoding and parsing of what came at once. A few run
//! at a time in the process, and one for each caller, in pieces that let the work of others in between. Work whose
//! caller no longer waits stops after its piece. Their threads have a lower priority than those of calls and engine.

use std::collections::HashMap;
use std::io;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use thiserror::Error;
use tokio::runtime::{self, Handle, Runtime};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::admission::ClientIdentity;

/// Callers whose queues are remembered before those without work are removed.
const MAX_IDLE: usize = 64;
/// Nice value of the threads: beside a busy thread of a call or of the engine they have a tenth of a processor.
#[cfg(target_os = "linux")]
const NICE: nix::libc::c_int = 10;

/// Threads of long computations.
#[derive(Debug)]
pub struct LongWork {
    slots: Arc<Semaphore>,
    /// Runtime of the threads; `None` for those of the caller's runtime.
    threads: Option<Runtime>,
    /// Queue of each caller that has work.
    queues: Mutex<HashMap<ClientIdentity, Weak<Semaphore>>>,
}

/// Long computations of one caller.
#[derive(Debug, Clone)]
pub struct CallerWork {
    threads: Arc<LongWork>,
    caller: ClientIdentity,
}

impl CallerWork {
    /// Runs `work`; see [`LongWork::run`].
    ///
    /// # Errors
    ///
    /// `work` panicked.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut WorkPermit) -> T + Send + 'static,
    ) -> Result<T, LongWorkError> {
        self.threads.run(self.caller, work).await
    }
}

#[cfg(test)]
impl Default for CallerWork {
    /// Work of a caller on this machine, on threads of the test's runtime: its virtual clock waits for them.
    fn default() -> Self {
        let threads = LongWork { slots: Arc::new(Semaphore::new(1)), threads: None, queues: Mutex::default() };
        Arc::new(threads).of(ClientIdentity { address: [127, 0, 0, 1].into(), key: None })
    }
}

/// Nobody waits for the result any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("nobody waits for this work any more")]
pub struct Abandoned;

/// The computation panicked.
#[derive(Debug, Error)]
#[error("the computation failed: {0}")]
pub struct LongWorkError(#[from] tokio::task::JoinError);

/// Permission to compute, for one piece after another.
#[derive(Debug)]
pub struct WorkPermit {
    slots: Arc<Semaphore>,
    slot: Option<OwnedSemaphorePermit>,
    /// Queue of the caller, and its turn there.
    queue: Arc<Semaphore>,
    turn: Option<OwnedSemaphorePermit>,
    abandoned: Arc<AtomicBool>,
}

impl WorkPermit {
    /// Permission for work beside which there is no other, for the fuzz targets.
    pub(crate) fn alone() -> Self {
        let [slots, queue] = [1; 2].map(|permits| Arc::new(Semaphore::new(permits)));
        Self { slots, slot: None, queue, turn: None, abandoned: Arc::default() }
    }

    /// Ends a piece, and waits for something else before the next one: other work, of the same caller too, runs meanwhile.
    ///
    /// # Errors
    ///
    /// The caller no longer waits: the work has to end.
    pub fn wait<T>(&mut self, wait: impl FnOnce() -> T) -> Result<T, Abandoned> {
        (self.slot, self.turn) = (None, None);
        let done = wait();
        // The semaphore is never closed.
        self.turn = Handle::current().block_on(self.queue.clone().acquire_owned()).ok();
        self.pause()?;
        Ok(done)
    }

    /// Ends a piece: the work of others that waits runs first.
    ///
    /// # Errors
    ///
    /// The caller no longer waits: the work has to end.
    pub fn pause(&mut self) -> Result<(), Abandoned> {
        if self.abandoned.load(Ordering::Relaxed) {
            return Err(Abandoned);
        }
        self.slot = None;
        // The semaphore is fair, and never closed.
        self.slot = Handle::current().block_on(self.slots.clone().acquire_owned()).ok();
        Ok(())
    }
}

/// Marks work as abandoned if its caller stops to wait.
struct Waiting(Arc<AtomicBool>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl LongWork {
    /// Creates slots for half of the machine's processors: the rest stays with calls.
    ///
    /// # Errors
    ///
    /// The runtime of the threads cannot be built.
    pub fn new() -> io::Result<Arc<Self>> {
        let processors = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        Self::with_slots((processors / 2).max(1))
    }

    fn with_slots(slots: usize) -> io::Result<Arc<Self>> {
        let threads =
            runtime::Builder::new_current_thread().thread_name("long-work").on_thread_start(lower_priority).build()?;
        Ok(Arc::new(Self { slots: Arc::new(Semaphore::new(slots)), threads: Some(threads), queues: Mutex::default() }))
    }

    /// Returns the work of `caller`.
    pub fn of(self: &Arc<Self>, caller: ClientIdentity) -> CallerWork {
        CallerWork { threads: self.clone(), caller }
    }

    /// Runs `work` for `caller`, after its earlier work. If the future is dropped, work that has not begun never begins,
    /// and other work ends with its piece.
    ///
    /// # Errors
    ///
    /// `work` panicked.
    pub async fn run<T: Send + 'static>(
        &self,
        caller: ClientIdentity,
        work: impl FnOnce(&mut WorkPermit) -> T + Send + 'static,
    ) -> Result<T, LongWorkError> {
        // Neither semaphore is ever closed.
        let queue = self.queue(caller);
        let turn = queue.clone().acquire_owned().await.ok();
        let slot = self.slots.clone().acquire_owned().await.ok();
        let waiting = Waiting(Arc::default());
        let mut permit = WorkPermit { slots: self.slots.clone(), slot, queue, turn, abandoned: waiting.0.clone() };
        let done = move || {
            let done = work(&mut permit);
            drop(permit);
            done
        };
        let done = match &self.threads {
            Some(threads) => threads.spawn_blocking(done).await,
            None => tokio::task::spawn_blocking(done).await,
        };
        drop(waiting);
        Ok(done?)
    }

    /// Returns the caller's queue. The permits of its work keep it.
    fn queue(&self, caller: ClientIdentity) -> Arc<Semaphore> {
        let mut queues = self.queues();
        if queues.len() >= MAX_IDLE {
            queues.retain(|_, queue| queue.strong_count() > 0);
        }
        if let Some(queue) = queues.get(&caller).and_then(Weak::upgrade) {
            return queue;
        }
        let queue = Arc::new(Semaphore::new(1));
        queues.insert(caller, Arc::downgrade(&queue));
        queue
    }

    fn queues(&self) -> MutexGuard<'_, HashMap<ClientIdentity, Weak<Semaphore>>> {
        // A panic cannot leave the map half changed.
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for LongWork {
    fn drop(&mut self) {
        // Dropping it would wait for the work, which a runtime's thread may not.
        if let Some(threads) = self.threads.take() {
            threads.shutdown_background();
        }
    }
}

/// Lowers the priority of the current thread.
#[cfg(target_os = "linux")]
pub(crate) fn lower_priority() {
    // SAFETY: setpriority takes three numbers; the process 0 is the calling thread on Linux. If it fails, the priority stays.
    unsafe { nix::libc::setpriority(nix::libc::PRIO_PROCESS, 0, NICE) };
}

/// Other systems lower the priority of a whole process only.
#[cfg(not(target_os = "linux"))]
pub(crate) fn lower_priority() {}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::mpsc;

    use super::*;

    fn caller(last: u8) -> ClientIdentity {
        ClientIdentity { address: [203, 0, 113, last].into(), key: None }
    }

    /// Polls `work` until it runs on its thread, which `began` tells.
    async fn begin<T>(work: &mut (impl Future<Output = T> + Unpin), began: &mpsc::Receiver<()>) {
        while began.try_recv().is_err() {
            assert!(futures_util::poll!(&mut *work).is_pending());
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn a_caller_computes_one_thing_at_a_time() {
        let threads = LongWork::with_slots(2).unwrap();
        let (begins, began) = mpsc::sync_channel(4);
        let (go_on, wait) = mpsc::sync_channel::<()>(4);
        let mut first = Box::pin(threads.run(caller(1), move |_| (begins.send(()).unwrap(), wait.recv())));
        begin(&mut first, &began).await;
        // A slot is free, but not for this caller.
        let mut second = Box::pin(threads.run(caller(1), |_| 2));
        assert!(futures_util::poll!(&mut second).is_pending());
        assert_eq!(threads.slots.available_permits(), 1);
        assert_eq!(threads.run(caller(2), |_| 3).await.unwrap(), 3);
        go_on.send(()).unwrap();
        first.await.unwrap().1.unwrap();
        assert_eq!(second.await.unwrap(), 2);
    }

    #[tokio::test]
    async fn pieces_let_the_work_of_others_in_between() {
        let threads = LongWork::with_slots(1).unwrap();
        let (begins, began) = mpsc::sync_channel(4);
        let (go_on, wait) = mpsc::sync_channel::<()>(4);
        let (order, ran) = mpsc::sync_channel(4);
        let long = order.clone();
        let mut first = Box::pin(threads.run(caller(1), move |permit| {
            begins.send(()).unwrap();
            wait.recv().unwrap();
            permit.pause().unwrap();
            long.send("long").unwrap();
        }));
        begin(&mut first, &began).await;
        let mut short = Box::pin(threads.run(caller(2), move |_| order.send("short").unwrap()));
        assert!(futures_util::poll!(&mut short).is_pending());
        go_on.send(()).unwrap();
        tokio::try_join!(first, short).unwrap();
        assert_eq!(ran.iter().collect::<Vec<_>>(), ["short", "long"]);
    }

    #[tokio::test]
    async fn waiting_work_keeps_nobody_out() {
        let threads = LongWork::with_slots(1).unwrap();
        let (begins, began) = mpsc::sync_channel(4);
        let (go_on, wait) = mpsc::sync_channel::<()>(4);
        let mut first = Box::pin(threads.run(caller(1), move |permit| {
            permit.wait(|| {
                begins.send(()).unwrap();
                wait.recv().unwrap();
            })
        }));
        begin(&mut first, &began).await;
        // Neither the slot nor the caller's turn is taken.
        assert_eq!(threads.run(caller(1), |_| 2).await.unwrap(), 2);
        go_on.send(()).unwrap();
        assert_eq!(first.await.unwrap(), Ok(()));
        assert_eq!(threads.run(caller(1), |_| 3).await.unwrap(), 3);
    }

    #[tokio::test]
    async fn abandoned_work_ends_with_its_piece() {
        let threads = LongWork::with_slots(1).unwrap();
        let (begins, began) = mpsc::sync_channel(4);
        let (go_on, wait) = mpsc::sync_channel::<()>(4);
        let (ends, ended) = mpsc::sync_channel(4);
        let mut work = Box::pin(threads.run(caller(1), move |permit| {
            begins.send(()).unwrap();
            wait.recv().unwrap();
            ends.send(permit.pause()).unwrap();
        }));
        begin(&mut work, &began).await;
        // Work that has not begun leaves no trace.
        let mut second = Box::pin(threads.run(caller(1), |_| panic!("nobody waits for this")));
        assert!(futures_util::poll!(&mut second).is_pending());
        drop((work, second));
        go_on.send(()).unwrap();
        assert_eq!(threads.run(caller(1), |_| 2).await.unwrap(), 2);
        assert_eq!(ended.recv().unwrap(), Err(Abandoned));
        assert!(threads.queues().len() <= 1);
    }

    /// Nice value of the current thread.
    #[cfg(target_os = "linux")]
    pub(crate) fn nice() -> i64 {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        // Behind the name, which may have spaces.
        stat.rsplit(')').next().unwrap().split_whitespace().nth(16).unwrap().parse().unwrap()
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn long_work_has_a_lower_priority() {
        let before = nice();
        let threads = LongWork::with_slots(1).unwrap();
        assert_eq!(threads.run(caller(1), |_| nice()).await.unwrap(), i64::from(NICE).max(before));
        assert_eq!(nice(), before, "only there");
    }

    #[tokio::test]
    async fn panics_free_the_slot() {
        let threads = LongWork::with_slots(1).unwrap();
        threads.run(caller(1), |_| panic!("broken")).await.unwrap_err();
        assert_eq!(threads.run(caller(1), |_| 2).await.unwrap(), 2);
    }
}
