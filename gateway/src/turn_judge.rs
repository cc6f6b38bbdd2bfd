//! Runs the turn-detection model apart from the calls' tasks: a fixed number of threads behind a bounded queue.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use repartee_media::endpointing::PauseModel;
use tokio::sync::oneshot;

/// Queue length for each thread. A judgement takes milliseconds, with smart-turn tenths of a second, so a turn that waits
/// longer is judged too late.
const QUEUED: usize = 4;

/// Turn-detection model: returns the probability, 0 to 1, that the turn in these samples (16 kHz, -1..1) has ended.
pub type TurnPredictor = dyn Fn(&[f32]) -> f32 + Send + Sync;

/// Handle of the model's queue. Every call has a clone; the threads end with the last one.
#[derive(Clone)]
pub struct TurnModelPool {
    kind: PauseModel,
    queue: SyncSender<Job>,
}

/// Turn to judge, and the channel of its answer: `None` if the model fails.
struct Job {
    turn: Vec<f32>,
    prediction: oneshot::Sender<Option<f32>>,
}

impl fmt::Debug for TurnModelPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TurnJudge")
    }
}

impl TurnModelPool {
    /// Starts `threads` threads that run `model`, one of this kind.
    pub fn start(kind: PauseModel, model: Arc<TurnPredictor>, threads: usize) -> std::io::Result<Self> {
        let (queue, jobs) = sync_channel(threads * QUEUED);
        let jobs = Arc::new(Mutex::new(jobs));
        for index in 0..threads {
            let (model, jobs) = (model.clone(), jobs.clone());
            thread::Builder::new().name(format!("turns-{index}")).spawn(move || work(&*model, &jobs))?;
        }
        Ok(Self { kind, queue })
    }

    /// Kind of the model.
    pub fn kind(&self) -> PauseModel {
        self.kind
    }

    /// Queues a turn; `None` if the queue is full. Dropping the receiver withdraws a waiting turn.
    pub fn judge(&self, turn: Vec<f32>) -> Option<oneshot::Receiver<Option<f32>>> {
        let (answer, receiver) = oneshot::channel();
        match self.queue.try_send(Job { turn, prediction: answer }) {
            Ok(()) => Some(receiver),
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => None,
        }
    }
}

fn work(model: &TurnPredictor, jobs: &Mutex<Receiver<Job>>) {
    loop {
        // One thread holds the lock and waits for a turn; the others wait for the lock.
        let job = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(Job { turn, prediction: answer }) = job else { return };
        if answer.is_closed() {
            continue;
        }
        // A panic loses this answer and leaves the thread running.
        let judged = catch_unwind(AssertUnwindSafe(|| model(&turn))).ok();
        // The receiver is gone if the call has ended.
        let _ = answer.send(judged.filter(|probability| probability.is_finite()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn each_turn_gets_its_answer() {
        let judge = TurnModelPool::start(PauseModel::SmartTurn, Arc::new(|turn: &[f32]| turn[0]), 2).unwrap();
        let answers: Vec<_> = [0.1, 0.2, 0.3].map(|level| judge.judge(vec![level]).unwrap()).into();
        for (answer, level) in answers.into_iter().zip([0.1, 0.2, 0.3]) {
            assert_eq!(answer.await, Ok(Some(level)));
        }
        // An empty turn panics; NaN is no probability.
        for turn in [vec![], vec![f32::NAN], vec![], vec![]] {
            assert_eq!(judge.judge(turn).unwrap().await, Ok(None));
        }
        assert_eq!(judge.judge(vec![0.5]).unwrap().await, Ok(Some(0.5)));
    }

    #[tokio::test]
    async fn full_queue_refuses_and_withdrawn_turns_are_skipped() {
        let (begin, begun) = sync_channel::<f32>(16);
        let (release, released) = sync_channel::<()>(16);
        let released = Mutex::new(released);
        let model = move |turn: &[f32]| {
            begin.send(turn[0]).unwrap();
            released.lock().unwrap().recv().unwrap();
            0.5
        };
        let judge = TurnModelPool::start(PauseModel::SmartTurn, Arc::new(model), 1).unwrap();
        let running = judge.judge(vec![0.0]).unwrap();
        assert_eq!(begun.recv(), Ok(0.0));
        let mut waiting: Vec<_> = (1..=QUEUED).map(|turn| judge.judge(vec![turn as f32]).unwrap()).collect();
        assert!(judge.judge(vec![9.0]).is_none());
        waiting.remove(0);
        // More releases than there are turns.
        for _ in 0..2 * QUEUED {
            release.send(()).unwrap();
        }
        assert_eq!(running.await, Ok(Some(0.5)));
        for answer in waiting {
            assert_eq!(answer.await, Ok(Some(0.5)));
        }
        assert_eq!(begun.iter().take(QUEUED - 1).collect::<Vec<_>>(), [2.0, 3.0, 4.0]);
    }
}
