//! False ends and delays of one policy.

use std::fmt;

use repartee_report::ReportRow;

use super::set::{AFTER_MS, JudgedSound, PER_MS, PauseKind};

/// Durations of the pauses.
const PAUSES_MS: [usize; 3] = [400, 800, 1_600];

/// A group of pauses: its name in the report, and the test of a kind.
type PauseGroup = (&'static str, fn(PauseKind) -> bool);

/// Groups of pauses. Sentences sound finished, and splices lack a pause's intonation: they count apart.
const GROUPS: [PauseGroup; 8] = [
    ("pauses inside sentences", PauseKind::is_inside),
    ("of them clauses", |kind| kind == PauseKind::Clause),
    ("hesitations", |kind| kind == PauseKind::Hesitation),
    ("lists", |kind| kind == PauseKind::List),
    ("numbers", |kind| kind == PauseKind::Number),
    ("spelled names", |kind| kind == PauseKind::Spelled),
    ("sentences", |kind| kind == PauseKind::Sentence),
    ("splices", |kind| kind == PauseKind::Splice),
];
/// Groups in the report; the others are printed alone.
const REPORTED: [usize; 3] = [0, 6, 7];

/// Results of one policy.
#[derive(Debug)]
pub struct Measured {
    name: String,
    is_silence: bool,
    /// Kind of each pause, and the time from its begin to the turn's end in ms, if the turn ended there.
    pauses: Vec<(PauseKind, Option<usize>)>,
    /// Ends inside the voice of a whole turn.
    own: usize,
    /// Delays of the turns' ends in ms, sorted; [`AFTER_MS`] for a turn that did not end.
    delays_ms: Vec<usize>,
    /// Recordings of the turns that did not end.
    unended: Vec<String>,
}

impl Measured {
    /// Creates the results of a policy; `is_silence` for one of fixed silence.
    pub fn new(name: &str, is_silence: bool) -> Self {
        Self {
            name: name.to_owned(),
            is_silence,
            pauses: Vec::new(),
            own: 0,
            delays_ms: Vec::new(),
            unended: Vec::new(),
        }
    }

    /// Adds the ends of turns in a sound, in samples.
    pub fn add(&mut self, sound: &JudgedSound, ends: &[usize]) {
        let after = ends.iter().find(|end| **end >= sound.voice_end).map(|end| (end - sound.voice_end) / PER_MS);
        match sound.kind {
            Some(kind) => self.pauses.push((kind, after)),
            None => {
                self.own += ends.iter().filter(|end| **end < sound.voice_end).count();
                if after.is_none() {
                    self.unended.push(sound.file.clone());
                }
                self.delays_ms.push(after.unwrap_or(AFTER_MS));
                self.delays_ms.sort_unstable();
            }
        }
    }

    /// Returns a percentile of the delays, in ms.
    fn delay_ms(&self, percent: usize) -> f64 {
        let last = self.delays_ms.len().saturating_sub(1);
        self.delays_ms.get((last * percent).div_ceil(100)).map_or(f64::NAN, |delay| *delay as f64)
    }

    /// Returns the false ends of a group in pauses of `ms`, and the number of its pauses.
    fn false_ends(&self, (_, is_of): &PauseGroup, ms: usize) -> (usize, usize) {
        let of = self.pauses.iter().filter(|(kind, _)| is_of(*kind));
        of.fold((0, 0), |(wrong, all), (_, after)| {
            (wrong + usize::from(after.is_some_and(|after| after <= ms)), all + 1)
        })
    }

    /// Returns the delay of fixed silence with as few false ends as this policy has in a group's pauses of `ms`: its
    /// place on the curve. `None` if each silence has more.
    fn same_false_ends<'a>(&self, all: &'a [Self], ms: usize) -> Option<&'a Self> {
        let wrong = |policy: &Self| policy.false_ends(&GROUPS[0], ms).0;
        let curve = all.iter().filter(|policy| policy.is_silence && wrong(policy) <= wrong(self));
        curve.min_by(|a, b| a.delay_ms(50).total_cmp(&b.delay_ms(50)))
    }

    /// Returns the rows of the report. The peer is the published default, the first of `all`; of the delay beside equal
    /// false ends, the silence that has no more of them.
    pub fn rows(&self, all: &[Self]) -> Vec<ReportRow> {
        let peer = &all[0];
        let note = format!("beside {}; {} turns", peer.name, self.delays_ms.len());
        let row = |measure: String, ours: f64, peer: f64, unit: &str, note: &str| {
            ReportRow::lower_is_better(format!("{}: {measure}", self.name), ours, peer, unit, note)
        };
        let share = |(wrong, all): (usize, usize)| 100.0 * wrong as f64 / all.max(1) as f64;
        let mut rows = Vec::new();
        for group in REPORTED {
            let group = &GROUPS[group];
            for ms in PAUSES_MS {
                let [ours, peers] = [self, peer].map(|policy| share(policy.false_ends(group, ms)));
                rows.push(row(format!("false ends in {} of {ms} ms", group.0), ours, peers, "%", &note));
            }
        }
        rows.push(row("ends inside a voice".into(), self.own as f64, peer.own as f64, "turns", &note));
        for percent in [50, 95, 100] {
            let (ours, peers) = (self.delay_ms(percent), peer.delay_ms(percent));
            rows.push(row(format!("delay, p{percent}"), ours, peers, "ms", &note));
        }
        if let Some(silence) = self.same_false_ends(all, 800).filter(|_| !self.is_silence) {
            let note = format!("beside {}, with no more false ends in pauses of 800 ms", silence.name);
            rows.push(row(
                "delay at equal false ends, p50".into(),
                self.delay_ms(50),
                silence.delay_ms(50),
                "ms",
                &note,
            ));
        }
        rows
    }
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let delays = [50, 95, 100].map(|percent| format!("{:.0}", self.delay_ms(percent))).join(" / ");
        write!(f, "{}: delay p50 / p95 / longest {delays} ms; own {}", self.name, self.own)?;
        if let Some(first) = self.unended.first() {
            write!(f, "; {} turns do not end, such as {first}", self.unended.len())?;
        }
        for group in &GROUPS {
            let shares = PAUSES_MS.map(|ms| self.false_ends(group, ms).0.to_string()).join(", ");
            write!(f, "\n  {:<24} {shares} of {}", group.0, self.false_ends(group, 0).1)?;
        }
        Ok(())
    }
}
