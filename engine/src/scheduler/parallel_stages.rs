//! A tick on several threads: the steps of all stages run in parallel.
//!
//! Each stage works on the input that it held when the tick began: code2wav makes the samples of one frame while the
//! talker makes the next. A thread whose step is done helps with large operations of the others. A step depends on its
//! own stage alone, and results are routed in a fixed order, so the output equals that of one thread. Samples are sent
//! at once; everything else waits for the slowest step of the tick.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::encoding::{Encoded, TakenWindow, encode};
use super::hearing::{Recognised, recognise};
use super::{Clock, ENCODER, Scheduler};
use crate::deadline::cost::StepRows;
use crate::deadline::{ReadyRows, ScheduledRows};
use crate::model::{Codec, Encoder, Hearing, Model, SlotCounts};
use crate::recogniser::Recogniser;
use crate::session::Session;
use crate::stage::{BatchEntry, Outbox, Stage, StageItem};

/// Target of a step.
enum Unit<'a> {
    Encoder(&'a mut dyn Encoder),
    Recogniser(&'a mut dyn Recogniser, SlotCounts),
    Stage(&'a mut dyn Stage),
}

/// A finished step.
struct Step {
    work: Vec<BatchEntry>,
    rows: StepRows,
    began: Instant,
    took: Duration,
    result: StepResult,
}

enum StepResult {
    Encoded(Vec<Encoded>),
    Recognised(Recognised),
    Items(Outbox),
    Panicked,
}

/// Steps of one stage in this tick.
struct Task<'a> {
    /// Index in the plan; 0 is the encoder or recogniser.
    at: usize,
    unit: Unit<'a>,
    batches: Vec<Vec<ScheduledRows>>,
    /// Input of the encoder.
    windows: Vec<TakenWindow>,
    done: Vec<Step>,
}

impl Task<'_> {
    /// Runs every step. `sent` takes those items out of a step's output that need not wait.
    fn run(&mut self, clock: &Clock, sent: &dyn Fn(usize, &mut Outbox)) {
        for batch in std::mem::take(&mut self.batches) {
            let began = clock();
            let rows = batch.iter().fold(StepRows::default(), |rows, share| rows.and(share.kind, share.rows));
            let mut work: Vec<BatchEntry> =
                batch.iter().map(|share| BatchEntry { slot: share.slot, rows: share.rows }).collect();
            let result = match &mut self.unit {
                Unit::Encoder(encoder) => StepResult::Encoded(encode(*encoder, std::mem::take(&mut self.windows))),
                Unit::Recogniser(recogniser, slots) => StepResult::Recognised(recognise(*recogniser, *slots, &batch)),
                Unit::Stage(stage) => {
                    // Slots that failed in an earlier batch of this tick have nothing ready.
                    work.retain(|work| stage.runnable_rows(work.slot).rows >= work.rows);
                    if work.is_empty() {
                        continue;
                    }
                    let mut out = Vec::new();
                    match catch_unwind(AssertUnwindSafe(|| stage.step(&work, &mut out))) {
                        Ok(()) => {
                            sent(self.at, &mut out);
                            StepResult::Items(out)
                        }
                        Err(_) => StepResult::Panicked,
                    }
                }
            };
            let took = clock().saturating_duration_since(began);
            self.done.push(Step { work, rows, began, took, result });
        }
    }
}

