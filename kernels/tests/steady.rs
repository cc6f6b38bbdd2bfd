//! A repeated step: no allocation after the first rounds, and the same operations at the same addresses for any rows. A device that replays
//! its operations gives the same results.
#![allow(clippy::unwrap_used)] // Helpers of tests: a panic is their report.

mod device;

use std::panic::{AssertUnwindSafe, catch_unwind};

use device::{Tensor, device};
use repartee_kernels::random::uniform;
use repartee_kernels::row_spec::{BatchSection, SampleSection, SegmentSection, SpecSection, StreamSection};
use repartee_kernels::{
    Activation, AttentionShape, DType, FILTER_TAPS, Ops, RawTensor, ReadBack, RouterShape, RowSpec, SampleParams,
    SegmentShape, SequenceRows, SpecLayout, StateSpec, StepKey, StepOutputs, StreamLevel, StreamRows, WeightFormat,
    WeightLayout,
};
use repartee_kernels_testkit::host::HostOps;
use repartee_kernels_testkit::recording::RecordingOps;
use repartee_kernels_testkit::replay::ReplayOps;
use repartee_testkit::memory::CountingAllocator;
#[cfg(not(feature = "cuda"))]
use {
    repartee_kernels::cpu::Cpu,
    repartee_testkit::memory::{CountScope, counts},
};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Rows of the bucket.
const ROWS: usize = 12;
const SLOTS: usize = 4;
const WIDTH: usize = 24;
/// Vocabulary size: large enough for a radix sort in some rows.
const IDS: usize = 1500;
const EXPERTS: usize = 5;

/// Places of a step's numbers in its row spec.
struct StepSections {
    ids: SpecSection,
    kept: SpecSection,
    last: SpecSection,
    fresh: SpecSection,
    pixels: SpecSection,
    batch: BatchSection,
    segments: SegmentSection,
    streams: StreamSection,
    samples: SampleSection,
}

/// A step that has every operation, and its state.
struct Step<O: Ops> {
    ops: O,
    layout: SpecLayout,
    model: Model<O>,
    /// Number of calls by the device.
    calls: usize,
}

struct Model<O: Ops> {
    sections: StepSections,
    table: O::Weight,
    norm: O::Weight,
    frequencies: O::Weight,
    filter: O::Weight,
    linear: O::Weight,
    gates: O::Weight,
    hidden: O::Weight,
    gate: O::Weight,
    router: O::Weight,
    gate_up: O::Weight,
    down: O::Weight,
    head: O::Weight,
    conv2d: (O::Weight, O::Weight),
    conv1d: O::Weight,
    depthwise: O::Weight,
    grouped: O::Weight,
    up: O::Weight,
    cache: O::State,
    mask: O::State,
    rows: O::State,
    tails: [O::State; 4],
}

fn weight<O: Ops>(ops: &O, layout: WeightLayout, shape: &[usize]) -> O::Weight {
    weight_as(ops, layout, WeightFormat::Float, shape)
}

fn weight_as<O: Ops>(ops: &O, layout: WeightLayout, format: WeightFormat, shape: &[usize]) -> O::Weight {
    let parts = if let WeightLayout::Experts { per_expert } = layout { per_expert * EXPERTS } else { 1 };
    let values = (0..shape.iter().product::<usize>()).map(|i| uniform(5, i as u64, shape.len() as u64, 0) - 0.5);
    let bytes: Vec<u8> = values.flat_map(f32::to_le_bytes).collect();
    ops.weight_in_format(layout, format, &vec![RawTensor { name: "w", bytes: &bytes, dtype: DType::F32, shape }; parts])
        .unwrap()
}

