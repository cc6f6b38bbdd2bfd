//! Flows whose evaluations are cut into units of layers: the bits of whole evaluations, and bounded units in published sizes.

use std::sync::Arc;
use std::time::Duration;

use repartee_engine::internals::audio_encoder::pieces::UNIT;
use repartee_engine::internals::cosyvoice3::{CosyVoice3, SharedVoices};
use repartee_engine::internals::covo_audio::CovoAudio;
use repartee_engine::internals::flow_matching::chunked::stage::ChunkFlowPart;
use repartee_engine::internals::flow_matching::windowed::stage::{WindowFlowPart, solver};
use repartee_engine::internals::flow_matching::windowed::window::FlowWindows;
use repartee_engine::internals::pipeline::{Placement, StagePart};
use repartee_engine::internals::qwen2_5_omni::{Token2Wav, Token2WavConfig, Voice};
use repartee_engine::internals::step_layers::StepLayers;
use repartee_engine::internals::{
    BatchEntry, Checkpoint, Outbox, ResponseParams, SlotCounts, Stage, StageEnd, StageItem, cosyvoice3, covo_audio,
};
use repartee_engine::{EngineConfig, Source, WeightPolicy};
use repartee_engine_api::AnswerForm;
use repartee_engine_testkit::{Expected, folder, root};
use repartee_kernels::cpu::Cpu;
use repartee_kernels::random::uniform;

/// Duration of a code, and most codes of a response.
const CODE: Duration = Duration::from_millis(40);
const MOST: usize = 100;
/// Codes of a published window of Covo-Audio: left, new and ahead.
const COVO_AUDIO_CODES: usize = 63;

fn open(name: &str) -> Checkpoint {
    Checkpoint::open(Source::Folder(folder(name).join("checkpoint"))).unwrap()
}

fn place<P: StagePart<Cpu> + 'static>(part: P) -> Box<dyn Stage> {
    let slots = SlotCounts { sessions: 2, out_of_band: 0, context: 1 };
    Box::new(part).place(Placement { ops: Cpu::default(), slots, handed: &mut None })
}

fn params(voice: &str) -> ResponseParams {
    ResponseParams {
        response: 7,
        seed: 5,
        voice: voice.to_owned(),
        audio: true,
        streamed: false,
        tools: Arc::default(),
        form: AnswerForm::Free,
        held: None,
        max_tokens: 100,
        sampling: None,
    }
}

/// Flow of a family, with units of at most some multiplications; and its layers.
type Flow = fn(usize) -> (Box<dyn Stage>, StepLayers);

fn cosyvoice3(most: usize) -> (Box<dyn Stage>, StepLayers) {
    let ops = Cpu::default();
    let model = CosyVoice3::load((&ops, &ops), &open("cosyvoice3"), WeightPolicy::default()).unwrap();
    let voices = SharedVoices::new(model.voices.into_iter().map(|(name, _, voice)| (name, voice)));
    let flow = model.sound.flow.with_units(most);
    let layers = flow.step_layers();
    (place(ChunkFlowPart::new(flow, (voices, false), (CODE, MOST), &EngineConfig::default())), layers)
}

fn covo_audio(most: usize) -> (Box<dyn Stage>, StepLayers) {
    let ops = Cpu::default();
    let model = CovoAudio::load((&ops, &ops), &open("covo_audio"), WeightPolicy::default()).unwrap();
    let dit = model.flow.with_units(most);
    let layers = dit.step_layers();
    let part = WindowFlowPart {
        solver: solver(model.config.flow.points),
        dit,
        voices: Arc::from([("default_female".to_owned(), model.voice)]),
        windows: FlowWindows { left: 6, new: 5, ahead: 2 },
        scale: model.scale,
        code: CODE,
        most_codes: MOST,
    };
    (place(part), layers)
}

fn qwen2_5_omni(most: usize) -> (Box<dyn Stage>, StepLayers) {
    let (ops, expected, checkpoint) = (Cpu::default(), Expected::load("omni25_token2wav"), open("omni25_token2wav"));
    let numbers = |name: &str| expected.tensor(name).0;
    let voice = Voice {
        name: "ada".to_owned(),
        conditioning: numbers("conditioning"),
        reference_mel: numbers("reference_mel"),
    };
    let config = Token2WavConfig::load(&checkpoint).unwrap();
    let mut model = Token2Wav::load((&ops, &ops), &checkpoint, &config, &[voice]).unwrap();
    model.dit = model.dit.with_units(most);
    let layers = model.dit.step_layers();
    (place(model.parts(MOST).0), layers)
}

/// Gives a response to a slot, without its end.
fn begin(stage: &mut dyn Stage, slot: usize, voice: &str, codes: &[u32], out: &mut Outbox) {
    stage.accept(slot, StageItem::Begin(params(voice)), out);
    codes.iter().for_each(|&code| stage.accept(slot, StageItem::Codes(vec![code]), out));
}

