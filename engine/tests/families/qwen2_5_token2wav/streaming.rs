//! The stages, driven by hand: their output equals that of the plain functions on each block's window and on the whole
//! spectrogram.

use std::sync::Arc;

use repartee_engine::internals::pipeline::{Placement, StagePart};
use repartee_engine::internals::qwen2_5_omni::{Noise, Voice};
use repartee_engine::internals::{
    BatchEntry, Device, EdgeKind, Outbox, ResponseParams, SlotCounts, Stage, StageEnd, StageItem,
};
use repartee_engine_api::{AnswerForm, SessionError};
use repartee_kernels::cpu::Cpu;
use repartee_kernels::cpu::pool::Pool;
use repartee_kernels::random::uniform;
use repartee_kernels_testkit::replay::ReplayOps;

use super::{NAME, Token2Wav, Token2WavConfig, checkpoint, load, solve_windows, vocode, voice};
use repartee_engine_testkit::Expected;

/// The reference's voice and another one.
fn voices() -> Vec<Voice> {
    let ada = voice(&Expected::load(NAME));
    let conditioning = ada.conditioning.iter().map(|value| 0.5 - value).collect();
    let grace = Voice { name: "grace".to_owned(), conditioning, ..ada.clone() };
    vec![ada, grace]
}

fn codes(seed: u64, count: usize) -> Vec<u32> {
    let config = Token2WavConfig::load(&checkpoint()).unwrap();
    (0..count).map(|i| (uniform(seed, i as u64, 0, 0) * config.dit.num_embeds as f32) as u32).collect()
}

fn params(seed: u64, voice: usize) -> ResponseParams {
    let voice = ["ada", "grace", "nobody"][voice].to_owned();
    ResponseParams {
        response: 7,
        seed,
        voice,
        audio: true,
        streamed: false,
        tools: std::sync::Arc::default(),
        form: AnswerForm::Free,
        held: None,
        max_tokens: 100,
        sampling: None,
    }
}

/// Expected samples of a response: each block solved on its own window, and one decode of all frames.
fn truth(seed: u64, voice: usize, codes: &[u32]) -> Vec<f32> {
    let ops = Cpu::default();
    let model = load(&ops, &checkpoint(), &voices());
    let noise = Noise { seed, response: 7 };
    let mel = model.config.dit.mel_dim;
    let mel = solve_windows(&ops, &model, (codes, voice), |first, count| noise.frames(first, count, mel));
    if mel.is_empty() { Vec::new() } else { vocode(&ops, &model.bigvgan, &[&mel]).remove(0) }
}

/// Both stages, and the output of each slot.
struct Streamer {
    stages: [Box<dyn Stage>; 2],
    heard: Vec<Vec<f32>>,
    ended: Vec<Option<StageEnd>>,
    failed: Vec<Option<SessionError>>,
    piece: usize,
}

impl Streamer {
    fn new(ops: Cpu, slots: usize) -> Self {
        Self::over(ops.clone(), &ops, slots)
    }

    /// Creates the stages on a device; `once` computes at loading.
    fn over<O: Device + Clone>(ops: O, once: &Cpu, slots: usize) -> Self {
        let checkpoint = checkpoint();
        let config = Token2WavConfig::load(&checkpoint).unwrap();
        let model = Token2Wav::load((&ops, once), &checkpoint, &config, &voices()).unwrap();
        let piece = model.codec().frame_samples.0 as usize;
        let slots_of = SlotCounts { sessions: slots, out_of_band: 0, context: 1 };
        let (dit, bigvgan) = model.parts(1);
        let dit = Box::new(dit).place(Placement { ops: ops.clone(), slots: slots_of, handed: &mut None });
        let bigvgan = Box::new(bigvgan).place(Placement { ops, slots: slots_of, handed: &mut None });
        assert_eq!((dit.input_kind(), dit.output_kind()), (EdgeKind::Codes, EdgeKind::Latents));
        assert_eq!((bigvgan.input_kind(), bigvgan.output_kind()), (EdgeKind::Latents, EdgeKind::Samples));
        Self {
            stages: [dit, bigvgan],
            heard: vec![Vec::new(); slots],
            ended: vec![None; slots],
            failed: vec![None; slots],
            piece,
        }
    }

