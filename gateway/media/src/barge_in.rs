//! Barge-in during playback on our playout clock: the first voice pauses the playback, and the next frames decide.
//!
//! A pause costs little, so it needs little voice. The paused room is quiet. Within [`DECISION_TIME`] the caller either continues, which is
//! an interruption, or has stopped: a backchannel ("mhm", "yeah"), a cough or an echo, and the playback resumes. A voice that is
//! still present at [`DECISION_TIME`], but too soft for a verdict, has until `LATEST`. A caller who takes a breath and starts again
//! interrupts sooner the second time.
//!
//! With the network (`interruption_net`) a short voice interrupts where it sounds like a command. A playback that cannot pause plays
//! on until it is sure, until the voice has gone on for some time, or until it has ended. So does a paused playback once a voice goes on of
//! which the network is not sure.

use std::time::Duration;

use super::barge_in_policy::NetworkJudgement;
use super::decision::DecisionReason;
use super::echo_guard::EchoLevel;

/// Voice that pauses the playback, if clearly louder than any echo.
pub(crate) const ONSET: Duration = Duration::from_millis(16);
/// Ratio of levels by which a voice is clearly louder than any echo: a single frame of echo may exceed the estimate.
const CLEAR: f32 = 2.0;
/// Minimum ratio of a voice to steady noise, and minimum level of a voice, -60 dB of full scale: a detector reports a voice for some
/// time after it, or its echo, has ended.
const ABOVE_NOISE: f32 = 3.0;
const QUIETEST: f32 = 1e-3;
/// Time from the pause to the decision: longer than a backchannel.
pub const DECISION_TIME: Duration = Duration::from_millis(400);
/// Time from the pause to the decision for a voice that is soft at [`DECISION_TIME`]: a first word is often louder than the next. The
/// playback resumes by itself soon after.
const LATEST: Duration = Duration::from_millis(464);
/// Silence that dismisses a voice before [`DECISION_TIME`].
const ENDED: Duration = Duration::from_millis(144);
/// Maximum silence of a continuing voice at the decision.
const BREATH: Duration = Duration::from_millis(48);
/// Minimum share of voice in the time that no echo hides: at [`DECISION_TIME`], and at [`LATEST`], when a backchannel has ended. And the
/// minimum duration of voice.
const SHARE: f32 = 0.6;
const LATEST_SHARE: f32 = 0.4;
const LEAST: Duration = Duration::from_millis(64);
/// Minimum ratio of a voice frame's level to the loudest frame. Lower frames are soft: rooms and detectors prolong a voice that has
/// ended.
const RELEASE: f32 = 0.2;
/// Voice that interrupts before [`DECISION_TIME`], together with a dismissed start: more than a backchannel has.
const ENOUGH: Duration = Duration::from_millis(432);
/// Part of [`ENOUGH`] that must follow the dismissed start.
const AGAIN: Duration = Duration::from_millis(160);
/// Frames in a row in which the network has to be sure.
const SURE_FRAMES: u32 = 2;
/// Voice of which the network's judgement counts: less is often an echo.
const JUDGED: Duration = Duration::from_millis(120);
/// Time during which a dismissed start counts.
const REMEMBERED: Duration = Duration::from_millis(600);

/// True if a frame of this level may be a voice.
pub(crate) fn is_audible(level: f32, echo: EchoLevel) -> bool {
    level >= (echo.noise * ABOVE_NOISE).max(QUIETEST)
}

/// Content of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InputKind {
    Voice,
    Silence,
    /// Sound no louder than the possible echo, which may hide a voice.
    Echo,
}

/// Decision on a voice after one frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BargeInVerdict {
    /// Not decided yet.
    Open,
    /// Not decided yet, but a paused playback resumes: the voice is more likely no interruption.
    PlayOn,
    /// The caller interrupts.
    Interruption,
    /// Not an interruption.
    Nothing,
}

