"""Speaks the recordings of recordings.json (see README.md) in voices of Kokoro.

Usage: make.py (writes the wav files beside itself: 16 kHz, mono, 16 bit)

Needs the speech tools of `scripts/setup.sh speech`. The files are committed, so that everybody measures the same thing.
A backchannel is said as fast as it takes to last 200 to 400 ms.
"""

import json
import pathlib
import sys
import wave

import av
import numpy

HERE = pathlib.Path(__file__).parent
sys.path.append(str(HERE.parents[1] / "models/demo/recipe"))

from demo_recipe import kokoro, phonemes  # noqa: E402

RATE = 16_000
PEAK = 20_000
SPEEDS = (1.0, 1.25, 1.5, 1.75, 2.0, 2.5)
SHORTEST_MS, LONGEST_MS = 200, 400
MODEL = kokoro.session(str(kokoro.FOLDER / "model.onnx"))


def spoken(recording: dict, speed: float) -> numpy.ndarray:
    """The recording at 24 kHz. A hum has symbols of its own: espeak-ng would spell it."""
    voice = recording["voice"]
    accent = phonemes.BRITISH if voice.startswith("b") else phonemes.AMERICAN
    symbols = recording.get("symbols") or phonemes.of(recording["text"], accent)
    feed = {
        "tokens": kokoro.ids(symbols),
        "style": kokoro.style(voice)[len(symbols)],
        "speed": numpy.array([speed], "<f4"),
    }
    return MODEL.run([kokoro.SOUND], feed)[0].reshape(-1)


def resampled(sound: numpy.ndarray) -> numpy.ndarray:
    frame = av.AudioFrame.from_ndarray((sound * 32_767).clip(-32_768, 32_767).astype("<i2")[None], "s16", "mono")
    frame.sample_rate = kokoro.RATE
    resampler = av.AudioResampler(format="s16", layout="mono", rate=RATE)
    return numpy.concatenate([out.to_ndarray()[0] for out in resampler.resample(frame) + resampler.resample(None)])


def spoken_part(sound: numpy.ndarray) -> numpy.ndarray:
    """Returns the part above a thirtieth of the peak, scaled to PEAK."""
    loud = numpy.flatnonzero(numpy.abs(sound) > numpy.abs(sound).max() / 30)
    spoken = sound[loud[0] : loud[-1] + 1].astype(numpy.float64)
    return (spoken * PEAK / numpy.abs(spoken).max()).round().astype("<i2")


def main() -> None:
    listed = json.loads((HERE / "recordings.json").read_text())
    for kind in ("answers", "callers", "backchannels"):
        for recording in listed[kind]:
            # Those of tests/questions have a script of their own.
            if "/" in recording["file"]:
                continue
            for speed in SPEEDS if kind == "backchannels" else SPEEDS[:1]:
                sound = spoken_part(resampled(spoken(recording, speed)))
                ms = len(sound) * 1000 // RATE
                if kind != "backchannels" or ms <= LONGEST_MS:
                    break
            print(recording["file"], ms, speed)
            if kind == "backchannels" and not SHORTEST_MS <= ms <= LONGEST_MS:
                raise SystemExit(f"{recording['file']} lasts {ms} ms")
            with wave.open(str(HERE / recording["file"]), "wb") as out:
                out.setnchannels(1)
                out.setsampwidth(2)
                out.setframerate(RATE)
                out.writeframes(sound.tobytes())


if __name__ == "__main__":
    main()
