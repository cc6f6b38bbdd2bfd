"""Kokoro-82M (Apache-2.0, 8-bit ONNX): the voices of people, of which one gives the answers and others ask the
questions.

`scripts/setup.sh` puts `model.onnx` and `voices/NAME.bin` into target/tools/kokoro. The export has no randomness: the
same text in the same voice is the same sound. Free speech needs no more than onnxruntime; what changes its melody needs
onnx.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from . import phonemes

if TYPE_CHECKING:
    from onnx import ModelProto, ValueInfoProto
    from onnxruntime import InferenceSession

FOLDER = Path(os.environ.get("KOKORO") or Path(__file__).parents[4] / "target/tools/kokoro")
RATE = 24_000
UNIT = 600  # samples of a unit of duration
PER_UNIT = 2  # values of pitch and of loudness in a unit
# The edges of its graph between what is said and how it sounds, f32.
DURATIONS = "/encoder/Clip_output_0"  # [1, symbols + 2] units of each symbol, with one before and one behind all
PITCH = "/encoder/F0_proj/Conv_output_0"  # [1, 1, units * 2] in Hz, a few where nothing is voiced
LOUDNESS = "/encoder/N_proj/Conv_output_0"  # [1, 1, units * 2], the logarithm of the mel spectrum's norm
SOUND = "audio"


def missing() -> str:
    """Why it cannot speak, or nothing."""
    return "" if (FOLDER / "model.onnx").exists() else f"there is no {FOLDER / 'model.onnx'}: scripts/setup.sh speech"


@cache
def style(voice: str) -> np.ndarray:
    """A voice, f32 `[510, 1, 256]`: one row for each number of symbols. Several with `+` between them are a person
    between them.
    """
    return np.mean(
        [np.fromfile(FOLDER / "voices" / f"{name}.bin", np.float32).reshape(-1, 1, 256) for name in voice.split("+")], 0
    )


def session(model: str | bytes) -> InferenceSession:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


@cache
def _whole() -> InferenceSession:
    return session(str(FOLDER / "model.onnx"))


def ids(symbols: str) -> np.ndarray:
    """Symbols as the model reads them, with a pad before and behind."""
    return np.array([[0, *(phonemes.IDS[symbol] for symbol in symbols), 0]], np.int64)


def speak(text: str, voice: str, speed: float) -> np.ndarray:
    """A text as this voice says it, f32 at 24 kHz."""
    symbols = phonemes.of(text, phonemes.BRITISH if voice.startswith("b") else phonemes.AMERICAN)
    row = style(voice)[min(len(symbols), 509)]
    (sound,) = _whole().run([SOUND], {"tokens": ids(symbols), "style": row, "speed": np.array([speed], np.float32)})
    return sound.reshape(-1)


@dataclass(frozen=True)
class Melody:
    """Durations, pitch and loudness of a sentence."""

    symbols: str
    durations: np.ndarray  # f32, units of each symbol with the pads
    pitch: np.ndarray  # f32, Hz, `PER_UNIT` values a unit; below `VOICED` nothing is voiced
    loudness: np.ndarray  # f32, as many

    VOICED = 40.0


class Teacher:
    """One voice, whose durations can be changed before its melody is made. One thread; make one in each process."""

    # One row of style for all sentences, so that a sound follows from what is said, not from how much.
    ROW = 60

    def __init__(self, voice: str, sound: bool = True) -> None:
        """Without `sound` only melodies can be made, in a twentieth of the time."""
        import onnx

        model = onnx.load(FOLDER / "model.onnx")
        self._style = style(voice)[self.ROW]
        self._durations = _part(model, [], [DURATIONS])
        self._melody = _part(model, [DURATIONS], [PITCH, LOUDNESS])
        self._sound = _part(model, [DURATIONS], [SOUND]) if sound else None

    def durations(self, symbols: str) -> np.ndarray:
        """The durations that the voice chooses, in units."""
        feed = {"tokens": ids(symbols), "style": self._style, "speed": np.ones(1, np.float32)}
        return self._durations.run([DURATIONS], feed)[0].reshape(-1)

    def melody(self, symbols: str, durations: np.ndarray) -> Melody:
        pitch, loudness = self._melody.run([PITCH, LOUDNESS], self._feed(symbols, durations))
        return Melody(symbols, durations, pitch.reshape(-1), loudness.reshape(-1))

    def sound(self, melody: Melody) -> np.ndarray:
        """f32 at 24 kHz, `UNIT` samples for each unit."""
        assert self._sound is not None, "made for melodies only"
        return self._sound.run([SOUND], self._feed(melody.symbols, melody.durations))[0].reshape(-1)

    def _feed(self, symbols: str, durations: np.ndarray) -> dict[str, np.ndarray]:
        return {"tokens": ids(symbols), "style": self._style, DURATIONS: durations.astype(np.float32)[None]}


def _part(model: ModelProto, given: list[str], wanted: list[str]) -> InferenceSession:
    """The part of the graph between some edges. The runtime computes all that a graph holds, wanted or not."""
    from onnx import ModelProto, TensorProto, helper

    makers = {edge: node for node in model.graph.node for edge in node.output if edge not in given}
    needed, nodes, waiting = set(), set(), list(wanted)
    while waiting:
        edge = waiting.pop()
        if edge not in needed:
            needed.add(edge)
            if edge in makers and id(makers[edge]) not in nodes:
                nodes.add(id(makers[edge]))
                waiting += makers[edge].input
    part = ModelProto()
    part.CopyFrom(model)
    graph = part.graph

    def described(name: str, shape: list | None) -> ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

    for kept, chosen in (
        (graph.node, [node for node in model.graph.node if id(node) in nodes]),
        (graph.initializer, [tensor for tensor in model.graph.initializer if tensor.name in needed]),
        (
            graph.input,
            [i for i in model.graph.input if i.name in needed]
            + [described(name, [1, None] if name == DURATIONS else [1, 1, None]) for name in given],
        ),
        (graph.output, [described(name, None) for name in wanted]),
    ):
        kept_list = list(chosen)
        del kept[:]
        kept.extend(kept_list)
    return session(part.SerializeToString())
