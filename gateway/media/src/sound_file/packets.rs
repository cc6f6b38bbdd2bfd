//! Containers that `symphonia` reads, and their codecs. Opus packets go to our own decoder, the rest to the library's.

use std::panic::{AssertUnwindSafe, catch_unwind};

use symphonia::core::codecs::CodecParameters;
use symphonia::core::codecs::audio::well_known::{
    CODEC_ID_AC3, CODEC_ID_ALAC, CODEC_ID_EAC3, CODEC_ID_MP1, CODEC_ID_MP2, CODEC_ID_OPUS, CODEC_ID_SPEEX,
    CODEC_ID_VORBIS,
};
use symphonia::core::codecs::audio::{AudioCodecId, AudioCodecParameters, AudioDecoder, AudioDecoderOptions};
use symphonia::core::errors::Error;
use symphonia::core::formats::probe::Hint;
use symphonia::core::formats::{FormatOptions, FormatReader, Track, TrackType};
use symphonia::core::io::MediaSourceStream;
use symphonia::core::meta::MetadataOptions;
use symphonia::core::packet::Packet;

use super::bounded_source::BoundedSource;
use super::container::Container;
use super::error::SoundFileError;
use super::sink::{SoundSink, check_format};
use super::vorbis_setup;
use crate::opus::OpusDecoder;

/// Rate of decoded Opus, in Hz.
const OPUS_RATE: u32 = 48_000;
/// Length of an Opus identification header without a table of channels (RFC 7845, 5.1).
const OPUS_HEAD: usize = 19;

/// Decodes a file that begins with `container`, unless its packets are too long together.
pub(super) fn decode(file: &[u8], container: Container, sink: &mut SoundSink<'_>) -> Result<(), SoundFileError> {
    let name = container.name();
    // The library's arithmetic may overflow on hostile files.
    let decoded = catch_unwind(AssertUnwindSafe(|| {
        check_length(file, container, sink)?;
        read_packets(file, container, sink)
    }));
    decoded.unwrap_or_else(|_| Err(damaged(name, "its decoder failed")))
}

fn damaged(container: &'static str, problem: impl ToString) -> SoundFileError {
    SoundFileError::Damaged { container, problem: problem.to_string() }
}

/// Packets of a file.
struct Packets<'a> {
    reader: Box<dyn FormatReader + 'a>,
    name: &'static str,
    /// Bytes that may still be read. All packets of a real file together are no longer than the file. Others are the same bytes
    /// again and again.
    budget: usize,
}

/// Next step through a file.
enum NextPacket {
    Packet(Packet),
    /// A chained stream begins anew.
    Begin,
    End,
}

impl<'a> Packets<'a> {
    fn open(file: &'a [u8], container: Container) -> Result<Self, SoundFileError> {
        let name = container.name();
        let source = MediaSourceStream::new(Box::new(BoundedSource::new(file)), Default::default());
        let probe = symphonia::default::get_probe();
        let reader = probe
            .probe(&Hint::new(), source, FormatOptions::default(), MetadataOptions::default())
            .map_err(|error| damaged(name, error))?;
        Ok(Self { reader, name, budget: 2 * file.len() + OPUS_RATE as usize })
    }

    fn next(&mut self) -> Result<NextPacket, SoundFileError> {
        let packet = match self.reader.next_packet() {
            Ok(Some(packet)) => packet,
            Ok(None) => return Ok(NextPacket::End),
            Err(Error::ResetRequired) => return Ok(NextPacket::Begin),
            // A file that was cut in its middle is heard to there.
            Err(Error::IoError(error)) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                return Ok(NextPacket::End);
            }
            Err(error) => return Err(damaged(self.name, error)),
        };
        let left = self.budget.checked_sub(packet.data.len() + 1);
        self.budget = left.ok_or_else(|| damaged(self.name, "it refers to its packets too often"))?;
        Ok(NextPacket::Packet(packet))
    }
}

/// First audio track of a file.
fn audio_track(reader: &dyn FormatReader) -> Option<&Track> {
    reader.default_track(TrackType::Audio).or_else(|| reader.first_track(TrackType::Audio))
}

/// Refuses a file whose packets say that they are too long together, before one is decoded. Packets that do not say it are counted
/// as they are decoded; what else is wrong is found then, too.
fn check_length(file: &[u8], container: Container, sink: &mut SoundSink<'_>) -> Result<(), SoundFileError> {
    let Ok(mut packets) = Packets::open(file, container) else { return Ok(()) };
    let of_track = |reader: &dyn FormatReader| audio_track(reader).map(|track| (track.id, track.time_base));
    let (mut track, mut seconds) = (of_track(packets.reader.as_ref()), 0.0);
    loop {
        match packets.next() {
            Ok(NextPacket::Packet(packet)) => {
                sink.passed_packet()?;
                if let Some((id, base)) = track
                    && packet.track_id == id
                {
                    let of_unit = base.map_or(0.0, |base| f64::from(base.numer.get()) / f64::from(base.denom.get()));
                    seconds += packet.dur.get() as f64 * of_unit;
                    sink.check_seconds(seconds)?;
                }
            }
            Ok(NextPacket::Begin) => track = of_track(packets.reader.as_ref()),
            Ok(NextPacket::End) | Err(_) => return Ok(()),
        }
    }
}

