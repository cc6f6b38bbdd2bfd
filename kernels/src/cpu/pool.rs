//! A thread pool with a fixed number of threads, for closures over borrowed data.
//!
//! A region is one call of [`Pool::run`]. Any free thread takes its tasks, the caller's own included. If no other thread is free in time,
//! the caller does all of them, so a region never waits for a thread to wake. An idle worker spins for a tenth of a millisecond and then
//! sleeps. A task's result must not depend on its thread; then results do not depend on the number of threads.
//!
//! Regions nest: a task may open one. A caller that waits for the last tasks of its region helps only with deeper regions, so calls nest no
//! deeper than regions do.

use std::any::Any;
use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

/// Capacity of the ticket queue; a region that finds it full uses fewer threads.
const QUEUE: usize = 64;
/// Spins before a worker sleeps, and before a region's caller does: a tenth of a millisecond. Waking a thread takes half of that, and the
/// next region of a step is seldom further away.
const SPINS: usize = 4000;

thread_local! {
    /// Nesting depth of regions around this thread's current task.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

/// A pool of threads; dropping it ends them.
pub struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
}

impl Pool {
    /// Starts a pool of `threads` threads, the caller's own included: one less is started. 0 counts as 1. Fails if the system refuses a
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

    /// Largest number of threads that work on a region, the caller's own included.
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Number of regions so far that were offered to other threads.
    pub fn regions(&self) -> u64 {
        lock(&self.shared.queue).regions
    }

    /// Calls `task` once with each number below `count`, on several threads, and returns after all calls have returned.
    ///
    /// Tasks may use the pool themselves. They must not wait for each other, because one thread may run them all. A panic does not stop the
    /// other tasks; afterwards the panic of the lowest number resumes in the caller.
    pub fn run(&self, count: usize, task: impl Fn(usize) + Sync) {
        let region = Region {
            task: &task,
            count,
            depth: DEPTH.get() + 1,
            next: AtomicUsize::new(0),
            panics: Mutex::default(),
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

    /// Calls both closures concurrently and returns both results.
    pub fn join<A: Send, B: Send>(
        &self,
        first: impl FnOnce() -> A + Send,
        second: impl FnOnce() -> B + Send,
    ) -> (A, B) {
        let (first, second) = (Once::new(first), Once::new(second));
        self.run(2, |number| if number == 0 { first.call() } else { second.call() });
        (first.result(), second.result())
    }

    /// Calls `task` concurrently with each item and its index.
    pub fn for_each<T: Send>(&self, items: &mut [T], task: impl Fn(usize, &mut T) + Sync) {
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
            // The worker cannot have panicked: it catches the panics of its tasks.
            let _ = worker.join();
        }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("threads", &self.threads()).finish()
    }
}

/// Locks. No lock of this file is held while a caller's code runs, so none is poisoned.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A closure that is called once, on any thread, and its result.
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

/// Tasks of one call of [`Pool::run`], in that call's frame.
struct Region<'a> {
    task: &'a (dyn Fn(usize) + Sync),
    count: usize,
    /// Nesting depth of the region; 1 is outermost.
    depth: usize,
    /// Lowest number that no thread has taken.
    next: AtomicUsize,
    /// Panics of tasks, by number. Kept to the end: dropping one may panic again.
    panics: Mutex<Vec<(usize, Box<dyn Any + Send>)>>,
    /// Threads that took a ticket and have left; [`WAITING`] is added once the caller sleeps until the last of them.
    left: AtomicUsize,
}

/// Flag bit, far above the number of threads.
const WAITING: usize = 1 << (usize::BITS - 1);

impl Region<'_> {
    /// Runs tasks until none is left.
    fn work(&self) {
        let around = DEPTH.replace(self.depth);
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            if number >= self.count {
                break;
            }
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| (self.task)(number))) {
                lock(&self.panics).push((number, panic));
            }
        }
        DEPTH.set(around);
    }
}

/// Permit for one thread to join a region.
///
/// Invariant: while a ticket is in the queue, or a thread that took it has not counted itself in `left`, its region is alive. [`Pool::run`]
/// keeps it: between [`Shared::publish`] and the end of [`Shared::withdraw`] it neither returns nor unwinds.
struct Ticket {
    region: *const Region<'static>,
    /// Depth of the region.
    depth: usize,
}

// SAFETY: threads use a region through `&` alone, and everything in it is `Sync`.
unsafe impl Send for Ticket {}

