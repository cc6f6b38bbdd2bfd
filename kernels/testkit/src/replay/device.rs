//! The replay device: values of a step by number, and recordings.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use repartee_kernels::{Ops, RowSpec, StepKey};

/// Bounds on the device that does the operations.
pub trait Replayable:
    Ops<T: Send, Index: Send, Batch: Send, Spec: Send, Weight: Send + Sync, State: Send> + Send + Sync + 'static
{
}

impl<O> Replayable for O where
    O: Ops<T: Send, Index: Send, Batch: Send, Spec: Send, Weight: Send + Sync, State: Send> + Send + Sync + 'static
{
}

/// A device that records and replays steps; see the module's description. Clones share their recordings.
pub struct ReplayOps<O: Replayable> {
    pub(super) inner: Arc<O>,
    pub(super) shared: Arc<Mutex<Shared<O>>>,
    /// Held during a launch: one step at a time is recorded or replayed.
    pub(super) launching: Arc<Mutex<()>>,
}

pub(super) struct Shared<O: Replayable> {
    pub(super) tapes: HashMap<StepKey, Tape<O>>,
    /// The step under recording.
    pub(super) recording: Option<Recording<O>>,
    /// Number of steps recorded so far.
    pub(super) recorded: u64,
}

pub(super) type Operation<O> = Box<dyn Fn(&O, &mut Values<O>) + Send>;

/// Values of a step, by number.
pub(super) struct Values<O: Replayable> {
    pub(super) spec: Option<O::Spec>,
    pub(super) tensors: Vec<Option<O::T>>,
    pub(super) indexes: Vec<Option<O::Index>>,
    pub(super) batches: Vec<Option<O::Batch>>,
}

pub(super) struct Recording<O: Replayable> {
    pub(super) step: u64,
    pub(super) values: Values<O>,
    pub(super) operations: Vec<Operation<O>>,
}

pub(super) struct Tape<O: Replayable> {
    pub(super) values: Values<O>,
    pub(super) operations: Vec<Operation<O>>,
    pub(super) ids: Vec<usize>,
    pub(super) rows: Vec<usize>,
}

/// A tensor of a step; dropping it releases the value.
pub struct RecordedTensor<O: Replayable> {
    /// `None` once an operation has consumed it.
    pub(super) number: Option<usize>,
    pub(super) step: u64,
    pub(super) shared: Arc<Mutex<Shared<O>>>,
}

/// Handle of a list or a batch of a step.
#[derive(Debug, Clone, Copy)]
pub struct RecordedList {
    pub(super) number: usize,
    pub(super) step: u64,
}

impl<O: Replayable> Values<O> {
    pub(super) fn new() -> Self {
        Self { spec: None, tensors: Vec::new(), indexes: Vec::new(), batches: Vec::new() }
    }

    pub(super) fn spec(&self) -> &O::Spec {
        self.spec.as_ref().expect("a launch uploads it before anything else")
    }

    pub(super) fn tensor(&self, number: usize) -> &O::T {
        self.tensors[number].as_ref().expect("a tensor's handle outlives its uses")
    }

    pub(super) fn take(&mut self, number: usize) -> O::T {
        self.tensors[number].take().expect("a tensor's handle is given away once")
    }

    pub(super) fn index(&self, number: usize) -> &O::Index {
        self.indexes[number].as_ref().expect("lists live as long as their step")
    }

    pub(super) fn batch(&self, number: usize) -> &O::Batch {
        self.batches[number].as_ref().expect("batches live as long as their step")
    }

    pub(super) fn clear(&mut self) {
        self.spec = None;
        self.tensors.iter_mut().for_each(|tensor| *tensor = None);
        self.indexes.iter_mut().for_each(|index| *index = None);
        self.batches.iter_mut().for_each(|batch| *batch = None);
    }
}

impl<O: Replayable> RecordedTensor<O> {
    /// Returns the number of a tensor that the operation only reads.
    pub(super) fn read(&self) -> usize {
        self.number.expect("an operation that takes a tensor takes its handle")
    }

    /// Returns the number of a tensor that the operation consumes.
    pub(super) fn give(mut self) -> usize {
        self.number.take().expect("an operation that takes a tensor takes its handle")
    }
}

