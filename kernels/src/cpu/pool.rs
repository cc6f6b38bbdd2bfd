//! A fixed number of threads that run closures side by side, over data that the caller lends them.
//!
//! A region is a call of [`Pool::run`]: its tasks go to whichever thread is free, the caller's own among them. Where no other thread is
//! free in time, the caller does everything itself, so a region never waits for a thread to wake. A worker without work spins for a
//! few microseconds and then sleeps. What a task computes must not depend on the thread that it runs on: then results do
//! not depend on how many there are.

use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle, Thread};

/// Tickets that wait at most; a region that finds no room for more does with fewer threads.
const QUEUE: usize = 64;
/// Looks at the queue before a worker sleeps, and at a region before its caller does: some ten microseconds.
const SPINS: usize = 500;

/// Threads that run closures side by side; dropping it ends them.
pub struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
}

impl Pool {
    /// `threads` threads, the caller's own among them: one less is started. 0 counts as 1. Fails where the system refuses a
    /// thread.
    pub fn new(threads: usize) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let mut pool = Self { shared, workers: Vec::with_capacity(threads.saturating_sub(1)) };
        for i in 1..threads {
            let shared = Arc::clone(&pool.shared);
            let worker = thread::Builder::new().name(format!("kernels-{i}")).spawn(move || shared.work())?;
            pool.workers.push(worker);
        }
        Ok(pool)
    }

    /// How many threads work on a region at most, the caller's own among them.
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Calls `task` once with each number below `count`, on several threads, and returns when all calls have returned.
    ///
    /// Tasks may use the pool themselves. They must not wait for each other: one thread may run them all. A panic does not
    /// keep the other tasks from running; afterwards that of the lowest number goes on in the caller.
    pub fn run(&self, count: usize, task: impl Fn(usize) + Sync) {
        let region = Region {
            task: &task,
            count,
            next: AtomicUsize::new(0),
            panics: Mutex::default(),
            caller: thread::current(),
            left: AtomicUsize::new(0),
        };
        let published = self.shared.publish(&region, self.workers.len().min(count.saturating_sub(1)));
        region.work();
        // Nothing between these two calls unwinds: `work` catches panics and drops none.
        self.shared.withdraw(&region, published);
        let panics = region.panics.into_inner().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, panic)) = panics.into_iter().min_by_key(|(number, _)| *number) {
            resume_unwind(panic);
        }
    }

    /// Calls both closures side by side.
    pub fn join<A: Send, B: Send>(
        &self,
        first: impl FnOnce() -> A + Send,
        second: impl FnOnce() -> B + Send,
    ) -> (A, B) {
        let (first, second) = (Once::new(first), Once::new(second));
        self.run(2, |number| if number == 0 { first.call() } else { second.call() });
        (first.result(), second.result())
    }

    /// Calls `task` with each item and its index.
    pub fn each<T: Send>(&self, items: &mut [T], task: impl Fn(usize, &mut T) + Sync) {
        let count = items.len();
        let rest = Mutex::new(items.iter_mut().enumerate());
        self.run(count, |_| {
            let next = lock(&rest).next();
            if let Some((index, item)) = next {
                task(index, item);
            }
        });
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        lock(&self.shared.queue).closed = true;
        self.shared.published.notify_all();
        for worker in self.workers.drain(..) {
            // It cannot have panicked: it runs tasks alone, whose panics are caught.
            let _ = worker.join();
        }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("threads", &self.threads()).finish()
    }
}

/// No lock of this file is held while a caller's code runs, so none is poisoned.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A closure that is called once, from whichever thread, and what it returned.
struct Once<F, R>(Mutex<(Option<F>, Option<R>)>);

impl<F: FnOnce() -> R, R> Once<F, R> {
    fn new(closure: F) -> Self {
        Self(Mutex::new((Some(closure), None)))
    }

    fn call(&self) {
        let closure = lock(&self.0).0.take();
        let result = closure.map(|closure| closure());
        lock(&self.0).1 = result;
    }

    fn result(self) -> R {
        let (_, result) = self.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        result.expect("a region calls each of its tasks, or does not return")
    }
}

