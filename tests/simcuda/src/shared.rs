//! Shared memory of a block, with race detection: it records the accesses to each byte since the last barrier.

use crate::fault::{Fault, FaultKind};

/// A thread at a point in time.
#[derive(Clone, Copy, Debug)]
pub struct ThreadMoment {
    /// Index of the thread in the block.
    pub thread: u16,
    /// Number of block barriers so far.
    pub epoch: u32,
    /// Number of barriers of its own warp so far.
    pub warp_epoch: u32,
}

/// Threads that accessed a byte in one epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Touch {
    epoch: u32,
    warp_epoch: u32,
    by: Threads,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Threads {
    #[default]
    Nobody,
    One(u16),
    /// Several threads of one warp.
    Warp(u16),
    Several,
}

impl Touch {
    /// True if another thread accessed the byte since the last barrier.
    fn races(&self, who: ThreadMoment) -> bool {
        if self.epoch != who.epoch {
            return false;
        }
        let unordered_warp = |warp: u16| warp != who.thread / 32 || self.warp_epoch >= who.warp_epoch;
        match self.by {
            Threads::Nobody => false,
            Threads::One(thread) => thread != who.thread && unordered_warp(thread / 32),
            Threads::Warp(warp) => unordered_warp(warp),
            Threads::Several => true,
        }
    }

    /// Records an access.
    #[inline]
    fn add(&mut self, who: ThreadMoment) {
        let own = Self { epoch: who.epoch, warp_epoch: who.warp_epoch, by: Threads::One(who.thread) };
        if self.epoch != who.epoch {
            *self = own;
        } else if *self != own {
            self.add_another(who);
        }
    }

    /// Records a further access of the same epoch.
    fn add_another(&mut self, who: ThreadMoment) {
        let warp = who.thread / 32;
        let earlier = |epoch: u32| epoch < who.warp_epoch;
        self.by = match self.by {
            Threads::Nobody => Threads::One(who.thread),
            Threads::One(thread) if thread == who.thread => Threads::One(thread),
            // Accesses of its own warp before the warp's barrier are ordered.
            Threads::One(thread) if thread / 32 == warp && earlier(self.warp_epoch) => Threads::One(who.thread),
            Threads::Warp(of) if of == warp && earlier(self.warp_epoch) => Threads::One(who.thread),
            Threads::One(thread) if thread / 32 == warp => Threads::Warp(warp),
            Threads::Warp(of) if of == warp => Threads::Warp(warp),
            _ => Threads::Several,
        };
        self.warp_epoch = who.warp_epoch;
    }
}

/// Accesses to a byte, by kind.
#[derive(Clone, Copy, Debug, Default)]
struct Touches {
    write: Touch,
    /// Writes as part of an atomic.
    atomic: Touch,
    read: Touch,
}

/// State of a byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Content {
    #[default]
    Fresh,
    Written,
    /// An asynchronous copy into it is pending.
    Pending,
}

/// Shared memory of a block.
#[derive(Debug)]
pub struct Shared {
    values: Vec<u8>,
    contents: Vec<Content>,
    /// Accesses of each byte. Epochs never repeat, so these stay from block to block.
    touches: Vec<Touches>,
}

impl Shared {
    /// Creates uninitialised memory.
    pub fn new(size: usize) -> Self {
        Self { values: vec![0xff; size], contents: vec![Content::Fresh; size], touches: vec![Touches::default(); size] }
    }

    /// Makes all bytes uninitialised again for the next block, which must begin with a new epoch.
    pub fn reset(&mut self) {
        self.contents.fill(Content::Fresh);
    }

    /// Offsets of a range; with `settled`, fails if a copy into it is pending.
    fn range(&self, address: u64, length: usize, settled: bool) -> Result<std::ops::Range<usize>, Fault> {
        let size = self.values.len();
        let end = address.checked_add(length as u64).filter(|end| *end <= size as u64);
        let Some(end) = end else {
            let text = format!("{length} bytes at byte {address} of {size} bytes of shared memory");
            return Err(Fault::new(FaultKind::OutOfBounds, text));
        };
        let range = address as usize..end as usize;
        if settled && let Some(at) = self.contents[range.clone()].iter().position(|of| *of == Content::Pending) {
            let place = range.start + at;
            let text = format!("byte {place} of shared memory is touched while a copy into it is under way");
            return Err(Fault::new(FaultKind::PendingCopy, text));
        }
        Ok(range)
    }

