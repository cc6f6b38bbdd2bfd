//! Shared memory of a block, with who touched which byte since the last barrier.

use crate::fault::{Fault, FaultKind};

/// A thread at a moment.
#[derive(Clone, Copy, Debug)]
pub struct Who {
    /// Its number in the block.
    pub thread: u32,
    /// How many barriers there were.
    pub epoch: u32,
    /// How many barriers of its own warp there were.
    pub warp_epoch: u32,
}

/// Threads that touched a byte in one epoch.
#[derive(Clone, Copy, Debug, Default)]
struct Touch {
    epoch: u32,
    warp_epoch: u32,
    by: Threads,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Threads {
    #[default]
    Nobody,
    One(u32),
    /// Several of one warp.
    Warp(u32),
    Several,
}

impl Touch {
    /// Whether somebody else touched it, and no barrier lies between.
    fn races(&self, who: Who) -> bool {
        if self.epoch != who.epoch {
            return false;
        }
        let unordered_warp = |warp| warp != who.thread / 32 || self.warp_epoch >= who.warp_epoch;
        match self.by {
            Threads::Nobody => false,
            Threads::One(thread) => thread != who.thread && unordered_warp(thread / 32),
            Threads::Warp(warp) => unordered_warp(warp),
            Threads::Several => true,
        }
    }

    /// Adds one more.
    fn add(&mut self, who: Who) {
        let warp = who.thread / 32;
        let earlier = |epoch: u32| epoch < who.warp_epoch;
        self.by = match self.by {
            _ if self.epoch != who.epoch => Threads::One(who.thread),
            Threads::Nobody => Threads::One(who.thread),
            Threads::One(thread) if thread == who.thread => Threads::One(thread),
            // What its own warp did before the warp's barrier is in order.
            Threads::One(thread) if thread / 32 == warp && earlier(self.warp_epoch) => Threads::One(who.thread),
            Threads::Warp(of) if of == warp && earlier(self.warp_epoch) => Threads::One(who.thread),
            Threads::One(thread) if thread / 32 == warp => Threads::Warp(warp),
            Threads::Warp(of) if of == warp => Threads::Warp(warp),
            _ => Threads::Several,
        };
        self.epoch = who.epoch;
        self.warp_epoch = who.warp_epoch;
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Byte {
    value: u8,
    written: bool,
    /// An asynchronous copy into it is under way.
    pending: bool,
    write: Touch,
    /// Writes as part of an atomic.
    atomic: Touch,
    read: Touch,
}

/// Shared memory of a block.
#[derive(Debug)]
pub struct Shared {
    bytes: Vec<Byte>,
}

impl Shared {
    /// Fresh memory.
    pub fn new(size: usize) -> Self {
        Self { bytes: vec![Byte::default(); size] }
    }

    /// Makes everything fresh again, for the next block.
    pub fn reset(&mut self) {
        self.bytes.fill(Byte::default());
    }

    fn range(&mut self, address: u64, length: usize) -> Result<&mut [Byte], Fault> {
        let size = self.bytes.len();
        let range = usize::try_from(address).ok().and_then(|at| self.bytes.get_mut(at..at.checked_add(length)?));
        range.ok_or_else(|| {
            let text = format!("{length} bytes at byte {address} of {size} bytes of shared memory");
            Fault::new(FaultKind::OutOfBounds, text)
        })
    }

    /// Reads bytes.
    pub fn read(&mut self, address: u64, out: &mut [u8], who: Who) -> Result<(), Fault> {
        let range = self.range(address, out.len())?;
        for (at, (byte, out)) in range.iter_mut().zip(out).enumerate() {
            let place = address as usize + at;
            settled(byte, place)?;
            if !byte.written {
                let text = format!("byte {place} of shared memory is read before anything is written there");
                return Err(Fault::new(FaultKind::Fresh, text));
            }
            alone(&[byte.write, byte.atomic], place, "read", who)?;
            byte.read.add(who);
            *out = byte.value;
        }
        Ok(())
    }

    /// Writes bytes. Two threads may write the same value.
    pub fn write(&mut self, address: u64, from: &[u8], who: Who) -> Result<(), Fault> {
        let range = self.range(address, from.len())?;
        for (at, (byte, &value)) in range.iter_mut().zip(from).enumerate() {
            let place = address as usize + at;
            settled(byte, place)?;
            if !byte.written || byte.value != value {
                alone(&[byte.write], place, "written", who)?;
            }
            alone(&[byte.atomic, byte.read], place, "written", who)?;
            byte.write.add(who);
            *byte = Byte { value, written: true, ..*byte };
        }
        Ok(())
    }

    /// Changes bytes as one step, of which several threads may do one each.
    pub fn update(&mut self, address: u64, bytes: &mut [u8], who: Who, f: impl FnOnce(&mut [u8])) -> Result<(), Fault> {
        let range = self.range(address, bytes.len())?;
        for (at, (byte, out)) in range.iter_mut().zip(&mut *bytes).enumerate() {
            let place = address as usize + at;
            settled(byte, place)?;
            if !byte.written {
                let text = format!("byte {place} of shared memory is read before anything is written there");
                return Err(Fault::new(FaultKind::Fresh, text));
            }
            alone(&[byte.write, byte.read], place, "written", who)?;
            byte.atomic.add(who);
            *out = byte.value;
        }
        f(bytes);
        for (byte, &value) in self.range(address, bytes.len())?.iter_mut().zip(&*bytes) {
            byte.value = value;
        }
        Ok(())
    }

    /// Notes that a copy into these bytes is under way.
    pub fn begin_copy(&mut self, address: u64, length: usize, who: Who) -> Result<(), Fault> {
        let range = self.range(address, length)?;
        for (at, byte) in range.iter_mut().enumerate() {
            settled(byte, address as usize + at)?;
            alone(&[byte.write, byte.atomic, byte.read], address as usize + at, "written", who)?;
            byte.write.add(who);
            byte.pending = true;
        }
        Ok(())
    }

    /// A copy lands, because its thread has waited for it.
    pub fn end_copy(&mut self, address: u64, from: &[u8], who: Who) -> Result<(), Fault> {
        for byte in self.range(address, from.len())? {
            byte.pending = false;
        }
        self.write(address, from, who)
    }
}

fn settled(byte: &Byte, place: usize) -> Result<(), Fault> {
    if byte.pending {
        let text = format!("byte {place} of shared memory is touched while a copy into it is under way");
        return Err(Fault::new(FaultKind::PendingCopy, text));
    }
    Ok(())
}

/// Checks that none of these touches is another thread's without a barrier since.
fn alone(touches: &[Touch], place: usize, does: &str, who: Who) -> Result<(), Fault> {
    match touches.iter().find(|touch| touch.races(who)) {
        Some(other) => Err(race(place, does, *other, who)),
        None => Ok(()),
    }
}

fn race(place: usize, does: &str, other: Touch, who: Who) -> Fault {
    let by = match other.by {
        Threads::One(thread) => format!("thread {thread}"),
        Threads::Warp(warp) => format!("warp {warp}"),
        Threads::Nobody | Threads::Several => "several warps".to_owned(),
    };
    let text = format!(
        "byte {place} of shared memory is {does} by thread {} while {by} touches it, with no barrier between",
        who.thread
    );
    Fault::new(FaultKind::Race, text)
}
