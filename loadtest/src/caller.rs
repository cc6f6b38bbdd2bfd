//! One caller: dials, asks, listens, pauses and asks again.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde_json::{Map, Value, json};
use tokio::time::sleep_until;

use crate::measure::log::{CallLog, ScenarioLog, TurnLog};
use crate::questions::Question;
use crate::random::Random;
use crate::scenario::{EndOfTurn, Scenario, TransportKind};
use crate::speech::{FRAME, Frame, Utterance};
use crate::target::Target;
use crate::transport::Transport;
use crate::turn::{NextAction, TurnTracker};

/// Shortest wait before a caller calls again, also after a refusal.
const REDIAL: Duration = Duration::from_secs(1);

/// Shared data of all callers of a scenario.
#[derive(Debug)]
pub struct SharedRun {
    /// The scenario to run.
    pub scenario: Scenario,
    /// The server under load.
    pub target: Target,
    /// Questions to ask.
    pub questions: Vec<Question>,
    /// Frame of silence, sent while the caller does not speak.
    pub silence: Frame,
    /// Start of the scenario.
    pub begun: Instant,
    /// Seed of the load; the same seed repeats it.
    pub seed: u64,
    /// Log of all calls.
    pub log: Mutex<ScenarioLog>,
}

impl SharedRun {
    /// Locks the log and calls `change` on it.
    pub fn log<T>(&self, change: impl FnOnce(&mut ScenarioLog) -> T) -> T {
        change(&mut self.log.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Time after which callers ask no more questions.
    fn end(&self) -> Instant {
        self.begun + self.scenario.duration()
    }

    /// Draws the pause before the next question.
    fn think_time(&self, random: &mut Random) -> Duration {
        let mean = self.scenario.think_s;
        Duration::from_secs_f64(random.exponential(mean).min(mean * 4.0))
    }

    fn question(&self, caller: usize, turn: usize) -> &Question {
        // Callers begin at different questions.
        &self.questions[(caller * 7 + turn) % self.questions.len()]
    }
}

/// Makes one caller's calls, one after the other, and logs them.
pub async fn run_caller(plan: Arc<SharedRun>, caller: usize) {
    let mut random = Random::new(plan.seed ^ (caller as u64).wrapping_mul(0x9e37_79b9));
    let mut asked = 0;
    loop {
        call(&plan, caller, asked, &mut random).await;
        asked += plan.scenario.turns;
        let again = Instant::now() + plan.think_time(&mut random).max(REDIAL);
        if !plan.scenario.arrivals.call_again() || again >= plan.end() {
            return;
        }
        sleep_until(again.into()).await;
    }
}

/// Makes one call and logs it. `asked` counts the questions of earlier calls.
async fn call(plan: &SharedRun, caller: usize, asked: usize, random: &mut Random) {
    let began = plan.begun.elapsed();
    let mut this = Caller { plan, number: caller, asked, setup: None, transport: None, tick: Instant::now() };
    plan.log(|log| log.active += 1);
    let hang_up = plan.scenario.hang_up_after_s.map(|mean| Duration::from_secs_f64(random.exponential(mean)));
    let ended = match hang_up {
        // A hang-up in the middle is no error.
        Some(after) => tokio::time::timeout(after, this.run_call(random)).await.unwrap_or(Ok(())),
        None => this.run_call(random).await,
    };
    let rtp = this.transport.as_ref().and_then(Transport::report);
    if let Some(line) = &mut this.transport {
        line.close().await;
    }
    let setup = this.setup;
    plan.log(|log| {
        log.active -= 1;
        log.calls.push(CallLog { began, setup, ended: plan.begun.elapsed(), rtp });
        if let Err(error) = ended {
            log.error(format!("{error:#}"));
        }
    });
}

struct Caller<'a> {
    plan: &'a SharedRun,
    number: usize,
    /// Number of questions in earlier calls.
    asked: usize,
    setup: Option<Duration>,
    transport: Option<Transport>,
    /// Due time of the microphone's next frame.
    tick: Instant,
}

impl Caller<'_> {
    async fn run_call(&mut self, random: &mut Random) -> Result<()> {
        let (plan, number) = (self.plan, self.number);
        let begun = Instant::now();
        let patience = begun + plan.scenario.patience();
        let line = Transport::call(&plan.target, number, &plan.scenario, plan.seed ^ number as u64, patience).await?;
        self.transport = Some(line);
        self.setup = Some(begun.elapsed());
        self.configure(patience).await?;
        self.tick = Instant::now();
        let stay = plan.scenario.arrivals.stay();
        let mut turn = 0;
        while turn < plan.scenario.turns || stay {
            if turn > 0 {
                self.pause(plan.think_time(random)).await?;
            }
            // Every connected caller asks at least once, even after a long set-up.
            if turn > 0 && Instant::now() >= plan.end() {
                break;
            }
            self.ask(self.asked + turn).await?;
            turn += 1;
        }
        Ok(())
    }

    fn transport(&mut self) -> Result<&mut Transport> {
        self.transport.as_mut().context("the call is not connected")
    }