    /// Delivers an item to a stage, and that stage's output to the next one.
    fn deliver(&mut self, stage: usize, slot: usize, item: StageItem) {
        let mut out = Vec::new();
        self.stages[stage].accept(slot, item, &mut out);
        self.route(stage, out);
    }

    fn route(&mut self, stage: usize, out: Outbox) {
        for (slot, item) in out {
            match item {
                StageItem::Fail(error) => self.failed[slot] = Some(error),
                item if stage == 0 => self.deliver(1, slot, item),
                StageItem::Samples(samples) => {
                    assert_eq!(samples.len(), self.piece, "a piece is a code's sound");
                    self.heard[slot].extend(samples);
                }
                StageItem::End(end) => self.ended[slot] = Some(end),
                StageItem::Begin(_) => self.heard[slot].clear(),
                _ => {}
            }
        }
    }

    /// Advances each stage by one row of every ready slot; false if none is ready. `between` is called between launch
    /// and collect.
    fn tick(&mut self, mut between: impl FnMut(&mut dyn Stage)) -> bool {
        let mut moved = false;
        for at in 0..2 {
            let slots = 0..self.heard.len();
            let work: Vec<BatchEntry> = slots
                .filter(|&slot| self.stages[at].runnable_rows(slot).rows > 0)
                .map(|slot| BatchEntry { slot, rows: 1 })
                .collect();
            if work.is_empty() {
                continue;
            }
            moved = true;
            let mut out = Vec::new();
            self.stages[at].launch(&work, &mut out);
            between(self.stages[at].as_mut());
            self.stages[at].collect(&mut out);
            self.route(at, out);
        }
        moved
    }

    fn ticks(&mut self, count: usize) {
        for _ in 0..count {
            self.tick(|_| {});
        }
    }

    fn begin(&mut self, slot: usize, seed: u64, voice: usize) {
        self.ended[slot] = None;
        self.deliver(0, slot, StageItem::Begin(params(seed, voice)));
    }

    fn say(&mut self, slot: usize, codes: &[u32]) {
        codes.iter().for_each(|&code| self.deliver(0, slot, StageItem::Codes(vec![code])));
    }

    /// Ends a slot's response and runs until no work is left.
    fn end(&mut self, slot: usize) -> Vec<f32> {
        self.deliver(0, slot, StageItem::End(StageEnd::Stop));
        while self.tick(|_| {}) {}
        assert_eq!(self.ended[slot], Some(StageEnd::Stop));
        std::mem::take(&mut self.heard[slot])
    }
}

/// Delivers codes in parts, with a number of ticks between them; returns the samples.
fn split(streamer: &mut Streamer, seed: u64, codes: &[u32], parts: usize, ticks: usize) -> Vec<f32> {
    streamer.begin(0, seed, 0);
    for part in codes.chunks(parts) {
        streamer.say(0, part);
        streamer.ticks(ticks);
    }
    streamer.end(0)
}

#[test]
fn any_split_gives_the_same_bits() {
    let mut streamer = Streamer::new(Cpu::default(), 1);
    // One code, an odd number, less and more than a block, and more than the vocoder takes at once.
    for count in [0, 1, 2, 3, 5, 9, 40, 47] {
        let codes = codes(count as u64, count);
        let truth = truth(3, 0, &codes);
        assert_eq!(truth.len(), count * streamer.piece);
        for (parts, ticks) in [(1, 40), (1, 3), (4, 11), (usize::MAX, 0)] {
            let heard = split(&mut streamer, 3, &codes, parts, ticks);
            assert!(heard == truth, "{count} codes, {parts} at a time, {ticks} ticks apart");
        }
    }
}

#[test]
fn sound_comes_before_the_codes_end() {
    let mut streamer = Streamer::new(Cpu::default(), 1);
    let codes = codes(1, 60);
    let truth = truth(3, 0, &codes);
    streamer.begin(0, 3, 0);
    let mut first = None;
    for (at, &code) in codes.iter().enumerate() {
        streamer.say(0, &[code]);
        while streamer.tick(|_| {}) {}
        let heard = &streamer.heard[0];
        assert!(heard[..] == truth[..heard.len()]);
        first = first.or((!heard.is_empty()).then_some(at + 1));
    }
    // The first frame's samples depend on the 32 frames after it: six blocks of three codes, and one more block, which
    // the last of these reads.
    assert_eq!(first, Some(21));
    assert!(streamer.end(0) == truth);
}