impl<O: Ops> Step<O> {
    fn new(ops: O) -> Self {
        let mut layout = SpecLayout::default();
        let sections = StepSections {
            ids: layout.list(ROWS),
            kept: layout.list(ROWS),
            last: layout.list(SLOTS),
            fresh: layout.list(SLOTS),
            pixels: layout.list(2 * 6 * 4),
            batch: layout.batch(ROWS, SLOTS, 8),
            segments: layout.segments(ROWS, SLOTS),
            streams: layout.streams(ROWS, SLOTS),
            samples: layout.samples(SLOTS),
        };
        let tail = |rows| ops.state(StateSpec::Tail { slots: SLOTS, rows, columns: WIDTH });
        let model = Model {
            table: weight(&ops, WeightLayout::Table, &[IDS, WIDTH]),
            norm: weight(&ops, WeightLayout::Vector, &[WIDTH]),
            frequencies: ops.rotary_weight(WIDTH / 4, 1e4).unwrap(),
            filter: weight(&ops, WeightLayout::Vector, &[FILTER_TAPS]),
            linear: weight(&ops, WeightLayout::Linear, &[WIDTH, WIDTH]),
            gates: weight(&ops, WeightLayout::Linear, &[4 * WIDTH, WIDTH]),
            hidden: weight(&ops, WeightLayout::Linear, &[4 * WIDTH, WIDTH]),
            gate: weight(&ops, WeightLayout::Linear, &[1, WIDTH]),
            router: weight(&ops, WeightLayout::Linear, &[EXPERTS, WIDTH]),
            gate_up: weight(&ops, WeightLayout::Experts { per_expert: 2 }, &[16, WIDTH]),
            down: weight_as(&ops, WeightLayout::Experts { per_expert: 1 }, WeightFormat::Int4, &[WIDTH, 16]),
            head: weight_as(&ops, WeightLayout::Linear, WeightFormat::Int8, &[IDS, WIDTH]),
            conv2d: (
                weight(&ops, WeightLayout::Conv2d { stride: 2 }, &[3, 1, 3, 3]),
                weight(&ops, WeightLayout::Vector, &[3]),
            ),
            conv1d: weight(&ops, WeightLayout::Conv1d { dilation: 2 }, &[WIDTH, WIDTH, 3]),
            depthwise: weight(&ops, WeightLayout::Depthwise, &[WIDTH, 1, 7]),
            grouped: weight(&ops, WeightLayout::GroupedConv1d { dilation: 1, groups: 4 }, &[WIDTH, WIDTH / 4, 3]),
            up: weight(&ops, WeightLayout::ConvTranspose1d { stride: 3, cut: true }, &[WIDTH, WIDTH, 6]),
            cache: ops.state(StateSpec::KeyValue { blocks: 40, block_len: 16, width: WIDTH / 2 }),
            mask: ops.state(StateSpec::TokenMask { slots: SLOTS, vocabulary: IDS }),
            rows: ops.state(StateSpec::Rows { rows: 32, columns: WIDTH }),
            tails: [tail(1), tail(4), tail(6), tail(2)],
            sections,
        };
        Self { ops, layout, model, calls: 0 }
    }

    /// Runs the step over the rows of `spec`.
    fn run(&mut self, variant: usize, spec: &RowSpec, back: &mut ReadBack) {
        let Self { ops, model, calls, .. } = self;
        let ticket = ops.launch(StepKey { stage: "all", rows: ROWS, variant }, spec, &mut |ops, spec, outputs| {
            *calls += 1;
            model.forward(ops, spec, outputs);
        });
        ops.collect(ticket, back);
    }
}

