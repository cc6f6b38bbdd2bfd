//! Description of the machine.

use std::env::consts::ARCH;
use std::{fs, thread};

/// Number of cores and processor model, or the architecture where Linux names no model.
pub fn description() -> String {
    let cores = thread::available_parallelism().map_or(0, usize::from);
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    format!("{cores} cores, {}", model(&cpu).unwrap_or(ARCH))
}

/// Returns the processor model in the text of `/proc/cpuinfo`.
fn model(cpu: &str) -> Option<&str> {
    let rest = cpu.lines().find_map(|line| line.strip_prefix("model name"))?;
    Some(rest.trim_matches([' ', '\t', ':']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn model_is_the_first_named() {
        let cpu = "processor\t: 0\nmodel name\t: Some CPU @ 2.00GHz\nmodel name\t: another\n";
        assert_eq!(model(cpu), Some("Some CPU @ 2.00GHz"));
        assert_eq!(model("processor\t: 0\n"), None);
    }
}
