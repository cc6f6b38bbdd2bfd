//! Steps that the CUDA device captures as graphs: replays give the bits of eager launches, and steps that cannot be replayed are detected.
//! `make test-cuda` runs these tests on a simulated device.
#![cfg(feature = "cuda")]
#![allow(clippy::unwrap_used)] // Helpers of tests: a panic is their report.

use std::panic::{AssertUnwindSafe, catch_unwind};

use repartee_kernels::cuda::{Cuda, LaunchedStep};
use repartee_kernels::random::uniform;
use repartee_kernels::row_spec::{BatchSection, SampleSection, SpecSection};
use repartee_kernels::{
    AttentionShape, DType, Ops, RawTensor, ReadBack, RouterShape, RowSpec, SampleParams, SequenceRows, SpecLayout,
    StateSpec, StepKey, StepOutputs, WeightLayout,
};
use repartee_kernels_testkit::host::HostOps;

const ROWS: usize = 4;
const WIDTH: usize = 24;
const IDS: usize = 300;

fn graphs() -> Cuda {
    Cuda::open(0).expect("`make test-cuda` says where the simulated driver is").with_graphs()
}

fn eager() -> Cuda {
    Cuda::open(0).unwrap()
}

fn key(variant: usize) -> StepKey {
    StepKey { stage: "test", rows: ROWS, variant }
}

fn weight(ops: &Cuda, layout: WeightLayout, shape: &[usize], parts: usize) -> <Cuda as Ops>::Weight {
    let numbers = (0..shape.iter().product::<usize>()).map(|i| uniform(5, i as u64, shape.len() as u64, 0) - 0.5);
    let bytes: Vec<u8> = numbers.flat_map(f32::to_le_bytes).collect();
    ops.stored_weight(layout, &vec![RawTensor { name: "w", bytes: &bytes, dtype: DType::F32, shape }; parts]).unwrap()
}

/// A layer with all operations of a decode step, and its state.
struct Layer {
    ops: Cuda,
    layout: SpecLayout,
    at: (SpecSection, BatchSection, SampleSection),
    weights: [<Cuda as Ops>::Weight; 8],
    cache: <Cuda as Ops>::State,
    history: <Cuda as Ops>::State,
    calls: usize,
}

impl Layer {
    fn new(ops: Cuda) -> Self {
        let mut layout = SpecLayout::default();
        let at = (layout.list(ROWS), layout.batch(ROWS, ROWS, 4), layout.samples(ROWS));
        let weights = [
            weight(&ops, WeightLayout::Table, &[IDS, WIDTH], 1),
            weight(&ops, WeightLayout::Vector, &[WIDTH], 1),
            weight(&ops, WeightLayout::Linear, &[WIDTH, WIDTH], 1),
            weight(&ops, WeightLayout::Linear, &[3, WIDTH], 1),
            weight(&ops, WeightLayout::Experts { per_expert: 2 }, &[16, WIDTH], 6),
            weight(&ops, WeightLayout::Experts { per_expert: 1 }, &[WIDTH, 16], 3),
            weight(&ops, WeightLayout::Linear, &[IDS, WIDTH], 1),
            ops.rotary_weight(WIDTH / 4, 1e4).unwrap(),
        ];
        let cache = ops.state(StateSpec::KeyValue { blocks: 17, block_len: 16, width: WIDTH });
        let history = ops.state(StateSpec::TokenMask { slots: ROWS, vocabulary: IDS });
        Self { layout, at, weights, cache, history, calls: 0, ops }
    }

    fn spec(&self, round: usize) -> RowSpec {
        let mut spec = self.layout.spec();
        let rows = 1 + round % ROWS;
        let tables: [[u32; 4]; ROWS] = std::array::from_fn(|slot| std::array::from_fn(|i| (4 * slot + i) as u32));
        let ids: Vec<u32> = (0..rows).map(|row| ((37 * row + 101 * round) % IDS) as u32).collect();
        spec.set(self.at.0, &ids);
        let sequences: Vec<_> =
            (0..rows).map(|slot| SequenceRows { table: &tables[slot], position: round + slot, rows: 1 }).collect();
        spec.set_batch(self.at.1, &sequences, 16);
        let sample = |slot| SampleParams {
            slot,
            repetition_penalty: 1.2,
            temperature: slot as f32,
            top_k: 20,
            top_p: 0.9,
            uniform: uniform(1, slot as u64, round as u64, 0),
        };
        spec.set_samples(self.at.2, (0..rows).map(sample).collect::<Vec<_>>());
        spec
    }

    fn launch(&mut self, round: usize) -> LaunchedStep {
        let spec = self.spec(round);
        let Self {
            ops,
            at,
            weights: [table, norm, linear, router, gate_up, down, head, frequencies],
            cache,
            history,
            calls,
            ..
        } = self;
        ops.launch(key(0), &spec, &mut |ops, spec, outputs: &mut StepOutputs<Cuda>| {
            *calls += 1;
            let shape = AttentionShape { heads: 4, kv_heads: 4, head_dim: WIDTH / 4, window: None, chunk: None };
            let batch = ops.batch_at(spec, at.1);
            let mut x = ops.embed_at(table, &ops.index(spec, at.0));
            let h = ops.linear(&ops.rms_norm(&x, norm, 1e-6), linear, Some(norm));
            let q = ops.rotary(ops.copy(&h), &batch, frequencies);
            x = ops.add(ops.attention(&q, &h, &h, cache, &batch, shape), &x);
            x = ops.experts(&x, router, gate_up, down, RouterShape { top_k: 2, normalise: true });
            let logits = ops.linear(&x, head, None);
            outputs.ids.push(ops.sample_at(&logits, &ops.index(spec, at.2.words()), None, Some(history)));
            outputs.rows.push(x);
        })
    }

