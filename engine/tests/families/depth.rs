//! Depth models: their codes equal those of a plain loop, for any delays, frames and form of the input.
#![allow(clippy::unwrap_used)] // Helpers of tests: a panic is their report.

use repartee_engine::internals::Checkpoint;
use repartee_engine::internals::decoder::{Decoder, DecoderShape, FeedForward};
use repartee_engine::internals::depth::model::{DepthCodebook, DepthModel, DrawnCode, HiddenInput};
use repartee_engine::internals::weights::Weights;
use repartee_engine::{Source, Synthetic};
use repartee_engine_testkit::eager::{batch, index};
use repartee_engine_testkit::folder;
use repartee_kernels::cpu::{Cpu, Tensor};
use repartee_kernels::random::uniform;
use repartee_kernels::{AttentionShape, Ops, SampleParams, SpecLayout};
use repartee_kernels_testkit::host::HostOps;

const INPUT: usize = 24;
const WIDTH: usize = 32;
const ENTRIES: usize = 20;
/// Rows of the language model in a step.
const ROWS: usize = 3;

fn checkpoint() -> Checkpoint {
    let folder = folder("dense").join("checkpoint");
    Checkpoint::open(Source::Synthetic(Synthetic { folder, seed: 9, layers: None, skewed: false })).unwrap()
}

/// Layers by their name, with rotary positions or none.
fn layers(w: &Weights<'_, Cpu>, name: &str, theta: Option<f32>) -> Decoder<Cpu> {
    let attention = AttentionShape { heads: 2, kv_heads: 1, head_dim: 16, window: None, chunk: None };
    let shape = DecoderShape { theta, qk_norm: true, ..DecoderShape::plain(WIDTH, 2, attention) };
    Decoder::load(&w.at(name), shape, |_| FeedForward::Dense(48)).unwrap()
}

/// A model with these delays, whose rows of the language model are projected.
fn model(delays: &[usize], frames: usize, hidden: HiddenInput, theta: Option<f32>, names: &[&str]) -> DepthModel<Cpu> {
    let (ops, checkpoint) = (Cpu::default(), checkpoint());
    let w = Weights::new(&ops, &checkpoint);
    let codebook = |(at, &delay): (usize, &usize)| {
        let w = w.at("codebook").at(at);
        // Codebooks of different sizes, the first with a tied head.
        let (entries, head) = (ENTRIES - 3 * at, if at == 0 { "table" } else { "head" });
        let (table, head) = (w.table("table", entries, WIDTH).unwrap(), w.linear(head, entries, WIDTH).unwrap());
        DepthCodebook { delay, table, norm: None, head, allowed: None }
    };
    let steps = frames + delays.iter().max().unwrap();
    // One projection for each step, if the row is added to each.
    let projections = if hidden == HiddenInput::Added { steps } else { 1 };
    DepthModel {
        frames,
        codebooks: delays.iter().enumerate().map(codebook).collect(),
        layers: names.iter().map(|name| layers(&w, name, theta)).collect(),
        input: INPUT,
        width: WIDTH,
        hidden,
        hidden_projections: (0..projections)
            .map(|i| (w.at("in").linear(&i.to_string(), WIDTH, INPUT).unwrap(), None))
            .collect(),
        projection: None,
        follows_code: false,
        summed: false,
    }
}

fn rows() -> Tensor {
    let numbers = (0..ROWS * INPUT).map(|i| 2.0 * uniform(3, i as u64, 0, 0) - 1.0).collect();
    Cpu::default().tensor(numbers, INPUT)
}

/// Codes and logits of all rows, in the order of drawing.
fn drawn(model: &DepthModel<Cpu>, hidden: &Tensor) -> Vec<(Vec<u32>, Vec<f32>)> {
    let ops = Cpu::default();
    let rows = ops.rows(hidden);
    let mut layout = SpecLayout::default();
    let sections = model.layout(&mut layout, rows);
    let mut spec = layout.spec();
    model.fill(&mut spec, &sections, |_| {
        (0..rows).map(|slot| SampleParams {
            slot,
            repetition_penalty: 1.0,
            temperature: 0.0,
            top_k: 0,
            top_p: 1.0,
            uniform: 0.0,
        })
    });
    let (mut cache, mut drawn) = (model.cache(&ops, rows), Vec::new());
    let spec = ops.upload(&spec);
    model.draw(&ops, (&spec, &sections), hidden, None, &mut cache, |ids, logits| {
        drawn.push((ops.read_list(&ids), ops.read(&logits)));
    });
    drawn
}

