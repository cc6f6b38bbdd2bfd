//! Operations that read a row spec: the same bits as with numbers from the host, for any padding; and their recordings.
#![allow(clippy::unwrap_used)] // Helpers of tests: a panic is their report.

mod device;

use device::{cases, device};
use proptest::prelude::*;
use repartee_kernels::random::uniform;
use repartee_kernels::row_spec::SpecSection;
use repartee_kernels::shapes::HELD_PENALTY;
use repartee_kernels::{
    AttentionBatch, AttentionShape, DType, NO_ID, NO_ROW, Ops, RawTensor, RowSpec, SampleParams, SegmentShape,
    SequenceRows, SpecLayout, StateSpec, StreamLevel, StreamRows, WeightLayout,
};
use repartee_kernels_testkit::host::HostOps;
use repartee_kernels_testkit::recording::RecordingOps;

fn numbers(count: usize, seed: u64) -> Vec<f32> {
    (0..count).map(|i| uniform(seed, i as u64, 0, 0) * 2.0 - 1.0).collect()
}

fn weight<O: Ops>(ops: &O, layout: WeightLayout, shape: &[usize], seed: u64) -> O::Weight {
    let values = numbers(shape.iter().product(), seed);
    let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    ops.stored_weight(layout, &[RawTensor { name: "w", bytes: &bytes, dtype: DType::F32, shape }]).unwrap()
}

/// A spec with one list, and padding after it.
fn list(values: &[u32], padding: usize) -> (RowSpec, SpecSection) {
    let mut layout = SpecLayout::default();
    layout.list(3);
    let at = layout.list(values.len() + padding);
    let mut spec = layout.spec();
    spec.set(at, values);
    (spec, at)
}

#[test]
fn bits_hold_some_rows_to_ids() {
    let ops = device();
    let (rows, columns) = (5, 101);
    let logits = numbers(rows * columns, 5);
    // Of row 3 the ids 1 and 100 stay, of row 1 all from 32 to 63, of row 4 the id 9. The padding has no row, although as many
    // rows as there are would have a place.
    let held = [3, 1, 4];
    let sets = [[0b10, 0, 0, 0b1_0000], [0, u32::MAX, 0, 0], [1 << 9, 0, 0, 0]];
    let stays = |row: usize, id: usize| match row {
        3 => id == 1 || id == 100,
        1 => (32..64).contains(&id),
        4 => id == 9,
        _ => true,
    };
    let mut layout = SpecLayout::default();
    let (at, words, params) = (layout.list(rows), layout.list(4 * rows), layout.samples(rows));
    let mut spec = layout.spec();
    spec.set(at, &held);
    spec.set(words, sets.as_flattened());
    let greedy =
        SampleParams { slot: 0, repetition_penalty: 1.0, temperature: 0.0, top_k: 0, top_p: 1.0, uniform: 0.5 };
    spec.set_samples(params, std::iter::repeat_n(greedy, rows));
    let spec = ops.upload(&spec);
    let (at, words) = (ops.index(&spec, at), ops.index(&spec, words));
    let x = ops.hold_at(ops.tensor(logits.clone(), columns), &at, &words);
    for (at, (found, logit)) in ops.read(&x).iter().zip(&logits).enumerate() {
        let (row, id) = (at / columns, at % columns);
        let expected = if stays(row, id) { *logit } else { logit + HELD_PENALTY };
        assert_eq!(found.to_bits(), expected.to_bits(), "row {row}, id {id}");
    }
    let sampled = ops.sample_at(&x, &ops.index(&spec, params.words()), None, None);
    let ids = ops.read_list(&sampled);
    for (row, id) in ids.iter().enumerate() {
        assert!(stays(row, *id as usize), "row {row}, id {id}");
    }
}

