"""Speaks the frozen questions of questions.json (see README.md) in voices that are not in the demo model's training
data.

Usage: make.py (writes the wav files beside itself: 16 kHz, mono, 16 bit)

Needs espeak-ng and flite from Debian, and the packages of tests/requirements.txt. The files are committed, so that a
test asks the same thing everywhere. The same packages write the same bytes.
"""

import json
import pathlib
import subprocess
import tempfile
import wave

import av
import numpy

HERE = pathlib.Path(__file__).parent
RATE = 16_000
PEAK = 20_000
# Silence around a caller's turn after voice activity detection.
SILENCE_BEFORE_S, SILENCE_AFTER_S = 0.25, 0.45


def speak(voice: str, text: str, path: str) -> None:
    program, name = voice.split()
    if program == "flite":
        subprocess.run(["flite", "-voice", name, "-t", text, "-o", path], check=True)
    else:
        subprocess.run(["espeak-ng", "-v", name, "-s", "150", "-p", "50", "-w", path, text], check=True)


def samples(path: str) -> numpy.ndarray:
    """The file's sound at RATE, as int16."""
    resampler = av.AudioResampler(format="s16", layout="mono", rate=RATE)
    with av.open(path) as file:
        frames = [out for frame in file.decode(audio=0) for out in resampler.resample(frame)]
        frames += resampler.resample(None)
    return numpy.concatenate([frame.to_ndarray()[0] for frame in frames])


def framed(sound: numpy.ndarray) -> numpy.ndarray:
    """The spoken part at PEAK with the silence of a turn around it."""
    loud = numpy.flatnonzero(numpy.abs(sound) > 0.01 * numpy.abs(sound).max())
    spoken = sound[loud[0] : loud[-1] + 1].astype(numpy.float64)
    spoken *= PEAK / numpy.abs(spoken).max()
    return numpy.pad(spoken.round().astype("<i2"), (int(SILENCE_BEFORE_S * RATE), int(SILENCE_AFTER_S * RATE)))


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        for question in json.loads((HERE / "questions.json").read_text()):
            path = f"{scratch}/spoken.wav"
            speak(question["voice"], question["text"], path)
            with wave.open(str(HERE / question["file"]), "wb") as out:
                out.setnchannels(1)
                out.setsampwidth(2)
                out.setframerate(RATE)
                out.writeframes(framed(samples(path)).tobytes())


if __name__ == "__main__":
    main()
