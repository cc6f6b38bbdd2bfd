"""Ends of turns by two peers: fixed silence by Silero's voice detector, and smart-turn as Pipecat uses it.

    target/tools/clients/bin/python tests/turns/peers.py SOUNDS

`make bench-turns` runs it. SOUNDS has, for each sound, its number of samples (u32) and the samples (f32, 16 kHz), all
little-endian. Prints JSON: `[{"name": ..., "silence": bool, "ends": [[sample, ...] for each sound]}]`.

Both models and their constants are those of PyPI's `pipecat-ai`, which tests/requirements-clients.txt installs: Silero
with a confidence of 0.7, speech after 0.2 s of it; smart-turn v3 is asked after 0.2 s of silence, ends the turn above
0.5, and otherwise the turn ends after 3 s of silence. A judgement is assumed to take 100 ms of audio, as ours of the
same model. Pipecat's gate by volume is left out: the sounds are as loud as the recordings.
"""

import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime
from pipecat.audio import turn, vad
from pipecat.audio.turn.smart_turn._whisper_features import compute_whisper_log_mel_features

RATE = 16_000
FRAME = 512  # samples of Silero's frame
CONTEXT = 64  # samples before it that the model sees too
CONFIDENCE = 0.7
START_FRAMES = round(0.2 * RATE / FRAME)
SILENCES_MS = (200, 300, 400, 500, 600, 700)
ASKED_MS = 200
ANSWER = RATE // 10
LONGEST_MS = 3_000
SECONDS = 8


def session(path: Path) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def package(module: object) -> Path:
    return Path(module.__path__[0])  # type: ignore[attr-defined]


class Silero:
    """The voice detector."""

    def __init__(self) -> None:
        self._session = session(package(vad) / "data/silero_vad.onnx")

    def voice(self, sound: np.ndarray) -> np.ndarray:
        """True for each frame that counts as voice."""
        state, context = np.zeros((2, 1, 128), np.float32), np.zeros((1, CONTEXT), np.float32)
        rate, found = np.array(RATE, np.int64), []
        for frame in sound[: len(sound) // FRAME * FRAME].reshape(-1, 1, FRAME):
            seen = np.concatenate([context, frame], 1)
            confidence, state = self._session.run(None, {"input": seen, "state": state, "sr": rate})
            context = seen[:, -CONTEXT:]
            found.append(confidence[0, 0] >= CONFIDENCE)
        return np.array(found, bool)


class SmartTurn:
    """The turn-detection model, quantised as published."""

    def __init__(self) -> None:
        self._session = session(package(turn) / "smart_turn/data/smart-turn-v3.2-cpu.onnx")

    def has_ended(self, sound: np.ndarray) -> bool:
        sound = sound[-SECONDS * RATE :]
        sound = np.pad(sound, (SECONDS * RATE - len(sound), 0))
        features = compute_whisper_log_mel_features(sound, do_normalize=True)[None]
        return bool(self._session.run(None, {"input_features": features.astype(np.float32)})[0][0] > 0.5)


def silences(voice: np.ndarray) -> list[tuple[int, int, int]]:
    """(first frame of the turn, first silent frame, frame of the next voice) of each silence after speech."""
    found: list[tuple[int, int, int]] = []
    silent: int | None = None
    voiced, speaking, begin = 0, False, 0
    for at, is_voice in enumerate(voice):
        if is_voice:
            voiced += 1
            if not speaking and voiced >= START_FRAMES:
                speaking, begin = True, at - voiced + 1
            if speaking and silent is not None:
                found.append((begin, silent, at))
                silent = None
        else:
            if not speaking:
                voiced = 0
            elif silent is None:
                silent = at
    if speaking and silent is not None:
        found.append((begin, silent, len(voice)))
    return found


def fixed(stretches: list[tuple[int, int, int]], ms: int) -> list[int]:
    """Ends of turns by a silence, in samples."""
    needed = round(ms * RATE / 1000 / FRAME)
    return [(silent + needed) * FRAME for _, silent, until in stretches if until - silent >= needed]


def judged(stretches: list[tuple[int, int, int]], sound: np.ndarray, model: SmartTurn) -> list[int]:
    """Ends of turns by the model, in samples."""
    asked, longest = (round(ms * RATE / 1000 / FRAME) for ms in (ASKED_MS, LONGEST_MS))
    ends = []
    for begin, silent, until in stretches:
        if until - silent < asked:
            continue
        at = (silent + asked) * FRAME
        if model.has_ended(sound[max(0, begin * FRAME - RATE // 2) : at]):
            ends.append(at + ANSWER)
        elif until - silent >= longest:
            ends.append((silent + longest) * FRAME)
    return ends


def main() -> None:
    data = Path(sys.argv[1]).read_bytes()
    silero, smart_turn, at = Silero(), SmartTurn(), 0
    ends: dict[str, list[list[int]]] = {f"Silero, silence of {ms} ms": [] for ms in SILENCES_MS}
    pipecat = "smart-turn as Pipecat uses it"
    ends[pipecat] = []
    while at < len(data):
        count = int(np.frombuffer(data, "<u4", 1, at)[0])
        sound = np.frombuffer(data, "<f4", count, at + 4)
        at += 4 + 4 * count
        stretches = silences(silero.voice(sound))
        for ms in SILENCES_MS:
            ends[f"Silero, silence of {ms} ms"].append(fixed(stretches, ms))
        ends[pipecat].append(judged(stretches, sound, smart_turn))
    print(json.dumps([{"name": name, "silence": name != pipecat, "ends": all_} for name, all_ in ends.items()]))


if __name__ == "__main__":
    main()