impl Ticket {
    /// Works in the region and leaves it.
    fn work(self, shared: &Shared) {
        // SAFETY: the region is alive until this thread counts itself in `left`.
        unsafe { (*self.region).work() };
        // SAFETY: as above. The region may be freed right after this; nothing touches it later.
        let before = unsafe { (*self.region).left.fetch_add(1, Ordering::AcqRel) };
        if before & WAITING != 0 {
            // The caller checks `left` for the last time with this lock held: by now it sleeps, or sees the number.
            drop(lock(&shared.queue));
            shared.left.notify_all();
        }
    }
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    /// Depth of the deepest ticket in the queue, readable without the lock; 0 if it is empty.
    deepest: AtomicUsize,
    /// Wakes sleeping workers.
    published: Condvar,
    /// Wakes sleeping callers: the last thread has left their region, or there is a deeper one to help with.
    left: Condvar,
}

#[derive(Default)]
struct Queue {
    tickets: VecDeque<Ticket>,
    regions: u64,
    /// Workers that wait for `published`.
    sleeping: usize,
    /// Callers that wait for `left`.
    callers: usize,
    closed: bool,
}

impl Queue {
    /// Takes the oldest ticket of a region deeper than `depth`.
    fn take(&mut self, depth: usize) -> Option<Ticket> {
        let at = self.tickets.iter().position(|ticket| ticket.depth > depth)?;
        self.tickets.remove(at)
    }
}

impl Shared {
    /// Updates `deepest`. Call it after each change of the tickets, with the lock held.
    fn changed(&self, queue: &Queue) {
        let deepest = queue.tickets.iter().map(|ticket| ticket.depth).max();
        self.deepest.store(deepest.unwrap_or(0), Ordering::Relaxed);
    }

    /// Queues up to `places` tickets for `region`; returns how many fit.
    fn publish(&self, region: &Region<'_>, places: usize) -> usize {
        if places == 0 {
            return 0;
        }
        let mut queue = lock(&self.queue);
        queue.regions += 1;
        let places = places.min(QUEUE - queue.tickets.len());
        for _ in 0..places {
            let ticket = Ticket { region: std::ptr::from_ref(region).cast(), depth: region.depth };
            queue.tickets.push_back(ticket);
        }
        self.changed(&queue);
        let asleep = queue.sleeping.min(places);
        let callers = queue.callers > 0 && asleep < places;
        drop(queue);
        for _ in 0..asleep {
            self.published.notify_one();
        }
        if callers {
            self.left.notify_all();
        }
        places
    }

    /// Removes the unused tickets of `region`, and waits for the threads in it to leave.
    fn withdraw(&self, region: &Region<'_>, places: usize) {
        if places == 0 {
            return;
        }
        let mut queue = lock(&self.queue);
        let before = queue.tickets.len();
        queue.tickets.retain(|ticket| !std::ptr::addr_eq(ticket.region, region));
        let entered = places - (before - queue.tickets.len());
        self.changed(&queue);
        drop(queue);
        for _ in 0..SPINS {
            if region.left.load(Ordering::Acquire) == entered {
                return;
            }
            if self.deepest.load(Ordering::Relaxed) > region.depth {
                self.help(region.depth);
            }
            std::hint::spin_loop();
        }
        region.left.fetch_or(WAITING, Ordering::AcqRel);
        let mut queue = lock(&self.queue);
        while region.left.load(Ordering::Acquire) != WAITING | entered {
            if let Some(ticket) = queue.take(region.depth) {
                self.changed(&queue);
                drop(queue);
                ticket.work(self);
                queue = lock(&self.queue);
            } else {
                queue.callers += 1;
                queue = self.left.wait(queue).unwrap_or_else(PoisonError::into_inner);
                queue.callers -= 1;
            }
        }
    }

    /// Works in a region deeper than `depth`, if there is one.
    fn help(&self, depth: usize) {
        let mut queue = lock(&self.queue);
        let ticket = queue.take(depth);
        self.changed(&queue);
        drop(queue);
        if let Some(ticket) = ticket {
            ticket.work(self);
        }
    }

    /// Main loop of a worker, until the pool is dropped.
    fn work(&self) {
        while let Some(ticket) = self.next() {
            ticket.work(self);
        }
    }

    /// Takes the next ticket, and waits for one; `None` once the pool is dropped.
    fn next(&self) -> Option<Ticket> {
        for _ in 0..SPINS {
            if self.deepest.load(Ordering::Relaxed) > 0 {
                break;
            }
            std::hint::spin_loop();
        }
        let mut queue = lock(&self.queue);
        loop {
            if let Some(ticket) = queue.take(0) {
                self.changed(&queue);
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