/// Barge-in candidate: a voice that may interrupt. Times are in samples of the session.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Candidate {
    /// Start of the voice.
    pub since: u64,
    /// Position of the playback pause.
    paused_at: u64,
    /// Total voice, and voice since the pause.
    voiced: u64,
    after: u64,
    /// Time since the pause in which an echo may hide a voice.
    hidden: u64,
    /// Voice of a dismissed start.
    earlier: u64,
    /// Time since the last loud voice frame, and since the last voice frame.
    quiet: u64,
    silent: u64,
    /// Level of the loudest frame.
    peak: f32,
    /// Latest frames in which the network is sure of an interruption.
    sure: u32,
}

/// Barge-in detector: judges one candidate at a time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct BargeIn {
    rate: u32,
    open: Option<Candidate>,
    /// Samples of clearly loud voice outside a candidate.
    standing_out: u64,
    /// Last dismissed candidate: start, end and voice, in samples.
    dismissed: Option<(u64, u64, u64)>,
    /// Reason of the last verdict.
    reason: DecisionReason,
}

impl BargeIn {
    /// Creates a detector for a stream at `rate` Hz.
    pub fn new(rate: u32) -> Self {
        Self { rate, open: None, standing_out: 0, dismissed: None, reason: DecisionReason::VoiceEnded }
    }

    /// Reason of the last verdict other than [`BargeInVerdict::Open`].
    pub fn reason(&self) -> DecisionReason {
        self.reason
    }

    /// True while a candidate is judged.
    pub fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Start of the current candidate in samples.
    pub fn since(&self) -> Option<u64> {
        self.open.map(|candidate| candidate.since)
    }

    /// Adds a frame of `length` samples; returns true after enough frames clearly louder than `echo`.
    pub fn stands_out(&mut self, level: f32, echo: EchoLevel, length: u64) -> bool {
        let clear = echo.settled && level >= echo.reverberant * CLEAR;
        self.standing_out = if clear { self.standing_out + length } else { 0 };
        self.standing_out >= self.samples(ONSET)
    }

    /// Opens a candidate that started at `since` and has `voiced` samples of voice up to `position`, the pause, with peak `level`.
    pub fn begin(&mut self, since: u64, position: u64, voiced: u64, level: f32) {
        let remembered = self.samples(REMEMBERED);
        let before = self.dismissed.take().filter(|(_, end, _)| since.saturating_sub(*end) <= remembered);
        let (since, earlier) = before.map_or((since, 0), |(begin, _, voiced)| (begin, voiced));
        self.open = Some(Candidate {
            since,
            paused_at: position,
            voiced,
            after: 0,
            hidden: 0,
            earlier,
            quiet: 0,
            silent: 0,
            peak: level,
            sure: 0,
        });
        self.standing_out = 0;
    }