    fn run(&mut self, round: usize) -> (Vec<u32>, Vec<u32>) {
        let (ticket, mut back) = (self.launch(round), ReadBack::default());
        self.ops.collect(ticket, &mut back);
        (back.ids, back.numbers.iter().map(|number| number.to_bits()).collect())
    }
}

/// The first launch is eager and captured, every other one is replayed.
#[test]
fn replayed_graphs_equal_eager_steps() {
    let (mut expected, mut found) = (Layer::new(eager()), Layer::new(graphs()));
    for round in 0..12 {
        assert_eq!(found.run(round), expected.run(round), "round {round}");
        // Other work on the stream between replays does not change their results.
        found.ops.copy_block(&mut found.cache, 3, 15);
        expected.ops.copy_block(&mut expected.cache, 3, 15);
        drop(found.ops.tensor(vec![f32::NAN; 1000], 10));
    }
    assert_eq!((expected.calls, found.calls), (12, 2));
    assert_eq!((expected.ops.eager_steps(), found.ops.eager_steps()), (None, Some(1)));
}

/// A launch before the previous one is collected finds the graph's memory in use: it runs eagerly, and is counted.
#[test]
fn launches_in_flight_fall_back() {
    let (mut expected, mut found) = (Layer::new(eager()), Layer::new(graphs()));
    for round in 0..6 {
        expected.run(round);
        found.run(round);
    }
    let tickets = [6, 7].map(|round| (expected.launch(round), found.launch(round)));
    assert_eq!(found.ops.eager_steps(), Some(2));
    let (mut wanted, mut back) = (ReadBack::default(), ReadBack::default());
    for (expected_ticket, ticket) in tickets {
        expected.ops.collect(expected_ticket, &mut wanted);
        found.ops.collect(ticket, &mut back);
        assert_eq!(back, wanted);
    }
    assert_eq!(found.run(8), expected.run(8));
    assert_eq!(found.ops.eager_steps(), Some(2));
}

/// A stage's device captures its own graphs; replays allocate no device memory.
#[test]
fn graphs_belong_to_their_stream() {
    let ops = graphs();
    let mut layers = [Layer::new(ops.with_own_buffers()), Layer::new(ops.with_own_buffers())];
    let both = layers.each_mut().map(|layer| layer.run(0));
    assert_eq!(both[0], both[1]);
    assert_eq!(layers.each_ref().map(|layer| layer.ops.eager_steps()), [Some(1), Some(1)]);
    assert_eq!(ops.eager_steps(), Some(0));
    let tickets = layers.each_mut().map(|layer| layer.launch(1));
    let backs = tickets.map(|ticket| {
        let mut back = ReadBack::default();
        ops.collect(ticket, &mut back);
        back
    });
    assert_eq!(backs[0], backs[1]);
}

/// Launches a step twice that a graph cannot replay; returns its panic message.
fn refused(mut step: impl FnMut(&Cuda, <Cuda as Ops>::T) -> <Cuda as Ops>::T) -> String {
    let ops = graphs();
    let mut layout = SpecLayout::default();
    let at = layout.list(2 * ROWS);
    let mut spec = layout.spec();
    spec.set_floats(at, &[1.5; 2 * ROWS]);
    let launch = |step: &mut dyn FnMut(&Cuda, <Cuda as Ops>::T) -> <Cuda as Ops>::T| {
        let mut back = ReadBack::default();
        let ticket = ops.launch(key(1), &spec, &mut |ops, spec, outputs| {
            outputs.rows.push(step(ops, ops.floats(spec, at, 2)));
        });
        ops.collect(ticket, &mut back);
        back.numbers
    };
    let panic = catch_unwind(AssertUnwindSafe(|| launch(&mut step))).expect_err("it is captured");
    drop(step);
    // The stream stays usable.
    assert_eq!(launch(&mut |_, x| x), [1.5; 2 * ROWS]);
    assert_eq!(launch(&mut |_, x| x), [1.5; 2 * ROWS]);
    panic.downcast_ref::<String>().cloned().unwrap_or_default()
}

#[test]
fn what_cannot_be_captured_is_refused() {
    let said = refused(|ops, x| {
        ops.read(&x);
        x
    });
    assert!(said.contains("STREAM_CAPTURE"), "a wait: {said}");
    let said = refused(|ops, x| ops.add(x, &ops.tensor(vec![1.0; 2 * ROWS], 2)));
    assert!(said.contains("STREAM_CAPTURE"), "numbers of the host: {said}");
    let mut calls = 0;
    let said = refused(|ops, x| {
        calls += 1;
        // Allocates more memory each time.
        if calls > 1 { ops.narrow(&ops.concat(&vec![&x; 50]), 0, 2) } else { x }
    });
    assert!(said.contains("STREAM_CAPTURE") && said.contains("allocation"), "{said}");
    let mut kept = Vec::new();
    let said = refused(move |ops, x| {
        kept.push(ops.copy(&x));
        x
    });
    assert!(said.contains("keeps tensors"), "{said}");
}
