//! Memory of caches that nobody used for a while goes back to the system, a piece in each tick.

use std::time::{Duration, Instant};

use crate::model::{Hearing, Model};

/// Time without use after which memory is given back. It is longer than a pause between two callers.
const PERIOD: Duration = Duration::from_secs(10);

/// State of the giving back.
#[derive(Debug, Default)]
pub(super) struct IdleMemory {
    /// End of the present period; `None` while all unused memory was given back.
    ends: Option<Instant>,
    /// True while idle memory is left.
    gives_back: bool,
}

impl IdleMemory {
    /// Gives a piece of idle memory back. `moved` is true if the tick did something.
    pub(super) fn give_back(&mut self, model: &mut Model, now: Instant, moved: bool) {
        if moved {
            self.ends.get_or_insert(now + PERIOD);
        }
        if self.ends.is_some_and(|ends| ends <= now) {
            let mut later = false;
            model.stages.iter_mut().for_each(|stage| later |= stage.end_idle_period());
            later |= match &mut model.hearing {
                Some(Hearing::Text(recogniser)) => recogniser.end_idle_period(),
                Some(Hearing::Rows(ears)) => ears.encoder.end_idle_period(),
                None => false,
            };
            // The next tick that does something begins a period.
            self.ends = later.then(|| now + PERIOD);
            self.gives_back = true;
        }
        if self.gives_back {
            let heard = match &mut model.hearing {
                Some(Hearing::Text(recogniser)) => recogniser.give_back_idle(),
                Some(Hearing::Rows(_)) | None => false,
            };
            self.gives_back = heard || model.stages.iter_mut().any(|stage| stage.give_back_idle());
        }
    }

    /// Time at which idle memory is given back next; `None` if all was.
    pub(super) fn next(&self, now: Instant) -> Option<Instant> {
        if self.gives_back { Some(now) } else { self.ends }
    }
}
