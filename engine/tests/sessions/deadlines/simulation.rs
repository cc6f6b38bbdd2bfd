//! A simulated engine on a virtual clock: the real planner, and the measured durations of the demo model's steps, with
//! noise and rare slow steps.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use repartee_engine::internals::{Planner, ReadyRows, RowKind, SchedulingOrder, StepLimits, StepRows, Urgency};
use repartee_kernels::random::uniform;

use super::step_costs::seconds;

/// Duration of a codec frame.
const FRAME: Duration = Duration::from_millis(80);
/// Rows of a short prompt.
const SHORT: usize = 20;
/// Rows of the talker's prompt after the caller's.
const HEADER: usize = 9;
/// One in this many steps is slower by [`SLOW`] seconds, as if another process had the CPU.
const SLOW_EVERY: f32 = 400.0;
const SLOW: f64 = 0.015;
/// Seeds of the random numbers.
const ARRIVALS: u64 = 7;
const NOISE: u64 = 8;

const THINKER: usize = 0;
const TALKER: usize = 1;
const CODE2WAV: usize = 2;

/// The callers of a simulation.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    pub callers: usize,
    /// Callers that arrive in a second.
    pub rate: f64,
    /// One in this many callers has a prompt of `long` rows, the others of [`SHORT`].
    pub long_every: usize,
    pub long: usize,
    /// Further callers, with prompts of `long` rows, who are there from the start.
    pub at_once: usize,
    /// Further callers who are there from the start and are not counted.
    pub rush: Option<Rush>,
}

/// Callers that come at once.
#[derive(Debug, Clone, Copy)]
pub struct Rush {
    pub callers: usize,
    /// Rows of their prompts.
    pub rows: usize,
    /// True if they belong to another tenant than the other callers.
    pub apart: bool,
    /// True if each begins anew when it has been served, as long as others come.
    pub renewed: bool,
}

/// One caller's turn.
struct Caller {
    asked: Instant,
    /// Prompt rows left for the thinker.
    prompt: usize,
    /// Prompt rows that the talker can read now, and later.
    talker_prompt: usize,
    /// Text tokens left, and tokens that the talker has not spoken.
    text: usize,
    unspoken: usize,
    /// Frames left, and frames that wait for the codec.
    left: usize,
    frames: usize,
    /// True if its prompt is short.
    short: bool,
    tenant: u64,
    /// True if its outcome is not counted.
    uncounted: bool,
    /// Time at which the caller has played everything.
    runs_out: Option<Instant>,
    /// Seconds of prefill steps before its last frame.
    prefill_before: f64,
    outcome: Turn,
}

/// Outcome of a turn.
#[derive(Debug, Clone, Copy, Default)]
struct Turn {
    first: Option<Duration>,
    underruns: usize,
    delayed: usize,
    silence: Duration,
}

impl Caller {
    fn new(number: usize, asked: Instant, prompt: usize) -> Self {
        let frames = 12 + (uniform(ARRIVALS, number as u64, 1, 0) * 60.0) as usize;
        Self {
            asked,
            prompt,
            talker_prompt: 0,
            text: frames / 3 + 1,
            unspoken: 0,
            left: frames,
            frames: 0,
            short: prompt <= SHORT,
            tenant: 0,
            uncounted: false,
            runs_out: None,
            prefill_before: 0.0,
            outcome: Turn::default(),
        }
    }

    /// Number of rows that a stage can advance, and their kind.
    fn ready(&self, stage: usize) -> (usize, RowKind) {
        match stage {
            THINKER if self.prompt > 0 => (self.prompt, RowKind::Prefill),
            THINKER => (self.text.min(1), RowKind::Decode),
            TALKER if self.talker_prompt > 0 => (self.talker_prompt, RowKind::Prefill),
            // A frame takes one text token while there are any; after the text's end the speech continues.
            TALKER => {
                let may = self.prompt == 0 && (self.unspoken > 0 || self.text == 0);
                (usize::from(may && self.left > 0), RowKind::Decode)
            }
            _ => (self.frames, RowKind::Decode),
        }
    }

