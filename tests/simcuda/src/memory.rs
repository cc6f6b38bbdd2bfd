//! Device memory: allocations with gaps between them; freed addresses are never reused.

use crate::fault::{Fault, FaultKind};

/// Bytes with a flag for each that was written. Uninitialised ones are 0xff, which every floating-point type reads as
/// NaN.
#[derive(Clone, Debug)]
pub struct Bytes {
    data: Vec<u8>,
    written: Vec<u64>,
}

impl Bytes {
    /// Creates uninitialised bytes.
    pub fn new(size: usize) -> Self {
        Self { data: vec![0xff; size], written: vec![0; size.div_ceil(64)] }
    }

    /// Number of bytes.
    #[allow(clippy::len_without_is_empty, reason = "nobody asks")]
    pub fn len(&self) -> usize {
        self.data.len()
    }

    /// Returns the bytes of a range.
    pub fn slice(&self, at: usize, length: usize) -> &[u8] {
        &self.data[at..at + length]
    }

    /// Returns the first uninitialised byte of a range.
    pub fn first_uninitialised(&self, at: usize, length: usize) -> Option<usize> {
        // Within one word, as almost all accesses are, this is one comparison.
        if at % 64 + length <= 64 {
            let mask = (!0u64 >> (64 - length.max(1))) << (at % 64);
            if self.written[at / 64] & mask == mask {
                return None;
            }
        }
        (at..at + length).find(|at| self.written[at / 64] >> (at % 64) & 1 == 0)
    }

    /// Writes bytes and marks them.
    pub fn write(&mut self, at: usize, bytes: &[u8]) {
        self.data[at..at + bytes.len()].copy_from_slice(bytes);
        if at % 64 + bytes.len() <= 64 {
            self.written[at / 64] |= (!0u64 >> (64 - bytes.len().max(1))) << (at % 64);
        } else {
            (at..at + bytes.len()).for_each(|at| self.written[at / 64] |= 1 << (at % 64));
        }
    }

    /// Copies from other memory; uninitialised bytes stay so.
    fn copy(&mut self, at: usize, from: &Self, from_at: usize, length: usize) {
        self.data[at..at + length].copy_from_slice(from.slice(from_at, length));
        for byte in 0..length {
            let (to, from_byte) = (at + byte, from_at + byte);
            let bit = from.written[from_byte / 64] >> (from_byte % 64) & 1;
            self.written[to / 64] = self.written[to / 64] & !(1 << (to % 64)) | bit << (to % 64);
        }
    }
}

#[derive(Debug)]
struct Allocation {
    start: u64,
    size: usize,
    /// Contents of the allocation; `None` once it is freed.
    bytes: Option<Bytes>,
}

/// Memory of a device.
#[derive(Debug)]
pub struct DeviceMemory {
    /// Allocations by address, freed ones too.
    allocations: Vec<Allocation>,
    next: u64,
    used: usize,
    /// Index of the last accessed allocation.
    last: usize,
}

/// Address of the first allocation.
const FIRST: u64 = 0x7f00_0000_0000;
/// Least bytes between two allocations.
const GAP: u64 = 4096;
/// Alignment of an allocation, as `cuMemAlloc` guarantees.
const ALIGN: u64 = 256;
/// Bytes of the device.
pub const CAPACITY: usize = 16 << 30;

impl Default for DeviceMemory {
    fn default() -> Self {
        Self { allocations: Vec::new(), next: FIRST, used: 0, last: 0 }
    }
}

impl DeviceMemory {
    /// Allocates uninitialised bytes and returns their address; `None` if there is too little memory.
    pub fn alloc(&mut self, size: usize) -> Option<u64> {
        if size > self.free_bytes() {
            return None;
        }
        let start = self.next;
        self.next = (start + size as u64 + GAP).next_multiple_of(ALIGN);
        self.used += size;
        self.allocations.push(Allocation { start, size, bytes: Some(Bytes::new(size)) });
        Some(start)
    }

    /// Bytes that are free.
    pub fn free_bytes(&self) -> usize {
        CAPACITY - self.used
    }

    /// Frees the allocation with this first address; false if there is none.
    pub fn free(&mut self, start: u64) -> bool {
        let Ok(index) = self.allocations.binary_search_by_key(&start, |one| one.start) else { return false };
        let was = self.allocations[index].bytes.take().is_some();
        if was {
            self.used -= self.allocations[index].size;
        }
        was
    }

    /// Finds the allocation of a range and its offset there.
    fn find(&mut self, address: u64, length: usize) -> Result<(usize, usize), Fault> {
        let inside = |one: &Allocation| {
            one.bytes.is_some() && address >= one.start && address + length as u64 <= one.start + one.size as u64
        };
        if let Some(one) = self.allocations.get(self.last).filter(|one| inside(one)) {
            return Ok((self.last, (address - one.start) as usize));
        }
        let after = self.allocations.partition_point(|one| one.start <= address);
        let Some(one) = after.checked_sub(1).map(|index| &self.allocations[index]) else {
            return Err(Fault::new(
                FaultKind::OutOfBounds,
                format!("{length} bytes at {address:#x} are in no allocation"),
            ));
        };
        let place = address - one.start;
        if inside(one) {
            self.last = after - 1;
            return Ok((after - 1, place as usize));
        }
        let size = one.size;
        let text = format!("{length} bytes at byte {place} of an allocation of {size} bytes at {:#x}", one.start);
        Err(match one.bytes {
            None if place < size.max(1) as u64 => {
                Fault::new(FaultKind::UseAfterFree, format!("{text}, which is freed"))
            }
            _ => Fault::new(FaultKind::OutOfBounds, text),
        })
    }

    /// Reads bytes; fails if one is uninitialised.
    pub fn read(&mut self, address: u64, out: &mut [u8]) -> Result<(), Fault> {
        let (index, at) = self.find(address, out.len())?;
        // `find` returns live allocations only.
        if let Some(bytes) = &self.allocations[index].bytes {
            if let Some(fresh) = bytes.first_uninitialised(at, out.len()) {
                let of = &self.allocations[index];
                let text = format!("byte {fresh} of an allocation of {} bytes at {:#x}", of.size, of.start);
                return Err(Fault::new(
                    FaultKind::Uninitialised,
                    format!("{text} is read before anything is written there"),
                ));
            }
            out.copy_from_slice(bytes.slice(at, out.len()));
        }
        Ok(())
    }

    /// Writes bytes at an address.
    pub fn write(&mut self, address: u64, from: &[u8]) -> Result<(), Fault> {
        let (index, at) = self.find(address, from.len())?;
        if let Some(bytes) = &mut self.allocations[index].bytes {
            bytes.write(at, from);
        }
        Ok(())
    }

    /// Copies within the device; uninitialised bytes stay so.
    pub fn copy(&mut self, to: u64, from: u64, length: usize) -> Result<(), Fault> {
        let (from_index, from_at) = self.find(from, length)?;
        let (to_index, to_at) = self.find(to, length)?;
        let Some(source) = self.allocations[from_index].bytes.clone() else { return Ok(()) };
        if let Some(bytes) = &mut self.allocations[to_index].bytes {
            bytes.copy(to_at, &source, from_at, length);
        }
        Ok(())
    }
}
