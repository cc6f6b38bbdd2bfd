//! Memory of this process: resident pages, and allocated bytes.
//!
//! A test binary that bounds memory installs [`CountingAllocator`]:
//!
//! ```
//! #[global_allocator]
//! static ALLOCATOR: repartee_testkit::memory::CountingAllocator = repartee_testkit::memory::CountingAllocator;
//! # fn main() {}
//! ```
//!
//! Tests of one binary run in parallel, so a bound on one test counts only its thread ([`CountScope::Thread`]). If one
//! thread allocates bytes and another frees them, each counts its own part; only [`CountScope::Process`] is exact then.
//! Memory that a C library allocates itself is never counted.

#![allow(unsafe_code, reason = "a global allocator is one")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// Returns the resident memory of this process, in bytes.
pub fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux tells a process about itself");
    let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).and_then(|rest| {
        let number = rest.split_whitespace().next()?;
        number.parse::<u64>().ok()
    });
    kib.expect("a process knows its resident memory") * 1_024
}

/// Threads whose allocations are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CountScope {
    /// The calling thread only.
    Thread,
    /// All threads of the process.
    Process,
}

/// Allocated bytes and number of allocations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AllocationCounts {
    /// Allocated minus freed bytes; below zero for a thread that frees memory of other threads.
    pub live: i64,
    /// Number of allocations so far; a reallocation counts too.
    pub allocations: u64,
}

/// Returns the counts of `scope`.
///
/// # Panics
/// [`CountingAllocator`] is not the global allocator, so a bound would always hold.
pub fn counts(scope: CountScope) -> AllocationCounts {
    let process =
        AllocationCounts { live: LIVE.load(Ordering::Relaxed), allocations: ALLOCATIONS.load(Ordering::Relaxed) };
    assert!(
        process.allocations > 0,
        "memory is not counted in this test binary: make repartee_testkit::memory::CountingAllocator its \
         #[global_allocator]"
    );
    match scope {
        CountScope::Process => process,
        CountScope::Thread => THREAD.with(Cell::get),
    }
}

/// Growth of live memory since a starting point.
#[derive(Debug)]
pub struct MemoryGrowth {
    scope: CountScope,
    before: i64,
}

impl MemoryGrowth {
    /// Begins to measure `scope`; [`CountScope::Thread`] is the calling thread.
    ///
    /// # Panics
    /// As [`counts`].
    pub fn begin(scope: CountScope) -> Self {
        Self { scope, before: counts(scope).live }
    }

    /// Returns the growth in bytes since the beginning; negative if memory shrank.
    pub fn bytes(&self) -> i64 {
        counts(self.scope).live - self.before
    }
}

static LIVE: AtomicI64 = AtomicI64::new(0);
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    // No destructor and no lazy initialisation, so the allocator can use it at any time.
    static THREAD: Cell<AllocationCounts> = const { Cell::new(AllocationCounts { live: 0, allocations: 0 }) };
    /// Most live bytes since the beginning of [`peak_of`].
    static THREAD_PEAK: Cell<i64> = const { Cell::new(0) };
}

/// Runs `work`, and returns the most bytes that the calling thread held at once beyond those before.
///
/// # Panics
/// As [`counts`].
pub fn peak_of(work: impl FnOnce()) -> i64 {
    let before = counts(CountScope::Thread).live;
    THREAD_PEAK.set(before);
    work();
    THREAD_PEAK.get() - before
}

/// The system's allocator, with counts.
#[derive(Debug)]
pub struct CountingAllocator;

/// Adds `bytes`, which may be negative, and `allocations` to the counts.
fn count(bytes: i64, allocations: u64) {
    LIVE.fetch_add(bytes, Ordering::Relaxed);
    ALLOCATIONS.fetch_add(allocations, Ordering::Relaxed);
    THREAD.with(|thread| {
        let AllocationCounts { live, allocations: before } = thread.get();
        thread.set(AllocationCounts { live: live + bytes, allocations: before + allocations });
        THREAD_PEAK.set(THREAD_PEAK.get().max(live + bytes));
    });
}

// SAFETY: every call goes to the system's allocator with the caller's arguments; counting neither allocates nor panics.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller guarantees the preconditions of `System`.
        let pointer = unsafe { System.alloc(layout) };
        if !pointer.is_null() {
            count(layout.size() as i64, 1);
        }
        pointer
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        let pointer = unsafe { System.alloc_zeroed(layout) };
        if !pointer.is_null() {
            count(layout.size() as i64, 1);
        }
        pointer
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as above; `pointer` comes from `System`.
        let moved = unsafe { System.realloc(pointer, layout, size) };
        if !moved.is_null() {
            count(size as i64 - layout.size() as i64, 1);
        }
        moved
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above; `pointer` comes from `System`.
        unsafe { System.dealloc(pointer, layout) };
        count(-(layout.size() as i64), 0);
    }
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;

    use super::*;

    #[test]
    fn live_bytes_follow_allocation_growth_and_release() {
        let growth = MemoryGrowth::begin(CountScope::Thread);
        let mut bytes = black_box(Vec::<u8>::with_capacity(1_000));
        assert_eq!(growth.bytes(), 1_000);
        bytes.reserve_exact(5_000);
        assert_eq!(growth.bytes(), 5_000);
        bytes.shrink_to(0);
        assert_eq!(growth.bytes(), 0);
        let zeroed = black_box(vec![0_u64; 100]);
        assert_eq!(growth.bytes(), 800);
        drop(zeroed);
        assert_eq!(growth.bytes(), 0);
    }

    #[test]
    fn peak_remains_after_release() {
        let held = black_box(vec![0_u8; 5_000]);
        let peak = peak_of(|| {
            drop(black_box(vec![0_u8; 3_000]));
            drop(black_box(vec![0_u8; 2_000]));
        });
        assert_eq!(peak, 3_000);
        drop(held);
    }

    #[test]
    fn allocations_are_counted_by_thread() {
        let before = counts(CountScope::Thread).allocations;
        drop(black_box(Box::new(1_u64)));
        assert_eq!(counts(CountScope::Thread).allocations, before + 1);
        let elsewhere = std::thread::spawn(|| {
            let growth = MemoryGrowth::begin(CountScope::Thread);
            let held = black_box(vec![1_u8; 1 << 20]);
            assert!(growth.bytes() >= 1 << 20);
            held
        });
        let growth = MemoryGrowth::begin(CountScope::Thread);
        let held = elsewhere.join().unwrap();
        assert!(growth.bytes() < 1 << 19, "another thread's megabyte counts here");
        drop(held);
        assert!(growth.bytes() <= -(1 << 19), "freed here");
    }

    #[test]
    fn resident_memory_follows_touched_pages() {
        const SIZE: usize = 64 << 20;
        let before = resident();
        let pages = black_box(vec![1_u8; SIZE]);
        assert!(resident() >= before + SIZE as u64 / 2);
        drop(pages);
    }
}