impl<O: Replayable> Drop for RecordedTensor<O> {
    fn drop(&mut self) {
        let Some(number) = self.number else { return };
        let mut shared = lock(&self.shared);
        if let Some(recording) = shared.recording.as_mut().filter(|recording| recording.step == self.step) {
            recording.values.tensors[number] = None;
            recording.operations.push(Box::new(move |_, values| values.tensors[number] = None));
        }
    }
}

impl<O: Replayable> fmt::Debug for RecordedTensor<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Value").field(&self.number).finish()
    }
}

impl<O: Replayable> Clone for ReplayOps<O> {
    fn clone(&self) -> Self {
        let (inner, shared) = (Arc::clone(&self.inner), Arc::clone(&self.shared));
        Self { inner, shared, launching: Arc::clone(&self.launching) }
    }
}

impl<O: Replayable> fmt::Debug for ReplayOps<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReplayOps")
    }
}

/// Locks, also after a panic in a step: the next launch replaces its recording.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Panics for a call that a replay would not repeat.
#[track_caller]
pub(super) fn refuse(what: &str) -> ! {
    panic!("{what} is not an operation of a step: its numbers would be recorded with it")
}

impl<O: Replayable> ReplayOps<O> {
    /// Records and replays steps of `inner`.
    pub fn new(inner: O) -> Self {
        let shared = Shared { tapes: HashMap::new(), recording: None, recorded: 0 };
        Self { inner: Arc::new(inner), shared: Arc::new(Mutex::new(shared)), launching: Arc::default() }
    }

    /// Number of steps recorded; every other launch was a replay.
    pub fn recorded(&self) -> u64 {
        lock(&self.shared).recorded
    }

    /// Does and records an operation; its result is appended to `list`.
    pub(super) fn note<R>(
        &self,
        operation: impl Fn(&O, &mut Values<O>) -> R + Send + 'static,
        list: fn(&mut Values<O>) -> &mut Vec<Option<R>>,
    ) -> RecordedList
    where
        R: 'static,
    {
        let mut shared = lock(&self.shared);
        let recording = shared.recording.as_mut().expect("operations happen within a launched step");
        let result = operation(&self.inner, &mut recording.values);
        let number = list(&mut recording.values).len();
        list(&mut recording.values).push(Some(result));
        recording.operations.push(Box::new(move |ops, values| {
            let result = operation(ops, values);
            list(values)[number] = Some(result);
        }));
        RecordedList { number, step: recording.step }
    }

    pub(super) fn tensor_of(
        &self,
        operation: impl Fn(&O, &mut Values<O>) -> O::T + Send + 'static,
    ) -> RecordedTensor<O> {
        let RecordedList { number, step } = self.note(operation, |values| &mut values.tensors);
        RecordedTensor { number: Some(number), step, shared: Arc::clone(&self.shared) }
    }

    pub(super) fn index_of(&self, operation: impl Fn(&O, &mut Values<O>) -> O::Index + Send + 'static) -> RecordedList {
        self.note(operation, |values| &mut values.indexes)
    }

    /// Does and records an operation without a result.
    pub(super) fn note_effect(&self, operation: impl Fn(&O, &mut Values<O>) + Send + 'static) {
        let mut shared = lock(&self.shared);
        let recording = shared.recording.as_mut().expect("operations happen within a launched step");
        operation(&self.inner, &mut recording.values);
        recording.operations.push(Box::new(operation));
    }

    pub(super) fn look<R>(&self, look: impl FnOnce(&O, &Values<O>) -> R) -> R {
        let shared = lock(&self.shared);
        look(&self.inner, &shared.recording.as_ref().expect("tensors are of a launched step").values)
    }

    /// Reads back a step's outputs, by number, and drops its values.
    pub(super) fn read_back(
        &self,
        key: StepKey,
        spec: &RowSpec,
        values: &mut Values<O>,
        (ids, rows): (&[usize], &[usize]),
    ) -> O::Ticket {
        let ticket = self.inner.launch(key, spec, &mut |_, _, outputs| {
            outputs.ids.extend(ids.iter().map(|&number| values.index(number).clone()));
            outputs.rows.extend(rows.iter().map(|&number| values.take(number)));
        });
        values.clear();
        ticket
    }
}
