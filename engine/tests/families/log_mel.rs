//! Streaming log-mel against the reference feature extractor, and against itself under every split.
//!
//! `data/log_mel.py` writes `data/log_mel.safetensors`.

#![expect(clippy::unwrap_used, reason = "a test and its helpers fail by panicking")]

use std::sync::Arc;

use proptest::prelude::*;
use repartee_engine::internals::{InputWindow, LogMel, LogMelConfig};
use safetensors::SafeTensors;

const TOLERANCE: f32 = 1e-4;
const BINS: usize = 128;

fn expected(name: &str) -> Vec<f32> {
    let fixture = SafeTensors::deserialize(include_bytes!("../data/log_mel.safetensors")).unwrap();
    let tensor = fixture.tensor(name).unwrap();
    tensor.data().chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap())).collect()
}

fn tables(window_frames: usize) -> Arc<LogMel> {
    LogMel::new(&LogMelConfig::default(), window_frames).unwrap()
}

/// Windows of a turn that arrives in these slices.
fn windows<'a>(tables: &Arc<LogMel>, slices: impl IntoIterator<Item = &'a [f32]>) -> Vec<InputWindow> {
    let mut stream = tables.stream();
    let mut closed = Vec::new();
    for slice in slices {
        stream.push(slice, &mut closed);
    }
    closed.extend(stream.finish());
    closed
}

fn assert_close(found: &[f32], wanted: &[f32], what: &str) {
    assert_eq!(found.len(), wanted.len(), "{what}");
    for (index, (found, wanted)) in found.iter().zip(wanted).enumerate() {
        let (frame, bin) = (index / BINS, index % BINS);
        assert!((found - wanted).abs() < TOLERANCE, "{what}: frame {frame}, bin {bin}: {found}, expected {wanted}");
    }
}

#[test]
fn one_window_equals_the_reference() {
    let signal = expected("signal");
    let tables = tables(100);
    for length in [160, 200, 201, 399, 3_999, 4_000, 12_123] {
        let found = windows(&tables, [&signal[..length]]);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].frames, length / 160);
        assert_close(&found[0].data, &expected(&format!("whole.{length}")), &format!("{length} samples"));
    }
}

#[test]
fn windows_are_clamped_to_the_running_maximum() {
    let found = windows(&tables(20), [expected("signal").as_slice()]);
    assert_eq!(found.iter().map(|window| window.frames).collect::<Vec<_>>(), [20, 20, 20, 15]);
    let data: Vec<f32> = found.into_iter().flat_map(|window| window.data).collect();
    assert_close(&data, &expected("streamed.20"), "streamed");
}

#[test]
fn a_window_closes_forty_samples_after_its_end() {
    let signal = expected("signal");
    let mut stream = tables(20).stream();
    let mut closed = Vec::new();
    stream.push(&signal[..20 * 160 + 39], &mut closed);
    assert_eq!((closed.len(), stream.open_frames()), (0, 19));
    stream.push(&signal[20 * 160 + 39..20 * 160 + 40], &mut closed);
    assert_eq!((closed.len(), stream.open_frames()), (1, 0));
    assert_eq!(stream.samples(), 20 * 160 + 40);
    assert!(stream.finish().is_none(), "forty samples are no frame");
}

#[test]
fn less_than_a_hop_gives_no_frame() {
    let tables = tables(100);
    assert!(windows(&tables, []).is_empty());
    assert!(windows(&tables, [[0.5; 159].as_slice()]).is_empty());
    assert_eq!(windows(&tables, [[0.5; 160].as_slice()])[0].frames, 1);
}

#[test]
fn the_maximum_never_falls_below_the_floor() {
    let silence = [0.0; 1_600];
    let floor = LogMelConfig { max_floor: -1.0, ..LogMelConfig::default() };
    let quiet = windows(&LogMel::new(&floor, 100).unwrap(), [silence.as_slice()]);
    // (-1 - 8 + 4) / 4, where the reference would have (-10 + 4) / 4.
    assert!(quiet[0].data.iter().all(|level| *level == -1.25));
    let reference = windows(&tables(100), [silence.as_slice()]);
    assert!(reference[0].data.iter().all(|level| *level == -1.5));
}

#[test]
fn bad_configurations_name_their_field() {
    for (config, field) in [
        (LogMelConfig { feature_size: 0, ..LogMelConfig::default() }, "feature_size"),
        (LogMelConfig { n_fft: 401, ..LogMelConfig::default() }, "n_fft"),
        (LogMelConfig { hop_length: 100, ..LogMelConfig::default() }, "hop_length"),
        (LogMelConfig { sampling_rate: 0, ..LogMelConfig::default() }, "sampling_rate"),
    ] {
        assert_eq!(LogMel::new(&config, 100).unwrap_err().field, field);
    }
    assert_eq!(LogMel::new(&LogMelConfig::default(), 0).unwrap_err().field, "n_window_infer");
}

#[test]
fn single_samples_equal_one_push() {
    let signal = &expected("signal")[..7_000];
    let tables = tables(20);
    assert_eq!(windows(&tables, signal.chunks(1)), windows(&tables, [signal]));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn any_split_gives_the_same_bits(
        length in 0_usize..12_123,
        window in 1_usize..30,
        slices in proptest::collection::vec(0_usize..1_500, 0..30),
    ) {
        let signal = &expected("signal")[..length];
        let tables = tables(window);
        let mut rest = signal;
        let mut split = Vec::new();
        for slice in slices {
            let (head, tail) = rest.split_at(slice.min(rest.len()));
            split.push(head);
            rest = tail;
        }
        split.push(rest);
        let found = windows(&tables, split);
        prop_assert_eq!(found.iter().map(|window| window.frames).sum::<usize>(), length / 160);
        prop_assert_eq!(found, windows(&tables, [signal]));
    }
}