/// Advances each slot that can by one row, up to `most` times; returns the number of steps.
fn run(stage: &mut dyn Stage, most: usize, out: &mut Outbox) -> usize {
    for step in 0..most {
        let ready = [0, 1].into_iter().filter(|&slot| stage.runnable_rows(slot).rows > 0);
        let work: Vec<_> = ready.map(|slot| BatchEntry { slot, rows: 1 }).collect();
        if work.is_empty() {
            return step;
        }
        stage.launch(&work, out);
        stage.collect(out);
    }
    most
}

/// Latents of two responses, the second of which begins after `apart` steps of the first, and the number of steps. A third response
/// is aborted before the first one, after as many steps.
fn latents(stage: &mut dyn Stage, voice: &str, codes: [&[u32]; 2], apart: usize) -> ([Vec<f32>; 2], usize) {
    let mut out = Outbox::new();
    begin(stage, 0, voice, codes[1], &mut out);
    run(stage, apart, &mut out);
    stage.accept(0, StageItem::Abort, &mut out);
    out.clear();
    begin(stage, 0, voice, codes[0], &mut out);
    let mut steps = run(stage, apart, &mut out);
    begin(stage, 1, voice, codes[1], &mut out);
    [0, 1].into_iter().for_each(|slot| stage.accept(slot, StageItem::End(StageEnd::Stop), &mut out));
    steps += run(stage, usize::MAX, &mut out);
    let mut found = [Vec::new(), Vec::new()];
    let mut ends = 0;
    for (slot, item) in out {
        match item {
            StageItem::Latents { rows, .. } => found[slot].extend(rows),
            StageItem::End(StageEnd::Stop) => ends += 1,
            StageItem::Begin(_) => {}
            item => panic!("{item:?}"),
        }
    }
    assert_eq!(ends, 2, "both responses end");
    (found, steps)
}

#[test]
fn units_give_the_bits_of_whole_evaluations() {
    let flows: [(&str, &[&str], Flow); 3] = [
        ("cosyvoice3", &["recorded", "vector"], cosyvoice3),
        ("covo_audio", &["default_female"], covo_audio),
        ("omni25_token2wav", &["ada"], qwen2_5_omni),
    ];
    for (name, voices, flow) in flows {
        let (mut whole, layers) = flow(usize::MAX);
        assert!(layers.count > 1 && layers.units(100) == 1, "{name}: {layers:?}");
        // Of the reference's codebooks the smallest has 16 codes.
        let codes: Vec<u32> = (0..47).map(|at| (uniform(3, at, 0, 0) * 16.0) as u32).collect();
        for voice in voices {
            let (expected, steps) = latents(whole.as_mut(), voice, [&codes, &codes[..31]], 0);
            assert!(expected.iter().all(|latents| !latents.is_empty()), "{name}");
            for (most, apart) in [(1, 7), (1, 40), (2 * 100 * layers.row_work, 3)] {
                let (mut cut, layers) = flow(most);
                let (found, in_units) = latents(cut.as_mut(), voice, [&codes, &codes[..31]], apart);
                assert!(found == expected, "{name}, {voice}, units of {most}, {apart} steps apart");
                assert!(most > 1 || in_units >= layers.count * steps, "{name}: {in_units} steps, {steps} whole");
            }
        }
    }
}

#[test]
fn units_of_published_flows_are_bounded() {
    let of = |name: &str| Checkpoint::open(Source::Folder(root().join("models/dimensions").join(name))).unwrap();
    let cosyvoice3 = of("fun-cosyvoice3-0.5b");
    let cosyvoice3 =
        cosyvoice3::Config::load(&cosyvoice3, &cosyvoice3.part("CosyVoice-BlankEN").unwrap()).unwrap().sound.flow;
    let covo_audio = of("covo-audio-chat-7b");
    let covo_audio = covo_audio::Config::load(&covo_audio, &covo_audio.part("token2wav").unwrap()).unwrap().flow;
    let qwen = Token2WavConfig::load(&of("qwen2.5-omni-7b")).unwrap().dit;
    let (before, after) = qwen.window_blocks();
    let of_covo_audio = 2 * covo_audio.ratio * COVO_AUDIO_CODES;
    let flows = [
        ("CosyVoice3", cosyvoice3.step_layers(UNIT), 2 * cosyvoice3.chunk()),
        ("Covo-Audio", covo_audio.step_layers(UNIT), of_covo_audio),
        ("Qwen2.5-Omni", qwen.step_layers(UNIT), 2 * (before + 1 + after) * qwen.block_size),
    ];
    for (name, layers, rows) in flows {
        let (unit, all) = (layers.in_unit(rows) * rows * layers.row_work, layers.count * rows * layers.row_work);
        println!(
            "{name}: {rows} rows of {} layers, {} million multiplications in {} units of {} million",
            layers.count,
            all / 1_000_000,
            layers.units(rows),
            unit / 1_000_000
        );
        assert!(unit <= UNIT || layers.in_unit(rows) == 1, "{name}");
        assert!(unit * 10 <= all, "{name}: a layer of {rows} rows is {unit}");
    }
}
