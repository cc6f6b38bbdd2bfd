//! Memory that this process holds: resident pages, and what the allocator has handed out.
//!
//! A test binary that bounds memory installs [`CountingAllocator`]:
//!
//! ```
//! #[global_allocator]
//! static ALLOCATOR: repartee_testkit::memory::CountingAllocator = repartee_testkit::memory::CountingAllocator;
//! # fn main() {}
//! ```
//!
//! Tests of one binary run beside each other, so that a bound on one test counts its thread alone ([`Scope::Thread`]). Bytes
//! that one thread allocates and another frees count as they fall; only [`Scope::Process`] is exact for those. Memory that a C
//! library allocates for itself is never counted.

#![allow(unsafe_code, reason = "a global allocator is one")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// Resident memory of this process, in bytes.
pub fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux tells a process about itself");
    let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).and_then(|rest| {
        let number = rest.split_whitespace().next()?;
        number.parse::<u64>().ok()
    });
    kib.expect("a process knows its resident memory") * 1_024
}

/// Bytes and allocations that are counted together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CountScope {
    /// Those of the calling thread.
    Thread,
    /// Those of all threads.
    Process,
}

/// What the allocator has counted so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AllocationCounts {
    /// Bytes that are allocated and not freed; below zero for a thread that frees what others allocated.
    pub live: i64,
    /// Allocations ever made; one that grows or shrinks counts again.
    pub allocations: u64,
}

/// What is counted in `scope`.
///
/// # Panics
/// Where [`CountingAllocator`] is not the global allocator: a bound on nothing would always hold.
pub fn counts(scope: CountScope) -> AllocationCounts {
    let process = AllocationCounts { live: LIVE.load(Ordering::Relaxed), allocations: ALLOCATIONS.load(Ordering::Relaxed) };
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

/// The growth of live memory since a moment.
#[derive(Debug)]
pub struct MemoryGrowth {
    scope: CountScope,
    before: i64,
}

impl MemoryGrowth {
    /// Begins to watch `scope`, for [`Scope::Thread`] that of the calling thread. Panics where [`counts`] does.
    pub fn begin(scope: CountScope) -> Self {
        Self { scope, before: counts(scope).live }
    }

    /// Bytes more than at the beginning; below zero if it has become less.
    pub fn bytes(&self) -> i64 {
        counts(self.scope).live - self.before
    }
}

static LIVE: AtomicI64 = AtomicI64::new(0);
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    // Without a destructor and without lazy initialisation, so that the allocator may use it at any time.
    static THREAD: Cell<AllocationCounts> = const { Cell::new(AllocationCounts { live: 0, allocations: 0 }) };
}

/// The system's allocator, counted.
#[derive(Debug)]
pub struct CountingAllocator;

/// Counts `bytes` more (or fewer) and `allocations`.
fn count(bytes: i64, allocations: u64) {
    LIVE.fetch_add(bytes, Ordering::Relaxed);
    ALLOCATIONS.fetch_add(allocations, Ordering::Relaxed);
    THREAD.with(|thread| {
        let AllocationCounts { live, allocations: before } = thread.get();
        thread.set(AllocationCounts { live: live + bytes, allocations: before + allocations });
    });
}

// SAFETY: every call goes to the system's allocator with the caller's arguments; counting neither allocates nor panics.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller promises what `System` asks for.
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
