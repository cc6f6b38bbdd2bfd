"""Measures of speech at 24 kHz that need no recogniser: level, average spectrum, energy at the boundaries of codec
frames.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

import numpy as np

RATE = 24_000
FRAME = 1920  # samples of a codec frame
CLICK_HERTZ = 6_000  # speech has little above; a step in the waveform has much
CLICK_SAMPLES = RATE // 1000  # to each side of a boundary
QUIET = 1e-3  # of the loudest stretch's power: what is below is a pause
FFT, HOP, BANDS = 1024, 480, 48


class Measures(TypedDict):
    """All three measures of some sounds."""

    level: float  # dBFS
    spectrum: list[float]  # dB for each band
    boundaries: float  # a ratio


def measures(sounds: Sequence[np.ndarray], frame: int = FRAME) -> Measures:
    """Measures sounds, f32 in -1..1."""
    return {
        "level": round(float(level(sounds)), 2),
        "spectrum": [round(float(value), 2) for value in spectrum(sounds)],
        "boundaries": round(float(boundaries(sounds, frame)), 3),
    }


def level(sounds: Sequence[np.ndarray]) -> float:
    """Mean power in dBFS of the stretches of 20 ms in which somebody speaks."""
    stretch = RATE // 50
    spoken = []
    for sound in sounds:
        power = np.square(sound[: len(sound) // stretch * stretch].astype(np.float64)).reshape(-1, stretch).mean(1)
        spoken.append(power[power > power.max(initial=0.0) * QUIET])
    return 10 * np.log10(_joined(spoken).mean() + 1e-12)


def spectrum(sounds: Sequence[np.ndarray]) -> np.ndarray:
    """The average over time of each band's log power, in dB, pauses left out. Bands are even on the mel scale."""
    window = np.hanning(FFT)
    filters = bands()
    spoken = []
    for sound in sounds:
        if len(sound) < FFT:
            continue
        cut = np.lib.stride_tricks.sliding_window_view(sound.astype(np.float64), FFT)[::HOP]
        power = np.square(np.abs(np.fft.rfft(cut * window)))
        total = power.sum(1)
        spoken.append(10 * np.log10(power[total > total.max() * QUIET] @ filters.T + 1e-9))
    return _joined(spoken).mean(0)


def bands() -> np.ndarray:
    """Triangles `[BANDS, FFT / 2 + 1]` of area 1, from 60 Hz to the highest frequency."""
    mel = np.linspace(1127 * np.log1p(60 / 700), 1127 * np.log1p(RATE / 2 / 700), BANDS + 2)
    edges = 700 * np.expm1(mel / 1127)
    hertz = np.linspace(0, RATE / 2, FFT // 2 + 1)
    low, centre, high = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    triangles = np.maximum(0, np.minimum((hertz - low) / (centre - low), (high - hertz) / (high - centre)))
    return triangles / triangles.sum(1, keepdims=True)


def distance(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Root mean square difference of two average spectra in dB, each relative to its own mean: the level is another
    measure.
    """
    difference = np.asarray(ours) - np.asarray(theirs)
    return float(np.std(difference))


def boundaries(sounds: Sequence[np.ndarray], frame: int = FRAME) -> float:
    """Energy above 6 kHz of the sample-to-sample difference around frame boundaries, over that of everywhere else.

    An answer ends with a frame, so its boundaries lie whole frames before its end; its beginning is short of a frame by
    what the codec's transposed convolutions trim.
    """
    near = elsewhere = 0.0
    near_count = elsewhere_count = 0
    for sound in sounds:
        energy = np.square(_high(np.diff(sound.astype(np.float64))))
        # Difference `i` is that from sample `i` to the next, so a boundary at sample `b` is difference `b - 1`.
        before_end = len(sound) - 1 - np.arange(len(energy))
        offset = before_end % frame
        close = (offset < CLICK_SAMPLES) | (offset >= frame - CLICK_SAMPLES)
        # The ends of the sound are no boundaries.
        close &= (before_end > CLICK_SAMPLES) & (np.arange(len(energy)) > CLICK_SAMPLES)
        near, near_count = near + energy[close].sum(), near_count + close.sum()
        elsewhere, elsewhere_count = elsewhere + energy[~close].sum(), elsewhere_count + (~close).sum()
    if not near_count or not elsewhere:
        return float("nan")
    return (near / near_count) / (elsewhere / elsewhere_count)


def _high(signal: np.ndarray) -> np.ndarray:
    size = len(signal)
    parts = np.fft.rfft(signal)
    parts[np.fft.rfftfreq(size, 1 / RATE) < CLICK_HERTZ] = 0
    return np.fft.irfft(parts, size)


def _joined(parts: list[np.ndarray]) -> np.ndarray:
    if not parts or not sum(map(len, parts)):
        raise ValueError("there is no sound to measure")
    return np.concatenate(parts)
