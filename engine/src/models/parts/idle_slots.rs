//! Slots whose memory is idle: used once, and free for a whole period since.

/// Use of a slot's memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum SlotMemory {
    /// It was not used since it was given back.
    #[default]
    Untouched,
    /// It was used in this period, or is held.
    Used,
    /// It was free when a period ended.
    Free,
    /// It was free for a whole period.
    Idle,
}

/// Use of the memory of all slots.
#[derive(Debug)]
pub struct IdleSlots {
    slots: Vec<SlotMemory>,
}

impl IdleSlots {
    /// Creates `slots` slots whose memory was not used yet.
    pub fn new(slots: usize) -> Self {
        Self { slots: vec![SlotMemory::Untouched; slots] }
    }

    /// Notes that the memory of a slot is used.
    pub fn touch(&mut self, slot: usize) {
        self.slots[slot] = SlotMemory::Used;
    }

    /// Ends a period; `is_held` tells slots that are in use. True if free slots hold memory.
    pub fn end_period(&mut self, is_held: impl Fn(usize) -> bool) -> bool {
        for (slot, memory) in self.slots.iter_mut().enumerate() {
            *memory = match *memory {
                SlotMemory::Untouched => SlotMemory::Untouched,
                _ if is_held(slot) => SlotMemory::Used,
                SlotMemory::Used => SlotMemory::Free,
                SlotMemory::Free | SlotMemory::Idle => SlotMemory::Idle,
            };
        }
        self.slots.iter().any(|memory| matches!(memory, SlotMemory::Free | SlotMemory::Idle))
    }

    /// Takes the memory of an idle slot, which the caller gives back to the system; `None` if no slot is idle.
    pub fn take(&mut self) -> Option<usize> {
        let slot = self.slots.iter().position(|memory| *memory == SlotMemory::Idle)?;
        self.slots[slot] = SlotMemory::Untouched;
        Some(slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_idle_after_a_free_period() {
        let mut slots = IdleSlots::new(4);
        assert!(!slots.end_period(|_| false), "untouched memory is not given back");
        (0..3).for_each(|slot| slots.touch(slot));
        assert!(slots.end_period(|slot| slot == 0));
        assert_eq!(slots.take(), None);
        slots.touch(2);
        assert!(slots.end_period(|slot| slot == 0));
        assert_eq!((slots.take(), slots.take()), (Some(1), None), "the first is held, the third was used again");
        assert!(slots.end_period(|_| false));
        assert_eq!((slots.take(), slots.take()), (Some(2), None));
        assert!(slots.end_period(|_| false));
        assert_eq!((slots.take(), slots.end_period(|_| false)), (Some(0), false));
    }
}
