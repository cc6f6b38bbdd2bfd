"""Input of the network: the levels of `BANDS` mel bands, frame by frame, relative to the loudest so far.

A frame is the latest `WINDOW` samples at the end of each `HOP`, so nothing waits for sound to come: the gateway
computes the same (gateway/media/src/interruption_net/features.rs).
"""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from torch import Tensor

RATE = 16_000
HOP = 256
WINDOW = 512
BANDS = 32
LOWEST, HIGHEST = 60.0, 7_600.0  # Hz
EPS = 1e-6  # added to a band's power
RANGE = 4.0  # powers of ten below the loudest band that are kept


@cache
def _tables() -> tuple[Tensor, Tensor]:
    return torch.hann_window(WINDOW), torch.tensor(filters(), dtype=torch.float32)


def filters() -> np.ndarray:
    """Triangular filters of height 1, equally far apart in mel, `[frequencies, BANDS]`."""
    low, high = (2595.0 * np.log10(1.0 + hertz / 700.0) for hertz in (LOWEST, HIGHEST))
    edges = 700.0 * (10.0 ** (np.linspace(low, high, BANDS + 2) / 2595.0) - 1.0)
    frequencies = np.arange(WINDOW // 2 + 1)[:, None] * RATE / WINDOW
    rising = (frequencies - edges[:-2]) / (edges[1:-1] - edges[:-2])
    falling = (edges[2:] - frequencies) / (edges[2:] - edges[1:-1])
    return np.maximum(np.minimum(rising, falling), 0.0)


def levels(sound: Tensor) -> Tensor:
    """`[..., frames * HOP]` to the logarithms of the bands' powers, `[..., frames, BANDS]`."""
    hann, bank = _tables()
    framed = torch.nn.functional.pad(sound, (WINDOW - HOP, 0)).unfold(-1, WINDOW, HOP)
    power = torch.fft.rfft(framed * hann).abs().square()
    return (power @ bank + EPS).log10()


def relative(levels: Tensor) -> Tensor:
    """Levels below the loudest band of all frames so far, from 1 down to -1."""
    loudest = levels.amax(-1, keepdim=True).cummax(-2).values
    return (levels - loudest).clamp(min=-RANGE) * (2.0 / RANGE) + 1.0
