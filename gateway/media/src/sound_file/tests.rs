//! Files of other writers (`testdata/make_sounds.py`), wav files with every freedom that writers take, and hostile files.

use std::path::Path;
use std::time::Duration;

use proptest::prelude::*;
use repartee_testkit::memory::peak_of;
use repartee_testkit::random::Random;
use repartee_testkit::signal::{dominant_frequency, level_db, sine};
use repartee_testkit::wav::{SampleEncoding, WavFormat, encode};

use super::sink::PIECE;
use super::{SoundFileError, decode, read, read_in_pieces, read_stream};
use crate::pcm::{encode_alaw, encode_i16le, encode_mulaw};
use crate::wav::stream_header;

const LONGEST: Duration = Duration::from_secs(5);
const RATE: u32 = 16_000;
/// Tone, level and length of every file of `testdata/sounds`.
const TONE: f64 = 440.0;
const LEVEL_DB: f32 = -9.03;
const SECONDS: f64 = 0.25;

fn sound(name: &str) -> Vec<u8> {
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/sounds").join(name)).unwrap()
}

/// Names of all files, in order.
fn sounds() -> Vec<String> {
    let folder = std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/sounds")).unwrap();
    let mut names: Vec<String> = folder.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Files whose codec or container is not read, with the name that the error gives.
const REFUSED: [(&str, &str); 3] = [("adpcm.wav", "ADPCM"), ("tone.aiff", "AIFF"), ("alac.m4a", "ALAC")];

fn is_tone(samples: &[f32], rate: u32) {
    let middle = &samples[samples.len() / 4..samples.len() * 3 / 4];
    let (frequency, level) = (dominant_frequency(middle, rate), level_db(middle));
    assert!((frequency - TONE).abs() < 8.0 && (level - LEVEL_DB).abs() < 0.7, "{frequency} Hz, {level} dB");
}

#[test]
fn every_format_is_heard() {
    let (names, mut read_files) = (sounds(), 0);
    for name in names.iter().filter(|name| REFUSED.iter().all(|(refused, _)| refused != name)) {
        let file = sound(name);
        let samples = read(&file, RATE, LONGEST).unwrap_or_else(|error| panic!("{name}: {error}"));
        println!("{name}: {} ms", samples.len() / 16);
        is_tone(&samples, RATE);
        // Lossy codecs add delay and padding.
        let seconds = samples.len() as f64 / f64::from(RATE);
        assert!((SECONDS - 0.001..SECONDS + 0.12).contains(&seconds), "{name}: {seconds} s");
        is_tone(&decode(&file, LONGEST).unwrap().samples, decode(&file, LONGEST).unwrap().rate);
        read_files += 1;
    }
    assert_eq!(read_files, 24);
}

#[test]
fn refusal_names_container_and_codec() {
    for (name, what) in REFUSED {
        let error = read(&sound(name), RATE, LONGEST).unwrap_err();
        assert!(error.to_string().contains(what) && error.to_string().contains("send wav"), "{name}: {error}");
    }
}

/// Parts of a wav file of 16-bit mono at 8 kHz: the head to the end of the format chunk, and the data.
fn parts() -> (Vec<u8>, Vec<u8>) {
    let header = stream_header(8_000);
    (header[..36].to_vec(), encode_i16le(&sine(TONE, 8_000, 4_000)))
}

fn chunk(name: &[u8; 4], claimed: u32, contents: &[u8]) -> Vec<u8> {
    [name, &claimed.to_le_bytes()[..], contents].concat()
}

#[test]
fn lengths_of_streams_are_taken() {
    let (head, data) = parts();
    let expected = decode(&[&head[..], &chunk(b"data", data.len() as u32, &data)].concat(), LONGEST).unwrap();
    assert_eq!((expected.samples.len(), expected.rate), (4_000, 8_000));
    // The rest: ours and ffmpeg's, sox's, none, a guess that was too long.
    for claimed in [u32::MAX, u32::MAX - 1, 0x7fff_f000, 0x7fff_ffff, 0, data.len() as u32 + 1_000] {
        let file = [&head[..], &chunk(b"data", claimed, &data)].concat();
        assert_eq!(decode(&file, LONGEST).unwrap(), expected, "{claimed:#x}");
    }
    let cut = [&head[..], &chunk(b"data", u32::MAX, &data[..7_999])].concat();
    assert_eq!(decode(&cut, LONGEST).unwrap().samples, expected.samples[..3_999], "cut within a sample");
    let short = [&head[..], &chunk(b"data", 2_000, &data)].concat();
    assert_eq!(decode(&short, LONGEST).unwrap().samples, expected.samples[..1_000]);
    let long = {
        let mut head = head.clone();
        head[..4].copy_from_slice(b"RF64");
        let sizes = [&u64::MAX.to_le_bytes()[..], &8_000_u64.to_le_bytes(), &[0; 12]].concat();
        head.splice(12..12, chunk(b"ds64", 28, &sizes));
        [&head[..], &chunk(b"data", u32::MAX, &data), &chunk(b"LIST", 4, b"abcd")].concat()
    };
    assert_eq!(decode(&long, LONGEST).unwrap(), expected, "a chunk after the data is not sound");
}

#[test]
fn odd_chunks_with_and_without_pad() {
    let (head, data) = parts();
    let data = chunk(b"data", data.len() as u32, &data);
    let expected = decode(&[&head[..], &data].concat(), LONGEST).unwrap();
    for pad in [&b""[..], b"\0", b"\xff"] {
        let file = [&head[..], &chunk(b"LIST", 5, b"hello"), pad, &chunk(b"id3 ", 3, b"abc"), pad, &data].concat();
        assert_eq!(decode(&file, LONGEST).unwrap(), expected, "{pad:?}");
    }
    let junk = [&head[..12], &chunk(b"JUNK", 28, &[0; 28]), &head[12..], &data].concat();
    let after = [&head[..], &data, &chunk(b"LIST", 4, b"abcd")].concat();
    let tagged = [&b"ID3\x04\0\0\0\0\0\x04tags"[..], &head, &data].concat();
    for file in [junk, after, tagged] {
        assert_eq!(decode(&file, LONGEST).unwrap(), expected);
    }
}

/// File with the format chunk `tag`, channels, bytes a frame, valid bits, and with the extensible form of it.
fn with_format(tag: u16, channels: u16, frame: u16, bits: u16, extensible: bool, data: &[u8]) -> Vec<u8> {
    let rate = 8_000_u32;
    let mut format = Vec::new();
    format.extend(if extensible { 0xfffe } else { tag }.to_le_bytes());
    format.extend(channels.to_le_bytes());
    format.extend(rate.to_le_bytes());
    format.extend((rate * u32::from(frame)).to_le_bytes());
    format.extend(frame.to_le_bytes());
    format.extend(if extensible { frame * 8 / channels } else { bits }.to_le_bytes());
    if extensible {
        format.extend(22_u16.to_le_bytes());
        format.extend(bits.to_le_bytes());
        format.extend(0_u32.to_le_bytes());
        format.extend(tag.to_le_bytes());
        format.extend(b"\0\0\0\0\x10\0\x80\0\0\xaa\0\x38\x9b\x71");
    }
    let format = chunk(b"fmt ", format.len() as u32, &format);
    [&b"RIFF\0\0\0\0WAVE"[..], &format, &chunk(b"data", data.len() as u32, data)].concat()
}

#[test]
fn every_encoding_of_wav_is_read() {
    let tone = sine(TONE, 8_000, 4_000);
    let bytes = |sample: f32, length: usize, bits: u32| {
        // The upper bits of a container are valid.
        let full = (f64::from(sample) * f64::from(1_u32 << (bits - 1))) as i32;
        (full << (8 * length as u32 - bits)).to_le_bytes()[..length].to_vec()
    };
    let signed = |length: usize, bits: u32| tone.iter().flat_map(|s| bytes(*s, length, bits)).collect::<Vec<u8>>();
    let float: Vec<u8> = tone.iter().flat_map(|sample| sample.to_le_bytes()).collect();
    let double: Vec<u8> = tone.iter().flat_map(|sample| f64::from(*sample).to_le_bytes()).collect();
    for extensible in [false, true] {
        for (tag, frame, bits, data) in [
            (1, 2, 16, signed(2, 16)),
            (1, 2, 12, signed(2, 12)),
            (1, 3, 24, signed(3, 24)),
            (1, 4, 24, signed(4, 24)),
            (1, 4, 20, signed(4, 20)),
            (1, 4, 32, signed(4, 32)),
            (3, 4, 32, float.clone()),
            (3, 8, 64, double.clone()),
            (6, 1, 8, encode_alaw(&tone)),
            (7, 1, 8, encode_mulaw(&tone)),
        ] {
            let read = decode(&with_format(tag, 1, frame, bits, extensible, &data), LONGEST).unwrap();
            let error: Vec<f32> = read.samples.iter().zip(&tone).map(|(a, b)| a - b).collect();
            assert!(read.samples.len() == 4_000 && level_db(&error) < -40.0, "{tag} {frame} {bits} {extensible}");
        }
    }
    let eight = encode(&tone, WavFormat { channels: 3, rate: 8_000, encoding: SampleEncoding::Int(8) });
    is_tone(&decode(&eight, LONGEST).unwrap().samples, 8_000);
}

#[test]
fn full_scale_survives_resampling() {
    let square: Vec<f32> = sine(TONE, 44_100, 44_100).iter().map(|sample| sample.signum()).collect();
    let format = WavFormat { channels: 1, rate: 44_100, encoding: SampleEncoding::Float };
    for rate in [16_000, 24_000, 48_000] {
        let samples = read(&encode(&square, format), rate, LONGEST).unwrap();
        let peak = samples.iter().fold(0.0_f32, |peak, sample| peak.max(sample.abs()));
        assert_eq!((samples.len(), peak), (rate as usize, 1.0), "{rate}");
    }
}

#[test]
fn opposite_channels_of_a_file_are_heard() {
    let frames: Vec<u8> = sine(TONE, 8_000, 4_000).iter().flat_map(|s| encode_i16le(&[*s, -*s])).collect();
    is_tone(&read(&with_format(1, 2, 4, 16, false, &frames), RATE, LONGEST).unwrap(), RATE);
}

#[test]
fn unusable_files_are_typed_errors() {
    let refused = |tag, channels, frame, bits, data: &[u8]| {
        read(&with_format(tag, channels, frame, bits, false, data), RATE, LONGEST).unwrap_err()
    };
    assert_eq!(refused(1, 0, 2, 16, &[0; 80]), SoundFileError::Channels(0));
    assert_eq!(refused(1, 255, 510, 16, &[0; 510]), SoundFileError::Channels(255));
    assert_eq!(refused(3, 1, 4, 32, &f32::NAN.to_le_bytes()), SoundFileError::NotFinite);
    assert_eq!(refused(3, 1, 8, 64, &f64::MAX.to_le_bytes()), SoundFileError::NotFinite);
    assert_eq!(refused(1, 1, 2, 16, &[]), SoundFileError::Empty);
    assert!(refused(1, 1, 8, 64, &[0; 80]).to_string().contains("integers of 64 bits"));
    let limit = Duration::from_secs(1);
    let minute = with_format(1, 1, 2, 16, false, &vec![0; 2 * 60 * 8_000]);
    assert_eq!(read(&minute, RATE, limit), Err(SoundFileError::TooLong { limit: 1 }));
    for rate in [0_u32, 1, 7_999, 384_001, u32::MAX] {
        let mut file = with_format(1, 1, 2, 16, false, &[0; 80]);
        file[24..28].copy_from_slice(&rate.to_le_bytes());
        assert_eq!(read(&file, RATE, LONGEST), Err(SoundFileError::Rate(rate)));
    }
    for file in [&b"RIFF"[..], b"RIFF\0\0\0\0WAVE", &parts().0, &with_format(1, 1, 2, 16, false, &[0; 80])[..40]] {
        assert!(matches!(
            read(file, RATE, LONGEST),
            Err(SoundFileError::Container { .. } | SoundFileError::Damaged { .. })
        ));
    }
}

#[test]
fn compressed_files_stop_at_the_limit() {
    // Frames again and again: an hour in a few MB, of which the limit is decoded.
    let hour = sound("tone.aac").repeat(3_600 * 4);
    let peak = peak_of(|| {
        let refused = read(&hour, RATE, LONGEST).map(|samples| samples.len());
        assert_eq!(refused, Err(SoundFileError::TooLong { limit: 5 }));
    });
    assert!(peak < 8 << 20, "{peak} bytes");
}

#[test]
fn long_files_are_refused_before_decoding() {
    let wav = with_format(1, 1, 2, 16, false, &vec![1; 2 * 60 * 8_000]);
    let repeated = |name: &str| sound(name).repeat(240);
    for (name, file) in [
        ("wav", wav),
        ("aac", repeated("tone.aac")),
        ("mp3", repeated("tone.mp3")),
        ("chained ogg", repeated("opus.ogg")),
    ] {
        let mut given = 0;
        let refused = read_stream(&file, RATE, LONGEST, |piece| {
            given += piece.len();
            true
        });
        assert_eq!((refused, given), (Err(SoundFileError::TooLong { limit: 5 }), 0), "{name}");
    }
}

#[test]
fn streamed_pieces_are_the_whole_file() {
    for name in sounds() {
        let (file, mut streamed) = (sound(&name), Vec::new());
        let done = read_stream(&file, RATE, LONGEST, |piece| {
            streamed.extend_from_slice(piece);
            true
        });
        assert_eq!(done.map(|()| streamed), read(&file, RATE, LONGEST), "{name}");
    }
}

#[test]
fn a_streamed_hour_takes_little_memory() {
    let mut hour = encode(&[], WavFormat { channels: 1, rate: RATE, encoding: SampleEncoding::Int(8) });
    // The reader takes a length of zero as "to the end".
    hour.resize(hour.len() + 3_600 * RATE as usize, 200);
    let mut samples = 0;
    let peak = peak_of(|| {
        let longest = Duration::from_secs(3_600);
        let done = read_stream(&hour, RATE, longest, |piece| {
            samples += piece.len();
            true
        });
        assert_eq!(done, Ok(()));
    });
    assert_eq!(samples, 3_600 * RATE as usize);
    assert!(peak < 4 << 20, "{peak} bytes");
    let mut pieces = 0;
    let stopped = read_stream(&hour, RATE, Duration::from_secs(3_600), |_| {
        pieces += 1;
        pieces < 3
    });
    assert_eq!((stopped, pieces), (Err(SoundFileError::Abandoned), 3));
}

#[test]
fn reader_may_give_up_between_pieces() {
    let file = with_format(1, 1, 2, 16, false, &vec![1; 2 * 4 * PIECE]);
    let longest = Duration::from_secs(60);
    for wanted in 0..4 {
        let mut pieces = 0;
        let mut pause = || {
            pieces += 1;
            pieces <= wanted
        };
        assert_eq!(read_in_pieces(&file, RATE, longest, &mut pause), Err(SoundFileError::Abandoned));
        assert_eq!(pieces, wanted + 1, "nothing is done after the end");
    }
    assert_eq!(read_in_pieces(&file, RATE, longest, || true), read(&file, RATE, longest));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]
    /// Mutated files are read or refused, with memory in proportion to their size.
    #[test]
    fn broken_files_are_read_or_refused(seed in 0_u64..1 << 40) {
        let mut random = Random::new(seed);
        let names = sounds();
        let mut file = sound(&names[random.below(names.len())]);
        for _ in 0..1 + random.below(6) {
            // Mostly in the headers.
            let at = if random.below(4) > 0 { random.below(file.len().min(400)) } else { random.below(file.len()) };
            match random.below(5) {
                0 => file[at] = [0, 1, 0x7f, 0x80, 0xff][random.below(5)],
                1 => file[at] = random.below(256) as u8,
                2 => file.truncate(at.max(4)),
                3 => { let end = (at + 4).min(file.len()); file[at..end].fill([0, 0x7f, 0xff][random.below(3)]); }
                _ => { let copy = file[at..(at + 1 + random.below(64)).min(file.len())].to_vec(); file.splice(at..at, copy); }
            }
        }
        let peak = peak_of(|| {
            if let Ok(samples) = read(&file, RATE, LONGEST) {
                assert!(samples.len() <= 6 * RATE as usize && samples.iter().all(|sample| sample.abs() <= 1.0));
            }
        });
        prop_assert!(peak < 80 << 20, "{} bytes", peak);
    }
}