    /// Sends `session.update` with the scenario's session fields, and waits for the reply.
    async fn configure(&mut self, patience: Instant) -> Result<()> {
        let scenario = &self.plan.scenario;
        let mut session = scenario.session.clone();
        if scenario.end_of_turn == EndOfTurn::Client {
            let mut field = &mut session;
            for name in ["audio", "input"] {
                let inner = field.entry(name).or_insert_with(|| Value::Object(Map::new()));
                field = inner.as_object_mut().with_context(|| format!("session.{name} is no table"))?;
            }
            field.insert("turn_detection".into(), Value::Null);
        }
        if session.is_empty() {
            return Ok(());
        }
        session.insert("type".into(), "realtime".into());
        let line = self.transport()?;
        line.send_event(&json!({"type": "session.update", "session": session})).await?;
        loop {
            match line.next(patience).await?.map(|incoming| incoming.event) {
                Some(crate::server_events::Event::Updated) => return Ok(()),
                Some(crate::server_events::Event::Error(code)) => bail!("session.update: {code}"),
                Some(_) => {}
                None => bail!("the session was not set up in time"),
            }
        }
    }

    /// True if the microphone sends silence between turns.
    fn always_sends(&self) -> bool {
        let scenario = &self.plan.scenario;
        scenario.transport != TransportKind::Websocket || scenario.end_of_turn == EndOfTurn::Server
    }

    /// Sends a frame that is due, and logs its lateness. Returns the time of sending.
    async fn send(&mut self, frame: &Frame) -> Result<Instant> {
        let late = self.tick.elapsed();
        self.plan.log(|log| log.lateness.add(late));
        let line = self.transport()?;
        line.send_frame(frame).await?;
        self.tick += FRAME;
        // A microphone that is more than a second behind continues from now.
        if self.tick.elapsed() > Duration::from_secs(1) {
            self.tick = Instant::now();
        }
        Ok(Instant::now())
    }

    /// Waits for `duration`; reads events and sends silence meanwhile.
    async fn pause(&mut self, duration: Duration) -> Result<()> {
        let end = Instant::now() + duration;
        while Instant::now() < end {
            let due = self.tick.min(end);
            while self.transport()?.next(due).await?.is_some() {}
            if Instant::now() >= self.tick {
                if self.always_sends() {
                    let plan = self.plan;
                    self.send(&plan.silence).await?;
                } else {
                    self.tick += FRAME;
                }
            }
        }
        Ok(())
    }

    /// Asks one question and listens to the whole answer.
    async fn ask(&mut self, number: usize) -> Result<()> {
        let plan = self.plan;
        let scenario = &plan.scenario;
        let mut question = plan.question(self.number, number);
        let next = plan.question(self.number, number + 1);
        self.transport()?.playback().take_answer();
        self.tick = self.tick.max(Instant::now());
        let mut turn = match scenario.answers_in_slices() {
            true => TurnTracker::sliced(scenario.transport),
            false => TurnTracker::new(scenario.transport, scenario.interrupt_after_s.map(Duration::from_secs_f64)),
        };
        let (mut spoken, mut index) = (&question.utterance, 0);
        let patience = scenario.patience();
        loop {
            let tick = self.tick;
            let playback = self.transport()?.playback();
            match turn.progress(Instant::now(), playback, patience) {
                NextAction::Wait => {}
                NextAction::BargeIn => (spoken, index, question) = (&next.utterance, 0, next),
                NextAction::Over => break,
                NextAction::Failed(why) => bail!(why),
            }
            match self.transport()?.next(tick).await? {
                Some(incoming) => {
                    if let Some(code) = turn.event(incoming) {
                        plan.log(|log| log.error(format!("error event: {code}")));
                    }
                }
                None => {
                    index += usize::from(self.speak(&mut turn, spoken, index).await?);
                }
            }
        }
        let answer = self.transport()?.playback().take_answer();
        match turn.into_times(&answer) {
            Ok(times) => plan.log(|log| {
                log.turns.push(TurnLog {
                    call: self.number,
                    speech_end: times.speech_end.saturating_duration_since(plan.begun),
                    endpointing: times.endpointing,
                    ttfp: times.ttfp,
                    to_sound: times.to_sound,
                    barge_in: times.barge_in,
                    correct: times.transcript.as_deref().and_then(|text| question.is_right(text)),
                    answer,
                });
            }),
            Err(why) => plan.log(|log| log.error(why)),
        }
        Ok(())
    }

    /// Sends frame `index` of `spoken`, or silence after its end. Returns true if the frame was speech.
    async fn speak(&mut self, turn: &mut TurnTracker, spoken: &Utterance, index: usize) -> Result<bool> {
        let Some(frame) = spoken.frames.get(index) else {
            let plan = self.plan;
            if self.always_sends() {
                self.send(&plan.silence).await?;
            } else {
                self.tick += FRAME;
            }
            return Ok(false);
        };
        let sent = self.send(frame).await?;
        turn.frame_sent(spoken, index, sent, self.transport()?.playback());
        if index + 1 == spoken.frames.len() && self.plan.scenario.end_of_turn == EndOfTurn::Client {
            let line = self.transport()?;
            line.send_event(&json!({"type": "input_audio_buffer.commit"})).await?;
            line.send_event(&json!({"type": "response.create"})).await?;
            turn.committed(Instant::now());
        }
        Ok(true)
    }
}
