"""Makes the sound files in `sounds/`: a quarter of a second of a tone, in the containers and codecs of ffmpeg.

    target/tools/clients/bin/python gateway/media/testdata/make_sounds.py

The tone has 440 Hz. Made with PyAV 18.1.0. A file of stereo holds the tone on the left, and the same in opposite phase
on the right.
"""

import io
from fractions import Fraction
from pathlib import Path

import av
import numpy as np

SOUNDS = Path(__file__).parent / "sounds"
SECONDS = 0.25
TONE = 440.0
AMPLITUDE = 0.5
BLOCK = 1024


class Pipe(io.RawIOBase):
    """Output that cannot seek, as ffmpeg's standard output: lengths in headers stay unknown."""

    def __init__(self) -> None:
        """Creates an empty output."""
        super().__init__()
        self.written = bytearray()

    def writable(self) -> bool:
        """Returns true."""
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]
        """Appends the bytes."""
        self.written += data
        return len(data)


def make(
    name: str,
    codec: str,
    rate: int = 24_000,
    layout: str = "mono",
    muxer: str | None = None,
    options: dict[str, str] | None = None,
    piped: bool = False,
    bit_rate: int | None = None,
) -> None:
    """Writes one file."""
    target = Pipe() if piped else io.BytesIO()
    with av.open(target, "w", format=muxer or name.rsplit(".", 1)[1], options=options or {}) as container:
        stream = container.add_stream(codec, rate=rate)
        stream.codec_context.layout = layout
        # ffmpeg's own encoder of Vorbis is experimental.
        stream.codec_context.options = {"strict": "-2"}
        if bit_rate:
            stream.codec_context.bit_rate = bit_rate
        channels = stream.codec_context.layout.nb_channels
        resampler = av.AudioResampler(
            format=stream.codec_context.codec.audio_formats[0] if not stream.codec_context.format else None,
            layout=layout,
            rate=rate,
        )
        samples = AMPLITUDE * np.sin(2 * np.pi * TONE * np.arange(int(SECONDS * rate)) / rate)
        signs = np.array([1.0] * channels if channels != 2 else [1.0, -1.0])
        frames = (samples[:, None] * signs).astype(np.float32)
        for at in range(0, len(frames), BLOCK):
            piece = frames[at : at + BLOCK]
            frame = av.AudioFrame.from_ndarray(piece.reshape(1, -1), format="flt", layout=layout)
            frame.sample_rate = rate
            frame.pts = at
            frame.time_base = Fraction(1, rate)
            for converted in resampler.resample(frame):
                container.mux(stream.encode(converted))
        for converted in resampler.resample(None):
            container.mux(stream.encode(converted))
        container.mux(stream.encode(None))
    data = bytes(target.written) if isinstance(target, Pipe) else target.getvalue()
    (SOUNDS / name).write_bytes(data)
    print(f"{name}: {len(data)} bytes")


def main() -> None:
    """Writes all files."""
    SOUNDS.mkdir(exist_ok=True)
    make("pipe.wav", "pcm_s16le", 8_000, piped=True)
    make("rf64.wav", "pcm_s16le", 8_000, options={"rf64": "always"})
    make("u8.wav", "pcm_u8", 8_000)
    make("s24.wav", "pcm_s24le", 8_000)
    make("s32-stereo.wav", "pcm_s32le", 8_000, "stereo")
    make("f32.wav", "pcm_f32le", 8_000)
    make("f64.wav", "pcm_f64le", 8_000)
    make("mu-law.wav", "pcm_mulaw", 8_000)
    make("a-law.wav", "pcm_alaw", 8_000)
    make("six-channels.wav", "pcm_s24le", 8_000, "5.1")
    make("mp3-inside.wav", "libmp3lame", bit_rate=32_000)
    make("tone.flac", "flac")
    make("stereo.flac", "flac", 44_100, "stereo")
    make("tone.mp3", "libmp3lame", bit_rate=32_000)
    make("vorbis.ogg", "vorbis", 44_100, "stereo", bit_rate=48_000)
    make("opus.ogg", "libopus", 48_000, bit_rate=24_000)
    make("opus-stereo.ogg", "libopus", 48_000, "stereo", bit_rate=32_000)
    make("opus.webm", "libopus", 48_000, bit_rate=24_000)
    make("opus-live.webm", "libopus", 48_000, options={"live": "1"}, piped=True, bit_rate=24_000)
    make("vorbis.webm", "vorbis", 44_100, "stereo", bit_rate=48_000)
    make("opus.mp4", "libopus", 48_000, bit_rate=24_000)
    make("aac.m4a", "aac", 44_100, muxer="ipod", bit_rate=48_000)
    fragments = {"movflags": "frag_keyframe+empty_moov"}
    make("aac-fragments.mp4", "aac", 44_100, options=fragments, piped=True, bit_rate=48_000)
    make("tone.aac", "aac", 44_100, muxer="adts", bit_rate=48_000)
    # Refused, with the name of the container or the codec.
    make("adpcm.wav", "adpcm_ms", 8_000)
    make("tone.aiff", "pcm_s16be", 8_000)
    make("alac.m4a", "alac", 8_000, muxer="ipod")


if __name__ == "__main__":
    main()
