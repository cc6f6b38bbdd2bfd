"""Judges encoded speech beside the original: the mean opinion score, 1 to 5, that zimtohrli predicts.

The score of a file is the mean over pieces of three seconds. Prints JSON. Needs the packages of
tests/peers/requirements-quality.txt.

Usage: opus_quality.py ORIGINAL.wav FILE.wav..    All at 48 kHz, mono, of 16 bits
"""

import importlib.metadata
import json
import sys
import wave
from pathlib import Path

import numpy
import zimtohrli

RATE = 48_000
PIECE = 3 * RATE


def samples(path: str) -> "numpy.ndarray":
    with wave.open(str(Path(path)), "rb") as file:
        if (file.getframerate(), file.getnchannels(), file.getsampwidth()) != (RATE, 1, 2):
            sys.exit(f"{path}: not at 48 kHz, mono, of 16 bits")
        return numpy.frombuffer(file.readframes(file.getnframes()), dtype=numpy.int16).astype(numpy.float32) / 32_768


def score(original: "numpy.ndarray", heard: "numpy.ndarray") -> float:
    metric = zimtohrli.Pyohrli()
    length = min(len(original), len(heard))
    pieces = range(0, length - PIECE + 1, PIECE)
    scores = [
        zimtohrli.mos_from_zimtohrli(metric.distance(original[at : at + PIECE], heard[at : at + PIECE]))
        for at in pieces
    ]
    return float(numpy.mean(scores))


def main() -> None:
    original, *others = (samples(path) for path in sys.argv[1:])
    scores = [score(original, heard) for heard in others]
    print(json.dumps({"version": importlib.metadata.version("zimtohrli"), "mos": scores}))


main()