/// The same for one row, without a cache: each step computes all positions again.
fn plainly(model: &DepthModel<Cpu>, hidden: &Tensor) -> Vec<(Vec<u32>, Vec<f32>)> {
    let ops = Cpu::default();
    let steps = model.frames + model.codebooks.iter().map(|codebook| codebook.delay).max().unwrap();
    let projected = |step: usize| {
        let at = if model.hidden_projections.len() > 1 { step } else { 0 };
        ops.linear(hidden, &model.hidden_projections[at].0, None)
    };
    let (mut positions, mut found): (Vec<Tensor>, Vec<_>) = (vec![projected(0)], Vec::new());
    for step in 0..steps {
        let x = ops.concat(&positions.iter().collect::<Vec<_>>());
        let mut cache = model.layers[0].cache(&ops, 1, step + 1);
        let (x, _) = model.layers[0].forward(&ops, x, &mut cache, &batch(&ops, 0, step + 1), None);
        let last = model.layers[0].norm(&ops, &ops.gather(&x, &[step]));
        let mut next = (model.hidden == HiddenInput::Added && step + 1 < steps).then(|| projected(step + 1));
        let mut codes: Option<Tensor> = None;
        for codebook in &model.codebooks {
            if step.checked_sub(codebook.delay).is_none_or(|frame| frame >= model.frames) {
                continue;
            }
            let logits = ops.read(&ops.linear(&last, &codebook.head, None));
            let best = (0..logits.len()).fold(0, |best, id| if logits[id] > logits[best] { id } else { best }) as u32;
            let embedded = ops.embed_at(&codebook.table, &index(&ops, &[best]));
            codes = Some(match codes {
                Some(codes) => ops.add(codes, &embedded),
                None => embedded,
            });
            found.push((vec![best], logits));
        }
        let codes = codes.expect("each step draws a code");
        positions.push(match next.take() {
            Some(hidden) => ops.add(codes, &hidden),
            None => codes,
        });
    }
    found
}

#[test]
fn codes_equal_those_of_a_plain_loop() {
    let (ops, hidden) = (Cpu::default(), rows());
    for (delays, frames) in [(&[0, 1, 2][..], 1), (&[0, 1, 3, 2], 2), (&[0, 0], 3)] {
        for form in [HiddenInput::Position, HiddenInput::Added] {
            for theta in [None, Some(10_000.0)] {
                let model = model(delays, frames, form, theta, &["all"]);
                let together = drawn(&model, &hidden);
                assert_eq!(together.len(), delays.len() * frames);
                for row in 0..ROWS {
                    let alone = plainly(&model, &ops.gather(&hidden, &[row]));
                    let mine = together.iter().map(|(ids, logits)| {
                        (vec![ids[row]], logits.chunks(logits.len() / ROWS).nth(row).unwrap().to_vec())
                    });
                    assert_eq!(mine.collect::<Vec<_>>(), alone, "{delays:?} {frames} {form:?} {theta:?} {row}");
                }
            }
        }
    }
}

#[test]
fn each_step_has_its_own_layers() {
    let (delays, hidden) = ([0, 1, 2], rows());
    let of = |names: &[&str]| drawn(&model(&delays, 1, HiddenInput::Added, None, names), &hidden);
    let shared = of(&["all"]);
    assert_eq!(of(&["all", "all", "all"]), shared);
    let own = of(&["all", "second", "third"]);
    assert_eq!((own.len(), &own[0]), (shared.len(), &shared[0]), "the first step has the same");
    assert_ne!(own[1].1, shared[1].1);
}

#[test]
fn order_is_step_by_step() {
    let model = model(&[0, 2], 2, HiddenInput::Position, None, &["all"]);
    let order: Vec<(usize, usize)> = model.order().map(|DrawnCode { codebook, frame }| (codebook, frame)).collect();
    assert_eq!(order, [(0, 0), (0, 1), (1, 0), (1, 1)]);
}
