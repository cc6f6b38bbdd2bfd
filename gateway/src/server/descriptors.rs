//! File descriptors of the process: each connection takes one, and so do files, timers and the sockets of calls. A process
//! that has used up its descriptors answers nobody, health checks included.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Descriptors that are kept for everything but waiting connections: upgraded websockets, files, the runtime.
const OTHERS: u64 = 256;

/// Raises the process's limit of descriptors as far as the system lets it; returns the limit, or `None` if the system
/// does not tell it.
pub(super) fn raise_limit() -> Option<u64> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).ok()?;
    match soft < hard && setrlimit(Resource::RLIMIT_NOFILE, hard, hard).is_ok() {
        true => Some(hard),
        false => Some(soft),
    }
}

/// Number of connections, at most `wanted`, for which `limit` descriptors suffice, with `reserve` further ones.
pub(super) fn admissible(wanted: u32, reserve: u32, limit: u64) -> u32 {
    let left = limit.saturating_sub(OTHERS + u64::from(reserve));
    // A tiny limit is shared evenly.
    u32::try_from(left.max(limit / 4)).map_or(wanted, |left| wanted.min(left))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_descriptors_for_the_rest() {
        assert_eq!(admissible(512, 64, 1 << 20), 512);
        assert_eq!(admissible(1024, 64, 1024), 704);
        assert_eq!(admissible(1024, 64, 256), 64);
        assert_eq!(admissible(u32::MAX, 64, u64::MAX), u32::MAX);
    }

    #[test]
    fn limit_is_raised_as_far_as_allowed() {
        let raised = raise_limit().unwrap();
        assert_eq!(getrlimit(Resource::RLIMIT_NOFILE).unwrap(), (raised, raised));
    }
}
