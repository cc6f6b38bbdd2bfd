//! Memory for the weights of a model: the need of each format, and the free memory of this machine.

use std::fmt;
use std::fs;

use repartee_engine::summary::weight_memory;
use repartee_engine::{Source, WeightPolicy};

use super::output::format_bytes;

/// Folder of the memory limits of this process's group, of cgroup version 2 and then of version 1, and the names of the limit and of
/// the use in it.
const GROUPS: [(&str, &str, &str); 2] = [
    ("/sys/fs/cgroup", "memory.max", "memory.current"),
    ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
];

/// Lack of memory for weights.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryShortage {
    /// Estimated bytes of the weights, in the format that is set.
    pub needed: u64,
    /// Bytes that this process may still take.
    pub free: u64,
    /// Most precise format of `engine.weights` that fits, and its bytes.
    pub fitting: Option<(WeightPolicy, u64)>,
}

impl fmt::Display for MemoryShortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (needed, free) = (format_bytes(self.needed), format_bytes(self.free));
        write!(f, "the weights need about {needed} of memory, and {free} are free: ")?;
        match self.fitting {
            Some((policy, bytes)) => {
                let bytes = format_bytes(bytes);
                write!(f, "--set engine.weights={} needs {bytes}; --force loads them as they are", policy.name())
            }
            None => f.write_str("name a smaller checkpoint, or free memory; --force loads them anyway"),
        }
    }
}

/// Returns the bytes that the weights of all sources need in memory. A source that cannot be opened counts nothing: loading it tells
/// the reason.
pub fn needed_memory(sources: &[&Source], weights: WeightPolicy) -> u64 {
    sources.iter().filter_map(|source| weight_memory(source, weights).ok()).fold(0, u64::saturating_add)
}

/// Returns the lack of memory, if the weights need more than `free` bytes.
pub fn shortage(sources: &[&Source], weights: WeightPolicy, free: u64) -> Option<MemoryShortage> {
    let needed = needed_memory(sources, weights);
    if needed <= free {
        return None;
    }
    let others = [WeightPolicy::Int8, WeightPolicy::Mixed, WeightPolicy::Int4];
    let fitting = others.into_iter().map(|policy| (policy, needed_memory(sources, policy)));
    let fitting = fitting.into_iter().find(|&(policy, bytes)| policy != weights && bytes <= free);
    Some(MemoryShortage { needed, free, fitting })
}

/// Returns the bytes that this process may still take; `None` if the system does not tell.
pub fn free_memory() -> Option<u64> {
    let machine = available(&fs::read_to_string("/proc/meminfo").ok()?)?;
    let groups = GROUPS.iter().filter_map(|(folder, limit, used)| {
        let read = |name: &str| fs::read_to_string(format!("{folder}/{name}")).ok();
        left_of_group(&read(limit)?, &read(used)?, &read("memory.stat")?)
    });
    Some(groups.fold(machine, u64::min))
}

/// Bytes of memory that this process holds; `None` if the system does not tell.
pub fn resident_memory() -> Option<u64> {
    kib_field(&fs::read_to_string("/proc/self/status").ok()?, "VmRSS:")
}

/// Returns the bytes that new programs may take, of the text of `/proc/meminfo`.
pub fn available(meminfo: &str) -> Option<u64> {
    kib_field(meminfo, "MemAvailable:")
}

/// Bytes of a field in KiB.
fn kib_field(text: &str, name: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(name))?;
    value.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Returns the bytes that are left to a group of processes, by the texts of its limit, use and statistics; pages of files are given back
/// when they are needed. `None` without a limit.
pub fn left_of_group(limit: &str, used: &str, stat: &str) -> Option<u64> {
    let (limit, used): (u64, u64) = (limit.trim().parse().ok()?, used.trim().parse().ok()?);
    let files = stat.lines().find_map(|line| line.strip_prefix("file ").or_else(|| line.strip_prefix("cache ")));
    let files = files.and_then(|bytes| bytes.trim().parse().ok()).unwrap_or(0);
    Some(limit.saturating_sub(used.saturating_sub(files)))
}
