"""Kokoro with the voices and symbols of all its languages."""

from __future__ import annotations

from functools import cache

import numpy as np
from scipy.signal import resample_poly

from demo_recipe import kokoro

from .words import IDS

RATE = 16_000
STEP = RATE // 100
# Voices of other languages than English (`scripts/setup.sh interruptions`).
FOREIGN = kokoro.FOLDER / "languages"


@cache
def _style(voice: str) -> np.ndarray:
    """A voice, f32 `[510, 1, 256]`; several with `+` between them are a person between them."""
    rows = []
    for name in voice.split("+"):
        folder = kokoro.FOLDER / "voices" if name[0] in "ab" else FOREIGN
        rows.append(np.fromfile(folder / f"{name}.bin", np.float32).reshape(-1, 1, 256))
    return np.mean(rows, 0)


@cache
def _model() -> object:
    return kokoro.session(str(kokoro.FOLDER / "model.onnx"))


def every() -> list[str]:
    """Names of all voices."""
    return sorted(path.stem for folder in (kokoro.FOLDER / "voices", FOREIGN) for path in folder.glob("*.bin"))


def say(symbols: str, voice: str, speed: float) -> np.ndarray:
    """Symbols as a voice says them, f32 at `RATE` with a peak of .6, without silence around."""
    feed = {
        "tokens": np.array([[0, *(IDS[symbol] for symbol in symbols), 0]], np.int64),
        "style": _style(voice)[min(len(symbols), 509)],
        "speed": np.array([speed], np.float32),
    }
    (sound,) = _model().run([kokoro.SOUND], feed)  # type: ignore[attr-defined]
    return trimmed(resample_poly(sound.reshape(-1), 2, 3).astype(np.float32))


def trimmed(sound: np.ndarray) -> np.ndarray:
    """The part above a thirtieth of the peak, with a peak of .6."""
    peak = np.abs(sound).max(initial=1e-6)
    loud = np.flatnonzero(np.abs(sound) > peak / 30)
    return sound[loud[0] : loud[-1] + 1] * (0.6 / peak) if len(loud) else sound[:0]