    /// Judges a frame of `length` samples that ends at `position`, with the network's judgement if there is one. A verdict other than
    /// [`BargeInVerdict::Open`] and [`BargeInVerdict::PlayOn`] closes the candidate.
    pub fn frame(
        &mut self,
        heard: InputKind,
        level: f32,
        position: u64,
        length: u64,
        network: Option<NetworkJudgement>,
    ) -> BargeInVerdict {
        let held = network.filter(|network| !network.is_paused).map(|network| network.thresholds);
        let decision_time = held.map_or(DECISION_TIME, |thresholds| thresholds.decided);
        let (decided, latest) = (self.samples(decision_time), self.samples(decision_time + (LATEST - DECISION_TIME)));
        let longest = network.map_or(0, |network| self.samples(network.thresholds.longest));
        let judged = self.samples(JUDGED);
        let (ended, breath, least) = (self.samples(ENDED), self.samples(BREATH), self.samples(LEAST));
        let enough = held.map_or(ENOUGH, |thresholds| JUDGED + thresholds.decided);
        let (enough, again) = (self.samples(enough), self.samples(AGAIN));
        let Some(candidate) = &mut self.open else { return BargeInVerdict::Open };
        match heard {
            InputKind::Voice if level >= candidate.peak * RELEASE => {
                candidate.voiced += length;
                candidate.after += length;
                (candidate.quiet, candidate.silent) = (0, 0);
                candidate.peak = candidate.peak.max(level);
            }
            InputKind::Voice => {
                candidate.quiet += length;
                candidate.silent = 0;
            }
            InputKind::Silence => {
                candidate.quiet += length;
                candidate.silent += length;
            }
            InputKind::Echo => candidate.hidden += length,
        }
        let interruption = network.map_or(0.0, |network| network.interruption);
        let is_sure = held.is_some_and(|thresholds| interruption >= thresholds.sure);
        candidate.sure = if is_sure { candidate.sure + 1 } else { 0 };
        let Candidate { since, paused_at, voiced, after, hidden, earlier, quiet, silent, sure, .. } = *candidate;
        let time = position - paused_at;
        // Decides now if the next frame would be too late.
        let (over, too_late) = (time + length > decided, time + length > latest);
        let share = if too_late { LATEST_SHARE } else { SHARE };
        let sounds = silent <= breath && after >= least;
        let goes_on = sounds && quiet <= breath && after as f32 >= (time - hidden) as f32 * share;
        let again = voiced >= again && earlier + voiced >= enough && quiet == 0;
        let (verdict, reason) = match () {
            () if again && earlier > 0 => (BargeInVerdict::Interruption, DecisionReason::VoiceBeganAgain),
            () if again || (over && goes_on) => (BargeInVerdict::Interruption, DecisionReason::VoiceWentOn),
            () if too_late || (over && !sounds) || silent >= ended => {
                (BargeInVerdict::Nothing, DecisionReason::VoiceEnded)
            }
            () => (BargeInVerdict::Open, DecisionReason::VoiceEnded),
        };
        let (verdict, reason) = match (verdict, network) {
            (BargeInVerdict::Open, Some(_)) if sure >= SURE_FRAMES && voiced >= judged && quiet == 0 => {
                (BargeInVerdict::Interruption, DecisionReason::NetworkSure)
            }
            (BargeInVerdict::Nothing, Some(network))
                if interruption >= network.thresholds.at_end && voiced >= judged && hidden == 0 =>
            {
                (BargeInVerdict::Interruption, DecisionReason::NetworkAtEnd)
            }
            (BargeInVerdict::Interruption, Some(network)) if interruption < network.thresholds.holding => {
                match time + length <= longest {
                    true if network.is_paused => (BargeInVerdict::PlayOn, DecisionReason::NetworkUnsure),
                    true => (BargeInVerdict::Open, reason),
                    false => (verdict, DecisionReason::LongestWait),
                }
            }
            _ => (verdict, reason),
        };
        if verdict == BargeInVerdict::Open {
            return verdict;
        }
        self.reason = reason;
        if verdict == BargeInVerdict::PlayOn {
            return verdict;
        }
        self.open = None;
        self.dismissed = (verdict == BargeInVerdict::Nothing).then_some((since, position, earlier + voiced));
        verdict
    }

    /// Drops the current candidate.
    pub fn reset_open(&mut self) {
        self.open = None;
    }

    /// Drops the current and the dismissed candidate.
    pub fn reset(&mut self) {
        *self = Self::new(self.rate);
    }

    fn samples(&self, duration: Duration) -> u64 {
        duration.as_millis() as u64 * u64::from(self.rate) / 1_000
    }
}

#[cfg(test)]
mod tests {
    use super::super::barge_in_policy::BargeInPolicy;
    use super::*;

    const RATE: u32 = 16_000;
    const FRAME: u64 = 256;

    /// Verdict on the frames `heard` after a pause, and its time in ms.
    fn verdict(heard: impl IntoIterator<Item = (InputKind, f32)>) -> (BargeInVerdict, u64) {
        let mut barge_in = BargeIn::new(RATE);
        barge_in.begin(0, FRAME, FRAME, 0.1);
        judge(&mut barge_in, FRAME, heard)
    }

