//! Judges pauses with a turn-detection model, off the calls' tasks: a fixed number of threads behind a bounded queue.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use tokio::sync::oneshot;

/// Turns that may wait for each thread. A model takes some tens of milliseconds: what waits longer comes too late.
const QUEUED: usize = 4;

/// The probability that the turn in these samples has ended (16 kHz, -1..1), 0 to 1.
pub type TurnPredictor = dyn Fn(&[f32]) -> f32 + Send + Sync;

/// The model behind its queue. Every call has a clone; the threads end with the last one.
#[derive(Clone)]
pub struct TurnModelPool {
    queue: SyncSender<Job>,
}

/// A turn to judge, and who wants to know. The answer is `None` where the model fails.
struct Job {
    turn: Vec<f32>,
    answer: oneshot::Sender<Option<f32>>,
}

impl fmt::Debug for TurnModelPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TurnJudge")
    }
}

impl TurnModelPool {
    /// Starts `threads` threads that run the model.
    pub fn start(model: Arc<TurnPredictor>, threads: usize) -> std::io::Result<Self> {
        let (queue, jobs) = sync_channel(threads * QUEUED);
        let jobs = Arc::new(Mutex::new(jobs));
        for index in 0..threads {
            let (model, jobs) = (model.clone(), jobs.clone());
            thread::Builder::new().name(format!("turns-{index}")).spawn(move || work(&*model, &jobs))?;
        }
        Ok(Self { queue })
    }

    /// Has a turn judged; `None` where the queue is full. Dropping the receiver withdraws a turn that still waits.
    pub fn judge(&self, turn: Vec<f32>) -> Option<oneshot::Receiver<Option<f32>>> {
        let (answer, receiver) = oneshot::channel();
        match self.queue.try_send(Job { turn, answer }) {
            Ok(()) => Some(receiver),
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => None,
        }
    }
}

fn work(model: &TurnPredictor, jobs: &Mutex<Receiver<Job>>) {
    loop {
        // Whoever holds the lock waits for the next turn, the others for the lock.
        let job = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(Job { turn, answer }) = job else { return };
        if answer.is_closed() {
            continue;
        }
        // A panic costs this answer, not the thread.
        let judged = catch_unwind(AssertUnwindSafe(|| model(&turn))).ok();
        // Nobody listens where the call has ended.
        let _ = answer.send(judged.filter(|probability| probability.is_finite()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn each_turn_gets_its_answer() {
        let judge = TurnModelPool::start(Arc::new(|turn: &[f32]| turn[0]), 2).unwrap();
        let answers: Vec<_> = [0.1, 0.2, 0.3].map(|level| judge.judge(vec![level]).unwrap()).into();
        for (answer, level) in answers.into_iter().zip([0.1, 0.2, 0.3]) {
            assert_eq!(answer.await, Ok(Some(level)));
        }
        // The one panics, the other is no probability.
        for turn in [vec![], vec![f32::NAN], vec![], vec![]] {
            assert_eq!(judge.judge(turn).unwrap().await, Ok(None));
        }
        assert_eq!(judge.judge(vec![0.5]).unwrap().await, Ok(Some(0.5)));
    }

    #[tokio::test]
    async fn full_queue_refuses_and_a_withdrawn_turn_is_skipped() {
        let (begin, begun) = sync_channel::<f32>(16);
        let (release, released) = sync_channel::<()>(16);
        let released = Mutex::new(released);
        let model = move |turn: &[f32]| {
            begin.send(turn[0]).unwrap();
            released.lock().unwrap().recv().unwrap();
            0.5
        };
        let judge = TurnModelPool::start(Arc::new(model), 1).unwrap();
        let running = judge.judge(vec![0.0]).unwrap();
        assert_eq!(begun.recv(), Ok(0.0));
        let mut waiting: Vec<_> = (1..=QUEUED).map(|turn| judge.judge(vec![turn as f32]).unwrap()).collect();
        assert!(judge.judge(vec![9.0]).is_none());
        waiting.remove(0);
        // More than there are turns to judge.
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