#[test]
fn lists_choose_the_same_rows() {
    let ops = device();
    let x = ops.tensor(numbers(7 * 5, 1), 5);
    let from = [6, 0, 3, 3];
    let (spec, at) = list(&from, 2);
    let index = ops.index(&ops.upload(&spec), at);
    assert_eq!(ops.read_list(&index), [6, 0, 3, 3, NO_ROW, NO_ROW]);
    let mut expected = ops.read(&ops.gather(&x, &from.map(|row| row as usize)));
    expected.resize(6 * 5, 0.0);
    assert_eq!(ops.read(&ops.gather_at(&x, &index)), expected);

    let table = weight(&ops, WeightLayout::Table, &[7, 5], 2);
    let expected = ops.read(&ops.embed_at(&table, &ops.list(&[6, 0, 3, 3, NO_ID, NO_ID])));
    assert_eq!(ops.read(&ops.embed_at(&table, &index)), expected);

    let rows = numbers(4 * 5, 3);
    let to = [6, 1, 0];
    let (spec, at) = list(&to, 1);
    let index = ops.index(&ops.upload(&spec), at);
    let mut expected = ops.read(&x);
    for (row, from) in to.into_iter().zip(rows.chunks(5)) {
        expected[row as usize * 5..][..5].copy_from_slice(from);
    }
    assert_eq!(ops.read(&ops.scatter_at(x, &index, &ops.tensor(rows, 5))), expected);
}

#[test]
fn stored_rows_outlive_their_step() {
    let ops = device();
    let mut state = ops.state(StateSpec::Rows { rows: 4, columns: 3 });
    let (spec, at) = list(&[2, 0], 1);
    let index = ops.index(&ops.upload(&spec), at);
    let rows: Vec<f32> = (1..=9).map(|i| i as f32).collect();
    ops.store(&mut state, &index, &ops.tensor(rows, 3));

    let (spec, at) = list(&[0, NO_ROW, 2, 3], 0);
    let index = ops.index(&ops.upload(&spec), at);
    let loaded = ops.read(&ops.load(&state, &index));
    assert_eq!(loaded, [4.0, 5.0, 6.0, 0.0, 0.0, 0.0, 1.0, 2.0, 3.0, 0.0, 0.0, 0.0]);
    let x = ops.tensor(vec![9.0; 12], 3);
    assert_eq!(ops.read(&ops.overlay(x, &state, &index)), [4.0, 5.0, 6.0, 9.0, 9.0, 9.0, 1.0, 2.0, 3.0, 0.0, 0.0, 0.0]);
}

#[test]
fn floats_keep_their_bits() {
    let ops = device();
    let mut layout = SpecLayout::default();
    let (_, at) = (layout.list(1), layout.list(6));
    let mut spec = layout.spec();
    spec.set_floats(at, &[1.5, -0.0, f32::MIN_POSITIVE]);
    let read = ops.read(&ops.floats(&ops.upload(&spec), at, 2));
    let bits: Vec<u32> = read.iter().map(|v| v.to_bits()).collect();
    assert_eq!(bits, [1.5f32, -0.0, f32::MIN_POSITIVE, 0.0, 0.0, 0.0].map(f32::to_bits));
}

#[test]
fn parts_of_a_list_are_consecutive() {
    let mut layout = SpecLayout::default();
    let (_, at) = (layout.list(1), layout.list(6));
    let mut spec = RowSpec::default();
    layout.clear_spec(&mut spec);
    spec.set_each(at.part(0, 3), 1..4);
    spec.set_each(at.part(1, 3), [7]);
    assert_eq!(spec.words(), [0, 1, 2, 3, 7, NO_ROW, NO_ROW]);
    // A longer spec's memory is cleared.
    layout.clear_spec(&mut spec);
    assert_eq!(spec.words(), [0; 7]);
}

#[test]
#[should_panic(expected = "more numbers than the bucket has place for")]
fn a_list_refuses_more_than_its_place() {
    let mut layout = SpecLayout::default();
    let at = layout.list(2);
    layout.spec().set_each(at, 0..3);
}

