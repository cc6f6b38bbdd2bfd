//! Processor time of the whole machine, from /proc/stat: what others take from a measurement.

use std::time::Instant;

/// Clock ticks of /proc per second, on every Linux that Rust runs on.
const TICKS: f64 = 100.0;

/// Cores that were used since the previous reading.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct MachineUse {
    /// By processes of this machine, without interrupts.
    pub busy: f64,
    /// By the hypervisor's other guests, while this machine wanted to run.
    pub stolen: f64,
}

/// Monitor of the machine.
#[derive(Debug)]
pub struct MachineMonitor {
    last: (Instant, MachineUse),
}

impl MachineMonitor {
    /// Begins to monitor; `None` without /proc/stat.
    pub fn new() -> Option<Self> {
        Some(Self { last: (Instant::now(), seconds(&read()?)?) })
    }

    /// Returns the cores used since the last call.
    pub fn cores(&mut self) -> Option<MachineUse> {
        let (now, total) = (Instant::now(), seconds(&read()?)?);
        let (before, used) = std::mem::replace(&mut self.last, (now, total));
        let passed = (now - before).as_secs_f64().max(1e-3);
        let cores = |now: f64, before: f64| ((now - before) / passed).max(0.0);
        Some(MachineUse { busy: cores(total.busy, used.busy), stolen: cores(total.stolen, used.stolen) })
    }
}

fn read() -> Option<String> {
    std::fs::read_to_string("/proc/stat").ok()
}

/// Seconds of all cores since the machine's start, from the first line: user, nice, system, idle, iowait, irq, softirq,
/// steal.
fn seconds(stat: &str) -> Option<MachineUse> {
    let mut fields = stat.lines().next()?.strip_prefix("cpu ")?.split_whitespace().map(str::parse::<f64>);
    let mut next = || fields.next()?.ok();
    let (user, nice, system) = (next()?, next()?, next()?);
    let [_idle, _iowait, _irq, _softirq] = [next()?, next()?, next()?, next()?];
    // Old kernels have no field for it.
    let stolen = next().unwrap_or_default();
    Some(MachineUse { busy: (user + nice + system) / TICKS, stolen: stolen / TICKS })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_told_apart() {
        let stat = "cpu  100 20 30 4000 5 6 7 80 0 0\ncpu0 1 2 3 4 5 6 7 8 0 0\n";
        assert_eq!(seconds(stat), Some(MachineUse { busy: 1.5, stolen: 0.8 }));
        assert_eq!(seconds("cpu  100 20 30 4000 5 6 7\n"), Some(MachineUse { busy: 1.5, stolen: 0.0 }));
        for wrong in ["", "intr 5", "cpu  100 x 30"] {
            assert_eq!(seconds(wrong), None, "{wrong}");
        }
    }
}