impl<O: Ops> Model<O> {
    fn forward(&mut self, ops: &O, spec: &O::Spec, outputs: &mut StepOutputs<O>) {
        let sections = &self.sections;
        let mut x = ops.embed_at(&self.table, &ops.index(spec, sections.ids));
        let kept = ops.index(spec, sections.kept);
        x = ops.overlay(x, &self.rows, &kept);
        ops.reset_at(&mut self.mask, &ops.index(spec, sections.fresh));

        let shape = AttentionShape { heads: 4, kv_heads: 2, head_dim: WIDTH / 4, window: None, chunk: None };
        let batch = ops.batch_at(spec, sections.batch);
        for _ in 0..2 {
            let h = ops.linear(&ops.rms_norm(&x, &self.norm, 1e-6), &self.linear, Some(&self.norm));
            let q = ops.rotary(ops.copy(&h), &batch, &self.frequencies);
            let k = ops.rotary(ops.narrow(&h, 0, WIDTH / 2), &batch, &self.frequencies);
            let v = ops.narrow(&h, WIDTH / 2, WIDTH / 2);
            let h = ops.attention(&q, &k, &v, &mut self.cache, &batch, shape);
            x = ops.add(ops.scale(h, &self.norm), &x);
            let routed = RouterShape { top_k: 2, normalise: true };
            let h = ops.experts(&x, &self.router, &self.gate_up, &self.down, routed);
            let gated = ops.sigmoid_gate(ops.silu_mul(&ops.concat(&[&h, &x])), &ops.linear(&x, &self.gate, None));
            x = ops.add(ops.reshape(gated, WIDTH), &h);
        }
        let h = ops.activation(ops.layer_norm(&x, &self.norm, &self.norm, 1e-5), Activation::Gelu);
        let segments = ops.index(spec, sections.segments.words());
        let h = ops.segment_norm_at(&h, &self.norm, &self.norm, 1e-5, &segments);
        let style = ops.concat_columns(&[&h, &x]);
        let h = ops.segment_instance_norm_at(&h, &style, 1e-5, &segments);
        let gates = ops.linear(&h, &self.gates, None);
        let h = ops.add(ops.segment_lstm_at(&gates, &self.hidden, &segments, true), &h);
        let h = ops.sigmoid_mul(&ops.reshape(ops.concat(&[&h, &x]), 2 * WIDTH));
        let h = ops.activation(h, Activation::Mish);
        x = ops.segment_attention_at(&h, &x, &h, &segments, SegmentShape::whole(3));
        let h = ops.segment_conv1d_at(&ops.activation(h, Activation::GeluTanh), &self.conv1d, &self.norm, &segments);
        x = ops.mul(x, &ops.segment_snake_at(&h, &self.norm, &self.norm, &self.filter, &segments));
        ops.store(&mut self.rows, &kept, &x);

        let last = ops.index(spec, sections.last);
        let chosen = ops.gather_at(&x, &last);
        let logits = ops.linear(&chosen, &self.head, None);
        let params = ops.index(spec, sections.samples.words());
        let ids = ops.sample_at(&logits, &params, None, Some(&mut self.mask));
        let embedded = ops.activation(ops.embed_at(&self.table, &ids), Activation::Silu);
        x = ops.scatter_at(x, &last, &embedded);
        x = ops.add(x, &ops.load(&self.rows, &kept));

        let streams = StreamLevel::new(ops.index(spec, sections.streams.words()));
        let [up, causal, depthwise, grouped] = &mut self.tails;
        x = ops.conv_transpose1d_at(&x, &self.up, &self.norm, up, &streams);
        let streams = streams.upsampled(3, true);
        x = ops.conv1d_at(&ops.snake(x, &self.norm, &self.norm), &self.conv1d, &self.norm, causal, &streams);
        x = ops.conv1d_at(&ops.clamp(x, -1.0, 1.0), &self.depthwise, &self.norm, depthwise, &streams);
        x = ops.conv1d_at(&x, &self.grouped, &self.norm, grouped, &streams);
        outputs.ids.push(ids);
        outputs.rows.push(ops.scale_all(x, 0.5));

        let pixels = ops.floats(spec, sections.pixels, 1);
        outputs.rows.push(ops.conv2d(&pixels, 2, 6, 4, &self.conv2d.0, &self.conv2d.1));
    }
}