    fn judge(
        barge_in: &mut BargeIn,
        from: u64,
        heard: impl IntoIterator<Item = (InputKind, f32)>,
    ) -> (BargeInVerdict, u64) {
        let mut position = from;
        for (heard, level) in heard {
            position += FRAME;
            match barge_in.frame(heard, level, position, FRAME, None) {
                BargeInVerdict::Open => {}
                verdict => return (verdict, (position - from) / 16),
            }
        }
        (BargeInVerdict::Open, (position - from) / 16)
    }

    fn frames(ms: usize, heard: InputKind, level: f32) -> impl Iterator<Item = (InputKind, f32)> {
        std::iter::repeat_n((heard, level), ms / 16)
    }

    fn voice(ms: usize) -> impl Iterator<Item = (InputKind, f32)> {
        frames(ms, InputKind::Voice, 0.1)
    }

    fn silence(ms: usize) -> impl Iterator<Item = (InputKind, f32)> {
        frames(ms, InputKind::Silence, 0.001)
    }

    #[test]
    fn voice_that_goes_on_interrupts_in_time() {
        assert_eq!(verdict(voice(1_000)), (BargeInVerdict::Interruption, 400));
    }

    #[test]
    fn voice_that_ends_is_dismissed() {
        for ms in [16, 96, 192] {
            let (verdict, at) = verdict(voice(ms).chain(silence(1_000)));
            assert_eq!((verdict, at), (BargeInVerdict::Nothing, ms as u64 + 144));
        }
        assert_eq!(verdict(voice(336).chain(silence(1_000))), (BargeInVerdict::Nothing, 400));
    }

    #[test]
    fn reverberation_is_no_voice() {
        let ringing = frames(1_000, InputKind::Voice, 0.015);
        assert_eq!(verdict(voice(288).chain(ringing)), (BargeInVerdict::Nothing, 464));
    }

    #[test]
    fn hidden_voices_have_less_to_prove() {
        let hidden = || frames(240, InputKind::Echo, 0.05);
        assert_eq!(verdict(hidden().chain(voice(1_000))), (BargeInVerdict::Interruption, 400));
        assert_eq!(verdict(hidden().chain(silence(1_000))), (BargeInVerdict::Nothing, 384), "an echo that dies away");
        assert_eq!(
            verdict(frames(1_000, InputKind::Echo, 0.05)),
            (BargeInVerdict::Nothing, 400),
            "an echo that does not"
        );
    }

    #[test]
    fn voice_of_soft_frames_has_longer() {
        let softly = |loud, soft| {
            let soft_frames = move || frames(soft, InputKind::Silence, 0.001);
            (0..20).flat_map(move |_| voice(loud).chain(soft_frames()))
        };
        assert_eq!(verdict(softly(32, 32)), (BargeInVerdict::Interruption, 464));
        let louder_first_word = voice(160).chain(frames(208, InputKind::Voice, 0.015)).chain(voice(1_000));
        assert_eq!(verdict(louder_first_word), (BargeInVerdict::Interruption, 464));
        assert_eq!(verdict(softly(16, 48)), (BargeInVerdict::Nothing, 464), "noise that comes and goes");
        let ends = softly(32, 32).take(384 / 16).chain(silence(1_000));
        assert_eq!(verdict(ends), (BargeInVerdict::Nothing, 416), "a voice that ends meanwhile");
    }

    #[test]
    fn second_beginning_takes_less_time() {
        let mut barge_in = BargeIn::new(RATE);
        barge_in.begin(0, FRAME, FRAME, 0.1);
        assert_eq!(judge(&mut barge_in, FRAME, voice(288).chain(silence(160))).0, BargeInVerdict::Nothing);
        let again = FRAME + 700 * 16;
        barge_in.begin(again - FRAME, again, FRAME, 0.1);
        assert_eq!(barge_in.since(), Some(0), "the turn begins with the first one");
        assert_eq!(judge(&mut barge_in, again, voice(1_000)), (BargeInVerdict::Interruption, 144));
        // Much later it counts as another voice.
        barge_in.begin(100 * RATE as u64, 100 * RATE as u64 + FRAME, FRAME, 0.1);
        assert_eq!(judge(&mut barge_in, 100 * RATE as u64 + FRAME, voice(1_000)), (BargeInVerdict::Interruption, 400));
    }

