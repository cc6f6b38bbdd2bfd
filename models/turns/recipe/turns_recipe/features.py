"""Input of the network: 3.2 s that end where the judgement is made, as `[FRAMES, BINS + LAGS]`.

Each frame of 10 ms has Whisper's log-mel of `BINS` bins, over sound of mean 0 and variance 1, and the normalised
autocorrelation at `LAGS` lags of the sound at 4 kHz, from which a pitch of 62 to 400 Hz can be read.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import torch

RATE = 16_000
HOP = 160
LENGTH = 400  # samples of a frame's transform
FRAMES = 320
SAMPLES = FRAMES * HOP
BINS = 40
FLOOR = 1e-10  # of the power
RANGE = 8.0  # powers of ten below the maximum that are kept
VARIANCE_EPS = 1e-7  # as in Whisper's feature extractor

DOWN = 4  # samples whose mean is one sample of the autocorrelation
SHORTEST, LONGEST = 10, 64  # lags, in samples at 4 kHz
LAGS = LONGEST - SHORTEST + 1
BASE = 128  # samples that are compared
POWER_EPS = 1e-2  # added to the energies: silence correlates with nothing
CHANNELS = BINS + LAGS


@cache
def _tables() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.hann_window(LENGTH), torch.tensor(mel_filters(), dtype=torch.float32)


def mel_filters() -> np.ndarray:
    """Triangular filters of equal area on Slaney's scale, linear below 1 kHz, `[frequencies, BINS]`."""
    knee, step, octave = 1000.0, 200.0 / 3, np.log(6.4) / 27
    highest = knee / step + np.log(8000.0 / knee) / octave
    mels = np.linspace(0.0, highest, BINS + 2)
    edges = np.where(mels < knee / step, mels * step, knee * np.exp(octave * (mels - knee / step)))
    frequencies = np.linspace(0.0, RATE / 2, LENGTH // 2 + 1)[:, None]
    low, middle, high = edges[:-2], edges[1:-1], edges[2:]
    rising, falling = (frequencies - low) / (middle - low), (high - frequencies) / (high - middle)
    return np.maximum(np.minimum(rising, falling), 0.0) * 2.0 / (high - low)


def last(turn: np.ndarray) -> np.ndarray:
    """The last `SAMPLES` of a turn, with silence before a shorter one, at mean 0 and variance 1; f32."""
    turn = turn[-SAMPLES:].astype(np.float64)
    sound = np.pad(turn, (SAMPLES - len(turn), 0))
    return ((sound - sound.mean()) / np.sqrt(sound.var() + VARIANCE_EPS)).astype(np.float32)


def log_mel(sound: torch.Tensor) -> torch.Tensor:
    """`[..., SAMPLES]` to `[..., FRAMES, BINS]`."""
    hann, bank = _tables()
    padded = torch.nn.functional.pad(sound, (LENGTH // 2, LENGTH // 2), mode="reflect")
    framed = padded.unfold(-1, LENGTH, HOP)[..., :FRAMES, :]
    power = torch.fft.rfft(framed * hann).abs().square()
    level = (power @ bank).clamp(min=FLOOR).log10()
    return (torch.maximum(level, level.amax((-2, -1), keepdim=True) - RANGE) + 4.0) / 4.0


def correlation(sound: torch.Tensor) -> torch.Tensor:
    """`[..., SAMPLES]` to `[..., FRAMES, LAGS]`: each frame's `BASE` samples beside those a lag later."""
    low = sound.unflatten(-1, (-1, DOWN)).mean(-1)
    hop, span = HOP // DOWN, BASE + LONGEST
    low = torch.nn.functional.pad(low, (span // 2, span))
    framed = low.unfold(-1, span, hop)[..., :FRAMES, :]
    # A circular correlation: the first `LONGEST` lags do not wrap.
    spectrum = torch.fft.rfft(framed, span)
    base = torch.fft.rfft(framed[..., :BASE], span)
    product = torch.fft.irfft(spectrum * base.conj(), span)[..., SHORTEST : LONGEST + 1]
    energy = torch.nn.functional.pad(framed.square().cumsum(-1), (1, 0))
    later = energy[..., BASE + SHORTEST : BASE + LONGEST + 1] - energy[..., SHORTEST : LONGEST + 1]
    return product / ((energy[..., BASE : BASE + 1] + POWER_EPS) * (later.clamp(min=0) + POWER_EPS)).sqrt()


def features(turns: list[np.ndarray]) -> torch.Tensor:
    """`[turns, FRAMES, CHANNELS]`, f32."""
    sound = torch.from_numpy(np.stack([last(turn) for turn in turns]))
    return torch.cat([log_mel(sound), correlation(sound)], -1)