/// Rows of each sequence in each of several steps.
fn steps(sequences: usize, most: usize) -> impl Strategy<Value = Vec<Vec<usize>>> {
    prop::collection::vec(prop::collection::vec(0..=most, sequences), 1..6)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(64), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn padded_attention_changes_no_row(steps in steps(3, 9), padding in 0usize..40, window in prop::option::of(1usize..20)) {
        const BLOCK: usize = 4;
        let ops = device();
        let shape = AttentionShape { heads: 4, kv_heads: 2, head_dim: 8, window, chunk: None };
        let state = || ops.state(StateSpec::KeyValue { blocks: 37, block_len: BLOCK, width: 16 });
        let (mut plain, mut padded) = (state(), state());
        let tables: Vec<Vec<u32>> = (0..3).map(|s| (0..12).map(|b| 3 * b + s).collect()).collect();
        let mut layout = SpecLayout::default();
        layout.list(5);
        let at = layout.batch(27 + padding, 3, 12);
        let mut spec = layout.spec();
        let mut positions = [0; 3];
        for (seed, rows) in steps.iter().enumerate() {
            let sequences: Vec<_> = (0..3)
                .map(|s| SequenceRows { table: &tables[s], position: positions[s], rows: rows[s] })
                .filter(|sequence| sequence.rows > 0)
                .collect();
            spec.set_batch(at, &sequences, 36);
            let count: usize = rows.iter().sum();
            let input = |width: usize, salt: u64| numbers(at.rows() * width, 10 * seed as u64 + salt);
            let [q, k, v] = [(32, 0), (16, 1), (16, 2)].map(|(width, salt)| (input(width, salt), width));
            let cut = |(values, width): &(Vec<f32>, usize)| ops.tensor(values[..count * width].to_vec(), *width);
            let whole = |(values, width): &(Vec<f32>, usize)| ops.tensor(values.clone(), *width);
            let batch = ops.batch(&sequences);
            let frequencies = ops.rotary_weight(8, 1e4).unwrap();
            let turned = ops.rotary(cut(&q), &batch, &frequencies);
            let expected = ops.read(&ops.attention(&turned, &cut(&k), &cut(&v), &mut plain, &batch, shape));
            let batch = ops.batch_at(&ops.upload(&spec), at);
            let turned = ops.rotary(whole(&q), &batch, &frequencies);
            let ours = ops.read(&ops.attention(&turned, &whole(&k), &whole(&v), &mut padded, &batch, shape));
            prop_assert!(ours[..count * 32] == expected, "the padding changed a row");
            prop_assert!(ours.iter().all(|v| v.is_finite()));
            (0..3).for_each(|s| positions[s] += rows[s]);
        }
    }

    #[test]
    fn padded_segments_change_no_row(lengths in prop::collection::vec(1usize..30, 0..4), padding in 0usize..20) {
        let ops = device();
        let used: usize = lengths.iter().sum();
        let segments = |padding: usize| {
            let mut layout = SpecLayout::default();
            let at = layout.segments(used + padding, 4);
            let mut spec = layout.spec();
            spec.set_segments(at, &[used + padding]);
            spec.set_segments(at, &lengths);
            ops.index(&ops.upload(&spec), at.words())
        };
        let inputs = [1, 2, 3].map(|seed| numbers((used + padding) * 24, seed));
        let [q, k, v] = inputs.each_ref().map(|x| ops.tensor(x.clone(), 24));
        let ours = ops.read(&ops.segment_attention_at(&q, &k, &v, &segments(padding), SegmentShape::whole(2)));
        let [q, k, v] = inputs.each_ref().map(|x| ops.tensor(x[..used * 24].to_vec(), 24));
        let expected = ops.read(&ops.segment_attention_at(&q, &k, &v, &segments(0), SegmentShape::whole(2)));
        prop_assert!(ours[..used * 24] == expected, "the padding changed a row");
    }

    #[test]
    fn padded_streams_equal_one_call_each(steps in steps(3, 4), padding in 0usize..3) {
        let ops = device();
        let codec = Codec::new(&ops);
        let mut tails = codec.tails(&ops);
        // Inputs and outputs of each stream; the last three are the slots' current ones.
        let mut streams: Vec<(Vec<f32>, Vec<f32>)> = Vec::new();
        let mut slots = [0, 1, 2];
        streams.resize_with(3, Default::default);
        for (seed, rows) in steps.iter().enumerate() {
            let used = (0..3).filter(|&slot| rows[slot] > 0);
            let position = |slot: usize| streams[slots[slot]].0.len() / CHANNELS;
            let used: Vec<_> = used.map(|slot| StreamRows { slot, position: position(slot), rows: rows[slot] }).collect();
            let x = numbers((12 + padding) * CHANNELS, seed as u64);
            let (wide, level) = codec.run(&ops, &x, &mut tails, &used);
            prop_assert_eq!(wide.len(), (12 + padding) * level.scale, "the width depends on the state");
            let mut row = 0;
            for chunk in &used {
                let stream = &mut streams[slots[chunk.slot]];
                stream.0.extend_from_slice(&x[row * CHANNELS..(row + chunk.rows) * CHANNELS]);
                let absent = level.skip.saturating_sub(chunk.position * level.scale).min(chunk.rows * level.scale);
                let all = &wide[row * level.scale..(row + chunk.rows) * level.scale];
                stream.1.extend_from_slice(&all[absent..]);
                row += chunk.rows;
            }
            prop_assert!(wide[row * level.scale..].iter().all(|&v| v == 0.0), "the padding is not zero");
            // Sometimes a slot's stream restarts.
            for slot in (0..3).filter(|&slot| rows[slot] == 3) {
                slots[slot] = streams.len();
                streams.push(Default::default());
            }
        }
        for (x, samples) in streams {
            let whole = StreamRows { slot: 1, position: 0, rows: x.len() / CHANNELS };
            let (wide, level) = codec.run(&ops, &x, &mut codec.tails(&ops), &[whole]);
            prop_assert!(wide[level.skip.min(wide.len())..] == samples, "other samples");
        }
    }

    #[test]
    fn padded_samples_remember_nothing(rows in 1usize..5, padding in 0usize..4, seed in any::<u64>()) {
        const IDS: usize = 20;
        let ops = device();
        let state = || ops.state(StateSpec::TokenMask { slots: 6, vocabulary: IDS });
        let (mut plain, mut padded) = (state(), state());
        let allowed = {
            let values: Vec<u8> = (0..IDS).flat_map(|id| f32::from(id % 3 != 0).to_le_bytes().to_vec()).collect();
            ops.stored_weight(WeightLayout::Vector, &[RawTensor { name: "a", bytes: &values, dtype: DType::F32, shape: &[IDS] }]).unwrap()
        };
        let mut layout = SpecLayout::default();
        layout.list(1);
        let (at, slots) = (layout.samples(rows + padding), layout.list(2));
        let mut spec = layout.spec();
        for step in 0..4 {
            let draw = |i: usize, what| uniform(seed, i as u64, step, what);
            let params: Vec<_> = (0..rows)
                .map(|i| SampleParams {
                    slot: (2 * i + 3) % 6,
                    repetition_penalty: 1.0 + draw(i, 1),
                    temperature: if i == 1 { 0.0 } else { 0.5 + draw(i, 2) },
                    top_k: i * 4,
                    top_p: 0.5 + draw(i, 3) / 2.0,
                    uniform: draw(i, 4),
                })
                .collect();
            spec.set_samples(at, &params);
            spec.set(slots, &[3]);
            let logits = numbers((rows + padding) * IDS, seed ^ step);
            let expected = ops.sample(&ops.tensor(logits[..rows * IDS].to_vec(), IDS), &params, Some(&allowed), Some(&mut plain));
            let uploaded = ops.upload(&spec);
            let index = ops.index(&uploaded, at.words());
            let ours = ops.sample_at(&ops.tensor(logits, IDS), &index, Some(&allowed), Some(&mut padded));
            let ours = ops.read_list(&ours);
            prop_assert_eq!(ours.len(), rows + padding);
            prop_assert_eq!(&ours[..rows], &expected[..]);
            if step == 2 {
                ops.reset(&mut plain, 3);
                ops.reset_at(&mut padded, &ops.index(&uploaded, slots));
            }
            // On a CUDA device the next sampled ids show it.
            #[cfg(not(feature = "cuda"))]
            {
                let held = [&plain, &padded].map(|state| format!("{state:?}"));
                prop_assert_eq!(&held[0], &held[1], "another history");
            }
        }
    }
}

