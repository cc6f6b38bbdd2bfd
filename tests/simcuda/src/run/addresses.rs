//! Addresses: windows of state spaces, and alignment.

use crate::decode::lanes::Lanes;
use crate::decode::{LOCAL_WINDOW, SHARED_WINDOW};
use crate::fault::{Fault, FaultKind};
use crate::ptx::Space;

/// Converts addresses between a state space and the generic one.
pub fn window(space: Space, to: bool, addresses: &Lanes) -> Lanes {
    let start = match space {
        Space::Shared => SHARED_WINDOW,
        Space::Local => LOCAL_WINDOW,
        _ => 0,
    };
    addresses.map(|address| if to { address.wrapping_sub(start) } else { address.wrapping_add(start) })
}

/// Converts a generic address to its own state space.
pub fn resolved(space: Space, address: u64) -> (Space, u64) {
    match space {
        Space::Generic if (SHARED_WINDOW..LOCAL_WINDOW).contains(&address) => (Space::Shared, address - SHARED_WINDOW),
        Space::Generic if (LOCAL_WINDOW..LOCAL_WINDOW + (1 << 32)).contains(&address) => {
            (Space::Local, address - LOCAL_WINDOW)
        }
        Space::Generic => (Space::Global, address),
        _ => (space, address),
    }
}

/// Checks that an address is a multiple of an access's width.
pub fn aligned(address: u64, width: usize) -> Result<(), Fault> {
    // Widths are powers of two, and a mask is cheaper than a division.
    if address & (width as u64 - 1) == 0 {
        return Ok(());
    }
    Err(Fault::new(FaultKind::Misaligned, format!("{width} bytes at {address:#x}, which is no multiple of {width}")))
}