    fn urgency(&self, stage: usize) -> Urgency {
        let ahead: usize = (stage + 1..=CODE2WAV).map(|later| self.ready(later).0).sum();
        match self.runs_out {
            None => Urgency::First { since: self.asked },
            Some(runs_out) => Urgency::Playing { runs_out: runs_out + FRAME * ahead as u32 },
        }
    }

    /// Applies the result of a step that ended at `now`.
    fn advance(&mut self, stage: usize, kind: RowKind, rows: usize, now: Instant, prefill: f64) {
        match (stage, kind) {
            (THINKER, RowKind::Prefill) => {
                self.prompt -= rows;
                self.talker_prompt += rows;
                if self.prompt == 0 {
                    // The prompt's last row gives the first token.
                    self.text -= 1;
                    self.unspoken = 1;
                    self.talker_prompt += HEADER;
                }
            }
            (THINKER, _) => {
                self.text -= 1;
                self.unspoken += 1;
            }
            (TALKER, RowKind::Prefill) => self.talker_prompt -= rows,
            (TALKER, _) => {
                self.unspoken = self.unspoken.saturating_sub(1);
                self.left -= 1;
                self.frames += 1;
            }
            _ => {
                self.frames -= rows;
                let runs_out = self.runs_out.unwrap_or(now);
                if runs_out < now {
                    let late = now - runs_out;
                    self.outcome.underruns += 1;
                    self.outcome.silence += late;
                    // The frame would have come in time without the prefills since the frame before.
                    self.outcome.delayed += usize::from(late.as_secs_f64() <= prefill - self.prefill_before);
                }
                self.prefill_before = prefill;
                self.outcome.first.get_or_insert(now - self.asked);
                self.runs_out = Some(runs_out.max(now) + FRAME * rows as u32);
            }
        }
    }
}

/// Results of a simulation.
#[derive(Debug, Default, PartialEq)]
pub struct SimulationResult {
    pub first_packets: Vec<Duration>,
    /// Those of short prompts.
    pub first_packets_of_short: Vec<Duration>,
    pub underruns: usize,
    /// Number of underruns caused by prefills since the frame before.
    pub delayed: usize,
    pub silence: Duration,
    pub longest_wait: Duration,
    /// Share of the time spent computing.
    pub busy: f64,
}

impl SimulationResult {
    /// A percentile of the times to first packet, in milliseconds.
    pub fn percentile(&self, percent: usize) -> f64 {
        percentile(&self.first_packets, percent)
    }

    /// A percentile of the times to first packet after short prompts, in milliseconds.
    pub fn percentile_of_short(&self, percent: usize) -> f64 {
        percentile(&self.first_packets_of_short, percent)
    }

    fn add(&mut self, turn: Turn, short: bool) {
        self.first_packets.extend(turn.first);
        self.first_packets_of_short.extend(turn.first.filter(|_| short));
        self.underruns += turn.underruns;
        self.delayed += turn.delayed;
        self.silence += turn.silence;
    }
}

fn percentile(sorted: &[Duration], percent: usize) -> f64 {
    sorted[(sorted.len() - 1) * percent / 100].as_secs_f64() * 1e3
}