const CHANNELS: usize = 5;

/// Convolutions of every kind in sequence, down to single samples.
struct Codec<O: Ops> {
    layers: Vec<Layer<O>>,
}

struct Layer<O: Ops> {
    weight: O::Weight,
    bias: O::Weight,
    /// Rows and channels of its tail.
    tail: (usize, usize),
    /// Of a transposed convolution: its stride, and true if a stream's first row yields nothing.
    up: Option<(usize, bool)>,
}

impl<O: Ops> Codec<O> {
    fn new(ops: &O) -> Self {
        let up = |input, out, kernel, stride: usize, seed| Layer {
            weight: weight(ops, WeightLayout::ConvTranspose1d { stride, cut: true }, &[input, out, kernel], seed),
            bias: weight(ops, WeightLayout::Vector, &[out], seed + 1),
            tail: (kernel / stride - 1, input),
            up: Some((stride, kernel > stride)),
        };
        let conv = |input, out, kernel, dilation, seed| Layer {
            weight: weight(ops, WeightLayout::Conv1d { dilation }, &[out, input, kernel], seed),
            bias: weight(ops, WeightLayout::Vector, &[out], seed + 1),
            tail: ((kernel - 1) * dilation, input),
            up: None,
        };
        let depthwise = Layer {
            weight: weight(ops, WeightLayout::Depthwise, &[4, 1, 7], 30),
            bias: weight(ops, WeightLayout::Vector, &[4], 31),
            tail: (6, 4),
            up: None,
        };
        let layers = vec![
            // A stream's first row yields nothing, and in the next layer all rows of its first chunk may be absent.
            up(CHANNELS, 4, 4, 2, 10),
            depthwise,
            up(4, 6, 6, 3, 40),
            conv(6, 6, 3, 4, 50),
            conv(6, 6, 1, 1, 60),
            up(6, 3, 2, 2, 70),
            conv(3, 1, 7, 1, 80),
        ];
        Self { layers }
    }

