//! A flow in the tick: with the planner and the stage of streams as they are, and a model whose layers take a fixed time.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use repartee_engine::internals::step_layers::StepLayers;
use repartee_engine::internals::stream_stage::{StreamModel, StreamStage};
use repartee_engine::internals::{
    BatchEntry, EdgeKind, Outbox, Planner, ReadyRows, RowKind, SchedulingOrder, Stage, StageItem, StepLimits, StepRows,
    Urgency,
};
use repartee_engine_api::SessionError;
use repartee_kernels::cpu::Cpu;
use repartee_kernels::row_spec::SpecSection;
use repartee_kernels::{Ops, RowSpec, SpecLayout};

/// Layers of an evaluation, and evaluations of a piece.
const LAYERS: usize = 12;
const EVALUATIONS: usize = 10;
/// Time of a layer, and of a frame's vocoder.
const LAYER: Duration = Duration::from_millis(15);
const FRAME: Duration = Duration::from_millis(2);

/// A flow that counts the layers that it computes.
struct CountedFlow(Arc<AtomicUsize>);

/// Evaluations that are left.
#[derive(Default)]
struct CountedStream(usize);

impl StreamModel<Cpu> for CountedFlow {
    type Stream = CountedStream;
    type Piece = ();
    type Sections = SpecSection;

    const EDGES: (EdgeKind, EdgeKind) = (EdgeKind::Codes, EdgeKind::Latents);
    const ROWS: RowKind = RowKind::SolverStep;
    const MAX_ROWS: usize = 1;
    const MAX_ITEMS: usize = 1;

    fn append(&self, stream: &mut CountedStream, _: StageItem) -> Result<(), SessionError> {
        stream.0 += EVALUATIONS;
        Ok(())
    }

    fn ready_rows(&self, stream: &CountedStream, _: bool) -> usize {
        stream.0
    }

    fn is_empty(&self, stream: &CountedStream) -> bool {
        stream.0 == 0
    }

    fn buffered_audio(&self, _: &CountedStream) -> Duration {
        Duration::ZERO
    }

    fn take(&self, stream: &mut CountedStream, _: BatchEntry, _: bool) -> Option<()> {
        stream.0 = stream.0.checked_sub(1)?;
        Some(())
    }

    fn size(&self, (): &()) -> (usize, usize) {
        (1, 1)
    }

    fn layout(&self, layout: &mut SpecLayout, rows: usize) -> SpecSection {
        layout.list(rows)
    }

    fn fill(&self, spec: &mut RowSpec, x: &SpecSection, pieces: &[()]) {
        spec.set_floats_each(*x, pieces.iter().map(|()| 1.0));
    }

    fn forward(&mut self, ops: &Cpu, spec: &<Cpu as Ops>::Spec, x: &SpecSection) -> <Cpu as Ops>::T {
        self.forward_layers(ops, (spec, x), 0..LAYERS, None)
    }

    fn layers(&self) -> Option<StepLayers> {
        Some(StepLayers { count: LAYERS, width: 1, row_work: 1, most: 1 })
    }

    fn forward_layers(
        &mut self,
        ops: &Cpu,
        (spec, first): (&<Cpu as Ops>::Spec, &SpecSection),
        layers: Range<usize>,
        x: Option<<Cpu as Ops>::T>,
    ) -> <Cpu as Ops>::T {
        self.0.fetch_add(layers.len(), Ordering::Relaxed);
        x.unwrap_or_else(|| ops.floats(spec, *first, 1))
    }

    fn items(&self, _: &mut CountedStream, (): (), numbers: &[f32]) -> Option<Vec<StageItem>> {
        Some(vec![StageItem::Latents { rows: numbers.to_vec(), count: 1 }])
    }
}

#[test]
fn frames_wait_for_one_unit_of_a_flow() {
    let computed = Arc::new(AtomicUsize::new(0));
    let mut flow = StreamStage::new("flow", Cpu::default(), CountedFlow(Arc::clone(&computed)), 2);
    let mut out = Outbox::new();
    (0..2).for_each(|slot| flow.accept(slot, StageItem::Codes(vec![0]), &mut out));
    let limits = StepLimits { batch: 8, chunk: flow.max_rows() };
    let mut planner = Planner::new(SchedulingOrder::Deadline, vec![limits; 2]);
    // Other responses came before these: the costs are known.
    planner.measured(0, StepRows::of(RowKind::SolverStep, 1), LAYER);
    planner.measured(1, StepRows::of(RowKind::Window, 1), FRAME);
    let start = Instant::now();
    let (mut now, mut longest, mut ticks) = (start, Duration::ZERO, 0);
    while (0..2).any(|slot| flow.runnable_rows(slot).rows > 0) {
        // Two callers wait for their first sound, and a third one has 20 ms left to play.
        let first = |slot| {
            let rows = flow.runnable_rows(slot);
            let urgency = Urgency::First { since: start };
            ReadyRows { slot, tenant: slot as u64, rows: rows.rows, kind: rows.kind, urgency, arrived: start }
        };
        let wants: Vec<ReadyRows> = (0..2).map(first).filter(|want| want.rows > 0).collect();
        let urgency = Urgency::Playing { runs_out: now + Duration::from_millis(20) };
        let due = vec![ReadyRows { slot: 2, tenant: 2, rows: 1, kind: RowKind::Window, urgency, arrived: start }];
        let mut budget = planner.budget(now, &[wants.clone(), due.clone()]);
        let shares = planner.plan(0, now, &wants, std::slice::from_ref(&due), &mut budget);
        let work: Vec<_> = shares.iter().map(|share| BatchEntry { slot: share.slot, rows: share.rows }).collect();
        let before = computed.load(Ordering::Relaxed);
        if !work.is_empty() {
            flow.step(&work, &mut out);
        }
        let layers = computed.load(Ordering::Relaxed) - before;
        let took = LAYER * layers as u32;
        if layers > 0 {
            planner.measured(0, StepRows::of(RowKind::SolverStep, work.len()), took);
        }
        assert_eq!(planner.plan(1, now, &due, &[], &mut budget).len(), 1, "the frame is made in each tick");
        planner.measured(1, StepRows::of(RowKind::Window, 1), FRAME);
        (longest, ticks) = (longest.max(took), ticks + 1);
        now += took + FRAME;
        assert!(ticks < 100_000, "the flow goes on");
    }
    assert_eq!(computed.load(Ordering::Relaxed), 2 * EVALUATIONS * LAYERS);
    assert_eq!(out.len(), 2 * EVALUATIONS, "numbers of each evaluation");
    println!("{ticks} ticks; a frame waited for a flow for {longest:?} at most");
    assert!(longest <= LAYER, "{longest:?}");
}
