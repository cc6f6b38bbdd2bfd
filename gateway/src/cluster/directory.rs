//! Directory: the table of nodes, shared by all requests, and the task that feeds it from the bus.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use repartee_cluster::{KeySpent, KeyUse, Liveness, MessageKind, NodeLoad, Table, TableEffect, TableInput};
use tokio::sync::{mpsc, watch};
use tokio::time::{interval, sleep_until, timeout};

use super::bus::Bus;

/// Interval at which the node's own load is measured.
const LOAD_EVERY: Duration = Duration::from_millis(50);
/// Measurements of the load between two of the keys' use, while no call begins.
const LOADS_PER_KEYS: u32 = 4;
/// Own messages that may wait for the bus; more are lost.
const MAX_QUEUED: usize = 64;
/// Time for the last message to reach the bus.
const LEAVE_TIMEOUT: Duration = Duration::from_millis(500);

type OwnMessage = (MessageKind, Vec<u8>);

/// This node, as its directory asks it.
pub trait LocalNode: Send + Sync {
    /// Slots, and those that a call would get now.
    fn load(&self) -> NodeLoad;

    /// Present use by all API keys.
    fn keys(&self) -> Vec<KeyUse>;

    /// Calls that one key may have on all nodes; 0 for no limit.
    fn calls_per_key(&self) -> u32;

    /// Number of changes of the recorded voices and consents; 0 while there are none.
    fn voices(&self) -> u32;

    /// Takes what keys have used on another node.
    fn charge(&self, spent: &[KeySpent]);
}

/// Table of nodes, shared by all requests.
pub struct Directory {
    node: Box<dyn LocalNode>,
    table: Mutex<Table>,
    queue: mpsc::Sender<OwnMessage>,
    /// Taken by [`Self::run`].
    queued: Mutex<Option<mpsc::Receiver<OwnMessage>>>,
    /// Number of nodes that take part, this one included.
    count: watch::Sender<usize>,
    /// True if a call has begun since the keys' use was measured.
    has_begun: AtomicBool,
}

impl fmt::Debug for Directory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Directory").field("own", self.table().own()).finish_non_exhaustive()
    }
}

impl Directory {
    /// Shares a table; `count` is told the number of nodes that take part, this one included.
    pub fn new(table: Table, count: watch::Sender<usize>, node: Box<dyn LocalNode>) -> Arc<Self> {
        let (queue, queued) = mpsc::channel(MAX_QUEUED);
        let (table, queued, has_begun) = (Mutex::new(table), Mutex::new(Some(queued)), AtomicBool::new(false));
        Arc::new(Self { node, table, queue, queued, count, has_begun })
    }

    /// Reads the table, or asks it for a choice, at the present time.
    pub fn with<T>(&self, ask: impl FnOnce(&mut Table, Instant) -> T) -> T {
        ask(&mut self.table(), Instant::now())
    }

    /// Gives the table an input.
    pub fn input(&self, input: TableInput<'_>) {
        let now = Instant::now();
        let (effects, others) = {
            let mut table = self.table();
            let effects = table.handle(input, now);
            let others = table.nodes(now).filter(|(_, liveness)| *liveness == Liveness::Fresh).count();
            (effects, others)
        };
        self.count.send_if_modified(|count| std::mem::replace(count, others + 1) != others + 1);
        for effect in effects {
            match effect {
                TableEffect::Publish(kind, message) => {
                    if self.queue.try_send((kind, message)).is_err() {
                        tracing::debug!(kind = kind.label(), "an own message was lost before the bus");
                    }
                }
                TableEffect::Spent(spent) => self.node.charge(&spent),
                TableEffect::Joined(node) => tracing::info!(%node, "a node joined"),
                TableEffect::Left(node, liveness) => tracing::info!(%node, ?liveness, "a node left"),
                TableEffect::Feed(feed) => tracing::info!(?feed, "messages of nodes"),
                TableEffect::NameTaken(node) => {
                    tracing::error!(%node, "another node has this node's cluster.name: give each its own");
                }
            }
        }
    }

    /// Gives the table this node's present load.
    pub fn measure(&self) {
        self.input(TableInput::Load(self.node.load()));
    }

    /// Notes that a call has begun here: its key's use is measured soon.
    pub fn note_call(&self) {
        self.has_begun.store(true, Ordering::Relaxed);
    }

    /// Gives the table what the next beat tells beside the load.
    fn measure_use(&self) {
        self.input(TableInput::KeyLimit(self.node.calls_per_key()));
        self.input(TableInput::Keys(&self.node.keys()));
        self.input(TableInput::Voices(self.node.voices()));
    }

    /// Feeds the table from the bus until this node [leaves](Self::leave).
    pub async fn run(self: Arc<Self>, mut bus: Box<dyn Bus>) {
        let Some(mut queued) = self.queued.lock().unwrap_or_else(PoisonError::into_inner).take() else { return };
        let mut measure = interval(LOAD_EVERY);
        measure.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        self.measure();
        self.measure_use();
        let (mut has_ended, mut measured) = (false, 0_u32);
        loop {
            let tick = self.table().next_tick();
            tokio::select! {
                message = bus.next(), if !has_ended => match message {
                    Some(message) => self.input(TableInput::Message(&message)),
                    None => has_ended = true,
                },
                message = queued.recv() => {
                    // The queue lives as long as this directory.
                    let Some((kind, message)) = message else { return };
                    bus.publish(kind, message).await;
                    if kind == MessageKind::Bye {
                        return;
                    }
                }
                () = sleep_until(tick.into()) => {
                    self.measure_use();
                    self.input(TableInput::Tick);
                }
                _ = measure.tick() => {
                    self.measure();
                    measured = measured.wrapping_add(1);
                    if self.has_begun.swap(false, Ordering::Relaxed) || measured.is_multiple_of(LOADS_PER_KEYS) {
                        self.measure_use();
                    }
                }
            }
        }
    }

    /// Tells the others that this node ends; returns once `running`, the task of [`Self::run`], has done so.
    pub async fn leave(&self, running: tokio::task::JoinHandle<()>) {
        let abort = running.abort_handle();
        self.input(TableInput::Stop);
        if timeout(LEAVE_TIMEOUT, running).await.is_err() {
            abort.abort();
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // A panic of the table is a bug that the next input may not meet; its parts are replaced whole.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
