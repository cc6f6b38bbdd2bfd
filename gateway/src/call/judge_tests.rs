//! Calls whose pauses a model judges.

use std::sync::Mutex;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use repartee_engine_api::SpeechEngine as _;
use repartee_media::endpointing::PauseModel;
use repartee_testkit::scripted::{Script, ScriptedEngine};
use serde_json::json;
use tokio::time::timeout;

use super::allocation_tests::Silent;
use super::*;
use crate::call::judged;
use crate::testdata::question;

/// Longest wait of these tests.
const PATIENCE: Duration = Duration::from_secs(20);

/// Creates a call with `semantic_vad`, judged by `judge`.
fn call(judge: &TurnModelPool) -> CallTask {
    let model = ScriptedEngine::new(Script::default()).info().clone();
    let (session_id, stem, delivery) = ("sess_1".into(), "s".into(), Delivery::Unpaced);
    let setup = SessionSetup {
        session_id,
        stem,
        seed: 1,
        model,
        delivery,
        expires_at: None,
        configuration: None,
        warnings: Vec::new(),
    };
    let metrics = Arc::new(Metrics::new(Duration::from_millis(80)).unwrap());
    let (mut call, effects) = CallTask::new(setup, CallServices::new(metrics, Some(judge.clone())));
    call.apply(effects, &mut Silent);
    let detection = json!({"type": "semantic_vad", "eagerness": "medium"});
    let update = json!({"type": "session.update", "session": {"audio": {"input": {"turn_detection": detection}}}});
    call.on_event(TransportEvent::Event(update.to_string()), &mut Silent);
    call
}

impl CallTask {
    /// Processes `samples` at 16 kHz from the transport.
    fn hear(&mut self, samples: Vec<f32>) {
        self.on_event(TransportEvent::Audio { samples, rate: 16_000 }, &mut Silent);
        while self.input_pipeline.has_more() {
            self.process_input(&mut Silent);
        }
    }

    /// Waits for the answer to the open question.
    async fn take_answer(&mut self) {
        let answer = timeout(PATIENCE, judged(&mut self.judging)).await.expect("an answer in time");
        self.judged(answer, &mut Silent);
    }

    fn sent(&self, kind: &str) -> usize {
        let sent = |message: &&OutboundMessage| matches!(message, OutboundMessage::Event(sent, _) if *sent == kind);
        self.outbound.iter().filter(sent).count()
    }

    fn stopped(&self) -> usize {
        self.sent("input_audio_buffer.speech_stopped")
    }

    fn judgements(&self) -> [u64; 4] {
        ["ended", "continued", "failed", "busy"]
            .map(|outcome| self.metrics.turn_judgements.with_label_values(&[outcome]).get())
    }
}

fn silence(ms: usize) -> Vec<f32> {
    vec![0.0; ms * 16]
}

/// Creates a judge of one thread that answers `probability` on release; returns it with the lengths of its questions
/// and the release.
fn held(probability: f32) -> (TurnModelPool, Receiver<usize>, SyncSender<()>) {
    let (asked, questions) = sync_channel(16);
    let (release, released) = sync_channel(16);
    let released = Mutex::new(released);
    let model = move |turn: &[f32]| {
        asked.send(turn.len()).unwrap();
        // Nobody releases it after the test.
        let _ = released.lock().unwrap().recv();
        probability
    };
    (TurnModelPool::start(PauseModel::SmartTurn, Arc::new(model), 1).unwrap(), questions, release)
}

#[tokio::test]
async fn finished_turn_ends_without_more_audio() {
    let judge = TurnModelPool::start(PauseModel::SmartTurn, Arc::new(|_: &[f32]| 0.9), 1).unwrap();
    let mut call = call(&judge);
    call.hear(question());
    call.hear(silence(340));
    assert_eq!((call.stopped(), call.judging.is_some()), (0, true));
    call.take_answer().await;
    assert_eq!((call.stopped(), call.sent("response.created")), (1, 1));
    assert_eq!(call.judgements(), [1, 0, 0, 0]);
    assert_eq!(call.metrics.render().unwrap().matches("stage=\"endpointing\",le=\"+Inf\"} 1").count(), 1);
}

#[tokio::test]
async fn unfinished_turn_outlasts_the_fixed_silence() {
    let judge = TurnModelPool::start(PauseModel::SmartTurn, Arc::new(|_: &[f32]| 0.1), 1).unwrap();
    let mut call = call(&judge);
    call.hear(question());
    call.hear(silence(340));
    call.take_answer().await;
    call.hear(silence(1_000));
    assert_eq!(call.stopped(), 0, "the fixed silence is 700 ms");
    call.hear(silence(3_000));
    assert_eq!(call.stopped(), 1, "the longest is 4 s");
}

#[tokio::test]
async fn one_question_of_a_call_is_open() {
    let (judge, questions, release) = held(0.9);
    let mut call = call(&judge);
    call.hear(question());
    call.hear(silence(340));
    let first = questions.recv_timeout(PATIENCE).unwrap();
    call.hear(question());
    call.hear(silence(340));
    assert!(questions.try_recv().is_err());
    release.send(()).unwrap();
    call.take_answer().await;
    assert_eq!(call.judgements(), [0, 1, 0, 0], "its pause is over");
    assert_eq!(call.stopped(), 0);
    // The later pause is judged now.
    assert!(questions.recv_timeout(PATIENCE).unwrap() > first);
    release.send(()).unwrap();
    call.take_answer().await;
    assert_eq!((call.judgements(), call.stopped()), ([1, 1, 0, 0], 1));
}

#[tokio::test]
async fn full_queue_leaves_the_fixed_silence() {
    let (judge, questions, _release) = held(0.9);
    let mut waiting = vec![judge.judge(vec![0.0]).unwrap()];
    questions.recv_timeout(PATIENCE).unwrap();
    while let Some(answer) = judge.judge(vec![0.0]) {
        waiting.push(answer);
    }
    let mut call = call(&judge);
    call.hear(question());
    call.hear(silence(1_000));
    assert_eq!((call.stopped(), call.judging.is_some()), (1, false));
    assert_eq!(call.judgements(), [0, 0, 0, 1]);
}