/// The tasks of one call of [`Pool::run`], in that call's frame.
struct Region<'a> {
    task: &'a (dyn Fn(usize) + Sync),
    count: usize,
    /// The lowest number that no thread has taken.
    next: AtomicUsize,
    /// Of the tasks that panicked. Kept to the end: dropping one may panic again.
    panics: Mutex<Vec<(usize, Box<dyn Any + Send>)>>,
    /// Who waits for the workers to leave.
    caller: Thread,
    /// Workers that took a ticket and have left; with [`WAITING`] once the caller sleeps until the last of them.
    left: AtomicUsize,
}

/// Far above the number of workers.
const WAITING: usize = 1 << (usize::BITS - 1);

impl Region<'_> {
    /// Runs tasks until none is left.
    fn work(&self) {
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            if number >= self.count {
                return;
            }
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| (self.task)(number))) {
                lock(&self.panics).push((number, panic));
            }
        }
    }
}

/// A place in a region for one worker.
///
/// Invariant: while a ticket is in the queue, or a worker that took it has not counted itself in `left`, its region is alive.
/// [`Pool::run`] keeps it: between [`Shared::publish`] and the end of [`Shared::withdraw`] it neither returns nor unwinds.
struct Ticket(*const Region<'static>);

// SAFETY: a region is used from several threads through `&` alone, and everything in it is `Sync`.
unsafe impl Send for Ticket {}

impl Ticket {
    /// Works in the region and leaves it.
    fn work(self) {
        // SAFETY: the region is alive until this worker counts itself in `left`.
        let caller = unsafe {
            (*self.0).work();
            (*self.0).caller.clone()
        };
        // SAFETY: as above. The region may be gone as soon as this has happened: nothing touches it after.
        let before = unsafe { (*self.0).left.fetch_add(1, Ordering::AcqRel) };
        if before & WAITING != 0 {
            caller.unpark();
        }
    }
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    /// Tickets in the queue, to look at without its lock.
    waiting: AtomicUsize,
    published: Condvar,
}

#[derive(Default)]
struct Queue {
    tickets: VecDeque<Ticket>,
    /// Workers that wait for `published`.
    sleeping: usize,
    closed: bool,
}

impl Shared {
    /// Offers places in `region` to so many workers; returns how many there was room for.
    fn publish(&self, region: &Region<'_>, places: usize) -> usize {
        if places == 0 {
            return 0;
        }
        let mut queue = lock(&self.queue);
        let places = places.min(QUEUE - queue.tickets.len());
        for _ in 0..places {
            queue.tickets.push_back(Ticket(std::ptr::from_ref(region).cast()));
        }
        self.waiting.store(queue.tickets.len(), Ordering::Relaxed);
        let asleep = queue.sleeping.min(places);
        drop(queue);
        for _ in 0..asleep {
            self.published.notify_one();
        }
        places
    }

    /// Takes back the places of `region` that no worker has taken, and waits for those that did to leave it.
    fn withdraw(&self, region: &Region<'_>, places: usize) {
        if places == 0 {
            return;
        }
        let mut queue = lock(&self.queue);
        let before = queue.tickets.len();
        queue.tickets.retain(|ticket| !std::ptr::addr_eq(ticket.0, region));
        let entered = places - (before - queue.tickets.len());
        self.waiting.store(queue.tickets.len(), Ordering::Relaxed);
        drop(queue);
        for _ in 0..SPINS {
            if region.left.load(Ordering::Acquire) == entered {
                return;
            }
            std::hint::spin_loop();
        }
        let mut left = region.left.fetch_or(WAITING, Ordering::AcqRel) | WAITING;
        while left != WAITING | entered {
            thread::park();
            left = region.left.load(Ordering::Acquire);
        }
    }

    /// What a worker does until the pool is dropped.
    fn work(&self) {
        while let Some(ticket) = self.next() {
            ticket.work();
        }
    }

    /// The next ticket; `None` when the pool is dropped.
    fn next(&self) -> Option<Ticket> {
        for _ in 0..SPINS {
            if self.waiting.load(Ordering::Relaxed) > 0 {
                break;
            }
            std::hint::spin_loop();
        }
        let mut queue = lock(&self.queue);
        loop {
            if let Some(ticket) = queue.tickets.pop_front() {
                self.waiting.store(queue.tickets.len(), Ordering::Relaxed);
                return Some(ticket);
            }
            if queue.closed {
                return None;
            }
            queue.sleeping += 1;
            queue = self.published.wait(queue).unwrap_or_else(PoisonError::into_inner);
            queue.sleeping -= 1;
        }
    }
}