    fn tails(&self, ops: &O) -> Vec<O::State> {
        let tail =
            |layer: &Layer<O>| ops.state(StateSpec::Tail { slots: 3, rows: layer.tail.0, columns: layer.tail.1 });
        self.layers.iter().map(tail).collect()
    }
}

impl<O: Ops> Codec<O> {
    /// Runs the rows of `chunks` and their padding through all layers; returns the output and its level.
    fn run(
        &self,
        ops: &O,
        x: &[f32],
        tails: &mut [O::State],
        chunks: &[StreamRows],
    ) -> (Vec<f32>, StreamLevel<O::Index>) {
        let mut layout = SpecLayout::default();
        layout.list(2);
        let at = layout.streams(x.len() / CHANNELS, 3);
        let mut spec = layout.spec();
        spec.set_streams(at, chunks);
        let mut streams = StreamLevel::new(ops.index(&ops.upload(&spec), at.words()));
        let mut x = ops.tensor(x.to_vec(), CHANNELS);
        for (layer, tail) in self.layers.iter().zip(tails) {
            match layer.up {
                Some((stride, cut)) => {
                    x = ops.conv_transpose1d_at(&x, &layer.weight, &layer.bias, tail, &streams);
                    streams = streams.upsampled(stride, cut);
                }
                None => x = ops.conv1d_at(&x, &layer.weight, &layer.bias, tail, &streams),
            }
            let (made, scale) = (ops.read(&x), streams.scale);
            let width = made.len() / ops.rows(&x).max(1);
            let mut row = 0;
            for chunk in chunks {
                let absent = streams.skip.saturating_sub(chunk.position * scale).min(chunk.rows * scale);
                let before = &made[row * scale * width..][..absent * width];
                assert!(before.iter().all(|&v| v == 0.0), "a row that does not exist is not zero");
                row += chunk.rows;
            }
        }
        (ops.read(&x), streams)
    }
}