    /// Offsets of a range; fails if a byte is uninitialised.
    fn written(&self, address: u64, length: usize) -> Result<std::ops::Range<usize>, Fault> {
        let range = self.range(address, length, true)?;
        match self.contents[range.clone()].iter().position(|of| *of == Content::Fresh) {
            None => Ok(range),
            Some(at) => {
                let place = range.start + at;
                let text = format!("byte {place} of shared memory is read before anything is written there");
                Err(Fault::new(FaultKind::Uninitialised, text))
            }
        }
    }

    /// Reads bytes as the thread `who`.
    pub fn read(&mut self, address: u64, out: &mut [u8], who: ThreadMoment) -> Result<(), Fault> {
        let range = self.written(address, out.len())?;
        for (place, touches) in range.clone().zip(&mut self.touches[range.clone()]) {
            check_race(&touches.write, place, "read", who)?;
            check_race(&touches.atomic, place, "read", who)?;
            touches.read.add(who);
        }
        out.copy_from_slice(&self.values[range]);
        Ok(())
    }

    /// Writes bytes. Two threads may write the same value.
    pub fn write(&mut self, address: u64, from: &[u8], who: ThreadMoment) -> Result<(), Fault> {
        let range = self.range(address, from.len(), true)?;
        for (place, value) in range.clone().zip(from) {
            let touches = &mut self.touches[place];
            if self.contents[place] != Content::Written || self.values[place] != *value {
                check_race(&touches.write, place, "written", who)?;
            }
            check_race(&touches.atomic, place, "written", who)?;
            check_race(&touches.read, place, "written", who)?;
            touches.write.add(who);
        }
        self.contents[range.clone()].fill(Content::Written);
        self.values[range].copy_from_slice(from);
        Ok(())
    }

    /// Updates bytes atomically; several threads may do so.
    pub fn update(
        &mut self,
        address: u64,
        bytes: &mut [u8],
        who: ThreadMoment,
        f: impl FnOnce(&mut [u8]),
    ) -> Result<(), Fault> {
        let range = self.written(address, bytes.len())?;
        for (place, touches) in range.clone().zip(&mut self.touches[range.clone()]) {
            check_race(&touches.write, place, "written", who)?;
            check_race(&touches.read, place, "written", who)?;
            touches.atomic.add(who);
        }
        bytes.copy_from_slice(&self.values[range.clone()]);
        f(bytes);
        self.values[range].copy_from_slice(bytes);
        Ok(())
    }

    /// Marks bytes as the target of a pending copy.
    pub fn begin_copy(&mut self, address: u64, length: usize, who: ThreadMoment) -> Result<(), Fault> {
        let range = self.range(address, length, true)?;
        for (place, touches) in range.clone().zip(&mut self.touches[range.clone()]) {
            for touch in [&touches.write, &touches.atomic, &touches.read] {
                check_race(touch, place, "written", who)?;
            }
            touches.write.add(who);
        }
        self.contents[range].fill(Content::Pending);
        Ok(())
    }

    /// Completes a copy, because its thread has waited for it.
    pub fn end_copy(&mut self, address: u64, from: &[u8], who: ThreadMoment) -> Result<(), Fault> {
        let range = self.range(address, from.len(), false)?;
        self.contents[range].fill(Content::Fresh);
        self.write(address, from, who)
    }
}

/// Checks that no other thread accessed the byte since the last barrier.
#[inline]
fn check_race(touch: &Touch, place: usize, does: &str, who: ThreadMoment) -> Result<(), Fault> {
    if touch.epoch == who.epoch && touch.races(who) { Err(race(place, does, *touch, who)) } else { Ok(()) }
}

#[cold]
fn race(place: usize, does: &str, other: Touch, who: ThreadMoment) -> Fault {
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