/// Fills in different rows for each `round`: up to four slots with one to three rows each.
fn fill(sections: &StepSections, spec: &mut RowSpec, round: usize) {
    let slots = 1 + round % SLOTS;
    let rows = |slot: usize| 1 + (slot + round) % 3;
    let count: usize = (0..slots).map(rows).sum();
    let table: [u32; 8] = std::array::from_fn(|i| i as u32);
    let ids: [u32; ROWS] = std::array::from_fn(|i| ((i * 37 + round * 101) % IDS) as u32);
    spec.set(sections.ids, &ids[..count]);
    spec.set(sections.kept, &ids.map(|id| id % 32)[..count]);
    spec.set(sections.last, &table[..slots]);
    spec.set(sections.fresh, &table[..round % 2]);
    spec.set_floats(sections.pixels, &[round as f32; 30]);
    let sequences: [SequenceRows<'_>; SLOTS] =
        std::array::from_fn(|slot| SequenceRows { table: &table, position: 9 * (round % 6) + slot, rows: rows(slot) });
    spec.set_batch(sections.batch, &sequences[..slots], 39);
    spec.set_segments(sections.segments, &std::array::from_fn::<_, SLOTS, _>(rows)[..slots]);
    let streams: [StreamRows; SLOTS] =
        std::array::from_fn(|slot| StreamRows { slot, position: round * (slot % 2), rows: rows(slot) });
    spec.set_streams(sections.streams, &streams[..slots]);
    let samples: [SampleParams; SLOTS] = std::array::from_fn(|slot| SampleParams {
        slot,
        repetition_penalty: 1.1,
        temperature: slot as f32,
        top_k: slot % 2 * 7,
        top_p: 0.9,
        uniform: 0.5,
    });
    spec.set_samples(sections.samples, &samples[..slots]);
}

// Counts the host's allocations; a CUDA driver makes some too.
#[cfg(not(feature = "cuda"))]
#[test]
fn repeated_steps_allocate_nothing() {
    let mut step = Step::new(Cpu::default());
    let (mut spec, mut back) = (step.layout.spec(), ReadBack::default());
    for round in 0..24 {
        let before = counts(CountScope::Thread).allocations;
        fill(&step.model.sections, &mut spec, round);
        step.run(0, &spec, &mut back);
        let made = counts(CountScope::Thread).allocations - before;
        // The first rounds cover every number of slots, rows and experts.
        assert!(round < 12 || made == 0, "{made} allocations in round {round}");
    }
}

#[test]
fn repeated_steps_use_the_same_places() {
    let ops = RecordingOps::with_addresses(device(), Tensor::address);
    let mut step = Step::new(ops.clone());
    let (mut spec, mut back) = (step.layout.spec(), ReadBack::default());
    let mut notes = (0..6).map(|round| {
        fill(&step.model.sections, &mut spec, round);
        ops.take_notes();
        step.run(0, &spec, &mut back);
        ops.take_notes()
    });
    let first = notes.next().unwrap();
    assert!(first.iter().filter(|note| note.starts_with("at 0x")).count() > 30, "{first:?}");
    let count = |what: &str| first.iter().filter(|note| note.starts_with(what)).count();
    assert_eq!([count("launch"), count("collect"), count("upload"), count("read")], [1, 1, 0, 0], "{first:?}");
    for again in notes {
        assert_eq!(again, first);
    }
}

// Counts the host's allocations; a CUDA driver makes some too.
#[cfg(not(feature = "cuda"))]
#[test]
fn counted_steps_note_their_rise() {
    let allocations: fn() -> u64 = || counts(CountScope::Thread).allocations;
    let ops = RecordingOps::with_counter(Cpu::default(), allocations);
    let mut step = Step::new(ops.clone());
    let (mut spec, mut back) = (step.layout.spec(), ReadBack::default());
    for round in 0..24 {
        fill(&step.model.sections, &mut spec, round);
        step.run(0, &spec, &mut back);
        let notes = ops.take_notes();
        assert_eq!(notes.len(), 2, "{notes:?}");
        assert!(notes[0].starts_with("launch") && notes[1].starts_with("collect"), "{notes:?}");
        let quiet = notes.iter().all(|note| note.ends_with(": 0"));
        assert!(if round == 0 { !quiet } else { round < 12 || quiet }, "round {round}: {notes:?}");
    }
}

fn bits(back: &ReadBack) -> (Vec<u32>, Vec<u32>) {
    (back.ids.clone(), back.numbers.iter().map(|number| number.to_bits()).collect())
}

#[test]
fn replayed_steps_equal_called_ones() {
    let replay = ReplayOps::new(device());
    let (mut called, mut replayed) = (Step::new(device()), Step::new(replay.clone()));
    let (mut spec, mut expected, mut back) = (called.layout.spec(), ReadBack::default(), ReadBack::default());
    for round in 0..20 {
        fill(&called.model.sections, &mut spec, round);
        let variant = round % 3 / 2;
        called.run(variant, &spec, &mut expected);
        replayed.run(variant, &spec, &mut back);
        assert!(back.numbers.len() > 100 && back.ids.len() == SLOTS);
        assert!(bits(&back) == bits(&expected), "round {round} gives other results");
    }
    assert_eq!((called.calls, replayed.calls, replay.recorded()), (20, 2, 2));
}

/// Runs a step that outputs the row given by a host counter: a mistake that replay reveals.
fn counting_step<O: Ops>(ops: &O) -> Vec<ReadBack> {
    let mut layout = SpecLayout::default();
    let at = layout.list(6);
    let (mut spec, mut counted) = (layout.spec(), 0);
    spec.set_floats(at, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let key = StepKey { stage: "all", rows: 1, variant: 0 };
    let mut launch = |_| {
        let mut back = ReadBack::default();
        let ticket = ops.launch(key, &spec, &mut |ops, spec, outputs| {
            outputs.rows.push(ops.narrow(&ops.floats(spec, at, 6), counted, 2));
            counted += 1;
        });
        ops.collect(ticket, &mut back);
        back
    };
    (0..3).map(&mut launch).collect()
}

#[test]
fn replaying_shows_a_step_that_counts() {
    let called: Vec<_> = counting_step(&device()).into_iter().map(|back| back.numbers).collect();
    assert_eq!(called, [[1.0, 2.0], [2.0, 3.0], [3.0, 4.0]]);
    let replayed: Vec<_> = counting_step(&ReplayOps::new(device())).into_iter().map(|back| back.numbers).collect();
    assert_eq!(replayed, [[1.0, 2.0]; 3]);
}

#[test]
#[should_panic(expected = "reading back is not an operation of a step")]
fn replaying_refuses_to_read_within_a_step() {
    let ops = ReplayOps::new(device());
    let mut layout = SpecLayout::default();
    let at = layout.list(2);
    ops.launch(StepKey { stage: "all", rows: 1, variant: 0 }, &layout.spec(), &mut |ops, spec, _| {
        ops.read(&ops.floats(spec, at, 2));
    });
}

/// Returns the output of a second launch, after a first one that panics half-way.
fn after_a_panic<O: Ops>(ops: &O) -> Vec<f32> {
    let mut layout = SpecLayout::default();
    let at = layout.list(2);
    let mut spec = layout.spec();
    spec.set_floats(at, &[1.0, 2.0]);
    let key = StepKey { stage: "all", rows: 1, variant: 0 };
    let launch = |fails: bool| {
        ops.launch(key, &spec, &mut |ops, spec, outputs| {
            outputs.rows.push(ops.floats(spec, at, 2));
            if fails {
                std::panic::resume_unwind(Box::new("a step fails"));
            }
        })
    };
    assert!(catch_unwind(AssertUnwindSafe(|| launch(true))).is_err());
    let mut back = ReadBack::default();
    ops.collect(launch(false), &mut back);
    back.numbers
}

#[test]
fn a_panicking_step_leaves_nothing() {
    assert_eq!(after_a_panic(&device()), [1.0, 2.0]);
    assert_eq!(after_a_panic(&ReplayOps::new(device())), [1.0, 2.0]);
}

#[test]
fn buckets_hold_their_rows() {
    let ops = ReplayOps::new(device());
    for rows in 1..600 {
        let bucket = ops.bucket(rows);
        assert!(bucket >= rows && ops.bucket(bucket) == bucket, "{rows} rows in a bucket of {bucket}");
    }
    assert_eq!([1, 3, 9, 17, 257].map(|rows| ops.bucket(rows)), [1, 4, 16, 24, 512]);
}