fn read_packets(file: &[u8], container: Container, sink: &mut SoundSink<'_>) -> Result<(), SoundFileError> {
    let name = container.name();
    let mut packets = Packets::open(file, container)?;
    let (mut track, mut decoder) = open_track(packets.reader.as_ref(), container)?;
    let mut interleaved = Vec::new();
    loop {
        let packet = match packets.next()? {
            NextPacket::Packet(packet) => packet,
            NextPacket::Begin => {
                (track, decoder) = open_track(packets.reader.as_ref(), container)?;
                continue;
            }
            NextPacket::End => return Ok(()),
        };
        sink.passed_packet()?;
        if packet.track_id != track {
            continue;
        }
        match &mut decoder {
            TrackDecoder::Opus(opus) => opus.decode(&packet, name, sink)?,
            TrackDecoder::Library(library) => match library.decode(&packet) {
                Ok(decoded) => {
                    let (rate, channels) = (decoded.spec().rate(), decoded.spec().channels().count());
                    check_format(rate, channels)?;
                    decoded.copy_to_vec_interleaved::<f32>(&mut interleaved);
                    sink.push(name, &interleaved, rate, channels)?;
                }
                // The other packets are still decoded.
                Err(Error::DecodeError(_) | Error::IoError(_)) => {}
                Err(error) => return Err(damaged(name, error)),
            },
        }
    }
}

/// Decoder of one track.
enum TrackDecoder {
    Library(Box<dyn AudioDecoder>),
    Opus(OpusTrack),
}

/// Opens the first audio track: its id and its decoder.
fn open_track(reader: &dyn FormatReader, container: Container) -> Result<(u32, TrackDecoder), SoundFileError> {
    let name = container.name();
    let track = audio_track(reader).ok_or_else(|| damaged(name, "it has no audio"))?;
    let Some(CodecParameters::Audio(parameters)) = &track.codec_params else {
        return Err(damaged(name, "it has no audio"));
    };
    if let Some(rate) = parameters.sample_rate {
        let channels = parameters.channels.as_ref().map_or(1, |channels| channels.count());
        check_format(rate, channels)?;
    }
    if parameters.codec == CODEC_ID_OPUS {
        return Ok((track.id, TrackDecoder::Opus(OpusTrack::new(parameters, container)?)));
    }
    if parameters.codec == CODEC_ID_VORBIS && !parameters.extra_data.as_deref().is_some_and(vorbis_setup::is_bounded) {
        return Err(damaged(name, "its Vorbis code books are incomplete or too large"));
    }
    let decoder = symphonia::default::get_codecs().make_audio_decoder(parameters, &AudioDecoderOptions::default());
    let decoder = decoder.map_err(|error| match error {
        Error::Unsupported(_) => SoundFileError::Codec { container: name, codec: codec_name(parameters.codec) },
        error => damaged(name, error),
    })?;
    Ok((track.id, TrackDecoder::Library(decoder)))
}

/// Name of a codec that is not read.
fn codec_name(codec: AudioCodecId) -> String {
    let known = [
        (CODEC_ID_ALAC, "ALAC"),
        (CODEC_ID_AC3, "AC-3"),
        (CODEC_ID_EAC3, "E-AC-3"),
        (CODEC_ID_SPEEX, "Speex"),
        (CODEC_ID_MP1, "MPEG audio of layer I"),
        (CODEC_ID_MP2, "MPEG audio of layer II"),
    ];
    let known = known.iter().find(|(known, _)| *known == codec);
    known.map_or_else(|| format!("a codec or profile that is not supported ({codec})"), |(_, name)| (*name).to_owned())
}

/// Decoder of an Opus track.
struct OpusTrack {
    decoder: OpusDecoder,
    /// Samples that the encoder added before the sound, at 48 kHz.
    skip: usize,
    /// Factor on the samples.
    gain: f32,
}

impl OpusTrack {
    fn new(parameters: &AudioCodecParameters, container: Container) -> Result<Self, SoundFileError> {
        let name = container.name();
        let head = parameters.extra_data.as_deref().unwrap_or_default();
        let head: &[u8; OPUS_HEAD] = head.first_chunk().ok_or_else(|| damaged(name, "its Opus header is too short"))?;
        let (channels, family) = (head[9], head[18]);
        if family != 0 || !(1..=2).contains(&channels) {
            return Err(SoundFileError::Codec { container: name, codec: format!("Opus of {channels} channels") });
        }
        let (mut skip, mut gain) = ([head[10], head[11]], [head[16], head[17]]);
        // The header in mp4 is big-endian.
        if container == Container::Mp4 {
            skip.reverse();
            gain.reverse();
        }
        // In dB, with eight bits behind the point.
        let gain = 10_f32.powf(f32::from(i16::from_le_bytes(gain)) / 256.0 / 20.0);
        let decoder = OpusDecoder::new(OPUS_RATE).map_err(|error| damaged(name, error))?;
        Ok(Self { decoder, skip: usize::from(u16::from_le_bytes(skip)), gain })
    }

    fn decode(&mut self, packet: &Packet, name: &'static str, sink: &mut SoundSink<'_>) -> Result<(), SoundFileError> {
        // The other packets are still decoded.
        let Ok(mut samples) = self.decoder.decode(&packet.data) else { return Ok(()) };
        let behind = usize::try_from(packet.trim_end.get()).unwrap_or(usize::MAX);
        samples.truncate(samples.len().saturating_sub(behind));
        let skipped = self.skip.min(samples.len());
        self.skip -= skipped;
        let mut samples = samples.split_off(skipped);
        samples.iter_mut().for_each(|sample| *sample *= self.gain);
        sink.push(name, &samples, OPUS_RATE, 1)
    }
}