/// Serves the callers of `load`, who arrive over time.
pub fn simulate(order: SchedulingOrder, load: Load) -> SimulationResult {
    let limits = StepLimits { batch: 512, chunk: 256 };
    let mut planner = Planner::new(order, vec![limits, limits, StepLimits { batch: 512, chunk: 32 }]);
    let start = Instant::now();
    let mut now = start;
    let mut arrivals = Vec::new();
    let mut at = 0.0;
    for number in 0..load.callers {
        // Poisson arrivals, from random numbers that are equal for all orders.
        at += -(1.0 - f64::from(uniform(ARRIVALS, number as u64, 0, 0))).ln() / load.rate;
        let asked = start + Duration::from_secs_f64(at);
        let prompt = if (number + 1).is_multiple_of(load.long_every) { load.long } else { SHORT };
        arrivals.push((number, Caller::new(number, asked, prompt)));
    }
    arrivals.reverse();
    let at_once = load.callers..load.callers + load.at_once;
    let mut here: BTreeMap<usize, Caller> =
        at_once.map(|number| (number, Caller::new(number, start, load.long))).collect();
    if let Some(Rush { callers, rows, apart, .. }) = load.rush {
        let numbers = (load.callers + load.at_once..).take(callers);
        let rush = |number| Caller { tenant: u64::from(apart), uncounted: true, ..Caller::new(number, start, rows) };
        here.extend(numbers.map(|number| (number, rush(number))));
    }
    planner.set_tenants(load.rush.is_some_and(|rush| rush.apart));
    let mut outcome = SimulationResult::default();
    let (mut busy, mut prefill, mut steps) = (0.0, 0.0, 0);
    loop {
        while let Some((number, caller)) = arrivals.pop_if(|(_, caller)| caller.asked <= now) {
            here.insert(number, caller);
        }
        let wants = |here: &BTreeMap<usize, Caller>, stage: usize| -> Vec<ReadyRows> {
            let want = |(&slot, caller): (&usize, &Caller)| {
                let (rows, kind) = caller.ready(stage);
                let urgency = caller.urgency(stage);
                let tenant = caller.tenant;
                (rows > 0).then_some(ReadyRows { slot, tenant, rows, kind, urgency, arrived: caller.asked })
            };
            here.iter().filter_map(want).collect()
        };
        let began = now;
        let mut all: Vec<Vec<ReadyRows>> = (THINKER..=CODE2WAV).map(|stage| wants(&here, stage)).collect();
        let mut budget = planner.budget(now, &all);
        for stage in THINKER..=CODE2WAV {
            all[stage] = wants(&here, stage);
            let shares = planner.plan(stage, began, &all[stage], &all[stage + 1..], &mut budget);
            let of = |kind| shares.iter().filter(|share| share.kind == kind).map(|share| share.rows).sum();
            let (prompt, decode): (usize, usize) = (of(RowKind::Prefill), of(RowKind::Decode));
            if shares.is_empty() {
                continue;
            }
            steps += 1;
            let noise = |which| uniform(NOISE, steps, which, 0);
            let slow = if noise(1) * SLOW_EVERY < 1.0 { SLOW } else { 0.0 };
            let noise = 0.95 + 0.2 * f64::from(noise(0));
            let took = seconds(stage, prompt, decode) * noise + slow;
            busy += took;
            prefill += took - if decode > 0 { seconds(stage, 0, decode) * noise + slow } else { 0.0 };
            now += Duration::from_secs_f64(took);
            let rows = StepRows::of(RowKind::Prefill, prompt).and(RowKind::Decode, decode);
            planner.measured(stage, rows, Duration::from_secs_f64(took));
            for share in shares {
                let caller = here.get_mut(&share.slot).expect("only those who are here have wants");
                caller.advance(stage, share.kind, share.rows, now, prefill);
            }
        }
        let renewed = load.rush.filter(|rush| rush.renewed && !arrivals.is_empty());
        here.retain(|&number, caller| {
            let over = caller.left == 0 && caller.frames == 0;
            if over && !caller.uncounted {
                outcome.add(caller.outcome, caller.short);
            }
            if let (true, true, Some(Rush { rows, .. })) = (over, caller.uncounted, renewed) {
                let tenant = caller.tenant;
                *caller = Caller { tenant, uncounted: true, ..Caller::new(number, now, rows) };
                return true;
            }
            !over
        });
        if now == began {
            match arrivals.last() {
                Some((_, next)) => now = next.asked,
                None => break,
            }
        }
    }
    assert!(here.is_empty(), "{} callers were never served", here.len());
    outcome.first_packets.sort();
    outcome.first_packets_of_short.sort();
    outcome.longest_wait = outcome.first_packets.last().copied().unwrap_or_default();
    outcome.busy = busy / (now - start).as_secs_f64();
    outcome
}