#[test]
fn batch_and_threads_give_the_same_bits() {
    let said: Vec<Vec<u32>> = [23, 40, 31].iter().map(|&count| codes(count, count as usize)).collect();
    let truths: Vec<_> = said.iter().enumerate().map(|(slot, codes)| truth(slot as u64, slot % 2, codes)).collect();
    for threads in [1, 3] {
        let pool = (threads > 1).then(|| Arc::new(Pool::new(threads).unwrap()));
        let mut streamer = Streamer::new(Cpu::default().on(pool), 3);
        // The responses begin one after the other, so that their windows are at different times of a solve.
        for (slot, codes) in said.iter().enumerate() {
            streamer.begin(slot, slot as u64, slot % 2);
            streamer.say(slot, codes);
            streamer.ticks(13);
        }
        for (slot, truth) in truths.iter().enumerate() {
            assert!(streamer.end(slot) == *truth, "slot {slot} on {threads} threads");
        }
    }
}

#[test]
fn repeated_steps_give_the_same_bits() {
    // Steps are padded, and only the first step of a size calls the model.
    let ops = ReplayOps::new(Cpu::default());
    let mut streamer = Streamer::over(ops.clone(), &Cpu::default(), 2);
    let said = [codes(1, 47), codes(2, 46)];
    for (slot, codes) in said.iter().enumerate() {
        streamer.begin(slot, 3, slot);
        streamer.say(slot, codes);
        streamer.ticks(100);
    }
    for (slot, codes) in said.iter().enumerate() {
        assert!(streamer.end(slot) == truth(3, slot, codes), "slot {slot}");
    }
    assert!(ops.recorded() < 20, "{} steps were recorded", ops.recorded());
}

#[test]
fn abort_at_any_moment_leaves_nothing() {
    let (mine, other) = (codes(1, 11), codes(2, 20));
    let (truth, beside) = (truth(5, 1, &mine), truth(6, 0, &other));
    let mut streamer = Streamer::new(Cpu::default(), 2);
    for at in (0..150).step_by(7) {
        streamer.begin(0, 4, 0);
        streamer.say(0, &codes(3, 30));
        streamer.begin(1, 6, 0);
        streamer.say(1, &other);
        streamer.ticks(at);
        match at % 3 {
            0 => streamer.deliver(0, 0, StageItem::Abort),
            1 => streamer.stages.iter_mut().for_each(|stage| stage.free(0)),
            // Freed between launch and collect.
            _ => {
                streamer.tick(|stage| stage.free(0));
            }
        }
        streamer.stages.iter_mut().for_each(|stage| stage.free(0));
        assert!(
            streamer.stages.iter().all(|stage| stage.runnable_rows(0).rows == 0 && stage.buffered_audio(0).is_zero())
        );
        streamer.begin(0, 5, 1);
        streamer.say(0, &mine);
        assert!(streamer.end(0) == truth, "after an abort at tick {at}");
        assert!(streamer.end(1) == beside, "beside an abort at tick {at}");
    }
}

#[test]
fn seed_and_voice_change_the_sound() {
    let codes = codes(1, 12);
    let base = truth(1, 0, &codes);
    assert!(base != truth(2, 0, &codes), "the seed does nothing");
    assert!(base != truth(1, 1, &codes), "the voice does nothing");
    assert!(base == truth(1, 0, &codes));
}

#[test]
fn unknown_codes_and_voices_are_refused() {
    let size = Token2WavConfig::load(&checkpoint()).unwrap().dit.num_embeds as u32;
    for wrong in [vec![size], vec![u32::MAX], vec![], vec![1, 2]] {
        let mut streamer = Streamer::new(Cpu::default(), 1);
        streamer.begin(0, 1, 0);
        streamer.say(0, &[0, size - 1]);
        assert_eq!(streamer.failed[0], None);
        streamer.deliver(0, 0, StageItem::Codes(wrong.clone()));
        assert!(matches!(streamer.failed[0], Some(SessionError::Internal { .. })), "{wrong:?}");
    }
    let mut streamer = Streamer::new(Cpu::default(), 1);
    streamer.begin(0, 1, 2);
    assert!(matches!(streamer.failed[0], Some(SessionError::Internal { .. })));
}