impl Scheduler {
    /// Runs the planned steps in parallel.
    pub(super) fn run_stages_parallel(&mut self, now: Instant, wants: &[Vec<ReadyRows>]) -> bool {
        let steps = wants.iter().filter(|wants| !wants.is_empty()).count();
        let threads = self.pool.as_ref().map_or(1, |pool| pool.threads());
        let each = self.tick_budget(now, wants).of_parallel_steps(steps, threads);
        let mut plans: Vec<Vec<Vec<ScheduledRows>>> = Vec::with_capacity(wants.len());
        for (at, wants) in wants.iter().enumerate() {
            // Parallel steps have the same time each, and leave none to those after them.
            let shares = self.planner.plan(at, now, wants, &[], &mut each.clone());
            self.charge(at, &shares);
            plans.push(self.batches(shares));
        }
        if plans.iter().all(Vec::is_empty) {
            return false;
        }
        let mut encoder_plan: Vec<Vec<ScheduledRows>> = std::mem::take(&mut plans[ENCODER]);
        let mut windows = Vec::new();
        if let Some(Hearing::Rows(_)) = &self.model.hearing {
            // A window is encoded by itself, so the encoder's batches need not be kept apart.
            encoder_plan = vec![encoder_plan.into_iter().flatten().collect()];
            encoder_plan.retain(|batch| !batch.is_empty());
            windows = encoder_plan.first().map(|batch| self.take_windows(batch)).unwrap_or_default();
        }

        let Self {
            model: Model { stages, hearing, codec, slots, .. },
            sessions,
            out_of_band,
            clock,
            pool: Some(pool),
            ..
        } = self
        else {
            return false;
        };
        let last = stages.len();
        let mut tasks: Vec<Task<'_>> = Vec::with_capacity(wants.len());
        // The last stage first: its output is due first.
        for (index, stage) in stages.iter_mut().enumerate().rev() {
            let batches = std::mem::take(&mut plans[index + 1]);
            let unit = Unit::Stage(stage.as_mut());
            tasks.push(Task { at: index + 1, unit, batches, windows: Vec::new(), done: Vec::new() });
        }
        if let Some(hearing) = hearing {
            let unit = match hearing {
                Hearing::Rows(ears) => Unit::Encoder(ears.encoder.as_mut()),
                Hearing::Text(recogniser) => Unit::Recogniser(recogniser.as_mut(), *slots),
            };
            tasks.push(Task { at: ENCODER, unit, batches: encoder_plan, windows, done: Vec::new() });
        }
        tasks.retain(|task| !task.batches.is_empty());
        // Only the last stage's task locks it, but any thread may run that task.
        let sessions = Mutex::new(sessions);
        let sent = |at: usize, out: &mut Outbox| {
            if at == last
                && let Some(codec) = &*codec
            {
                let mut sessions = sessions.lock().unwrap_or_else(PoisonError::into_inner);
                send_samples(&mut sessions, out_of_band, codec, clock(), out);
            }
        };
        pool.for_each(&mut tasks, |_, task| task.run(clock, &sent));
        let done: Vec<(usize, Vec<Step>)> = tasks.into_iter().map(|task| (task.at, task.done)).collect();
        self.finish_steps(done);
        true
    }

    /// Records finished steps and routes their results.
    fn finish_steps(&mut self, done: Vec<(usize, Vec<Step>)>) {
        // Slots that are replayed: output of other stages in this tick belongs to the run before.
        let mut stale: BTreeSet<usize> = BTreeSet::new();
        for (at, steps) in &done {
            for step in steps {
                self.measured(*at, step.rows, step.took);
                if matches!(step.result, StepResult::Panicked) {
                    stale.extend(step.work.iter().map(|work| work.slot));
                    self.panicked(at - 1, &step.work);
                }
            }
        }
        for (at, steps) in done {
            for step in steps {
                self.step_began = step.began;
                match step.result {
                    StepResult::Encoded(encoded) => self.place_encoded(encoded),
                    StepResult::Recognised(recognised) => self.place_recognised(recognised),
                    StepResult::Items(mut out) => {
                        out.retain(|(slot, _)| !stale.contains(slot));
                        self.route(at - 1, out);
                    }
                    StepResult::Panicked => {}
                }
            }
        }
    }
}

/// Sends the samples among `out` to their callers.
fn send_samples(
    sessions: &mut BTreeMap<usize, Session>,
    out_of_band: &BTreeMap<usize, usize>,
    codec: &Codec,
    now: Instant,
    out: &mut Outbox,
) {
    for (slot, item) in std::mem::take(out) {
        let owner = out_of_band.get(&slot).copied().unwrap_or(slot);
        match (item, sessions.get_mut(&owner)) {
            (StageItem::Samples(samples), Some(session)) => {
                session.note_progress(slot, now);
                session.samples(slot, samples, codec, now);
            }
            (item, _) => out.push((slot, item)),
        }
    }
}
