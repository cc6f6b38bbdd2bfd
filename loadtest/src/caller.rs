//! One caller: dials, asks, listens, thinks, and asks again.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde_json::{Map, Value, json};
use tokio::time::sleep_until;

use crate::transport::Transport;
use crate::measure::log::{CallLog, ScenarioLog, TurnLog};
use crate::questions::Question;
use crate::random::Random;
use crate::scenario::{EndOfTurn, Scenario, TransportKind};
use crate::speech::{FRAME, Frame, Utterance};
use crate::target::Target;
use crate::turn::{NextAction, TurnTracker};

/// Who calls again waits at least so long, also where calls are refused.
const REDIAL: Duration = Duration::from_secs(1);

/// What all callers of a scenario share.
#[derive(Debug)]
pub struct SharedRun {
    /// What they do.
    pub scenario: Scenario,
    /// The server.
    pub target: Target,
    /// What they ask.
    pub questions: Vec<Question>,
    /// What their microphones send otherwise.
    pub silence: Frame,
    /// When the scenario began.
    pub begun: Instant,
    /// Repeats the load.
    pub seed: u64,
    /// What happened.
    pub log: Mutex<ScenarioLog>,
}

impl SharedRun {
    /// Changes the log.
    pub fn log<T>(&self, change: impl FnOnce(&mut ScenarioLog) -> T) -> T {
        change(&mut self.log.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// When callers ask nothing more.
    fn end(&self) -> Instant {
        self.begun + self.scenario.duration()
    }

    /// How long a caller waits before the next question.
    fn think_time(&self, random: &mut Random) -> Duration {
        let mean = self.scenario.think_s;
        Duration::from_secs_f64(random.exponential(mean).min(mean * 4.0))
    }

    fn question(&self, caller: usize, turn: usize) -> &Question {
        // Callers begin at different questions.
        &self.questions[(caller * 7 + turn) % self.questions.len()]
    }
}

/// Makes a caller's calls, one after the other, and logs them.
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

/// Makes one call from beginning to end, and logs it. The caller has asked so many questions before.
async fn call(plan: &SharedRun, caller: usize, asked: usize, random: &mut Random) {
    let began = plan.begun.elapsed();
    let mut this = Caller { plan, number: caller, asked, setup: None, line: None, tick: Instant::now() };
    plan.log(|log| log.active += 1);
    let hang_up = plan.scenario.hang_up_after_s.map(|mean| Duration::from_secs_f64(random.exponential(mean)));
    let ended = match hang_up {
        // A caller who hangs up in the middle has no complaint.
        Some(after) => tokio::time::timeout(after, this.run_call(random)).await.unwrap_or(Ok(())),
        None => this.run_call(random).await,
    };
    let rtp = this.line.as_ref().and_then(Transport::report);
    if let Some(line) = &mut this.line {
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
    /// Questions of earlier calls.
    asked: usize,
    setup: Option<Duration>,
    line: Option<Transport>,
    /// When the next frame of the microphone is due.
    tick: Instant,
}

impl Caller<'_> {
    async fn run_call(&mut self, random: &mut Random) -> Result<()> {
        let (plan, number) = (self.plan, self.number);
        let begun = Instant::now();
        let patience = begun + plan.scenario.patience();
        let line = Transport::call(&plan.target, number, &plan.scenario, plan.seed ^ number as u64, patience).await?;
        self.line = Some(line);
        self.setup = Some(begun.elapsed());
        self.configure(patience).await?;
        self.tick = Instant::now();
        let stay = plan.scenario.arrivals.stay();
        let mut turn = 0;
        while turn < plan.scenario.turns || stay {
            if turn > 0 {
                self.pause(plan.think_time(random)).await?;
            }
            // Who has got through asks at least once, however long the set-up took.
            if turn > 0 && Instant::now() >= plan.end() {
                break;
            }
            self.ask(self.asked + turn).await?;
            turn += 1;
        }
        Ok(())
    }

    fn line(&mut self) -> Result<&mut Transport> {
        self.line.as_mut().context("there is no line")
    }

    /// Asks for the session that the scenario wants.
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
        let line = self.line()?;
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

    /// Whether the microphone is open between turns.
    fn always_sends(&self) -> bool {
        let scenario = &self.plan.scenario;
        scenario.transport == TransportKind::Webrtc || scenario.end_of_turn == EndOfTurn::Server
    }

    /// Sends one frame that is due now, and says when it left.
    async fn send(&mut self, frame: &Frame) -> Result<Instant> {
        let late = self.tick.elapsed();
        self.plan.log(|log| log.lateness.add(late));
        let line = self.line()?;
        line.send_frame(frame).await?;
        self.tick += FRAME;
        // After a second without a chance to send, the microphone goes on from now.
        if self.tick.elapsed() > Duration::from_secs(1) {
            self.tick = Instant::now();
        }
        Ok(Instant::now())
    }

    /// Does nothing for a while but to keep the line open.
    async fn pause(&mut self, duration: Duration) -> Result<()> {
        let end = Instant::now() + duration;
        while Instant::now() < end {
            let due = self.tick.min(end);
            while self.line()?.next(due).await?.is_some() {}
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

    /// Asks one question and hears the answer out.
    async fn ask(&mut self, number: usize) -> Result<()> {
        let plan = self.plan;
        let scenario = &plan.scenario;
        let mut question = plan.question(self.number, number);
        let next = plan.question(self.number, number + 1);
        self.line()?.playback().take_answer();
        self.tick = self.tick.max(Instant::now());
        let mut turn = match scenario.answers_in_slices() {
            true => TurnTracker::sliced(scenario.transport),
            false => TurnTracker::new(scenario.transport, scenario.interrupt_after_s.map(Duration::from_secs_f64)),
        };
        let (mut spoken, mut index) = (&question.utterance, 0);
        let patience = scenario.patience();
        loop {
            let tick = self.tick;
            let playback = self.line()?.playback();
            match turn.progress(Instant::now(), playback, patience) {
                NextAction::Wait => {}
                NextAction::BargeIn => (spoken, index, question) = (&next.utterance, 0, next),
                NextAction::Over => break,
                NextAction::Failed(why) => bail!(why),
            }
            match self.line()?.next(tick).await? {
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
        let answer = self.line()?.playback().take_answer();
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

    /// Sends frame `index` of what is spoken, or silence after it; whether it was speech.
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
        turn.frame_sent(spoken, index, sent, self.line()?.playback());
        if index + 1 == spoken.frames.len() && self.plan.scenario.end_of_turn == EndOfTurn::Client {
            let line = self.line()?;
            line.send_event(&json!({"type": "input_audio_buffer.commit"})).await?;
            line.send_event(&json!({"type": "response.create"})).await?;
            turn.committed(Instant::now());
        }
        Ok(true)
    }
}