    #[test]
    fn single_loud_frames_need_a_settled_echo() {
        let echo = EchoLevel { loudest: 0.02, reverberant: 0.03, noise: 0.0, settled: true };
        let mut barge_in = BargeIn::new(RATE);
        assert!(barge_in.stands_out(0.07, echo, FRAME));
        assert!(!barge_in.stands_out(0.05, echo, FRAME));
        assert!(!barge_in.stands_out(0.07, EchoLevel { settled: false, ..echo }, FRAME));
        assert!(is_audible(0.01, echo) && !is_audible(0.01, EchoLevel { noise: 0.005, ..echo }));
    }

    /// Verdict on the frames `heard` during a playback that plays on, with the network's probability of an interruption in each.
    fn held(heard: impl IntoIterator<Item = (InputKind, f32)>, probability: f32) -> (BargeInVerdict, u64) {
        let mut barge_in = BargeIn::new(RATE);
        barge_in.begin(0, 8 * FRAME, 8 * FRAME, 0.1);
        let thresholds = BargeInPolicy::Balanced.thresholds().unwrap();
        let network = NetworkJudgement { interruption: probability, thresholds, is_paused: false };
        let mut position = 8 * FRAME;
        for (heard, level) in heard {
            position += FRAME;
            match barge_in.frame(heard, level, position, FRAME, Some(network)) {
                BargeInVerdict::Open => {}
                verdict => return (verdict, position / 16 - 128),
            }
        }
        (BargeInVerdict::Open, position / 16 - 128)
    }

    #[test]
    fn sure_network_interrupts_at_once() {
        assert_eq!(held(voice(1_000), 0.99), (BargeInVerdict::Interruption, 32));
    }

    #[test]
    fn unsure_network_waits_for_the_voice() {
        assert_eq!(held(voice(1_000), 0.6), (BargeInVerdict::Interruption, 512));
        let thresholds = BargeInPolicy::Balanced.thresholds().unwrap();
        let longest = thresholds.longest.as_millis() as u64;
        let (verdict, at) = held(voice(3_000), 0.1);
        assert!(verdict == BargeInVerdict::Interruption && at.abs_diff(longest) <= 16, "{verdict:?} at {at} ms");
    }

    #[test]
    fn paused_playback_resumes_where_the_network_is_unsure() {
        let thresholds = BargeInPolicy::Balanced.thresholds().unwrap();
        let goes_on = |interruption| {
            let mut barge_in = BargeIn::new(RATE);
            barge_in.begin(0, FRAME, FRAME, 0.1);
            let network = NetworkJudgement { interruption, thresholds, is_paused: true };
            let mut judge =
                |frame: u64| barge_in.frame(InputKind::Voice, 0.1, (1 + frame) * FRAME, FRAME, Some(network));
            let verdict = (1..).map(&mut judge).find(|verdict| *verdict != BargeInVerdict::Open).unwrap();
            (verdict, barge_in.is_open())
        };
        assert_eq!(goes_on(0.4), (BargeInVerdict::PlayOn, true), "the candidate stays");
        assert_eq!(goes_on(0.6), (BargeInVerdict::Interruption, false));
    }

    #[test]
    fn short_likely_command_interrupts() {
        let stop = || voice(192).chain(silence(1_000));
        assert_eq!(held(stop(), 0.6), (BargeInVerdict::Interruption, 336));
        assert_eq!(held(stop(), 0.2), (BargeInVerdict::Nothing, 336));
    }
}
