//! Large blocks of memory, and memory that is given back to the system after a flood: glibc keeps what was freed, so a process that once held a
//! gigabyte of requests would stay that large. docs/serving.md has measurements of this and of the alternatives.

use std::io;
use std::time::Duration;

#[cfg(target_env = "gnu")]
use nix::libc;

/// Memory above the smallest that was seen, in bytes, from which freed memory is given back.
const SLACK: u64 = 48 << 20;
/// Time between two looks at the memory.
const LOOK: Duration = Duration::from_secs(1);
/// Looks between two tries that give back little: each holds the allocator's locks for some milliseconds.
const PATIENCE: u32 = 20;
/// Growth of the memory since the last try, in bytes, from which the next one does not wait: in a flood much is freed early.
const GROWTH: u64 = 24 << 20;

/// Size of a block in bytes from which it is mapped by itself.
#[cfg(target_env = "gnu")]
const MAPPED: libc::c_int = 8 << 20;

/// Maps each large block by itself from now on. glibc raises the size for that up to 32 MiB, as large blocks are freed; then
/// zeroed memory, such as that of a cache that few sessions fill, is written and so takes RAM.
#[cfg(target_env = "gnu")]
pub fn map_large_blocks() {
    // SAFETY: mallopt takes two numbers, and locks the allocator's own state. A refused size leaves the one before.
    unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED) };
}

/// Other allocators map large blocks.
#[cfg(not(target_env = "gnu"))]
pub fn map_large_blocks() {}

/// Starts a thread that gives freed memory back to the system.
///
/// # Errors
///
/// The system starts no thread.
pub fn give_back_freed() -> io::Result<()> {
    let watch = || {
        let mut policy = TrimPolicy::default();
        loop {
            // Nothing wakes it earlier.
            std::thread::park_timeout(LOOK);
            // Without /proc there is nothing to decide by.
            let Some(before) = resident() else { return };
            if policy.is_due(before) {
                trim();
                policy.trimmed(before, resident().unwrap_or(before));
            }
        }
    };
    std::thread::Builder::new().name("heap".to_owned()).spawn(watch).map(drop)
}

/// Decision when to give memory back: at once where that helped before or memory grows, seldom where it is in use.
#[derive(Debug, Default)]
struct TrimPolicy {
    /// Smallest memory that was seen, in bytes; `None` before the first look.
    least: Option<u64>,
    /// Looks that are skipped before the next try.
    skip: u32,
    /// Memory after the last try, in bytes.
    tried: u64,
}

impl TrimPolicy {
    /// True if a process of `resident` bytes may hold much that is freed.
    fn is_due(&mut self, resident: u64) -> bool {
        let least = *self.least.insert(self.least.map_or(resident, |least| least.min(resident)));
        if resident < least + SLACK {
            self.skip = 0;
            return false;
        }
        if self.skip > 0 && resident < self.tried + GROWTH {
            self.skip -= 1;
            return false;
        }
        true
    }

    /// Notes what a try gave back.
    fn trimmed(&mut self, before: u64, after: u64) {
        let gave_back = before.saturating_sub(after) > SLACK / 4;
        self.skip = if gave_back { 0 } else { PATIENCE };
        self.tried = after;
    }
}

/// Memory of the process that is in RAM, in bytes.
fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kilobytes << 10)
}

#[cfg(target_env = "gnu")]
fn trim() {
    // SAFETY: malloc_trim takes a number, and locks the allocator's own state; it changes no memory that is in use.
    unsafe { libc::malloc_trim(0) };
}

/// Other allocators give memory back by themselves.
#[cfg(not(target_env = "gnu"))]
fn trim() {}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1 << 20;

    #[test]
    fn memory_after_a_flood_is_given_back() {
        let mut policy = TrimPolicy::default();
        assert!(!policy.is_due(80 * MB) && !policy.is_due(100 * MB));
        assert!(policy.is_due(1_000 * MB));
        policy.trimmed(1_000 * MB, 300 * MB);
        assert!(policy.is_due(300 * MB), "a try that helped is followed by another");
        policy.trimmed(300 * MB, 81 * MB);
        assert!(!policy.is_due(81 * MB));
    }

    #[test]
    fn memory_in_use_is_tried_seldom() {
        let mut policy = TrimPolicy::default();
        policy.is_due(80 * MB);
        let mut tries = 0;
        for _ in 0..210 {
            if policy.is_due(500 * MB) {
                tries += 1;
                policy.trimmed(500 * MB, 499 * MB);
            }
        }
        assert_eq!(tries, 10);
    }

    #[test]
    fn growing_memory_is_tried_as_it_grows() {
        let mut policy = TrimPolicy::default();
        policy.is_due(80 * MB);
        let mut tried = Vec::new();
        for resident in (130..=250).step_by(10) {
            if policy.is_due(resident * MB) {
                tried.push(resident);
                policy.trimmed(resident * MB, resident * MB);
            }
        }
        assert_eq!(tried, [130, 160, 190, 220, 250]);
    }

    #[cfg(target_env = "gnu")]
    #[test]
    fn large_zeroed_blocks_take_no_memory() {
        map_large_blocks();
        // Freeing a large block raises the size where it is not fixed.
        drop(vec![1_u8; 31 << 20]);
        // A thread has heaps of 64 MiB of its own, whose first block is cleared.
        let (before, blocks, after) = std::thread::spawn(|| {
            let before = resident().unwrap();
            let blocks: Vec<Vec<u8>> = (0..16).map(|_| vec![0; 24 << 20]).collect();
            (before, blocks, resident().unwrap())
        })
        .join()
        .unwrap();
        assert!(after < before + 32 * MB, "{before} {after}");
        drop(blocks);
    }

    #[cfg(target_env = "gnu")]
    #[test]
    fn freed_memory_leaves_the_process() {
        let before = resident().unwrap();
        // Below the size from which glibc maps a block of its own; the last one keeps the heap from shrinking.
        let mut blocks: Vec<Vec<u8>> = (0..4_096).map(|_| vec![1; 32 << 10]).collect();
        let last = blocks.pop();
        let held = resident().unwrap();
        assert!(held > before + 100 * MB, "{before} {held}");
        drop(blocks);
        trim();
        let after = resident().unwrap();
        assert!(after + 64 * MB < held, "{before} {held} {after}");
        drop(last);
    }
}
