//! Memory of weights in huge pages, where the system gives them. Every step reads the weights from beginning to end: with small
//! pages the processor looks an address up each 4 KiB and its prefetchers stop there, and a load takes a fault for each.

use std::mem::MaybeUninit;

/// Size of a huge page, in bytes; less memory does not ask for one.
#[cfg(target_os = "linux")]
const HUGE: usize = 2 << 20;

/// Allocates `count` copies of `value`.
pub(super) fn filled<T: Copy>(value: T, count: usize) -> Vec<T> {
    let mut numbers = Vec::with_capacity(count);
    // Before the first write: a page that is there already stays small.
    advise(numbers.spare_capacity_mut());
    numbers.resize(count, value);
    numbers
}

/// Asks the system for huge pages. It may refuse: then the memory has small ones.
#[cfg(target_os = "linux")]
fn advise<T>(memory: &mut [MaybeUninit<T>]) {
    let ends = memory.as_mut_ptr_range();
    let (from, to) = (ends.start.addr().next_multiple_of(HUGE), ends.end.addr() / HUGE * HUGE);
    if from < to {
        let start = ends.start.cast::<libc::c_void>().with_addr(from);
        // SAFETY: the pages lie within an exclusively borrowed allocation, and the advice changes no byte.
        unsafe { libc::madvise(start, to - from, libc::MADV_HUGEPAGE) };
    }
}

/// Other systems choose the pages themselves.
#[cfg(not(target_os = "linux"))]
fn advise<T>(_: &mut [MaybeUninit<T>]) {}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    /// KiB of this process in huge pages that the allocator did not ask for itself.
    fn huge_kib() -> Option<u64> {
        let smaps = std::fs::read_to_string("/proc/self/smaps_rollup").ok()?;
        smaps.lines().find_map(|line| line.strip_prefix("AnonHugePages:")?.trim().strip_suffix(" kB")?.parse().ok())
    }

    #[test]
    fn large_weights_lie_in_huge_pages() {
        let mode = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
        let (true, Some(before)) = (mode.contains("[madvise]"), huge_kib()) else {
            println!("SKIPPED: the system gives no huge pages to those that ask: {}", mode.trim());
            return;
        };
        let small = filled(7_u8, HUGE / 2);
        let large = filled([3_u16; 32], HUGE);
        assert!(small.iter().all(|byte| *byte == 7) && large.iter().all(|line| *line == [3; 32]));
        let more = huge_kib().unwrap_or(0).saturating_sub(before);
        // 128 MiB; a machine short of memory gives fewer.
        assert!(more > 16 << 10, "{more} KiB");
    }
}