#[test]
fn recording_sees_the_same_step_for_other_values() {
    let ops = RecordingOps::new(device());
    let codec = Codec::new(&ops);
    let mut tails = codec.tails(&ops);
    let mut kept = ops.state(StateSpec::Rows { rows: 8, columns: CHANNELS });
    let mut mask = ops.state(StateSpec::TokenMask { slots: 8, vocabulary: CHANNELS });
    let table = weight(&ops, WeightLayout::Table, &[9, CHANNELS], 1);
    let mut layout = SpecLayout::default();
    let (ids, rows) = (layout.list(4), layout.list(4));
    let (streams, samples) = (layout.streams(4, 4), layout.samples(4));
    let mut step = |ids_now: &[u32], chunks: &[StreamRows]| {
        let mut spec = layout.spec();
        spec.set(ids, ids_now);
        spec.set(rows, ids_now);
        spec.set_streams(streams, chunks);
        spec.set_samples(samples, [] as [SampleParams; 0]);
        ops.take_notes();
        let spec = ops.upload(&spec);
        let x = ops.embed_at(&table, &ops.index(&spec, ids));
        ops.store(&mut kept, &ops.index(&spec, rows), &x);
        let x = ops.overlay(x, &kept, &ops.index(&spec, rows));
        let mut streams = StreamLevel::new(ops.index(&spec, streams.words()));
        let (layer, tail) = (&codec.layers[0], &mut tails[0]);
        let wide = ops.conv_transpose1d_at(&x, &layer.weight, &layer.bias, tail, &streams);
        streams = streams.upsampled(2, true);
        ops.conv1d_at(&wide, &codec.layers[1].weight, &codec.layers[1].bias, &mut tails[1], &streams);
        ops.sample_at(&x, &ops.index(&spec, samples.words()), None, Some(&mut mask));
        ops.take_notes()
    };
    let one = step(&[1, 2], &[StreamRows { slot: 0, position: 0, rows: 2 }]);
    let other =
        step(&[7, 0, 3], &[StreamRows { slot: 2, position: 5, rows: 1 }, StreamRows { slot: 1, position: 0, rows: 2 }]);
    assert_eq!(one, other);
    assert_eq!(one.iter().filter(|note| note.starts_with("upload")).count(), 1, "{one:?}");
    assert!(!one.iter().any(|note| note.starts_with("read")), "{one:?}");
    assert!(one.len() > 6, "{one:?}");
}

#[test]
fn a_spec_keeps_nothing_of_the_step_before() {
    let mut layout = SpecLayout::default();
    let (list, floats) = (layout.list(6), layout.list(6));
    let (batch, streams) = (layout.batch(20, 3, 4), layout.streams(20, 3));
    let (samples, segments) = (layout.samples(5), layout.segments(20, 3));
    let fill = |spec: &mut RowSpec, count: usize| {
        let table = [5, 6, 7, 8];
        spec.set(list, &vec![9; count]);
        spec.set_floats(floats, &vec![9.0; count]);
        let sequences: Vec<_> =
            (0..count).map(|i| SequenceRows { table: &table[..=i], position: 3, rows: 4 }).collect();
        spec.set_batch(batch, &sequences, 1);
        let chunks: Vec<_> = (0..count).map(|slot| StreamRows { slot, position: 2, rows: 3 }).collect();
        spec.set_streams(streams, &chunks);
        let row =
            |slot| SampleParams { slot, repetition_penalty: 2.0, temperature: 1.0, top_k: 3, top_p: 0.5, uniform: 0.1 };
        spec.set_samples(samples, (0..count).map(row));
        spec.set_segments(segments, &vec![5; count]);
    };
    let mut used = layout.spec();
    for count in [3, 1, 2, 0, 3, 0] {
        fill(&mut used, count);
        let mut fresh = layout.spec();
        fill(&mut fresh, count);
        let [ours, theirs] = [&used, &fresh].map(|spec| {
            let mut read = AttentionBatch::default();
            batch.read(spec.words(), &mut read);
            read
        });
        assert_eq!(ours, theirs);
        let rows: usize = ours.sequences.iter().map(|sequence| sequence.rows).sum();
        assert_eq!(rows, 20, "every row of the bucket belongs to a sequence");
        for section in [list, floats, streams.words(), samples.words(), segments.words()] {
            assert_eq!(used.words()[section.range()], fresh.words()[section.range()]);
        }
    }
}

#[test]
fn columns_side_by_side_keep_their_rows() {
    let ops = device();
    let parts = [(2, 1), (1, 2), (4, 3)].map(|(columns, seed)| (columns, numbers(5 * columns, seed)));
    let tensors = parts.each_ref().map(|(columns, values)| ops.tensor(values.clone(), *columns));
    let joined = ops.read(&ops.concat_columns(&tensors.each_ref()));
    let row = |row: usize| parts.iter().flat_map(move |(columns, values)| values[row * columns..][..*columns].to_vec());
    assert_eq!(joined, (0..5).flat_map(row).collect::<Vec<_>>());
}
