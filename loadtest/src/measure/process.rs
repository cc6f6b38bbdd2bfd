//! Processor time and memory of a process, from /proc.

use std::time::{Duration, Instant};

/// Clock ticks of /proc per second, on every Linux that Rust runs on.
const TICKS: f64 = 100.0;

/// Monitor of one process.
#[derive(Debug)]
pub struct ProcessMonitor {
    folder: String,
    /// Time of the last reading, and the processor time then.
    last: (Instant, Duration),
}

impl ProcessMonitor {
    /// Monitors process `pid`, or our own for `None`. Returns `None` if the process does not exist.
    pub fn new(pid: Option<u32>) -> Option<Self> {
        let folder = format!("/proc/{}", pid.map_or("self".to_owned(), |pid| pid.to_string()));
        let cpu = processor_time(&folder)?;
        Some(Self { folder, last: (Instant::now(), cpu) })
    }

    /// Returns cores used since the last call; `None` once the process has ended.
    pub fn cores(&mut self) -> Option<f64> {
        let (now, cpu) = (Instant::now(), processor_time(&self.folder)?);
        let (before, cpu_before) = std::mem::replace(&mut self.last, (now, cpu));
        Some(cpu.saturating_sub(cpu_before).as_secs_f64() / (now - before).as_secs_f64().max(1e-3))
    }

    /// Returns resident memory in bytes; `None` once the process has ended.
    pub fn memory(&self) -> Option<u64> {
        let status = std::fs::read_to_string(format!("{}/status", self.folder)).ok()?;
        let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?.trim().strip_suffix("kB")?;
        Some(kib.trim().parse::<u64>().ok()? * 1_024)
    }
}

/// Returns the processor time of all threads.
fn processor_time(folder: &str) -> Option<Duration> {
    let stat = std::fs::read_to_string(format!("{folder}/stat")).ok()?;
    // The second field is the name in brackets; it may contain spaces and brackets.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |field: usize| fields.get(field)?.parse::<f64>().ok();
    Some(Duration::from_secs_f64((ticks(11)? + ticks(12)?) / TICKS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_process_is_measured() {
        let mut watch = ProcessMonitor::new(None).unwrap();
        let begun = Instant::now();
        let mut sum = 0_u64;
        while begun.elapsed() < Duration::from_millis(200) {
            sum = sum.wrapping_mul(31).wrapping_add(7);
        }
        assert!(watch.cores().unwrap() > 0.0, "{sum}");
        assert!(watch.memory().unwrap() > 1 << 20);
        assert!(ProcessMonitor::new(Some(u32::MAX)).is_none());
    }
}
